//! The status document of a running interface.

use super::interface::Interface;
use crate::status::lines;
use crate::status::{DataplaneStatus, MeasuredStatus, PeerStatus, Status, WAITING, dataplane};
use config::types::Key32;
use crypto::select::{self, Algorithm};
use plane::{PeerLines, Statistics};
use std::time::{Duration, Instant, UNIX_EPOCH};

/// Longest time until a peer answers a packet, by a keepalive if it has no data: KEEPALIVE_TIMEOUT, and 2 s for
/// transport.
const ANSWERED: Duration = Duration::from_secs(12);

impl Interface {
    /// Returns the current status for `millrace status`. `started` is when the daemon began.
    #[must_use]
    pub fn status(&self, started: Instant) -> Status {
        let (device, _) = self.get();
        let now = Instant::now();
        let (gathers, reorders) = (self.machine.gathers(), self.machine.reorders());
        let peers = self.machine.peers.iter().map(|(id, p)| {
            let moved = self.plane.peer(*id).unwrap_or_default();
            let reports = self.machine.line_reports(*id);
            // Skipped if not needed, as these counts cost an allocation.
            let known = match gathers || reorders || !reports.is_empty() {
                true => self.plane.peer_lines(*id),
                false => PeerLines::default(),
            };
            let mut peer = PeerStatus {
                public_key: p.public_key.to_base64().to_string(),
                name: p.name.as_deref().map(str::to_owned),
                replaces: p.replaces.as_ref().map(|it| it.to_base64().to_string()),
                endpoint: moved.line.map(|line| line.endpoint.addr.to_string()),
                allowed_ips: p.allowed_ips.iter().map(ToString::to_string).collect(),
                last_handshake_unix: p
                    .last_handshake
                    .and_then(|(at, _)| Some(at.duration_since(UNIX_EPOCH).ok()?.as_secs())),
                latest_handshake_age: p
                    .last_handshake
                    .map(|(_, at)| now.saturating_duration_since(at).as_secs()),
                rx_bytes: moved.rx_bytes,
                tx_bytes: moved.tx_bytes,
                keepalive: (p.persistent_keepalive != 0).then_some(p.persistent_keepalive),
                transport: Some("udp".to_owned()),
                lines: match gathers {
                    true => lines::their_status(&known, now),
                    false => lines::status(reports, &known, now),
                },
                order: reorders.then(|| lines::order_status(&known)),
                ..PeerStatus::default()
            };
            #[cfg(feature = "postquantum")]
            if let Some((name, is_hybrid)) = self.machine.protection(*id) {
                (peer.key_exchange, peer.post_quantum) = (Some(name.to_owned()), Some(is_hybrid));
            }
            let times = moved.times;
            peer.set_heard(p.silence.heard(times.last_received), None, now);
            if let Some(since) = times.unanswered_since.filter(|at| now > *at + ANSWERED) {
                let passed = now.saturating_duration_since(since).as_secs();
                peer.set_silent(format!("no answer to packets for {passed} s"));
            }
            if p.silence.is_unanswered() {
                peer.set_silent("no answer to handshakes".to_owned());
                #[cfg(feature = "amnezia")]
                peer.reason
                    .iter_mut()
                    .for_each(|it| *it += self.machine.hint(*id));
            }
            if p.silence.is_deaf(times.last_received, now) {
                peer.set_silent("it calls, and does not hear our answers".to_owned());
            }
            #[cfg(feature = "amnezia")]
            if let Some(words) = p.difference(times.last_received) {
                peer.set_silent(words);
            }
            peer
        });
        let ago = |(name, at): &(String, Instant)| {
            let age = now.saturating_duration_since(*at).as_secs();
            (name.clone(), age)
        };
        let statistics = self.plane.statistics();
        let mtu = self.plane.mtu() as u32;
        Status {
            interface: self.plane.interface().unwrap_or_default(),
            protocol: "wireguard".to_owned(),
            #[cfg(feature = "amnezia")]
            amnezia: device.amnezia.generation().map(str::to_owned),
            public_key: self
                .machine
                .device
                .public_key()
                .map(|k| Key32::new(*k.as_bytes()).to_base64().to_string()),
            listen_port: device.listen_port,
            fwmark: device.fwmark,
            bound_device: self.outside.sockets.device.clone(),
            mtu,
            mtu_reason: self.wanted_mtu.as_ref().map(|wanted| wanted.why(mtu)),
            mtu_probe: self.machine.probe_report(),
            workers: statistics.workers,
            uptime_ms: now.saturating_duration_since(started).as_millis() as u64,
            state: self.waiting_for.as_ref().map(|_| WAITING.to_owned()),
            waiting_for: self.waiting_for.clone(),
            warnings: self.warnings.iter().chain(&self.refused).cloned().collect(),
            peers: peers.collect(),
            failed_servers: self.failures.iter().map(ago).collect(),
            refused: self.machine.refusals().to_map(),
            dataplane: self.dataplane(statistics),
            ..Status::default()
        }
    }

    fn dataplane(&self, statistics: Statistics) -> DataplaneStatus {
        let cipher = self.outside.protocol.cipher();
        let kind = select::chosen(Algorithm::ChaCha20Poly1305).backend;
        DataplaneStatus {
            cipher: cipher.cipher.to_owned(),
            crypto_backend: kind.name().to_owned(),
            backend: cipher.backend.to_owned(),
            measured: measured(),
            ..dataplane(statistics)
        }
    }
}

/// The measurements behind the choice of the cipher's code.
fn measured() -> Vec<MeasuredStatus> {
    let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    select::measured(Algorithm::ChaCha20Poly1305)
        .into_iter()
        .map(|of| MeasuredStatus {
            name: of.name.to_owned(),
            kind: of.backend.name().to_owned(),
            batch_len: of.batch_len,
            batch_ns: of.batch.map(nanoseconds),
            alone_len: of.alone_len,
            alone_ns: of.alone.map(nanoseconds),
        })
        .collect()
}
