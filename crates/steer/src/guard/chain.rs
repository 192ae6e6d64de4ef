//! The first layer: chains of the packet filter, as scripts for `nft`.
//!
//! | chain | hook | what it does |
//! |---|---|---|
//! | `guard` | forward | refuses packets from the LAN that leave by neither a tunnel nor the LAN |
//! | `guard-foreign` | prerouting | drops packets from the LAN with a foreign source, before anything answers them |
//! | `guard-source` | postrouting | masquerades packets that leave by a tunnel |
//! | `guard-dns` | prerouting | redirects the LAN's queries to other name servers to the router |
//! | `guard-router` | output | refuses the router's own packets but by a tunnel, to the LAN, or for uplink and tunnel |
//!
//! The first two always exist, the others where settings ask for them.
//!
//! Each chain is replaced in one transaction, so no packet ever meets half of a chain. Other parts of the program have
//! chains in the same table; only these chains are the guard's.
//!
//! Each rule has a comment with a hash of its chain's text and the rule's position. The guard recognises its chains by
//! that, however this version of `nft` prints them.

use std::fmt::Write as _;
use std::net::IpAddr;

use config::guard::Guard;
use netio::netlink::{Chain, Family, HOOK_FORWARD, HOOK_OUTPUT, HOOK_POSTROUTING, HOOK_PREROUTING};

use crate::guard::facts::FAMILIES;
use crate::guard::networks::{Network, Surroundings};

/// The name of the table, whose family is `inet`.
pub const TABLE: &str = "millrace";

/// The chain that holds packets.
pub const CHAIN: &str = "guard";

/// Before the firewall's own chains, which have 0: the firewall cannot accept a packet that this chain refuses.
pub const PRIORITY: i32 = -5;

/// The chain that redirects queries to the router.
const DNS_CHAIN: &str = "guard-dns";

/// Before the firewall's own redirecting chains (-100): the first one to set a connection's destination decides.
const DNS_PRIORITY: i32 = -105;

/// The chain that drops foreign sources.
pub(crate) const FOREIGN_CHAIN: &str = "guard-foreign";

/// Before connection tracking: a packet that is dropped here makes no entry.
const FOREIGN_PRIORITY: i32 = -300;

/// The chain that masquerades.
pub(crate) const SOURCE_CHAIN: &str = "guard-source";

/// The usual priority of source NAT.
const SOURCE_PRIORITY: i32 = 100;

/// The chain for the router's own packets.
pub(crate) const ROUTER_CHAIN: &str = "guard-router";

/// All chains beside the one that holds packets.
pub(crate) const FURTHER: [&str; 4] = [FOREIGN_CHAIN, DNS_CHAIN, SOURCE_CHAIN, ROUTER_CHAIN];

/// The name of the chain that redirects queries.
pub(crate) const fn dns_chain() -> &'static str {
    DNS_CHAIN
}

/// The mark that full tunnels of this program and of `wg-quick` put on their own packets.
const TUNNELS_MARK: u32 = 51820;

/// How a chain refuses packets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Refusal {
    /// Refuses with an answer, so that programs give up at once. Drops packets whose source address the kernel's routes
    /// do not expect at their device.
    Reject,
    /// Drops silently, for kernels that cannot reject. Compares sources with the known networks.
    Drop,
}

/// The effect on packets that a rule matches.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Verdict {
    /// Passes packets on to the firewall's chains.
    Accept,
    /// Refuses packets, by the chosen [`Refusal`].
    Refuse,
    /// Drops packets silently: anybody may have forged their source.
    Drop,
    /// Silently drops packets whose source is not behind the device that they came in by; these are the networks behind
    /// it.
    DropForeign(Vec<Network>, Family),
    /// Redirects packets to this host.
    Redirect,
    /// Gives packets the address of the device that they leave by.
    Masquerade,
}

/// A chain that settings ask for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WantedChain {
    name: &'static str,
    /// Its kind, for `nft`.
    kind: &'static str,
    /// Hook and priority.
    place: (u32, i32),
    /// The match of each rule, and its verdict.
    rules: Vec<(String, Verdict)>,
    /// A hash of the chain's text, kept in each rule's comment.
    mark: String,
}

/// Marks of the tunnels' own packets, which the router may send.
pub(crate) fn tunnels_marks(around: &Surroundings) -> Vec<u32> {
    let mut marks = around.marks.clone();
    marks.push(TUNNELS_MARK);
    marks.sort_unstable();
    marks.dedup();
    marks
}

impl WantedChain {
    /// Builds the chain that holds packets. The names in `guard` must have been checked. The last rules refuse.
    #[must_use]
    pub fn new(guard: &Guard, around: &Surroundings) -> Self {
        let all = from(&guard.guarded());
        let within = format!("oifname {}", set(&guard.within()));
        let mut rules = Vec::new();
        if guard.dns_block_tls && !guard.lan.is_empty() {
            let lan = from(&names(&guard.lan));
            let matched = format!("{lan} meta l4proto {{ tcp, udp }} th dport 853");
            rules.push((matched, Verdict::Refuse));
        }
        rules.push((format!("{all} {within}"), Verdict::Accept));
        for (lan, tunnel) in ways(guard) {
            rules.push((format!("{lan} oifname \"{tunnel}\""), Verdict::Accept));
        }
        rules.push((format!("{all} counter"), Verdict::Refuse));
        // The next rules name no device: ports that were taken out of a bridge, and a renamed bridge, still belong to
        // the LAN. Such packets get no answer, as it might go astray.
        let mut held = Vec::new();
        if !around.ports.is_empty() {
            held.push(from(&names(&around.ports)));
        }
        held.extend(by_index(around));
        held.extend(FAMILIES.into_iter().filter_map(|family| {
            let networks = around.of_family(family);
            let (word, _) = words(family);
            (!networks.is_empty()).then(|| format!("{word} saddr {}", networks_set(&networks)))
        }));
        if !held.is_empty() {
            rules.push((within, Verdict::Accept));
            for tunnel in tunnels(guard) {
                rules.push((format!("oifname \"{tunnel}\""), Verdict::Accept));
            }
        }
        rules.extend(
            held.into_iter()
                .map(|it| (format!("{it} counter"), Verdict::Drop)),
        );
        let place = (HOOK_FORWARD, PRIORITY);
        Self::of(CHAIN, "filter hook forward", place, rules)
    }

    /// Builds one of the chains in [`FURTHER`]; `None` where settings do not ask for it.
    pub(crate) fn further(name: &str, guard: &Guard, around: &Surroundings) -> Option<Self> {
        match name {
            DNS_CHAIN => Self::of_dns(guard),
            FOREIGN_CHAIN => Some(Self::of_foreign(guard, around)),
            SOURCE_CHAIN => guard.masquerade.then(|| Self::of_source(guard)),
            ROUTER_CHAIN => guard.router.then(|| Self::of_router(guard, around)),
            _ => None,
        }
    }

    /// Builds all chains that settings ask for.
    pub(crate) fn all(guard: &Guard, around: &Surroundings) -> Vec<Self> {
        let further = FURTHER.iter();
        let further = further.filter_map(|it| Self::further(it, guard, around));
        std::iter::once(Self::new(guard, around))
            .chain(further)
            .collect()
    }

    /// Builds the chain that redirects queries for other name servers to this host, where settings ask for it.
    fn of_dns(guard: &Guard) -> Option<Self> {
        let from = from(&names(&guard.lan));
        let rule = |protocol| (format!("{from} {protocol} dport 53"), Verdict::Redirect);
        let rules = ["udp", "tcp"].map(rule).to_vec();
        let place = (HOOK_PREROUTING, DNS_PRIORITY);
        (guard.dns_redirect && !guard.lan.is_empty())
            .then(|| Self::of(DNS_CHAIN, "nat hook prerouting", place, rules))
    }

    /// Builds the chain that drops packets whose answer would not go back to the LAN.
    fn of_foreign(guard: &Guard, around: &Surroundings) -> Self {
        let mut devices = guard.guarded();
        devices.extend(around.ports.iter().map(String::as_str));
        let from = [Some(from(&devices)), by_index(around)];
        let rule = |family: Family| {
            let (_, protocol) = words(family);
            let verdict = Verdict::DropForeign(around.of_family(family), family);
            let from = from.iter().flatten();
            from.map(move |it| (format!("{it} meta nfproto {protocol}"), verdict.clone()))
        };
        let rules = FAMILIES.iter().flat_map(|it| rule(*it)).collect();
        let place = (HOOK_PREROUTING, FOREIGN_PRIORITY);
        Self::of(FOREIGN_CHAIN, "filter hook prerouting", place, rules)
    }

    /// Builds the masquerading chain, so that a tunnel's other end can answer the LAN without knowing its addresses.
    fn of_source(guard: &Guard) -> Self {
        let within = format!("oifname {}", set(&guard.within()));
        let mut rules = vec![(within, Verdict::Accept)];
        for (lan, tunnel) in ways(guard) {
            rules.push((format!("{lan} oifname \"{tunnel}\""), Verdict::Masquerade));
        }
        let place = (HOOK_POSTROUTING, SOURCE_PRIORITY);
        Self::of(SOURCE_CHAIN, "nat hook postrouting", place, rules)
    }

    /// Builds the chain for the router's own packets: they may leave by a tunnel, go to the LAN, or serve uplink and
    /// tunnel.
    fn of_router(guard: &Guard, around: &Surroundings) -> Self {
        let mut accepted = vec![
            "oifname \"lo\"".to_owned(),
            format!("oifname {}", set(&guard.within())),
        ];
        accepted.extend(tunnels(guard).iter().map(|it| format!("oifname \"{it}\"")));
        // Answers to packets that came in by the uplink, such as a login.
        accepted.push("ct direction reply ct state { established, related }".to_owned());
        let marks = tunnels_marks(around).into_iter();
        accepted.extend(marks.map(|mark| format!("meta mark {mark:#x}")));
        for family in FAMILIES {
            let allowed = guard.router_allow.iter().map(|it| (it.addr(), it.prefix()));
            let allowed = allowed.filter(|it| Family::of(it.0) == family);
            let networks: Vec<Network> = crate::guard::networks::widest(allowed.collect());
            if !networks.is_empty() {
                let (word, _) = words(family);
                accepted.push(format!("{word} daddr {}", networks_set(&networks)));
            }
        }
        accepted.extend(LINE.map(str::to_owned));
        let accepted = accepted.into_iter().map(|it| (it, Verdict::Accept));
        let rules = accepted.chain([("counter".to_owned(), Verdict::Refuse)]);
        let place = (HOOK_OUTPUT, PRIORITY);
        Self::of(ROUTER_CHAIN, "filter hook output", place, rules.collect())
    }

    fn of(
        name: &'static str,
        kind: &'static str,
        place: (u32, i32),
        rules: Vec<(String, Verdict)>,
    ) -> Self {
        let texts: Vec<String> = rules
            .iter()
            .map(|(matched, verdict)| format!("{matched} {verdict:?}"))
            .collect();
        let mark = format!("{:016x}", fnv1a(&texts.join("\n")));
        Self {
            name,
            kind,
            place,
            rules,
            mark,
        }
    }

    /// The `nft` script that makes the chain and replaces an older one.
    #[must_use]
    pub fn script(&self, refusal: Refusal) -> String {
        let Self { name, kind, .. } = self;
        let priority = self.place.1;
        let mut text = format!(
            "add table inet {TABLE}\n\
             add chain inet {TABLE} {name} {{ type {kind} priority {priority}; policy accept; }}\n\
             flush chain inet {TABLE} {name}\n"
        );
        for (place, (rule, verdict)) in self.rules.iter().enumerate() {
            let verdict = match (verdict, refusal) {
                (Verdict::Accept, _) => "accept".to_owned(),
                (Verdict::Redirect, _) => "redirect".to_owned(),
                (Verdict::Masquerade, _) => "masquerade".to_owned(),
                (Verdict::Refuse, Refusal::Reject) => {
                    "reject with icmpx type admin-prohibited".to_owned()
                }
                (Verdict::Refuse, Refusal::Drop) | (Verdict::Drop, _) => "drop".to_owned(),
                (Verdict::DropForeign(_, Family::V4), Refusal::Reject) => {
                    "fib saddr . iif oif missing counter drop".to_owned()
                }
                (Verdict::DropForeign(_, Family::V6), Refusal::Reject) => {
                    "ip6 saddr != { ::, fe80::/10 } fib saddr . iif oif missing counter drop"
                        .to_owned()
                }
                (Verdict::DropForeign(networks, family), Refusal::Drop) => {
                    drop_others(networks, *family)
                }
            };
            let comment = self.comment(place);
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "add rule inet {TABLE} {name} {rule} {verdict} comment \"{comment}\""
            );
        }
        text
    }

    /// Whether `chain` is this chain, with no other rule before, between or behind its rules.
    #[must_use]
    pub fn is(&self, chain: &Chain) -> bool {
        let comments = (0..self.rules.len()).map(|place| self.comment(place));
        chain.hook == Some(self.place)
            && chain.rules.len() == self.rules.len()
            && chain
                .rules
                .iter()
                .zip(comments)
                .all(|(rule, comment)| rule.comment == comment)
    }

    /// Whether `chain` is complete, though made for other networks or other settings.
    pub(crate) fn is_of_before(&self, chain: &Chain) -> bool {
        let count = chain.rules.len();
        let first = chain.rules.first().map_or("", |it| it.comment.as_str());
        let Some(mark) = first.split(' ').nth(1) else {
            return false;
        };
        let mut rules = chain.rules.iter().zip(1..);
        chain.hook == Some(self.place)
            && rules.all(|(rule, place)| rule.comment == comment(mark, place, count))
    }

    fn comment(&self, place: usize) -> String {
        comment(&self.mark, place + 1, self.rules.len())
    }
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

fn comment(mark: &str, place: usize, count: usize) -> String {
    format!("guard {mark} {place} of {count}")
}

/// Devices of the LAN, each with its tunnels, as `nft` compares them. No `nft` sets: not every kernel allows wildcard
/// names in them.
fn ways(guard: &Guard) -> Vec<(String, String)> {
    let parts = guard.parts();
    let parts = parts.iter().filter(|it| !it.lan.is_empty());
    let of = |part: &config::guard::Part<'_>| {
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

/// The condition that matches the LAN's devices and their ports by index, even after a rename.
fn by_index(around: &Surroundings) -> Option<String> {
    let indices: Vec<String> = around.indices.iter().map(ToString::to_string).collect();
    (!indices.is_empty()).then(|| format!("iif {{ {} }}", indices.join(", ")))
}

fn from(names: &[&str]) -> String {
    format!("iifname {}", set(names))
}

/// The `nft` words for a family: its header's name, and its own.
const fn words(family: Family) -> (&'static str, &'static str) {
    match family {
        Family::V4 => ("ip", "ipv4"),
        Family::V6 => ("ip6", "ipv6"),
    }
}

/// Networks as an `nft` set.
fn networks_set(networks: &[Network]) -> String {
    let networks = networks.iter();
    let texts: Vec<String> = networks
        .map(|(ip, prefix): &(IpAddr, u8)| format!("{ip}/{prefix}"))
        .collect();
    format!("{{ {} }}", texts.join(", "))
}

/// The statement that drops all other sources, except those that a host uses before it has an address.
fn drop_others(networks: &[Network], family: Family) -> String {
    let first = match family {
        Family::V4 => "0.0.0.0".to_owned(),
        Family::V6 => "::, fe80::/10".to_owned(),
    };
    let networks = networks.iter().map(|(ip, prefix)| format!("{ip}/{prefix}"));
    let all: Vec<String> = std::iter::once(first).chain(networks).collect();
    let (word, _) = words(family);
    format!("{word} saddr != {{ {} }} counter drop", all.join(", "))
}

fn names(list: &[String]) -> Vec<&str> {
    list.iter().map(String::as_str).collect()
}

/// Names as an `nft` set.
fn set(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    format!("{{ {} }}", quoted.join(", "))
}

/// The `nft` script that deletes a chain.
#[must_use]
pub fn removal(name: &str) -> String {
    format!("flush chain inet {TABLE} {name}\ndelete chain inet {TABLE} {name}\n")
}

/// Packets that a chain of the guard's has refused since it was made, as its refusing rules count them.
#[must_use]
pub fn refused(chain: &Chain) -> Option<u64> {
    let counted = chain.rules.iter().filter_map(|it| it.packets);
    counted.reduce(|a, b| a.saturating_add(b))
}

/// A hash of a text, the same in every build: FNV-1a with 64 bits (Fowler, Noll, Vo, 1991). It does not protect against
/// texts that were made to collide.
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::fixture::guard;
    use config::guard::Pattern;
    use netio::netlink::ChainRule;
    use proptest::prelude::*;

    fn around() -> Surroundings {
        Surroundings {
            networks: vec![
                (crate::guard::fixture::ip("192.168.1.0"), 24),
                (crate::guard::fixture::ip("2001:db8:1:1::"), 64),
            ],
            ports: vec!["lan1".to_owned()],
            indices: vec![5],
            marks: vec![7],
        }
    }

    /// The chain as the kernel would list it.
    fn made(wanted: &WantedChain) -> Chain {
        let rule = |place| ChainRule {
            comment: wanted.comment(place),
            packets: None,
        };
        Chain {
            hook: Some(wanted.place),
            rules: (0..wanted.rules.len()).map(rule).collect(),
        }
    }

    #[test]
    fn the_text_is_one_transaction() {
        let text = WantedChain::new(&guard(), &around()).script(Refusal::Reject);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "add table inet millrace");
        assert_eq!(lines[2], "flush chain inet millrace guard");
        assert!(lines[3].contains(
            "iifname { \"br-lan\", \"br-guest\" } oifname { \"br-lan\", \"br-guest\", \"br-iot\" } accept"
        ));
        assert!(lines[4].contains("oifname \"mr-*\" accept"));
        assert!(lines[5].contains("oifname \"tun0\" accept"));
        assert!(lines[6].contains("\"br-guest\" } counter reject with icmpx"));
        // The port and the source decide about packets that come by another device, and their sender gets no answer.
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
        let wanted = WantedChain::new(&guard(), &around());
        let chain = made(&wanted);
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
        assert!(!WantedChain::new(&other, &around()).is(&chain));
        // A changed network counts as whole; a missing rule does not.
        let elsewhere = Surroundings::default();
        let wanted = WantedChain::new(&guard(), &elsewhere);
        assert!(!wanted.is(&chain) && wanted.is_of_before(&chain));
        let mut fewer = chain;
        fewer.rules.pop();
        assert!(!wanted.is_of_before(&fewer) && !wanted.is_of_before(&Chain::default()));
    }

    #[test]
    fn foreign_sources_are_told_by_routes_or_else_by_networks() {
        let wanted = WantedChain::of_foreign(&guard(), &around());
        let text = wanted.script(Refusal::Reject);
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
        let text = wanted.script(Refusal::Drop);
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
            let all = WantedChain::all(guard, &around());
            all.iter().map(|it| it.name).collect::<Vec<_>>()
        };
        assert_eq!(names(&guard), [CHAIN, FOREIGN_CHAIN, SOURCE_CHAIN]);
        guard.masquerade = false;
        guard.router = true;
        guard.router_allow = vec![config::guard::allowed("203.0.113.5").unwrap()];
        assert_eq!(names(&guard), [CHAIN, FOREIGN_CHAIN, ROUTER_CHAIN]);
        let text = WantedChain::of_router(&guard, &around()).script(Refusal::Reject);
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
        assert_eq!(WantedChain::of_dns(&guard), None);
        let plain = WantedChain::new(&guard, &around());
        guard.dns_redirect = true;
        guard.dns_block_tls = true;
        let text = WantedChain::new(&guard, &around()).script(Refusal::Reject);
        // The drop comes before any rule accepts.
        let first = text.lines().nth(3).unwrap();
        assert!(first.contains("th dport 853 reject with icmpx"), "{first}");
        assert!(!WantedChain::new(&guard, &around()).is(&made(&plain)));
        let dns = WantedChain::of_dns(&guard).unwrap();
        let text = dns.script(Refusal::Reject);
        assert!(
            text.contains("guard-dns { type nat hook prerouting priority -105; policy accept; }")
        );
        for protocol in ["udp", "tcp"] {
            assert!(
                text.contains(&format!("\"br-guest\" }} {protocol} dport 53 redirect")),
                "{text}"
            );
        }
        assert!(dns.is(&made(&dns)) && !dns.is(&made(&plain)));
    }

    proptest! {
        /// Any name stays between quotes, and no part of it becomes a statement.
        #[test]
        fn names_stay_between_quotes(lan in "[ -~]{1,15}", tunnel in "[ -~]{1,16}") {
            let text = format!("lan = [{lan:?}]\ntunnels = [{tunnel:?}]");
            let path = std::path::Path::new("guard.toml");
            if let Ok(guard) = Guard::from_toml(&text, path) {
                prop_assert!(Pattern::new(&tunnel).is_some());
                let script = WantedChain::new(&guard, &around()).script(Refusal::Reject);
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
