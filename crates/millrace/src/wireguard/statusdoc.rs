//! The status document of a running interface.

use super::interface::Interface;
use crate::status::{DataplaneStatus, LaneStatus, PeerStatus, Status};
use crypto::select::{self, Algorithm};
use engine::LaneStats;
use std::collections::BTreeMap;
use std::time::{Instant, UNIX_EPOCH};

impl Interface {
    /// What `millrace status` shows, as of now. `started` is when the daemon began.
    #[must_use]
    pub(crate) fn status(&self, started: Instant) -> Status {
        let (device, _) = self.get();
        let now = Instant::now();
        let mut peers: Vec<_> = self.peers.values().collect();
        peers.sort_by_key(|p| p.id);
        let peers = peers
            .into_iter()
            .map(|p| PeerStatus {
                public_key: p.public_key.to_base64().to_string(),
                endpoint: p.engine.endpoint().map(|e| e.addr.to_string()),
                allowed_ips: p.allowed_ips.iter().map(ToString::to_string).collect(),
                last_handshake_unix: p
                    .last_handshake
                    .and_then(|(at, _)| Some(at.duration_since(UNIX_EPOCH).ok()?.as_secs())),
                latest_handshake_age: p
                    .last_handshake
                    .map(|(_, at)| now.saturating_duration_since(at).as_secs()),
                rx_bytes: p.engine.rx_bytes.value(),
                tx_bytes: p.engine.tx_bytes.value(),
                rx_rate: None,
                tx_rate: None,
                keepalive: (p.persistent_keepalive != 0).then_some(p.persistent_keepalive),
            })
            .collect();
        Status {
            interface: self.tunnel.tun().current_name().unwrap_or_default(),
            protocol: "wireguard".to_owned(),
            public_key: self.device.public_key().map(|k| {
                config::types::Key32::new(*k.as_bytes())
                    .to_base64()
                    .to_string()
            }),
            listen_port: device.listen_port,
            fwmark: device.fwmark,
            mtu: self.tunnel.mtu() as u32,
            workers: self.tunnel.workers(),
            uptime_ms: now.saturating_duration_since(started).as_millis() as u64,
            peers,
            dataplane: self.dataplane(),
        }
    }

    fn dataplane(&self) -> DataplaneStatus {
        let tunnel = &self.tunnel;
        let tun = tunnel.tun();
        let mut rungs: BTreeMap<String, String> = BTreeMap::new();
        let sockets = tunnel.sockets();
        for rung in [&tun.tso, &tun.uso, &tun.gro] {
            rungs.insert(rung.name().to_owned(), rung.to_string());
        }
        // The two sockets climb alike; the one that got less far is the one to know about.
        for socket in sockets.iter() {
            for rung in [&socket.gso, &socket.gro, &socket.mmsg] {
                let entry = rungs.entry(rung.name().to_owned()).or_default();
                if entry.is_empty() || entry == "on" {
                    *entry = rung.to_string();
                }
            }
        }
        let (outbound, inbound) = (lane(tunnel.outbound()), lane(tunnel.inbound()));
        let cipher: &dyn crypto::PacketCipher = if self.uses_null_cipher() {
            &crypto::Null
        } else {
            &crypto::ChaCha20Poly1305::new(&[0; 32])
        };
        let kind = select::chosen(Algorithm::ChaCha20Poly1305).backend;
        DataplaneStatus {
            cipher: cipher.name().to_owned(),
            crypto_backend: match self.uses_null_cipher() {
                true => String::new(),
                false => kind.name().to_owned(),
            },
            backend: cipher.backend().to_owned(),
            limits: limits(&rungs, &outbound, &inbound),
            rungs,
            outbound,
            inbound,
            drops: tunnel
                .drops()
                .iter()
                .map(|(k, v)| (k.to_owned(), v))
                .collect(),
        }
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
    }
}

/// What the counters say about the speed, in words.
fn limits(rungs: &BTreeMap<String, String>, out: &LaneStatus, inn: &LaneStatus) -> String {
    let off: Vec<String> = rungs
        .iter()
        .filter(|(_, state)| state.as_str() != "on")
        .map(|(name, state)| format!("{name} is {state}"))
        .collect();
    let busier = if out.packets >= inn.packets { out } else { inn };
    let mut words = match busier.packets {
        0 => "no traffic yet".to_owned(),
        // Nearly one system call for each packet: the kernel, not the cipher, is the cost.
        n if busier.syscalls * 2 > n => format!(
            "packets come singly ({:.1} a batch): system calls cost more than the cipher",
            busier.packets_per_batch
        ),
        _ => format!(
            "batches are well filled ({:.1} packets): the cipher and the kernel's copies are the cost",
            busier.packets_per_batch
        ),
    };
    if !off.is_empty() {
        words.push_str("; ");
        words.push_str(&off.join(", "));
    }
    words
}
