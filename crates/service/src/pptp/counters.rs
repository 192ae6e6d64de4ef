//! Counts of packets for the status.

use crate::status::Status;
use ::pptp::session::Link;
use std::collections::BTreeMap;

/// Fills in the packets and bytes of both directions, and the packets that the machine dropped.
pub(super) fn dataplane(
    status: &mut Status,
    sent: [u64; 2],
    received: [u64; 2],
    drops: &[(&str, u64)],
) {
    let dataplane = &mut status.dataplane;
    [dataplane.outbound.packets, dataplane.outbound.bytes] = sent;
    [dataplane.inbound.packets, dataplane.inbound.bytes] = received;
    let drops = drops.iter().map(|&(name, count)| (name.to_owned(), count));
    dataplane.drops.extend(drops);
    add(None, &mut dataplane.drops);
}

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
