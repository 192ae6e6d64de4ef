//! The data plane's part of the document, whatever the protocol.

use std::collections::BTreeMap;

use engine::{LaneStats, Tunnel, Wire};

use super::{DataplaneStatus, LaneStatus};

/// What the data plane did. The ciphers are the protocol's to tell.
pub(crate) fn dataplane<W: Wire>(tunnel: &Tunnel<W>) -> DataplaneStatus {
    let tun = tunnel.tun();
    let mut rungs: BTreeMap<String, String> = BTreeMap::new();
    for rung in [&tun.tso, &tun.uso, &tun.gro] {
        rungs.insert(rung.name().to_owned(), rung.to_string());
    }
    // The two sockets climb alike; the one that got less far is the one to know about. Streams
    // have none of these.
    for socket in tunnel.sockets().iter() {
        for rung in [&socket.gso, &socket.gro, &socket.mmsg] {
            let entry = rungs.entry(rung.name().to_owned()).or_default();
            if entry.is_empty() || entry == "on" {
                *entry = rung.to_string();
            }
        }
    }
    let drops = tunnel.drops().iter();
    DataplaneStatus {
        rungs,
        outbound: lane(tunnel.outbound()),
        inbound: lane(tunnel.inbound()),
        drops: drops.map(|(k, v)| (k.to_owned(), v)).collect(),
        ..DataplaneStatus::default()
    }
}

fn lane(stats: &LaneStats) -> LaneStatus {
    let (batches, packets) = (stats.batches.value(), stats.packets.value());
    LaneStatus {
        batches,
        packets,
        packets_per_batch: if batches == 0 {
            0.0
        } else {
            packets as f64 / batches as f64
        },
        bytes: stats.bytes.value(),
        super_packets: stats.super_packets.value(),
        syscalls: stats.syscalls.value(),
        parallel_batches: stats.parallel_batches.value(),
        unpacked: stats.unpacked.value(),
        ..LaneStatus::default()
    }
}
