//! Counts the dropped packets of calls.

use ::pptp::session::Link;
use std::collections::BTreeMap;

/// Adds the drop counts of a call, if one is up. Without one it adds zeros, so that the status always has the names.
pub(super) fn add(call: Option<&Link>, drops: &mut BTreeMap<String, u64>) {
    let gre = call.map(Link::tunnel_counters).copied();
    let gre = gre.unwrap_or_default();
    let link = call.map(Link::counters).copied();
    let link = link.unwrap_or_default();
    for (name, count) in [
        ("not_ours", gre.malformed),
        ("no_session", gre.other_call),
        ("duplicate", gre.duplicates),
        ("replayed", gre.too_old),
        ("jump", gre.jumps),
        ("late", link.late),
        ("unexpected", link.unexpected),
        ("unencrypted", link.unencrypted),
        ("undecryptable", link.undecryptable),
    ] {
        *drops.entry(name.to_owned()).or_default() += count;
    }
}
