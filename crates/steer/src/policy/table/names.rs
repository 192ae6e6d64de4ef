//! Redirects DNS queries of devices that have name servers of their own behind a tunnel.

use netio::netlink::{HOOK_INPUT, HOOK_PREROUTING};

use super::{REFUSE, REFUSING, WantedChain, chain, from, way, who};
use crate::policy::resolved::{Entry, Resolved};

/// Before the guard's redirect to the router (-105), and before firewalls (-100).
const LEADING: i32 = -110;

/// The condition that matches a DNS query over UDP or TCP.
const QUERY: &str = "meta l4proto { tcp, udp } th dport 53";

/// The entries with name servers of their own, each with its conditions, any of which is enough.
fn bound(entries: &[Entry]) -> impl Iterator<Item = (&Entry, Vec<String>)> {
    let bound = entries.iter().filter(|it| !it.dns.is_empty());
    bound.map(|it| {
        let all = || vec![String::new()];
        (it, it.who.as_ref().map_or_else(all, who))
    })
}

/// The rules that mark queries for the tunnel, also queries to the router itself.
pub(super) fn marking(entries: &[Entry]) -> Vec<String> {
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
pub(super) fn chains(resolved: &Resolved) -> Vec<WantedChain> {
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
