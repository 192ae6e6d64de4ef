//! The first layer: a chain of the packet filter, as a text for `nft`.
//!
//! The chain is replaced in one transaction: at no moment is a packet judged by half of it. The table is shared with what
//! else the program has in the packet filter, and only the chain is the guard's.
//!
//! Each rule has a comment that tells which text it is of and its place. By that the chain is known again, whatever `nft`
//! of whichever version would print for it.

use std::fmt::Write as _;

use config::guard::Guard;
use netio::netlink::{Chain, HOOK_FORWARD};

/// The table, of the family `inet`.
pub const TABLE: &str = "millrace";

/// The chain.
pub const CHAIN: &str = "guard";

/// Before the firewall's own chains, which have 0: what is refused here is not accepted there.
pub const PRIORITY: i32 = -5;

/// How packets are refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Refusal {
    /// They are answered, so that programs give up at once.
    Reject,
    /// In silence, for kernels that cannot answer.
    Drop,
}

/// The chain that settings ask for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WantedChain {
    /// What each rule matches; the last one refuses.
    rules: Vec<String>,
    /// Tells this text from others.
    mark: String,
}

impl WantedChain {
    /// For these settings, whose names are checked ones.
    #[must_use]
    pub fn new(guard: &Guard) -> Self {
        let set = |names: &mut dyn Iterator<Item = &String>| {
            let quoted: Vec<String> = names.map(|name| format!("\"{name}\"")).collect();
            format!("{{ {} }}", quoted.join(", "))
        };
        let from = format!("iifname {}", set(&mut guard.lan.iter()));
        let within = set(&mut guard.lan.iter().chain(&guard.reach));
        let mut rules = vec![format!("{from} oifname {within} accept")];
        // One by one: names with an open end do not go into the sets of every kernel.
        for tunnel in &guard.tunnels {
            rules.push(format!("{from} oifname \"{tunnel}\" accept"));
        }
        rules.push(format!("{from} counter"));
        let mark = format!("{:016x}", fnv1a(&rules.join("\n")));
        Self { rules, mark }
    }

    /// The text that makes it, in the place of what was there.
    #[must_use]
    pub fn script(&self, refusal: Refusal) -> String {
        let mut text = format!(
            "add table inet {TABLE}\n\
             add chain inet {TABLE} {CHAIN} {{ type filter hook forward priority {PRIORITY}; policy accept; }}\n\
             flush chain inet {TABLE} {CHAIN}\n"
        );
        for (place, rule) in self.rules.iter().enumerate() {
            let verdict = match (place + 1 == self.rules.len(), refusal) {
                (false, _) => "",
                (true, Refusal::Reject) => " reject with icmpx type admin-prohibited",
                (true, Refusal::Drop) => " drop",
            };
            let comment = self.comment(place);
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "add rule inet {TABLE} {CHAIN} {rule}{verdict} comment \"{comment}\""
            );
        }
        text
    }

    /// Whether this is the chain, with nothing before, between or behind its rules.
    #[must_use]
    pub fn is(&self, chain: &Chain) -> bool {
        let comments = (0..self.rules.len()).map(|place| self.comment(place));
        chain.hook == Some((HOOK_FORWARD, PRIORITY))
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

/// The text that takes the chain away.
#[must_use]
pub fn removal() -> String {
    format!("flush chain inet {TABLE} {CHAIN}\ndelete chain inet {TABLE} {CHAIN}\n")
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
            hook: Some((HOOK_FORWARD, PRIORITY)),
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
