//! The policy's table in the packet filter.
//!
//! | chain | sees | does |
//! |---|---|---|
//! | `prerouting` | incoming packets | clears the policy's bits; restores the connection's mark, or calls `choose` |
//! | `foreign` | packets of the LAN, after `prerouting` | drops packets with a foreign source if guarded or blocked |
//! | `choose` | the first packets of connections of the LAN | notes source addresses of blocked devices; compares the
//! sender, entry by entry |
//! | `to_N` | packets of entry N | compares the destination |
//! | `way_X` | matching packets | writes mark X to packet and connection |
//! | `output` | the router's own packets | restores the mark of answers |
//! | `names` | packets to port 53 | redirects them to the entry's name servers |
//! | `input` | packets to the router | refuses those to port 53 that have no name server of their family there |
//! | `source` | packets that leave through tunnels | masquerades them |
//! | `held` | packets of the LAN, before routing | counts marked ones that the routing rules refuse |
//! | `forward` | forwarded packets | refuses blocked ones, and those marked for a tunnel that leave through another
//! device |
//!
//! `prerouting` clears the bits of each packet, and also notes the tunnel through which a connection came in. It
//! restores or chooses marks only for packets from the LAN.
//! `foreign` drops silently, as a refusal would go to a stranger: the source is not behind the packet's device. It also
//! drops packets to a VPN server on the router.
//!
//! The table is never deleted while the policy is on: its sets have the addresses of names. Each name has two sets per
//! family, which stay when entries change: one that `dnsmasq` fills, and one for addresses that were put back.

use config::policy::{Domain, Mac};
use host::tunnel_devices::server_ports;
use netio::netlink::{
    Family, HOOK_FORWARD, HOOK_INPUT, HOOK_OUTPUT, HOOK_POSTROUTING, HOOK_PREROUTING,
};

use crate::facts::{FAMILIES, Facts};
use crate::filter::{
    COUNT_UNROUTED, COUNTING, Hook, REFUSE, TO_OTHERS, WantedChain, WantedTable, braces, by_index,
    fnv1a, from, quoted, within, word,
};
use crate::networks::{Known, widest};
use crate::policy::addresses::hour;
use crate::policy::resolved::{Entry, Resolved, Senders};
use crate::policy::{routes, second};

/// The name of the table, whose family is `inet`.
pub(super) const TABLE: &str = "millrace_policy";

/// The chain that refuses.
pub(super) const FORWARD: &str = "forward";

/// The chain that counts packets that routing refuses, and which no other chain sees.
pub(super) const HELD: &str = "held";

/// Behind other programs' marking chains (-150), and before destination NAT (-100).
const MARKING: i32 = -145;

/// Before the guard's chain, which has -5.
const REFUSING: i32 = -6;

/// Before the guard's redirect to the router (-105), and before firewalls (-100).
const LEADING: i32 = -110;

/// The condition that matches a DNS query over UDP or TCP.
const QUERY: &str = "meta l4proto { tcp, udp } th dport 53";

/// Maximum number of addresses in the set that `dnsmasq` fills. The kernel makes room for all of them at once: 32 KB on
/// machines with 64 bits. A set cannot get another size, so another size needs another [name](set_of).
const ADDRESSES_MAX: usize = 3072;

/// A set with the addresses that blocked devices send from.
pub(super) struct SourceSet {
    pub(super) name: &'static str,
    word: &'static str,
    kind: &'static str,
}

/// The set of each family. A device that forges addresses can fill it; new addresses of others are then known only while
/// they are the router's neighbours.
pub(super) const SOURCES: [SourceSet; 2] = [
    SourceSet {
        name: "sources_4",
        word: "ip",
        kind: "type ether_addr . ipv4_addr; flags dynamic,timeout; timeout 1d; size 1024;",
    },
    SourceSet {
        name: "sources_6",
        word: "ip6",
        kind: "type ether_addr . ipv6_addr; flags dynamic,timeout; timeout 1d; size 1024;",
    },
];

/// The chains on hooks that not every policy requests.
pub(super) const OPTIONAL: [&str; 4] = ["names", "input", "source", HELD];

/// The usual priority of source NAT.
const SOURCE: i32 = 100;

/// The set with a name's addresses of a family, 4 or 6. Its name depends only on the domain and the set's size: with
/// 16384 addresses it began with a `d`.
pub(super) fn set_of(domain: &Domain, family: u8) -> String {
    format!("n{:016x}_{family}", fnv1a(domain.as_str()))
}

/// The set with those addresses of a name that were put back.
pub(super) fn kept_set_of(domain: &Domain, family: u8) -> String {
    format!("k{:016x}_{family}", fnv1a(domain.as_str()))
}

/// The chains and sets that settings request.
pub(crate) fn wanted(resolved: &Resolved, facts: &Facts) -> WantedTable {
    let policy = &resolved.policy;
    let held = Held::new(resolved, facts);
    let lines = routes::line_devices(resolved, facts);
    let networks = facts.networks(&policy.lan);
    let to_lan = FAMILIES.map(|it| within("daddr", &networks, it));
    let to_lan: Vec<String> = to_lan.into_iter().flatten().collect();
    let to_lan: Vec<String> = to_lan.iter().map(|it| format!("{it} return")).collect();
    let mut chains = vec![
        prerouting(resolved, &lines),
        foreign(resolved, &held),
        output(resolved, &lines, to_lan.clone()),
        forward(resolved, &held),
        choose(resolved),
    ];
    for (number, entry) in (1..).zip(&resolved.entries) {
        chains.push(to(number, entry, &to_lan));
    }
    chains.extend(leading_queries(resolved));
    chains.extend(counting(resolved));
    if policy.masquerade && !resolved.leads.is_empty() {
        // Firewalls of most routers masquerade only packets that leave through the uplink.
        let (from, to) = (from(&policy.lan), quoted(&policy.devices()));
        let rules = vec![format!("{from} oifname {to} masquerade")];
        chains.push(chain("source", ("nat", HOOK_POSTROUTING, SOURCE), rules));
    }
    let mut marks: Vec<u32> = resolved.entries.iter().map(|it| it.mark).collect();
    marks.sort_unstable();
    marks.dedup();
    chains.extend(marks.into_iter().map(|mark| {
        let [meta, ct] = ["meta", "ct"].map(|it| set(it, policy.mask, mark));
        jumped(way(mark), vec![format!("{meta} {ct} accept")])
    }));
    let hour = hour();
    let mut sets = Vec::new();
    for domain in policy.domains() {
        for (family, kind) in [(4, "ipv4_addr"), (6, "ipv6_addr")] {
            // An address that is added without a timeout stays in its set.
            let kind = format!("type {kind}; flags timeout;");
            let kept = resolved.addresses.elements(domain, family, hour);
            let kept = kept.map_or_else(String::new, |it| format!(" elements = {{ {it} }};"));
            // Without a size the set grows as needed. In a full set, the next address to put back would fail, and the
            // whole script with it.
            sets.push((kept_set_of(domain, family), format!("{kind}{kept}")));
            sets.push((
                set_of(domain, family),
                format!("{kind} size {ADDRESSES_MAX};"),
            ));
        }
    }
    if !resolved.held_macs().is_empty() {
        sets.extend(SOURCES.map(|it| (it.name.to_owned(), it.kind.to_owned())));
    }
    WantedTable {
        name: TABLE,
        sets,
        chains,
    }
}

fn chain(name: &str, hook: Hook, rules: Vec<String>) -> WantedChain {
    WantedChain::new("policy", name, Some(hook), rules)
}

/// A chain that only other chains jump to.
fn jumped(name: String, rules: Vec<String>) -> WantedChain {
    WantedChain::new("policy", name, None, rules)
}

/// Senders whose packets are all blocked, whatever device they come in through.
pub(super) struct Held {
    macs: Vec<Mac>,
    /// Known addresses and networks.
    networks: Vec<crate::networks::Network>,
    devices: Vec<String>,
    /// Present and past ports of the devices, and the indices of devices and ports.
    known: Known,
    /// Ports at which VPN servers on the router listen.
    servers: Vec<u16>,
}

impl Held {
    pub(super) fn new(resolved: &Resolved, facts: &Facts) -> Self {
        let known = facts.known.clone().sorted();
        let held = FAMILIES.map(|it| second::held(resolved, it));
        let held = held.iter().flatten().filter(|it| it.to.is_none());
        // The networks represent a device that is blocked as a whole.
        let networks = held
            .filter_map(|it| it.from)
            .chain(known.networks.iter().copied());
        Self {
            macs: resolved.macs(|it| it.is_everywhere() && it.holds),
            networks: widest(networks.collect()),
            devices: second::devices(resolved),
            known,
            servers: server_ports(&facts.links),
        }
    }

    /// Whether a blocked device could connect to a server on this router.
    pub(super) fn may_call(&self) -> bool {
        let is_any = !(self.macs.is_empty() && self.networks.is_empty() && self.devices.is_empty());
        is_any && !self.servers.is_empty()
    }
}

fn way(mark: u32) -> String {
    format!("way_{mark:x}")
}

/// The statement that sets a mark, under the mask.
fn set(of: &str, mask: u32, mark: u32) -> String {
    format!(
        "{of} mark set {of} mark and {:#010x} or {mark:#010x}",
        !mask
    )
}

/// The condition that compares a mark, under the mask.
fn has(of: &str, mask: u32, mark: u32) -> String {
    format!("{of} mark and {mask:#010x} == {mark:#010x}")
}

fn prerouting(resolved: &Resolved, lines: &[String]) -> WantedChain {
    let mask = resolved.policy.mask;
    let lan = quoted(&resolved.policy.lan);
    // Another program may have restored the whole mark of a connection, of answers too. Answers must not take the route
    // of the request.
    let mut rules = vec![format!(
        "meta mark and {mask:#010x} != 0 {}",
        set("meta", mask, 0)
    )];
    for lead in resolved.answering() {
        let (device, set) = (&lead.device, set("ct", mask, lead.mark));
        rules.push(format!("iifname \"{device}\" ct state new {set}"));
    }
    if !lines.is_empty() {
        let (from, set) = (from(lines), set("ct", mask, resolved.around));
        rules.push(format!("{from} ct state new {set}"));
    }
    // Without this mark, answers would match the rules for blocked devices.
    let (unmarked, answers) = (has("ct", mask, 0), set("ct", mask, resolved.answers));
    rules.push(format!(
        "iifname != {lan} ct state new {unmarked} {answers}"
    ));
    rules.push(format!("iifname != {lan} return"));
    let leads = resolved.leads.iter().map(|it| it.mark);
    for mark in leads.chain([resolved.around, resolved.block, resolved.answers]) {
        let (has, set) = (has("ct", mask, mark), set("meta", mask, mark));
        rules.push(format!("{has} {set} accept"));
    }
    rules.extend(marking_queries(&resolved.entries));
    rules.extend(
        [
            "ct state { established, related } return",
            "fib daddr type { local, broadcast, anycast, multicast } return",
            // Routers do not forward link-local packets.
            "ip6 daddr fe80::/10 return",
            "jump choose",
        ]
        .map(str::to_owned),
    );
    let hook = ("filter", HOOK_PREROUTING, MARKING);
    chain("prerouting", hook, rules)
}

/// The chain that counts packets whose mark has no route. Routing answers them.
fn counting(resolved: &Resolved) -> Option<WantedChain> {
    let lan = from(&resolved.policy.lan);
    let rules: Vec<String> = refusing(resolved)
        .map(|mark| {
            let has = has("meta", resolved.policy.mask, mark);
            format!("{lan} {has} {TO_OTHERS} {COUNT_UNROUTED}")
        })
        .collect();
    let hook = ("filter", HOOK_PREROUTING, COUNTING);
    (!rules.is_empty()).then(|| chain(HELD, hook, rules))
}

/// The marks of packets that are refused while they have no route.
fn refusing(resolved: &Resolved) -> impl Iterator<Item = u32> {
    let marks = resolved.holding().map(|it| it.mark);
    marks.chain(resolved.blocks().then_some(resolved.block))
}

/// The chain comes before routing, whose "unreachable" would also send an answer.
fn foreign(resolved: &Resolved, held: &Held) -> WantedChain {
    let lan = from(&resolved.policy.lan);
    let mut those: Vec<String> = refusing(resolved)
        .map(|mark| format!("{lan} {}", has("meta", resolved.policy.mask, mark)))
        .collect();
    // Packets to the router itself have no mark, and the router answers them. A port that was taken out of its bridge
    // does not count as a device of the LAN.
    let mut senders = Senders {
        macs: held.macs.clone(),
        networks: Vec::new(),
        devices: [held.devices.as_slice(), &held.known.ports].concat(),
    };
    those.extend(
        who(&senders)
            .into_iter()
            .chain(by_index(&held.known.indices)),
    );
    let families = ["meta nfproto ipv4", "ip6 saddr != { ::, fe80::/10 }"];
    let rules = those.iter().flat_map(|those| {
        families.map(|it| format!("{those} {it} fib saddr . iif oif missing drop"))
    });
    let mut rules: Vec<String> = rules.collect();
    // Connections from blocked devices to a VPN server on the router: their packets would leave through it, with the
    // server's addresses.
    if !held.servers.is_empty() {
        let ports: Vec<String> = held.servers.iter().map(ToString::to_string).collect();
        let ports = braces(&ports);
        let call =
            format!("fib daddr type local meta l4proto {{ tcp, udp }} th dport {ports} drop");
        senders.networks.clone_from(&held.networks);
        let from = who(&senders).into_iter();
        rules.extend(from.map(|it| format!("iifname != \"lo\" {it} {call}")));
    }
    let hook = ("filter", HOOK_PREROUTING, MARKING + 1);
    chain("foreign", hook, rules)
}

/// The router's own messages to the LAN about a LAN connection, such as "unreachable", keep their route: `rules` begin
/// with that.
fn output(resolved: &Resolved, lines: &[String], mut rules: Vec<String>) -> WantedChain {
    let mask = resolved.policy.mask;
    let mut answers = |condition: &str, mark| {
        let (has, set) = (has("ct", mask, mark), set("meta", mask, mark));
        rules.push(format!("ct direction reply {condition}{has} {set}"));
    };
    for lead in &resolved.leads {
        answers("", lead.mark);
    }
    if !lines.is_empty() {
        // Tunnels' own packets have marks that are compared as a whole, so they must not change.
        answers("meta mark 0 ", resolved.around);
    }
    // Chains of this type make the kernel look up the route again.
    chain("output", ("route", HOOK_OUTPUT, MARKING), rules)
}

fn forward(resolved: &Resolved, held: &Held) -> WantedChain {
    let (lan, mask) = (&resolved.policy.lan, resolved.policy.mask);
    let come = from(lan);
    let mut rules = Vec::new();
    // The connection's mark is valid where another program has overwritten the packet's. Packets that the kernel does
    // not track have only their own.
    let mut refuse = |mark, condition: &str| {
        for of in ["ct", "meta"] {
            let has = has(of, mask, mark);
            rules.push(format!("{come} {has} {condition}counter {REFUSE}"));
        }
    };
    for lead in resolved.holding() {
        let mut allowed = vec![&lead.device];
        allowed.extend(lan);
        refuse(lead.mark, &format!("oifname != {} ", quoted(&allowed)));
    }
    refuse(resolved.block, "");
    // Packets that come through a removed port, or a renamed bridge, get no mark, as the device no longer counts as the
    // LAN's. They are dropped silently: an answer has no route back.
    let lan = quoted(lan);
    let senders = Senders {
        macs: held.macs.clone(),
        networks: held.networks.clone(),
        devices: held.known.ports.clone(),
    };
    for condition in who(&senders)
        .into_iter()
        .chain(by_index(&held.known.indices))
    {
        rules.push(format!(
            "iifname != {lan} {condition} oifname != {lan} counter drop"
        ));
    }
    chain(FORWARD, ("filter", HOOK_FORWARD, REFUSING), rules)
}

fn choose(resolved: &Resolved) -> WantedChain {
    let mut rules = Vec::new();
    // Senders' addresses that are not among the neighbours: those of devices which get no answers.
    let macs: Vec<String> = resolved
        .held_macs()
        .iter()
        .map(ToString::to_string)
        .collect();
    if !macs.is_empty() {
        rules.extend(SOURCES.map(|it| {
            let (name, word, macs) = (it.name, it.word, braces(&macs));
            format!("ether saddr {macs} update @{name} {{ ether saddr . {word} saddr }}")
        }));
    }
    for (number, entry) in (1..).zip(&resolved.entries) {
        let jump = format!("jump to_{number}");
        match &entry.who {
            None => rules.push(jump),
            Some(those) => rules.extend(who(those).into_iter().map(|it| format!("{it} {jump}"))),
        }
    }
    jumped("choose".to_owned(), rules)
}

/// Conditions that match these senders; any one is enough.
fn who(those: &Senders) -> Vec<String> {
    let mut conditions = Vec::new();
    if !those.macs.is_empty() {
        let macs: Vec<String> = those.macs.iter().map(ToString::to_string).collect();
        conditions.push(format!("ether saddr {}", braces(&macs)));
    }
    let networks = FAMILIES.map(|it| within("saddr", &those.networks, it));
    conditions.extend(networks.into_iter().flatten());
    if !those.devices.is_empty() {
        conditions.push(from(&those.devices));
    }
    conditions
}

/// `to_lan` are rules for packets to the LAN.
fn to(number: usize, entry: &Entry, to_lan: &[String]) -> WantedChain {
    let go = format!("goto {}", way(entry.mark));
    let mut rules = Vec::new();
    // The LAN reaches itself, unless an entry blocks one of its networks by name.
    if !entry.blocks || entry.is_everywhere() {
        rules.extend_from_slice(to_lan);
    }
    for (family, number) in [(Family::V4, 4), (Family::V6, 6)] {
        let networks = within("daddr", &entry.networks, family);
        rules.extend(networks.map(|it| format!("{it} {go}")));
        for domain in &entry.domains {
            let sets = [set_of, kept_set_of].map(|of| of(domain, number));
            rules.extend(sets.map(|set| format!("{} daddr @{set} {go}", word(family))));
        }
    }
    if entry.is_everywhere() {
        rules.push(go);
    }
    jumped(format!("to_{number}"), rules)
}

/// The entries with name servers of their own, each with its conditions, any of which is enough.
fn bound(entries: &[Entry]) -> impl Iterator<Item = (&Entry, Vec<String>)> {
    let bound = entries.iter().filter(|it| !it.dns.is_empty());
    bound.map(|it| {
        let all = || vec![String::new()];
        (it, it.who.as_ref().map_or_else(all, who))
    })
}

/// The rules that mark queries for the tunnel, also queries to the router itself.
fn marking_queries(entries: &[Entry]) -> Vec<String> {
    let mut rules = Vec::new();
    for (entry, conditions) in bound(entries) {
        let go = way(entry.mark);
        rules.extend(
            conditions
                .iter()
                .map(|it| format!("{it} {QUERY} goto {go}")),
        );
    }
    rules
}

/// The chains that redirect queries to the entries' name servers, and refuse queries without a name server of their
/// family. Empty if no entry has name servers.
fn leading_queries(resolved: &Resolved) -> Vec<WantedChain> {
    let from = from(&resolved.policy.lan);
    let (mut lead, mut refuse) = (Vec::new(), Vec::new());
    for (entry, conditions) in bound(&resolved.entries) {
        for condition in conditions {
            for server in &entry.dns {
                let (word, other, family) = match server.is_ipv4() {
                    true => ("ip", "ip6 ", "ipv4"),
                    false => ("ip6", "ip ", "ipv6"),
                };
                if !condition.starts_with(other) {
                    lead.push(format!(
                        "{from} {condition} meta nfproto {family} {QUERY} dnat {word} to {server}"
                    ));
                }
            }
            refuse.push(format!("{from} {condition} {QUERY} counter {REFUSE}"));
        }
    }
    if refuse.is_empty() {
        return Vec::new();
    }
    vec![
        chain("names", ("nat", HOOK_PREROUTING, LEADING), lead),
        chain("input", ("filter", HOOK_INPUT, REFUSING), refuse),
    ]
}

#[cfg(test)]
mod tests;
