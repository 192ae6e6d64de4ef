//! What a running tunnel tells about itself: one JSON document for each connection to its
//! status socket.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Directory of the status sockets, one `IFNAME.sock` for each running interface.
pub(crate) const SOCKET_DIR: &str = "/var/run/millrace";

/// The status socket of an interface.
#[must_use]
pub(crate) fn socket_path(ifname: &str) -> PathBuf {
    Path::new(SOCKET_DIR).join(format!("{ifname}.sock"))
}

/// The document. Fields that a version does not know are passed over, those that it does not
/// get have their defaults, so that daemon and command may differ in age.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub(crate) struct Status {
    /// Interface name.
    pub interface: String,
    /// `wireguard`.
    pub protocol: String,
    /// Our public key in base64; none without a private key.
    pub public_key: Option<String>,
    /// UDP port; 0 while there is none.
    pub listen_port: u16,
    /// Mark of outgoing datagrams; 0 is none.
    pub fwmark: u32,
    /// Of the interface, in bytes.
    pub mtu: u32,
    /// Threads of the data plane.
    pub workers: usize,
    /// Milliseconds since the daemon's start, by a clock that never jumps. Rates are computed
    /// from the difference of two documents.
    pub uptime_ms: u64,
    /// The peers.
    pub peers: Vec<PeerStatus>,
    /// What moved the packets.
    pub dataplane: DataplaneStatus,
}

/// One peer.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub(crate) struct PeerStatus {
    /// Its public key in base64.
    pub public_key: String,
    /// Where it is, `ADDRESS:PORT`, if known.
    pub endpoint: Option<String>,
    /// Its ranges, `ADDRESS/PREFIX`.
    pub allowed_ips: Vec<String>,
    /// Seconds since 1970 of the last handshake, if there was one.
    pub last_handshake_unix: Option<u64>,
    /// Seconds since the last handshake, by a clock that never jumps.
    pub latest_handshake_age: Option<u64>,
    /// Bytes received in authenticated datagrams.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Bits received a second; filled in by the command, not by the daemon.
    pub rx_rate: Option<u64>,
    /// Bits sent a second; filled in by the command, not by the daemon.
    pub tx_rate: Option<u64>,
    /// Seconds between persistent keepalives; none when they are off.
    pub keepalive: Option<u16>,
}

/// What the data plane did.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub(crate) struct DataplaneStatus {
    /// The packets' cipher.
    pub cipher: String,
    /// The kind of code that computes it: `portable`, `simd` or `engine`; empty without encryption.
    pub crypto_backend: String,
    /// The implementation of the cipher that this box runs.
    pub backend: String,
    /// Each rung of the offload ladder: `on`, `off (setting)`, `off (kernel: WHY)` or
    /// `off (demoted: WHY)`.
    pub rungs: BTreeMap<String, String>,
    /// From the TUN to the peers.
    pub outbound: LaneStatus,
    /// From the peers to the TUN.
    pub inbound: LaneStatus,
    /// Packets dropped, by reason.
    pub drops: BTreeMap<String, u64>,
    /// What limits the speed right now, in words.
    pub limits: String,
}

/// One direction of the data plane.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub(crate) struct LaneStatus {
    /// Batches moved.
    pub batches: u64,
    /// Packets moved.
    pub packets: u64,
    /// Mean size of a batch in packets.
    pub packets_per_batch: f64,
    /// Bytes of inner packets moved.
    pub bytes: u64,
    /// Super-packets read from or written to the kernel.
    pub super_packets: u64,
    /// System calls made for it.
    pub syscalls: u64,
    /// Batches that a helper worked on.
    pub parallel_batches: u64,
}

impl Status {
    /// Fills in the rates from an `earlier` document of the same daemon. Peers that are new, and
    /// everything when the daemon was started anew in between, have none.
    pub(crate) fn fill_rates(&mut self, earlier: &Self) {
        let elapsed = self.uptime_ms.saturating_sub(earlier.uptime_ms);
        if elapsed == 0 {
            return;
        }
        let before: BTreeMap<&str, &PeerStatus> = earlier
            .peers
            .iter()
            .map(|peer| (peer.public_key.as_str(), peer))
            .collect();
        for peer in &mut self.peers {
            if let Some(before) = before.get(peer.public_key.as_str()) {
                peer.rx_rate = rate(before.rx_bytes, peer.rx_bytes, elapsed);
                peer.tx_rate = rate(before.tx_bytes, peer.tx_bytes, elapsed);
            }
        }
    }
}

/// Bits a second; none when the counter went back, as it does when a peer is made anew.
fn rate(before: u64, now: u64, elapsed_ms: u64) -> Option<u64> {
    let bits = u128::from(now.checked_sub(before)?) * 8;
    u64::try_from(bits * 1000 / u128::from(elapsed_ms)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(uptime_ms: u64, rx_bytes: u64) -> Status {
        let peer = PeerStatus {
            public_key: "k".to_owned(),
            rx_bytes,
            ..PeerStatus::default()
        };
        Status {
            uptime_ms,
            peers: vec![peer],
            ..Status::default()
        }
    }

    #[test]
    fn rates_are_bits_a_second_of_the_daemons_clock() {
        let mut now = status(3500, 2_000_000);
        now.fill_rates(&status(3000, 1_000_000));
        assert_eq!(now.peers[0].rx_rate, Some(16_000_000));
        assert_eq!(now.peers[0].tx_rate, Some(0));
    }

    #[test]
    fn there_is_no_rate_across_a_restart() {
        let mut now = status(100, 5);
        now.fill_rates(&status(3000, 0));
        assert_eq!(now.peers[0].rx_rate, None);
        let mut now = status(3100, 5);
        now.fill_rates(&status(3000, 10));
        assert_eq!(now.peers[0].rx_rate, None);
    }

    #[test]
    fn documents_of_other_versions_are_read() {
        let status: Status = serde_json::from_str(r#"{"interface":"wg0","future":1}"#).unwrap();
        assert_eq!(status.interface, "wg0");
    }
}
