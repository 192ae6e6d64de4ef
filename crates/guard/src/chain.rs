//! The first layer: a chain of the packet filter, as a text for `nft`; and the chain by which the router answers what the LAN
//! asks other name servers, where that is wanted.
//!
//! A chain is replaced in one transaction: at no moment is a packet judged by half of it. The table is shared with what
//! else the program has in the packet filter, and only the chain is the guard's.
//!
//! Each rule has a comment that tells which text it is of and its place. By that the chain is known again, whatever `nft`
//! of whichever version would print for it.

use std::fmt::Write as _;

use config::guard::Guard;
use netio::netlink::{Chain, HOOK_FORWARD, HOOK_PREROUTING};

/// The table, of the family `inet`.
pub const TABLE: &str = "millrace";

/// The chain.
pub const CHAIN: &str = "guard";

/// Before the firewall's own chains, which have 0: what is refused here is not accepted there.
pub const PRIORITY: i32 = -5;

/// The chain of name servers.
pub const DNS_CHAIN: &str = "guard-dns";

/// Before the firewall's own chains of that kind, which have -100: the first that says where a connection goes decides.
pub const DNS_PRIORITY: i32 = -105;

/// How packets are refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Refusal {
    /// They are answered, so that programs give up at once.
    Reject,
    /// In silence, for kernels that cannot answer.
    Drop,
}

/// What becomes of the packets that a rule matches.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Verdict {
    /// The firewall's chains are asked.
    Accept,
    /// They go nowhere.
    Refuse,
    /// They come to this host.
    Redirect,
}

/// A chain that settings ask for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WantedChain {
    name: &'static str,
    /// Its kind, for `nft`.
    kind: &'static str,
    /// Hook and priority.
    place: (u32, i32),
    /// What each rule matches, and what then.
    rules: Vec<(String, Verdict)>,
    /// Tells this text from others.
    mark: String,
}

impl WantedChain {
    /// The chain that holds, for these settings, whose names are checked ones. Its last rule refuses.
    #[must_use]
    pub fn new(guard: &Guard) -> Self {
        let from = |names: &[&str]| format!("iifname {}", set(names));
        let all = from(&guard.guarded());
        let within = set(&guard.within());
        let mut rules = Vec::new();
        if guard.dns_block_tls && !guard.lan.is_empty() {
            let lan = from(&names(&guard.lan));
            let matched = format!("{lan} meta l4proto {{ tcp, udp }} th dport 853");
            rules.push((matched, Verdict::Refuse));
        }
        rules.push((format!("{all} oifname {within}"), Verdict::Accept));
        for part in guard.parts().iter().filter(|it| !it.lan.is_empty()) {
            let lan = from(&part.lan);
            // One by one: names with an open end do not go into the sets of every kernel.
            for tunnel in part.tunnels {
                rules.push((format!("{lan} oifname \"{tunnel}\""), Verdict::Accept));
            }
        }
        rules.push((format!("{all} counter"), Verdict::Refuse));
        Self::of(
            CHAIN,
            "filter hook forward",
            (HOOK_FORWARD, PRIORITY),
            rules,
        )
    }

    /// The chain by which queries to other name servers come to this host, where that is wanted.
    #[must_use]
    pub fn of_dns(guard: &Guard) -> Option<Self> {
        let from = format!("iifname {}", set(&names(&guard.lan)));
        let rule = |protocol| (format!("{from} {protocol} dport 53"), Verdict::Redirect);
        let rules = ["udp", "tcp"].map(rule).to_vec();
        let place = (HOOK_PREROUTING, DNS_PRIORITY);
        (guard.dns_redirect && !guard.lan.is_empty())
            .then(|| Self::of(DNS_CHAIN, "nat hook prerouting", place, rules))
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

    /// The text that makes it, in the place of what was there.
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
                (Verdict::Accept, _) => "accept",
                (Verdict::Redirect, _) => "redirect",
                (Verdict::Refuse, Refusal::Reject) => "reject with icmpx type admin-prohibited",
                (Verdict::Refuse, Refusal::Drop) => "drop",
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

    /// Whether this is the chain, with nothing before, between or behind its rules.
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

    fn comment(&self, place: usize) -> String {
        format!("guard {} {}", self.mark, place + 1)
    }
}

fn names(list: &[String]) -> Vec<&str> {
    list.iter().map(String::as_str).collect()
}

/// Names as a set of `nft`.
fn set(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    format!("{{ {} }}", quoted.join(", "))
}

/// The text that takes a chain away.
#[must_use]
pub fn removal(name: &str) -> String {
    format!("flush chain inet {TABLE} {name}\ndelete chain inet {TABLE} {name}\n")
}

/// How many packets a chain of the guard's has refused since it was made.
#[must_use]
pub fn refused(chain: &Chain) -> Option<u64> {
    chain.rules.last()?.packets
}

/// A number for a text, the same in every build: Fowler, Noll, Vo (1991), FNV-1a with 64 bits. It tells texts apart that
/// nothing made alike on purpose.
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::guard;
    use config::guard::Pattern;
    use netio::netlink::ChainRule;
    use proptest::prelude::*;

    /// The chain as the kernel would tell it.
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
        let text = WantedChain::new(&guard()).script(Refusal::Reject);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "add table inet millrace");
        assert_eq!(lines[2], "flush chain inet millrace guard");
        assert!(lines[3].contains(
            "iifname { \"br-lan\", \"br-guest\" } oifname { \"br-lan\", \"br-guest\", \"br-iot\" } accept"
        ));
        assert!(lines[4].contains("oifname \"mr-*\" accept"));
        assert!(lines[5].contains("oifname \"tun0\" accept"));
        assert!(lines[6].contains("\"br-guest\" } counter reject with icmpx"));
        assert_eq!(lines.len(), 7);
    }

    #[test]
    fn the_chain_is_known_again_and_what_was_changed_is_noticed() {
        let wanted = WantedChain::new(&guard());
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
        assert!(!WantedChain::new(&other).is(&chain));
    }

    #[test]
    fn dns_is_redirected_and_its_ciphers_refused_where_that_is_wanted() {
        let mut guard = guard();
        assert_eq!(WantedChain::of_dns(&guard), None);
        let plain = WantedChain::new(&guard);
        guard.dns_redirect = true;
        guard.dns_block_tls = true;
        let text = WantedChain::new(&guard).script(Refusal::Reject);
        // Before anything is accepted.
        let first = text.lines().nth(3).unwrap();
        assert!(first.contains("th dport 853 reject with icmpx"), "{first}");
        assert!(!WantedChain::new(&guard).is(&made(&plain)));
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
        /// Whatever names are taken, each stands between quotes, and nothing of them is a statement.
        #[test]
        fn names_stay_between_quotes(lan in "[ -~]{1,15}", tunnel in "[ -~]{1,16}") {
            let text = format!("lan = [{lan:?}]\ntunnels = [{tunnel:?}]");
            let path = std::path::Path::new("guard.toml");
            if let Ok(guard) = Guard::from_toml(&text, path) {
                prop_assert!(Pattern::new(&tunnel).is_some());
                let script = WantedChain::new(&guard).script(Refusal::Reject);
                prop_assert_eq!(script.lines().count(), 6);
                // Without what is between quotes nothing is left but the guard's own words.
                let own: String = script.split('"').step_by(2).collect();
                let plain = "iifname {  } oifname {  } accept comment";
                prop_assert!(own.contains(plain), "{}", own);
                prop_assert!(!own.contains(';') || own.matches(';').count() == 2);
            }
        }
    }
}
