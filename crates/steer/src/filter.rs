//! Tables of the packet filter, as scripts for `nft`.
//!
//! All changes of a script are one transaction, so no packet ever meets half of a chain. Each rule has a comment with a
//! hash of its chain's rules and its position. Chains are recognised by that, however this version of `nft` prints
//! them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use netio::netlink::{Chain, Family};

use crate::networks::Network;
use crate::report::Part;
use crate::system::System;

/// The statement that refuses with an answer, so that programs give up at once.
pub(crate) const REFUSE: &str = "reject with icmpx type admin-prohibited";

/// The condition that matches packets to other hosts.
pub(crate) const TO_OTHERS: &str = "fib daddr type != { local, broadcast, anycast, multicast }";

/// The statement that counts packets that have no route by their mark, so that routing will refuse them.
pub(crate) const COUNT_UNROUTED: &str = "fib daddr . mark oif missing counter";

/// The priority of chains that count such packets: behind all destination NAT (-100).
pub(crate) const COUNTING: i32 = -90;

/// The hooks by their numbers.
const HOOKS: [&str; 5] = ["prerouting", "input", "forward", "output", "postrouting"];

/// Kind, number of the hook, priority.
pub(crate) type Hook = (&'static str, u32, i32);

/// A chain that settings request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct WantedChain {
    pub(crate) name: String,
    /// `None` for a chain that only other chains jump to.
    pub(crate) hook: Option<Hook>,
    /// The rules without their comments. Kernels that cannot do all of the first list get the second one.
    pub(crate) rules: [Vec<String>; 2],
    /// Begins each rule's comment: the chain's owner, and a hash of the rules.
    pub(crate) mark: String,
}

impl WantedChain {
    /// A chain whose rules drop silently where the kernel cannot [`REFUSE`].
    pub(crate) fn new(
        owner: &str,
        name: impl Into<String>,
        hook: Option<Hook>,
        rules: Vec<String>,
    ) -> Self {
        let plain = rules.iter().map(|it| it.replace(REFUSE, "drop")).collect();
        Self::with_plain(owner, name, hook, [rules, plain])
    }

    /// A chain with a second list of rules, for kernels that cannot do all of the first.
    pub(crate) fn with_plain(
        owner: &str,
        name: impl Into<String>,
        hook: Option<Hook>,
        rules: [Vec<String>; 2],
    ) -> Self {
        Self {
            name: name.into(),
            hook,
            mark: format!("{owner} {:016x}", fnv1a(&rules.concat().join("\n"))),
            rules,
        }
    }

    /// Whether `chain` is this chain, with no other rule before, between or behind its rules.
    pub(crate) fn is(&self, chain: &Chain) -> bool {
        chain.rules.len() == self.rules[0].len() && self.is_complete(chain, &self.mark)
    }

    /// Whether `chain` is complete, though made for other networks or other settings.
    pub(crate) fn is_of_before(&self, chain: &Chain) -> bool {
        let first = chain.rules.first().map_or("", |it| it.comment.as_str());
        let mark = first.split_once(" 1 of ").map(|it| it.0);
        mark.is_some_and(|mark| self.is_complete(chain, mark))
    }

    fn is_complete(&self, chain: &Chain, mark: &str) -> bool {
        let count = chain.rules.len();
        let mut rules = (1..).zip(&chain.rules);
        chain.hook == self.hook.map(|(_, hook, priority)| (hook, priority))
            && rules.all(|(place, rule)| rule.comment == comment(mark, place, count))
    }
}

pub(crate) fn comment(mark: &str, place: usize, count: usize) -> String {
    format!("{mark} {place} of {count}")
}

/// Chains and sets that settings request in a table of the family `inet`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct WantedTable {
    pub(crate) name: &'static str,
    /// Names of the sets, each with its definition, and with elements that it must have.
    pub(crate) sets: Vec<(String, String)>,
    pub(crate) chains: Vec<WantedChain>,
}

/// A change to the packet filter, in one transaction.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Script {
    /// The script, and the one for kernels that cannot do all of the first.
    pub(crate) texts: [String; 2],
    /// Whether packets could pass without the change.
    pub(crate) closes: bool,
}

impl Script {
    /// A script that every kernel supports, and without which no packet can pass.
    pub(crate) fn plain(text: String) -> Self {
        Self {
            texts: [text.clone(), text],
            closes: false,
        }
    }
}

impl WantedTable {
    /// The scripts that make the chains and sets, and replace older ones. They delete those chains and sets in a
    /// listing of the table by `nft` that are no longer wanted.
    pub(crate) fn scripts(&self, listing: &str) -> [String; 2] {
        [0, 1].map(|plain| self.script(listing, plain))
    }

    /// The script that makes the sets. Sets and elements that are there already stay as they are.
    pub(crate) fn sets_alone(&self) -> String {
        let line = |(set, kind): &(String, String)| {
            format!("add set inet {} {set} {{ {kind} }}\n", self.name)
        };
        self.sets.iter().map(line).collect()
    }

    fn script(&self, listing: &str, plain: usize) -> String {
        let table = format!("inet {}", self.name);
        let mut text = format!("add table {table}\n");
        text += &self.sets_alone();
        // Writing to a string does not fail.
        for WantedChain { name, hook, .. } in &self.chains {
            let hook = hook.map_or_else(String::new, |(kind, hook, priority)| {
                let hook = HOOKS[hook as usize];
                format!(" {{ type {kind} hook {hook} priority {priority}; policy accept; }}")
            });
            let _ = writeln!(text, "add chain {table} {name}{hook}");
        }
        let mut old = listed(listing, "chain ");
        old.retain(|name| self.chains.iter().all(|it| it.name != *name));
        for name in self
            .chains
            .iter()
            .map(|it| it.name.as_str())
            .chain(old.iter().copied())
        {
            let _ = writeln!(text, "flush chain {table} {name}");
        }
        for chain in &self.chains {
            let rules = &chain.rules[plain];
            for (place, rule) in (1..).zip(rules) {
                let comment = comment(&chain.mark, place, rules.len());
                let _ = writeln!(
                    text,
                    "add rule {table} {} {rule} comment \"{comment}\"",
                    chain.name
                );
            }
        }
        for name in old {
            let _ = writeln!(text, "delete chain {table} {name}");
        }
        for name in listed(listing, "set ") {
            if self.sets.iter().all(|it| it.0 != name) {
                let _ = writeln!(text, "delete set {table} {name}");
            }
        }
        text
    }
}

/// Names of chains or sets in a listing of a table by `nft`.
fn listed<'l>(listing: &'l str, word: &str) -> Vec<&'l str> {
    let lines = listing.lines();
    lines
        .filter_map(|line| line.trim().strip_prefix(word)?.strip_suffix(" {"))
        .collect()
}

/// Chains of a table, as the kernel has them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Chains {
    /// The chains that exist, by name.
    pub(crate) found: BTreeMap<String, Chain>,
    /// Why the kernel's chains cannot be read.
    pub(crate) unseen: Option<String>,
}

impl Chains {
    /// Reads the chains of these names.
    pub(crate) fn read<'n>(
        system: &mut System,
        table: &str,
        names: impl IntoIterator<Item = &'n str>,
    ) -> Self {
        let mut chains = Self::default();
        let Some(netfilter) = &mut system.netfilter else {
            chains.unseen = Some("the kernel has no packet filter".to_owned());
            return chains;
        };
        for name in names {
            match netfilter.chain(table, name) {
                Ok(chain) => chains.found.extend(chain.map(|it| (name.to_owned(), it))),
                Err(error) => {
                    chains.unseen = Some(match error.is_permission() {
                        true => "this user may not read it; run this as root".to_owned(),
                        false => format!("the kernel has no nftables ({error})"),
                    });
                }
            }
        }
        chains
    }

    /// The state of wanted chains.
    pub(crate) fn part(&self, wanted: &[WantedChain]) -> Part {
        let is = |wanted: &WantedChain| {
            let found = self.found.get(&wanted.name);
            found.is_some_and(|it| wanted.is(it))
        };
        match &self.unseen {
            Some(why) => Part::Unseen(why.clone()),
            None if wanted.iter().all(is) => Part::Whole,
            None => Part::Missing,
        }
    }

    /// Packets that the rules of these chains have counted since the chains were made.
    pub(crate) fn counted(&self, names: &[&str]) -> Option<u64> {
        let chains = names.iter().filter_map(|it| self.found.get(*it));
        let counted = chains.flat_map(|it| it.rules.iter().filter_map(|it| it.packets));
        counted.reduce(u64::saturating_add)
    }
}

/// The `nft` word for a family's header.
pub(crate) const fn word(family: Family) -> &'static str {
    match family {
        Family::V4 => "ip",
        Family::V6 => "ip6",
    }
}

/// The condition that compares an address, `saddr` or `daddr`, with those networks that are of a family. `None` without
/// any.
pub(crate) fn within(address: &str, networks: &[Network], family: Family) -> Option<String> {
    let own = networks.iter().filter(|it| Family::of(it.0) == family);
    let own: Vec<String> = own.map(|(ip, prefix)| format!("{ip}/{prefix}")).collect();
    (!own.is_empty()).then(|| format!("{} {address} {}", word(family), braces(&own)))
}

/// The condition that matches packets by the indices of devices, even after a rename.
pub(crate) fn by_index(indices: &[(u32, String)]) -> Option<String> {
    let indices: Vec<String> = indices.iter().map(|it| it.0.to_string()).collect();
    (!indices.is_empty()).then(|| format!("iif {}", braces(&indices)))
}

/// The condition that matches packets by the devices that they come in through.
pub(crate) fn from<T: AsRef<str>>(names: &[T]) -> String {
    format!("iifname {}", quoted(names))
}

/// Names as an `nft` set.
pub(crate) fn quoted<T: AsRef<str>>(names: &[T]) -> String {
    let quoted = names.iter().map(|name| format!("\"{}\"", name.as_ref()));
    braces(&quoted.collect::<Vec<_>>())
}

/// Words as an `nft` set.
pub(crate) fn braces(words: &[String]) -> String {
    format!("{{ {} }}", words.join(", "))
}

/// A hash of a text, the same in every build: FNV-1a with 64 bits (Fowler, Noll, Vo, 1991). It does not protect against
/// texts that were made to collide.
pub(crate) fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
