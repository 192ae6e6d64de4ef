//! The first layer: the guard's chains in the packet filter.
//!
//! | chain | hook | what it does |
//! |---|---|---|
//! | `guard` | forward | refuses packets from the LAN that leave through neither a tunnel nor the LAN |
//! | `guard-foreign` | prerouting | drops packets from the LAN with a foreign source, before anything answers them |
//! | `guard-held` | prerouting | counts packets from the LAN that the routing rules refuse |
//! | `guard-source` | postrouting | masquerades packets that leave through a tunnel |
//! | `guard-dns` | prerouting | redirects the LAN's queries to other name servers to the router |
//! | `guard-router` | output | refuses the router's own packets but through a tunnel, to the LAN, or for uplink and
//! tunnel |
//!
//! The first three always exist, the others where settings request them.
//!
//! Each chain is replaced in a transaction of its own: a kernel that cannot make one of them can still hold packets.
//! Other parts of the program have chains in the same table; only these chains are the guard's.

use config::guard::{ASKING, Guard, Part};
use netio::netlink::{Family, HOOK_FORWARD, HOOK_OUTPUT, HOOK_POSTROUTING, HOOK_PREROUTING};

use crate::facts::{FAMILIES, Facts};
use crate::filter::{
    COUNT_UNROUTED, COUNTING, Hook, REFUSE, TO_OTHERS, WantedChain, WantedTable, by_index, from,
    quoted, within, word,
};
use crate::networks::{Known, Network, widest};

/// The name of the table, whose family is `inet`.
pub const TABLE: &str = "millrace";

/// The chain that holds packets.
pub const CHAIN: &str = "guard";

/// Before the firewall's own chains, which have 0: the firewall cannot accept a packet that this chain refuses.
pub(crate) const PRIORITY: i32 = -5;

/// The chain that drops foreign sources.
pub(crate) const FOREIGN: &str = "guard-foreign";

/// Before connection tracking: a packet that is dropped here makes no entry.
const FOREIGN_PRIORITY: i32 = -300;

/// The chain that redirects queries to the router.
pub(crate) const DNS: &str = "guard-dns";

/// Before the firewall's own redirecting chains (-100): the first one to set a connection's destination decides.
const DNS_PRIORITY: i32 = -105;

/// The chain that masquerades.
pub(crate) const SOURCE: &str = "guard-source";

/// The usual priority of source NAT.
const SOURCE_PRIORITY: i32 = 100;

/// The chain that counts packets that the guard's rules refuse, and which the holding chain does not see.
pub(crate) const HELD: &str = "guard-held";

/// The chain for the router's own packets.
pub(crate) const ROUTER: &str = "guard-router";

/// Names of all chains.
pub(crate) const NAMES: [&str; 6] = [CHAIN, FOREIGN, HELD, DNS, SOURCE, ROUTER];

/// The mark that full tunnels of this program and of `wg-quick` put on their own packets.
const TUNNELS_MARK: u32 = 51820;

/// Marks of the tunnels' own packets, which the router may send.
pub(crate) fn marks(facts: &Facts) -> Vec<u32> {
    let is_full = |mask: Option<u32>| mask.is_none_or(|mask| mask == u32::MAX);
    let rules = facts.rules().filter(|it| it.invert && is_full(it.mask));
    let marks = rules.filter_map(|it| it.fwmark);
    let mut marks: Vec<u32> = marks.chain([TUNNELS_MARK]).collect();
    marks.sort_unstable();
    marks.dedup();
    marks
}

/// All chains that settings request. The names in `guard` must have been checked.
pub(crate) fn table(guard: &Guard, known: &Known, marks: &[u32]) -> WantedTable {
    let mut chains = vec![
        holding(guard, known),
        foreign(guard, known),
        counting(guard),
    ];
    if guard.dns_redirect && !guard.lan.is_empty() {
        let rule = |protocol| format!("{} {protocol} dport 53 redirect", from(&guard.lan));
        let hook = ("nat", HOOK_PREROUTING, DNS_PRIORITY);
        chains.push(chain(DNS, hook, ["udp", "tcp"].map(rule).into()));
    }
    if guard.masquerade {
        // A tunnel's other end can then answer the LAN without knowing its addresses.
        let mut rules = vec![format!("oifname {} accept", quoted(&guard.within()))];
        let ways = ways(guard).into_iter();
        rules.extend(ways.map(|(lan, tunnel)| format!("{lan} oifname \"{tunnel}\" masquerade")));
        let hook = ("nat", HOOK_POSTROUTING, SOURCE_PRIORITY);
        chains.push(chain(SOURCE, hook, rules));
    }
    if guard.router {
        chains.push(router(guard, marks));
    }
    WantedTable {
        name: TABLE,
        sets: Vec::new(),
        chains,
    }
}

fn chain(name: &str, hook: Hook, rules: Vec<String>) -> WantedChain {
    WantedChain::new("guard", name, Some(hook), rules)
}

/// Builds the chain that holds packets. The last rules refuse.
fn holding(guard: &Guard, known: &Known) -> WantedChain {
    let all = from(&guard.guarded());
    let inner = format!("oifname {}", quoted(&guard.within()));
    let mut rules = Vec::new();
    if guard.dns_block_tls && !guard.lan.is_empty() {
        let lan = from(&guard.lan);
        rules.push(format!(
            "{lan} meta l4proto {{ tcp, udp }} th dport 853 {REFUSE}"
        ));
    }
    rules.push(format!("{all} {inner} accept"));
    for (lan, tunnel) in ways(guard) {
        rules.push(format!("{lan} oifname \"{tunnel}\" accept"));
    }
    rules.push(format!("{all} counter {REFUSE}"));
    // The next rules name no device: ports that were taken out of a bridge, and a renamed bridge, still belong to the
    // LAN. Such packets get no answer, as it might go astray.
    let ports = (!known.ports.is_empty()).then(|| from(&known.ports));
    let sources = FAMILIES.map(|it| within("saddr", &known.networks, it));
    let held = [ports, by_index(&known.indices)].into_iter().chain(sources);
    let held: Vec<String> = held.flatten().collect();
    if !held.is_empty() {
        rules.push(format!("{inner} accept"));
        for tunnel in tunnels(guard) {
            rules.push(format!("oifname \"{tunnel}\" accept"));
        }
    }
    rules.extend(held.iter().map(|it| format!("{it} counter drop")));
    chain(CHAIN, ("filter", HOOK_FORWARD, PRIORITY), rules)
}

/// Builds the chain that drops packets whose answer would not go back to the LAN. They are dropped silently, as anybody
/// may have forged their source. Sources are compared with the kernel's routes, or else with the known networks.
fn foreign(guard: &Guard, known: &Known) -> WantedChain {
    let mut devices = guard.guarded();
    devices.extend(known.ports.iter().map(String::as_str));
    let from = [Some(from(&devices)), by_index(&known.indices)];
    let mut rules = [Vec::new(), Vec::new()];
    // A host uses these sources before it has an address.
    for (family, protocol, first) in [
        (Family::V4, "ipv4", "0.0.0.0"),
        (Family::V6, "ipv6", "::, fe80::/10"),
    ] {
        let own = known
            .networks
            .iter()
            .filter(|it| Family::of(it.0) == family);
        let own: String = own.map(|(ip, prefix)| format!(", {ip}/{prefix}")).collect();
        let word = word(family);
        let by_routes = match family {
            Family::V4 => "",
            Family::V6 => "ip6 saddr != { ::, fe80::/10 } ",
        };
        for from in from.iter().flatten() {
            let from = format!("{from} meta nfproto {protocol}");
            rules[0].push(format!(
                "{from} {by_routes}fib saddr . iif oif missing counter drop"
            ));
            rules[1].push(format!(
                "{from} {word} saddr != {{ {first}{own} }} counter drop"
            ));
        }
    }
    let hook = ("filter", HOOK_PREROUTING, FOREIGN_PRIORITY);
    WantedChain::with_plain("guard", FOREIGN, Some(hook), rules)
}

/// Builds the chain that counts packets without a route. The packet filter can ask only for a route of the router's own
/// packets. The rule for these does not match a mark with the bit [`ASKING`], which packets have only within this chain.
fn counting(guard: &Guard) -> WantedChain {
    let (from, lan) = (from(&guard.guarded()), quoted(&guard.within()));
    let rules = vec![
        // The bit belongs to another program.
        format!("meta mark and {ASKING:#x} != 0 return"),
        format!(
            "{from} {TO_OTHERS} fib daddr oifname != {lan} meta mark set meta mark or {ASKING:#x} {COUNT_UNROUTED}"
        ),
        format!("{from} meta mark set meta mark and {:#x}", !ASKING),
    ];
    let plain = vec!["continue".to_owned(); rules.len()];
    let hook = ("filter", HOOK_PREROUTING, COUNTING);
    WantedChain::with_plain("guard", HELD, Some(hook), [rules, plain])
}

/// Builds the chain for the router's own packets: they may leave through a tunnel, go to the LAN, or serve uplink and
/// tunnel.
fn router(guard: &Guard, marks: &[u32]) -> WantedChain {
    let mut accepted = vec![
        "oifname \"lo\"".to_owned(),
        format!("oifname {}", quoted(&guard.within())),
    ];
    accepted.extend(tunnels(guard).iter().map(|it| format!("oifname \"{it}\"")));
    // Answers to packets that came in through the uplink, such as a login.
    accepted.push("ct direction reply ct state { established, related }".to_owned());
    accepted.extend(marks.iter().map(|mark| format!("meta mark {mark:#x}")));
    let allowed = guard.router_allow.iter().map(|it| (it.addr(), it.prefix()));
    let allowed: Vec<Network> = widest(allowed.collect());
    let allowed = FAMILIES.map(|it| within("daddr", &allowed, it));
    accepted.extend(allowed.into_iter().flatten());
    accepted.extend(LINE.map(str::to_owned));
    let mut rules: Vec<String> = accepted.iter().map(|it| format!("{it} accept")).collect();
    rules.push(format!("counter {REFUSE}"));
    chain(ROUTER, ("filter", HOOK_OUTPUT, PRIORITY), rules)
}

/// Packets that an uplink needs: DHCP, IPv6 neighbours and routers, multicast; and NTP, without which no certificate is
/// valid and no handshake is new.
const LINE: [&str; 5] = [
    "udp dport { 67, 123, 547 }",
    "icmpv6 type { nd-router-solicit, nd-neighbor-solicit, nd-neighbor-advert, mld2-listener-report }",
    "ip protocol igmp",
    "ip daddr { 169.254.0.0/16, 224.0.0.0/24, 255.255.255.255 }",
    "ip6 daddr { fe80::/10, ff02::/16 }",
];

/// Devices of the LAN, each with its tunnels, as `nft` compares them. No `nft` sets: not every kernel allows wildcard
/// names in them.
fn ways(guard: &Guard) -> Vec<(String, String)> {
    let parts = guard.parts();
    let parts = parts.iter().filter(|it| !it.lan.is_empty());
    let of = |part: &Part<'_>| {
        let lan = from(&part.lan);
        let tunnels = part.tunnels.iter().map(ToString::to_string);
        tunnels.map(|it| (lan.clone(), it)).collect::<Vec<_>>()
    };
    parts.flat_map(of).collect()
}

/// All tunnels, each once.
fn tunnels(guard: &Guard) -> Vec<String> {
    let mut all: Vec<String> = ways(guard).into_iter().map(|it| it.1).collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::guard;
    use crate::fixture::made;
    use config::guard::Pattern;
    use netio::netlink::{Chain, ChainRule};
    use proptest::prelude::*;

    fn known() -> Known {
        Known {
            networks: vec![
                (crate::fixture::ip("192.168.1.0"), 24),
                (crate::fixture::ip("2001:db8:1:1::"), 64),
            ],
            ports: vec!["lan1".to_owned()],
            indices: vec![(5, "br-lan".to_owned())],
        }
    }

    /// A table with only the chain of this name, if the guard has it.
    fn of(name: &str, guard: &Guard, known: &Known) -> WantedTable {
        let mut table = table(guard, known, &[7, 51820]);
        table.chains.retain(|it| it.name == name);
        table
    }

    fn text(table: &WantedTable) -> String {
        let [text, _] = table.scripts("");
        text
    }

    #[test]
    fn the_text_is_one_transaction() {
        let text = text(&of(CHAIN, &guard(), &known()));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "add table inet millrace");
        assert_eq!(lines[2], "flush chain inet millrace guard");
        assert!(lines[3].contains(
            "iifname { \"br-lan\", \"br-guest\" } oifname { \"br-lan\", \"br-guest\", \"br-iot\" } accept"
        ));
        assert!(lines[4].contains("oifname \"mr-*\" accept"));
        assert!(lines[5].contains("oifname \"tun0\" accept"));
        assert!(lines[6].contains("\"br-guest\" } counter reject with icmpx"));
        // The port and the source decide about packets that come through another device, and their sender gets no
        // answer.
        assert!(lines[7].contains(" guard oifname { \"br-lan\""));
        assert!(lines[8].contains(" guard oifname \"mr-*\" accept"));
        let ends = [
            "iifname { \"lan1\" }",
            "iif { 5 }",
            "ip saddr { 192.168.1.0/24 }",
            "ip6 saddr { 2001:db8:1:1::/64 }",
        ];
        for (line, matched) in lines[10..].iter().zip(ends) {
            assert!(line.contains(&format!("{matched} counter drop")), "{line}");
        }
        assert_eq!(lines.len(), 14);
    }

    #[test]
    fn the_chain_is_known_again_and_what_was_changed_is_noticed() {
        let of = |guard: &Guard, known: &Known| of(CHAIN, guard, known);
        let chain = made(&of(&guard(), &known())).remove(CHAIN).unwrap();
        let wanted = of(&guard(), &known()).chains.remove(0);
        assert!(wanted.is(&chain));
        let mut fewer = chain.clone();
        fewer.rules.pop();
        let mut more = chain.clone();
        more.rules.insert(0, ChainRule::default());
        let mut moved = chain.clone();
        moved.rules.swap(0, 1);
        let mut elsewhere = chain.clone();
        elsewhere.hook = Some((HOOK_FORWARD, 0));
        for changed in [fewer, more, moved, elsewhere, Chain::default()] {
            assert!(!wanted.is(&changed), "{changed:?}");
        }
        let mut other = guard();
        other.tunnels.pop();
        assert!(!of(&other, &known()).chains[0].is(&chain));
        // A changed network counts as whole; a missing rule does not.
        let wanted = of(&guard(), &Known::default()).chains.remove(0);
        assert!(!wanted.is(&chain) && wanted.is_of_before(&chain));
        let mut fewer = chain;
        fewer.rules.pop();
        assert!(!wanted.is_of_before(&fewer) && !wanted.is_of_before(&Chain::default()));
    }

    #[test]
    fn foreign_sources_are_told_by_routes_or_else_by_networks() {
        let [text, plain] = of(FOREIGN, &guard(), &known()).scripts("");
        assert_eq!(
            text.matches("fib saddr . iif oif missing counter drop")
                .count(),
            4
        );
        for from in [
            "iifname { \"br-lan\", \"br-guest\", \"lan1\" }",
            "iif { 5 }",
        ] {
            assert_eq!(text.matches(from).count(), 2);
        }
        let text = plain;
        assert!(
            text.contains("ip saddr != { 0.0.0.0, 192.168.1.0/24 } counter drop"),
            "{text}"
        );
        assert!(
            text.contains("ip6 saddr != { ::, fe80::/10, 2001:db8:1:1::/64 } counter drop"),
            "{text}"
        );
    }

    #[test]
    fn further_chains_are_there_where_they_are_asked_for() {
        let mut guard = guard();
        let names = |guard: &Guard| {
            let all = table(guard, &known(), &[]).chains.into_iter();
            all.map(|it| it.name).collect::<Vec<_>>()
        };
        assert_eq!(names(&guard), [CHAIN, FOREIGN, HELD, SOURCE]);
        guard.masquerade = false;
        guard.router = true;
        guard.router_allow = vec![config::guard::allowed("203.0.113.5").unwrap()];
        assert_eq!(names(&guard), [CHAIN, FOREIGN, HELD, ROUTER]);
        let text = text(&of(ROUTER, &guard, &known()));
        for wanted in [
            "meta mark 0x7 accept",
            "meta mark 0xca6c accept",
            "ip daddr { 203.0.113.5/32 } accept",
            "udp dport { 67, 123, 547 } accept",
        ] {
            assert!(text.contains(wanted), "{wanted} is not in {text}");
        }
        let last = text.lines().last().unwrap();
        assert!(
            last.contains("guard-router counter reject with icmpx"),
            "{last}"
        );
    }

    #[test]
    fn dns_is_redirected_and_its_ciphers_refused_where_that_is_wanted() {
        let mut guard = guard();
        assert!(of(DNS, &guard, &known()).chains.is_empty());
        let plain = made(&of(CHAIN, &guard, &known())).remove(CHAIN).unwrap();
        guard.dns_redirect = true;
        guard.dns_block_tls = true;
        let holding = of(CHAIN, &guard, &known());
        let [text, _] = holding.scripts("");
        // The drop comes before any rule accepts.
        let first = text.lines().nth(3).unwrap();
        assert!(first.contains("th dport 853 reject with icmpx"), "{first}");
        assert!(!holding.chains[0].is(&plain));
        let dns = of(DNS, &guard, &known());
        let [text, _] = dns.scripts("");
        assert!(
            text.contains("guard-dns { type nat hook prerouting priority -105; policy accept; }")
        );
        for protocol in ["udp", "tcp"] {
            assert!(
                text.contains(&format!("\"br-guest\" }} {protocol} dport 53 redirect")),
                "{text}"
            );
        }
        assert!(dns.chains[0].is(&made(&dns)[DNS]) && !dns.chains[0].is(&plain));
    }

    /// A tunnel whose packets have the bit would be cut off where the router's only address is in the LAN.
    #[test]
    fn the_bit_for_questions_is_in_no_mark_that_is_in_use() {
        // `wg-quick` counts up from the first tunnel's mark.
        let tunnels = TUNNELS_MARK..TUNNELS_MARK + 20;
        let masks = [config::policy::MASK, 0x3f00, 0xff_0000, 0xc000];
        for mark in tunnels.chain(masks) {
            assert_eq!(mark & ASKING, 0, "{mark:#x}");
        }
    }

    proptest! {
        /// Any name stays between quotes, and no part of it becomes a statement.
        #[test]
        fn names_stay_between_quotes(lan in "[ -~]{1,15}", tunnel in "[ -~]{1,16}") {
            let settings = format!("lan = [{lan:?}]\ntunnels = [{tunnel:?}]");
            let path = std::path::Path::new("guard.toml");
            if let Ok(guard) = Guard::from_toml(&settings, path) {
                prop_assert!(Pattern::new(&tunnel).is_some());
                let script = text(&of(CHAIN, &guard, &known()));
                prop_assert_eq!(script.lines().count(), 12);
                // Outside the quotes, only the guard's own words are left.
                let own: String = script.split('"').step_by(2).collect();
                let plain = "iifname {  } oifname {  } accept comment";
                prop_assert!(own.contains(plain), "{}", own);
                prop_assert!(!own.contains(';') || own.matches(';').count() == 2);
            }
        }
    }
}
