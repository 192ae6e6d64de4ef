//! The policy's table in the packet filter, as a script for `nft`.
//!
//! | chain | sees | does |
//! |---|---|---|
//! | `prerouting` | incoming packets | clears the policy's bits; restores the connection's mark, or calls `choose` |
//! | `foreign` | packets of the LAN, after `prerouting` | drops held or blocked packets with a foreign source |
//! | `choose` | the first packets of connections of the LAN | compares the sender, entry by entry |
//! | `to_N` | packets of entry N | compares the destination |
//! | `way_X` | matching packets | writes mark X to packet and connection |
//! | `output` | the router's own packets | restores the mark of answers |
//! | `names` | packets to port 53 | redirects them to the entry's name servers |
//! | `input` | packets to the router | refuses those to port 53 that have no name server of their family there |
//! | `source` | packets that leave by tunnels | masquerades them |
//! | `forward` | forwarded packets | refuses blocked ones, and those marked for a tunnel that leave by another device |
//!
//! `prerouting` clears the bits of each packet, and also notes the tunnel by which a connection came in. It
//! restores or chooses marks only for packets from the LAN.
//! `foreign` drops silently, as a refusal would go to a stranger: the source is not behind the packet's device. It also
//! drops calls to a VPN server on the router.
//!
//! The table is changed in one transaction, and never deleted while the policy is on: its sets have the addresses of
//! names. Each name has a set per family, which stays when entries change. Each rule has a comment with a hash of its
//! table's text and its position, by which the policy recognises its chains.

use std::fmt::Write as _;

use crate::guard::networks::Network;
use config::policy::{Domain, Down, Mac};
use netio::netlink::{Chain, HOOK_FORWARD, HOOK_OUTPUT, HOOK_POSTROUTING, HOOK_PREROUTING};

use crate::policy::resolved::{Resolved, Those, of_family};
use crate::policy::ways::Ways;

mod names;

/// The name of the table, whose family is `inet`.
pub const TABLE: &str = "millrace_policy";

/// The chain that refuses.
pub const FORWARD: &str = "forward";

/// Behind other programs' marking chains (-150), and before destination NAT (-100).
pub const MARKING: i32 = -145;

/// Before the guard's chain, which has -5.
pub const REFUSING: i32 = -6;

/// The usual priority of source NAT.
const SOURCE: i32 = 100;

/// The most addresses in the set of a name and family.
const ADDRESSES_MAX: usize = 16384;

/// How chains refuse packets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Refusal {
    /// Refuses with an answer, so that programs give up at once.
    Reject,
    /// Drops silently, for kernels that cannot reject.
    Drop,
}

/// Facts that the text depends on beside the entries.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Surroundings {
    /// Devices of the LAN.
    pub(crate) lan: Vec<String>,
    /// Networks of the LAN's devices.
    pub(crate) networks: Vec<Network>,
    /// Devices of uplinks: answers to a connection leave by the uplink that it came in by. Empty where the host needs
    /// no such rules.
    pub(crate) lines: Vec<String>,
    /// Whether packets that leave by tunnels are masqueraded.
    pub(crate) masquerade: bool,
    /// Networks and hardware addresses whose packets are all held, whatever device they come in by.
    pub(crate) held: Vec<Network>,
    pub(crate) macs: Vec<Mac>,
    /// Devices whose packets are all held.
    pub(crate) devices: Vec<String>,
    /// Present and past ports of these devices.
    pub(crate) ports: Vec<String>,
    /// Indices of these devices and ports, which match even after a rename.
    pub(crate) indices: Vec<u32>,
    /// Ports at which VPN servers on the router listen.
    pub(crate) servers: Vec<u16>,
}

impl Surroundings {
    /// The condition that matches the LAN's devices and their ports by index.
    fn by_index(&self) -> Option<String> {
        let indices = self.indices.iter().map(ToString::to_string);
        (!self.indices.is_empty()).then(|| format!("iif {}", braces(indices)))
    }
}

#[derive(Clone, Debug, Eq, PartialEq)]
struct WantedChain {
    name: String,
    /// Type, hook by name and number, priority.
    hook: Option<(&'static str, &'static str, u32, i32)>,
    /// The rules without their comments. [`REFUSE`] stands for the statement that refuses.
    rules: Vec<String>,
}

/// Placeholder in a rule for the statement that refuses.
const REFUSE: &str = "REFUSE";

/// The table that settings ask for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WantedTable {
    sets: Vec<(String, &'static str)>,
    chains: Vec<WantedChain>,
    /// A hash of the table's text, kept in each rule's comment.
    mark: String,
}

/// The set with a name's addresses of a family, 4 or 6. Its name depends only on the domain.
pub(crate) fn set_of(domain: &Domain, family: u8) -> String {
    format!("d{:016x}_{family}", fnv1a(domain.as_str()))
}

impl WantedTable {
    pub(crate) fn new(ways: &Ways, entries: &[Resolved], around: &Surroundings) -> Self {
        let mut chains = vec![
            prerouting(ways, entries, around),
            foreign(ways, around),
            output(ways, around),
            forward(ways, around),
            choose(entries),
        ];
        for (number, entry) in (1..).zip(entries) {
            chains.push(to(number, entry, around));
        }
        chains.extend(names::chains(entries, &around.lan));
        chains.extend(source(ways, around));
        let mut marks: Vec<u32> = entries.iter().map(|it| it.mark).collect();
        marks.sort_unstable();
        marks.dedup();
        chains.extend(marks.into_iter().map(|mark| WantedChain {
            name: way(mark),
            hook: None,
            rules: vec![format!(
                "{} {} accept",
                set("meta", ways.mask, mark),
                set("ct", ways.mask, mark)
            )],
        }));
        let mut domains: Vec<&Domain> = entries.iter().flat_map(|it| &it.domains).collect();
        domains.sort_unstable();
        domains.dedup();
        let kinds = [(4, "ipv4_addr"), (6, "ipv6_addr")];
        let sets = domains
            .into_iter()
            .flat_map(|domain| kinds.map(|(family, kind)| (set_of(domain, family), kind)));
        let mut table = Self {
            sets: sets.collect(),
            chains,
            mark: String::new(),
        };
        table.mark = format!("{:016x}", fnv1a(&table.script(Refusal::Reject, &[], &[])));
        table
    }

    /// The `nft` script that makes this table and replaces an older one. It deletes those of the present `chains` and
    /// `sets` that are no longer wanted.
    #[must_use]
    pub fn script(&self, refusal: Refusal, chains: &[String], sets: &[String]) -> String {
        let mut text = format!("add table inet {TABLE}\n");
        // Writing to a string does not fail.
        for (name, kind) in &self.sets {
            // The set has no default timeout, so an address added without one stays: packets keep their way.
            let _ = writeln!(
                text,
                "add set inet {TABLE} {name} {{ type {kind}; flags timeout; size {ADDRESSES_MAX}; }}"
            );
        }
        for chain in &self.chains {
            let hook = match chain.hook {
                Some((kind, hook, _, priority)) => {
                    format!(" {{ type {kind} hook {hook} priority {priority}; policy accept; }}")
                }
                None => String::new(),
            };
            let _ = writeln!(text, "add chain inet {TABLE} {}{hook}", chain.name);
        }
        let is_wanted = |name: &String| self.chains.iter().any(|it| it.name == *name);
        let old: Vec<&String> = chains.iter().filter(|name| !is_wanted(name)).collect();
        for name in self
            .chains
            .iter()
            .map(|it| &it.name)
            .chain(old.iter().copied())
        {
            let _ = writeln!(text, "flush chain inet {TABLE} {name}");
        }
        for chain in &self.chains {
            for (place, rule) in chain.rules.iter().enumerate() {
                let rule = match refusal {
                    Refusal::Reject => {
                        rule.replace(REFUSE, "reject with icmpx type admin-prohibited")
                    }
                    Refusal::Drop => rule.replace(REFUSE, "drop"),
                };
                let comment = self.comment(place);
                let _ = writeln!(
                    text,
                    "add rule inet {TABLE} {} {rule} comment \"{comment}\"",
                    chain.name
                );
            }
        }
        for name in old {
            let _ = writeln!(text, "delete chain inet {TABLE} {name}");
        }
        let is_wanted = |name: &&String| self.sets.iter().any(|(it, _)| it == *name);
        for name in sets.iter().filter(|name| !is_wanted(name)) {
            let _ = writeln!(text, "delete set inet {TABLE} {name}");
        }
        text
    }

    /// The names of the table's chains.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.chains.iter().map(|it| it.name.as_str())
    }

    /// Whether `chains`, in the order of [`WantedTable::names`], are this table's, with no other rule before, between
    /// or behind theirs.
    #[must_use]
    pub fn is(&self, chains: &[Option<Chain>]) -> bool {
        let is = |(wanted, chain): (&WantedChain, &Option<Chain>)| {
            let Some(chain) = chain else { return false };
            let comments = (0..wanted.rules.len()).map(|place| self.comment(place));
            chain.hook == wanted.hook.map(|(_, _, hook, priority)| (hook, priority))
                && chain.rules.len() == wanted.rules.len()
                && chain
                    .rules
                    .iter()
                    .zip(comments)
                    .all(|(it, comment)| it.comment == comment)
        };
        chains.len() == self.chains.len() && self.chains.iter().zip(chains).all(is)
    }

    fn comment(&self, place: usize) -> String {
        format!("policy {} {}", self.mark, place + 1)
    }
}

/// Names of the chains and sets in an `nft` listing of the table.
pub(crate) fn listed(text: &str) -> (Vec<String>, Vec<String>) {
    let of = |word: &str| {
        let names = text.lines().filter_map(|line| {
            let name = line.trim().strip_prefix(word)?.strip_suffix(" {")?;
            Some(name.trim().to_owned())
        });
        names.collect()
    };
    (of("chain "), of("set "))
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

fn braces<T: AsRef<str>>(words: impl IntoIterator<Item = T>) -> String {
    let words: Vec<String> = words.into_iter().map(|it| it.as_ref().to_owned()).collect();
    format!("{{ {} }}", words.join(", "))
}

fn quoted(names: &[String]) -> String {
    braces(names.iter().map(|name| format!("\"{name}\"")))
}

/// Conditions that match packets to the LAN, for each family.
fn to_lan(around: &Surroundings) -> Vec<String> {
    let of = |word, is_v6| {
        let networks = of_family(&around.networks, is_v6);
        (!networks.is_empty()).then(|| format!("{word} daddr {}", braces(networks)))
    };
    [of("ip", false), of("ip6", true)]
        .into_iter()
        .flatten()
        .collect()
}

fn prerouting(ways: &Ways, entries: &[Resolved], around: &Surroundings) -> WantedChain {
    let mask = ways.mask;
    // Another program may have restored the whole mark of a connection, of answers too. Answers must not take the way
    // of the question.
    let mut rules = vec![format!(
        "meta mark and {mask:#010x} != 0 {}",
        set("meta", mask, 0)
    )];
    for lead in ways.leads.iter().filter(|it| it.is_for_answers) {
        rules.push(format!(
            "iifname \"{}\" ct state new {}",
            lead.device,
            set("ct", mask, lead.mark)
        ));
    }
    if !around.lines.is_empty() {
        rules.push(format!(
            "iifname {} ct state new {}",
            quoted(&around.lines),
            set("ct", mask, ways.around)
        ));
    }
    // Without this mark, answers would match the rules for held devices.
    rules.push(format!(
        "iifname != {} ct state new {} {}",
        quoted(&around.lan),
        has("ct", mask, 0),
        set("ct", mask, ways.answers)
    ));
    rules.push(format!("iifname != {} return", quoted(&around.lan)));
    let leads = ways.leads.iter().map(|it| it.mark);
    for mark in leads.chain([ways.around, ways.block, ways.answers]) {
        rules.push(format!(
            "{} {} accept",
            has("ct", mask, mark),
            set("meta", mask, mark)
        ));
    }
    rules.extend(names::marking(entries));
    rules.extend([
        "ct state { established, related } return".to_owned(),
        "fib daddr type { local, broadcast, anycast, multicast } return".to_owned(),
        // Routers do not forward link-local packets.
        "ip6 daddr fe80::/10 return".to_owned(),
        "jump choose".to_owned(),
    ]);
    WantedChain {
        name: "prerouting".to_owned(),
        hook: Some(("filter", "prerouting", HOOK_PREROUTING, MARKING)),
        rules,
    }
}

/// The chain comes before routing, whose "unreachable" would also send an answer.
fn foreign(ways: &Ways, around: &Surroundings) -> WantedChain {
    let held = ways.leads.iter().filter(|it| it.down == Down::Hold);
    let marks = held
        .map(|it| it.mark)
        .chain(ways.blocks.then_some(ways.block));
    let from = format!("iifname {}", quoted(&around.lan));
    let mut those: Vec<String> = marks
        .map(|mark| format!("{from} {}", has("meta", ways.mask, mark)))
        .collect();
    let held = Those {
        macs: around.macs.clone(),
        networks: Vec::new(),
        devices: around
            .devices
            .iter()
            .chain(&around.ports)
            .cloned()
            .collect(),
    };
    // Packets to the router itself have no mark, and the router answers them. A port that was taken out of its bridge
    // does not count as a device of the LAN.
    those.extend(who(&held).into_iter().chain(around.by_index()));
    let families = ["meta nfproto ipv4", "ip6 saddr != { ::, fe80::/10 }"];
    let rules = those.iter().flat_map(|those| {
        families.map(|it| format!("{those} {it} fib saddr . iif oif missing drop"))
    });
    let held = Those {
        networks: around.held.clone(),
        ..held
    };
    let rules = rules.chain(calls(&held, around));
    WantedChain {
        name: "foreign".to_owned(),
        hook: Some(("filter", "prerouting", HOOK_PREROUTING, MARKING + 1)),
        rules: rules.collect(),
    }
}

/// Rules against calls from held devices to a VPN server on the router: their packets would leave through it, with the
/// server's addresses.
fn calls(held: &Those, around: &Surroundings) -> Vec<String> {
    if around.servers.is_empty() {
        return Vec::new();
    }
    let ports = braces(around.servers.iter().map(ToString::to_string));
    let call = format!("fib daddr type local meta l4proto {{ tcp, udp }} th dport {ports} drop");
    let from = who(held).into_iter();
    from.map(|it| format!("iifname != \"lo\" {it} {call}"))
        .collect()
}

fn output(ways: &Ways, around: &Surroundings) -> WantedChain {
    // The router's own messages to the LAN about a LAN connection, such as "unreachable", keep their way.
    let mut rules: Vec<String> = to_lan(around)
        .iter()
        .map(|it| format!("{it} return"))
        .collect();
    for lead in &ways.leads {
        rules.push(format!(
            "ct direction reply {} {}",
            has("ct", ways.mask, lead.mark),
            set("meta", ways.mask, lead.mark)
        ));
    }
    if !around.lines.is_empty() {
        // Tunnels' own packets have marks that are compared as a whole, so they must not change.
        rules.push(format!(
            "ct direction reply meta mark 0 {} {}",
            has("ct", ways.mask, ways.around),
            set("meta", ways.mask, ways.around)
        ));
    }
    WantedChain {
        name: "output".to_owned(),
        // Chains of this type make the kernel look up the route again.
        hook: Some(("route", "output", HOOK_OUTPUT, MARKING)),
        rules,
    }
}

fn forward(ways: &Ways, around: &Surroundings) -> WantedChain {
    let from = format!("iifname {}", quoted(&around.lan));
    let mut rules = Vec::new();
    for lead in ways.leads.iter().filter(|it| it.down == Down::Hold) {
        let mut allowed = vec![lead.device.clone()];
        allowed.extend(around.lan.iter().cloned());
        // The connection's mark is valid where another program has overwritten the packet's. Packets that the kernel
        // does not track have only their own.
        for of in ["ct", "meta"] {
            rules.push(format!(
                "{from} {} oifname != {} counter {REFUSE}",
                has(of, ways.mask, lead.mark),
                quoted(&allowed)
            ));
        }
    }
    for of in ["ct", "meta"] {
        rules.push(format!(
            "{from} {} counter {REFUSE}",
            has(of, ways.mask, ways.block)
        ));
    }
    // Packets that come by a removed port, or a renamed bridge, get no mark, as the device no longer counts as the
    // LAN's. They are dropped silently: an answer has no way back.
    let lan = quoted(&around.lan);
    let those = Those {
        macs: around.macs.clone(),
        networks: around.held.clone(),
        devices: around.ports.clone(),
    };
    for condition in who(&those).into_iter().chain(around.by_index()) {
        rules.push(format!(
            "iifname != {lan} {condition} oifname != {lan} counter drop"
        ));
    }
    WantedChain {
        name: FORWARD.to_owned(),
        hook: Some(("filter", "forward", HOOK_FORWARD, REFUSING)),
        rules,
    }
}

/// Builds the masquerading chain: firewalls of most routers masquerade only packets that leave by the uplink.
fn source(ways: &Ways, around: &Surroundings) -> Option<WantedChain> {
    let mut devices: Vec<String> = ways.leads.iter().map(|it| it.device.clone()).collect();
    devices.dedup();
    (around.masquerade && !devices.is_empty()).then(|| WantedChain {
        name: "source".to_owned(),
        hook: Some(("nat", "postrouting", HOOK_POSTROUTING, SOURCE)),
        rules: vec![format!(
            "iifname {} oifname {} masquerade",
            quoted(&around.lan),
            quoted(&devices)
        )],
    })
}

fn choose(entries: &[Resolved]) -> WantedChain {
    let mut rules = Vec::new();
    for (number, entry) in (1..).zip(entries) {
        let jump = format!("jump to_{number}");
        match &entry.who {
            None => rules.push(jump),
            Some(those) => rules.extend(who(those).into_iter().map(|it| format!("{it} {jump}"))),
        }
    }
    WantedChain {
        name: "choose".to_owned(),
        hook: None,
        rules,
    }
}

/// Conditions that match these senders; any one is enough.
fn who(those: &Those) -> Vec<String> {
    let mut conditions = Vec::new();
    if !those.macs.is_empty() {
        let macs = those.macs.iter().map(ToString::to_string);
        conditions.push(format!("ether saddr {}", braces(macs)));
    }
    for (word, is_v6) in [("ip", false), ("ip6", true)] {
        let networks = of_family(&those.networks, is_v6);
        if !networks.is_empty() {
            conditions.push(format!("{word} saddr {}", braces(networks)));
        }
    }
    if !those.devices.is_empty() {
        conditions.push(format!("iifname {}", quoted(&those.devices)));
    }
    conditions
}

fn to(number: usize, entry: &Resolved, around: &Surroundings) -> WantedChain {
    let go = format!("goto {}", way(entry.mark));
    let mut rules = Vec::new();
    // The LAN reaches itself, unless an entry blocks one of its networks by name.
    if !entry.blocks || entry.is_everywhere() {
        rules.extend(to_lan(around).iter().map(|it| format!("{it} return")));
    }
    if entry.is_everywhere() {
        rules.push(go);
    } else {
        for (word, family, is_v6) in [("ip", 4, false), ("ip6", 6, true)] {
            let networks = of_family(&entry.networks, is_v6);
            if !networks.is_empty() {
                rules.push(format!("{word} daddr {} {go}", braces(networks)));
            }
            for domain in &entry.domains {
                rules.push(format!("{word} daddr @{} {go}", set_of(domain, family)));
            }
        }
    }
    WantedChain {
        name: format!("to_{number}"),
        hook: None,
        rules,
    }
}

/// A hash of a text, the same in every build: FNV-1a with 64 bits (Fowler, Noll, Vo, 1991).
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests;
