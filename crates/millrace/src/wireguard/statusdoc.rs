//! The status document of a running interface.

use super::interface::Interface;
use crate::status::{DataplaneStatus, MeasuredStatus, PeerStatus, Status, dataplane};
use crypto::select::{self, Algorithm};
use std::time::{Duration, Instant, UNIX_EPOCH};

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
                keepalive: (p.persistent_keepalive != 0).then_some(p.persistent_keepalive),
                transport: Some("udp".to_owned()),
                ..PeerStatus::default()
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
            refused: self.refusals.to_map(),
            dataplane: self.dataplane(),
            ..Status::default()
        }
    }

    fn dataplane(&self) -> DataplaneStatus {
        let cipher = self.cipher(&[0; 32]);
        let kind = select::chosen(Algorithm::ChaCha20Poly1305).backend;
        DataplaneStatus {
            cipher: cipher.name().to_owned(),
            crypto_backend: kind.name().to_owned(),
            backend: cipher.backend().to_owned(),
            measured: measured(),
            ..dataplane(&self.tunnel)
        }
    }
}

/// What the choice of code for the cipher was made by.
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
