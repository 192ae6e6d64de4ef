//! The report of a running tunnel about itself: one JSON document for each connection to its status socket.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

mod dataplane;
mod limits;
mod reach;

pub use dataplane::dataplane;
pub(crate) use reach::expected_within;
pub use reach::{NO_CARRIER, SILENT, WAITING};

/// Directory of the status sockets, one `IFNAME.sock` for each running interface.
pub const SOCKET_DIR: &str = "/var/run/millrace";

/// The status socket of an interface.
#[must_use]
pub fn socket_path(ifname: &str) -> PathBuf {
    Path::new(SOCKET_DIR).join(format!("{ifname}.sock"))
}

/// The document, the same for both protocols: docs/status.md says what is in it. Fields that a
/// version does not know are passed over, those that it does not get have their defaults, so that
/// daemon and command may differ in age.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Status {
    /// Interface name.
    pub interface: String,
    /// `wireguard` or `openvpn`.
    pub protocol: String,
    /// With OpenVPN `client` or `server`; none with WireGuard, whose peers are equal.
    pub role: Option<String>,
    /// With an OpenVPN or PPTP client `connecting` or `connected`. With every protocol `silent` or `no carrier`, where that
    /// holds for all peers, and `waiting` where `waiting_for` says for what.
    pub state: Option<String>,
    /// The thing without which the tunnel does not come up, such as `an address of HOST`; none where nothing is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
    /// Our public key in base64; none without a private key.
    pub public_key: Option<String>,
    /// UDP port; 0 while there is none.
    pub listen_port: u16,
    /// TCP ports that a server listens on.
    pub listen_tcp: Vec<u16>,
    /// Mark of outgoing datagrams; 0 is none.
    pub fwmark: u32,
    /// The device that the sockets are bound to.
    #[serde(skip)]
    pub bound_device: Option<String>,
    /// Of the interface, in bytes.
    pub mtu: u32,
    /// Why it has that, in words; none where the daemon does not set it.
    pub mtu_reason: Option<String>,
    /// The result of probes of the paths to the peers, in words; none where nothing is probed.
    pub mtu_probe: Option<String>,
    /// Threads of the data plane.
    pub workers: usize,
    /// Milliseconds since the daemon's start, by a clock that never jumps. Rates are computed
    /// from the difference of two documents.
    pub uptime_ms: u64,
    /// With OpenVPN our addresses in the tunnel.
    pub addresses: Vec<String>,
    /// Settings that the tunnel asked of the host and does not have, such as routes that the kernel refused, and other
    /// warnings: one sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The peers: of an OpenVPN server its clients, of an OpenVPN client the server.
    pub peers: Vec<PeerStatus>,
    /// Messages of the control channel or of the handshake that were refused, and sessions that
    /// came to nothing, by reason.
    pub refused: BTreeMap<String, u64>,
    /// The data plane that moved the packets.
    pub dataplane: DataplaneStatus,
}

/// One peer.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct PeerStatus {
    /// With WireGuard its public key in base64.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub public_key: String,
    /// With OpenVPN the common name of its certificate, or the user's; none without either.
    pub name: Option<String>,
    /// With OpenVPN the name that it logged in by, if it did.
    pub username: Option<String>,
    /// With an OpenVPN server the client's number, for `client-kill` at the management port.
    pub client_id: Option<u64>,
    /// `udp` or `tcp`.
    pub transport: Option<String>,
    /// With OpenVPN the cipher of its data packets, once it is agreed on.
    pub cipher: Option<String>,
    /// The kind of code that computes that: `portable`, `simd` or `engine`.
    pub crypto_backend: Option<String>,
    /// The owner of that code.
    pub backend: Option<String>,
    /// With OpenVPN seconds since 1970 of the session's begin.
    pub connected_unix: Option<u64>,
    /// Where it is, `ADDRESS:PORT`, if known.
    pub endpoint: Option<String>,
    /// Its ranges, `ADDRESS/PREFIX`: with an OpenVPN server the client's own addresses and the
    /// networks behind it.
    pub allowed_ips: Vec<String>,
    /// Seconds since 1970 of the last handshake, if there was one.
    pub last_handshake_unix: Option<u64>,
    /// Seconds since the last handshake, by a clock that never jumps.
    pub latest_handshake_age: Option<u64>,
    /// Seconds since the last authentic packet of any kind came from it, by a clock that never jumps.
    pub last_heard_age: Option<u64>,
    /// `silent` or `no carrier`; none for a peer without a known fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// The reason of that state, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
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
    /// The lines by which it may be reached, where there are any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<LineStatus>,
    /// The counts of putting its packets into order, where that is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<OrderStatus>,
}

/// One line of a peer.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct LineStatus {
    /// Its name.
    pub name: String,
    /// `unknown`, `up`, `degraded` or `down`.
    pub state: String,
    /// Why, in words.
    pub reason: String,
    /// Seconds since the state changed; none while nothing has happened.
    pub state_age: Option<u64>,
    /// Packets to the peer go by it.
    pub in_use: bool,
    /// The smoothed round trip in milliseconds, once one was measured.
    pub round_trip_ms: Option<f64>,
    /// The allowance of a month, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap: Option<CapStatus>,
    /// Packets that were sent by it, copies among them.
    pub sent: u64,
    /// Their bytes, headers and tags included.
    pub sent_bytes: u64,
    /// Bytes that were received, headers and tags included, without copies.
    pub received_bytes: u64,
    /// Packets of which it brought the first copy, in time.
    pub accepted: u64,
    /// First copies that came when they were no longer waited for.
    pub late: u64,
    /// Accepted ones that waited for a packet in front of them.
    pub buffered: u64,
    /// Copies of what had come.
    pub duplicated: u64,
    /// Copies too old to know whether they had come.
    pub ancient: u64,
}

/// The allowance of a line for a month, and its use: bytes of both directions, with the headers of UDP and IP.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct CapStatus {
    /// The allowance.
    pub cap_bytes: u64,
    /// The bytes carried in this month.
    pub used_bytes: u64,
    /// The difference; 0 where it has carried more.
    pub left_bytes: u64,
    /// The day that the next month begins with, `YEAR-MONTH-DAY`; none while the clock is not set.
    pub renews: Option<String>,
}

/// Putting the packets of a peer into order, over all lines.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct OrderStatus {
    /// Packets that came in time.
    pub accepted: u64,
    /// Packets that came when they were no longer waited for.
    pub late: u64,
    /// Packets that wait now.
    pub waiting: u64,
    /// Packets of which no copy has come.
    pub lost: u64,
    /// Packets that the peer was asked to send once more.
    pub asked: u64,
    /// Numbers of these that have come.
    pub repaired: u64,
}

/// The work of the data plane.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct DataplaneStatus {
    /// The packets' cipher; empty with OpenVPN, where each peer has one of its own.
    pub cipher: String,
    /// The kind of code that computes it: `portable`, `simd` or `engine`; empty without encryption.
    pub crypto_backend: String,
    /// The implementation of the cipher that this box runs.
    pub backend: String,
    /// Whether this build has code for accelerators; none from a daemon that does not tell.
    pub accelerators: Option<bool>,
    /// The measurements behind the choice of that implementation; empty if a profile made it, or there was but one.
    pub measured: Vec<MeasuredStatus>,
    /// Each rung of the offload ladder: `on`, `off (setting)`, `off (kernel: WHY)` or
    /// `off (demoted: WHY)`.
    pub rungs: BTreeMap<String, String>,
    /// From the TUN to the peers.
    pub outbound: PipelineStatus,
    /// From the peers to the TUN.
    pub inbound: PipelineStatus,
    /// Packets dropped, by reason.
    pub drops: BTreeMap<String, u64>,
    /// The limits of the speed between the two samples, in words; empty without rates, or where there was too little
    /// traffic to tell. Filled in by the command, not by the daemon.
    pub limits: String,
}

/// The measured time of a candidate for the cipher: processor time, the least of some runs.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct MeasuredStatus {
    /// Its name.
    pub name: String,
    /// Its kind: `portable`, `simd` or `engine`.
    pub kind: String,
    /// Bytes of each packet of the batch that was measured.
    pub batch_len: usize,
    /// Nanoseconds for each packet of that batch; none where it was far behind with small packets already.
    pub batch_ns: Option<u64>,
    /// Bytes of the packet that was measured by itself.
    pub alone_len: usize,
    /// Nanoseconds for that packet.
    pub alone_ns: Option<u64>,
}

/// One direction of the data plane.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct PipelineStatus {
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
    /// How long packets have waited in the sockets lately, on average by bytes, in microseconds; 0 where that is not known.
    pub waited_us: u64,
    /// Packets that a peer had compressed. Ours never are.
    pub unpacked: u64,
    /// Packets a second; filled in by the command, not by the daemon.
    pub packet_rate: Option<u64>,
    /// Bits of inner packets a second; filled in by the command, not by the daemon.
    pub bit_rate: Option<u64>,
}

impl PeerStatus {
    /// The fields that two documents of one peer share.
    fn identity(&self) -> (&str, Option<u64>, Option<u64>) {
        (&self.public_key, self.client_id, self.connected_unix)
    }
}

/// Counts of what was refused, by reason.
#[derive(Clone, Debug, Default)]
pub struct Refusals(BTreeMap<&'static str, u64>);

impl Refusals {
    /// Counters that are zero, so that they are seen before they count.
    pub fn new(reasons: impl IntoIterator<Item = &'static str>) -> Self {
        Self(reasons.into_iter().map(|reason| (reason, 0)).collect())
    }

    /// One more.
    pub fn count(&mut self, reason: &'static str) {
        *self.0.entry(reason).or_default() += 1;
    }

    /// For the document.
    pub fn to_map(&self) -> BTreeMap<String, u64> {
        let pairs = self.0.iter();
        pairs.map(|(name, n)| ((*name).to_owned(), *n)).collect()
    }
}

impl Status {
    /// Fills in the rates from an `earlier` document of the same daemon. Peers that are new, and
    /// everything when the daemon was started anew in between, have none.
    pub fn fill_rates(&mut self, earlier: &Self) {
        let elapsed = self.uptime_ms.saturating_sub(earlier.uptime_ms);
        if elapsed == 0 {
            return;
        }
        let before: HashMap<_, &PeerStatus> = earlier
            .peers
            .iter()
            .map(|peer| (peer.identity(), peer))
            .collect();
        for peer in &mut self.peers {
            let before = before.get(&peer.identity()).copied();
            if let Some(before) = before {
                peer.rx_rate = rate(before.rx_bytes, peer.rx_bytes, elapsed);
                peer.tx_rate = rate(before.tx_bytes, peer.tx_bytes, elapsed);
            }
        }
        let (now, before) = (&mut self.dataplane, &earlier.dataplane);
        for (now, before) in [
            (&mut now.outbound, &before.outbound),
            (&mut now.inbound, &before.inbound),
        ] {
            now.packet_rate = rate(before.packets, now.packets, elapsed).map(|bits| bits / 8);
            now.bit_rate = rate(before.bytes, now.bytes, elapsed);
        }
        now.limits = limits::limits(now, before, elapsed);
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
    fn clients_of_one_name_have_rates_of_their_own() {
        let client = |id, since, rx_bytes| PeerStatus {
            name: Some("branch".to_owned()),
            client_id: Some(id),
            connected_unix: Some(since),
            rx_bytes,
            ..PeerStatus::default()
        };
        let before = Status {
            peers: vec![client(0, 5, 1000), client(1, 6, 50)],
            ..Status::default()
        };
        let mut now = Status {
            uptime_ms: 1000,
            // The second has come anew meanwhile.
            peers: vec![client(1, 7, 60), client(0, 5, 2000)],
            ..Status::default()
        };
        now.fill_rates(&before);
        assert_eq!(now.peers[0].rx_rate, None);
        assert_eq!(now.peers[1].rx_rate, Some(8000));
    }

    /// Programs are written by docs/status.md: what it does not tell is not known.
    #[test]
    fn every_field_and_counter_is_documented() {
        let page = include_str!("../../../docs/status.md");
        let mut status = status(0, 0);
        status.dataplane.measured.push(MeasuredStatus::default());
        status.peers[0].lines.push(LineStatus {
            cap: Some(CapStatus::default()),
            ..LineStatus::default()
        });
        let mut names = Vec::new();
        let mut rest = vec![serde_json::to_value(&status).unwrap()];
        while let Some(value) = rest.pop() {
            match value {
                serde_json::Value::Object(fields) => {
                    for (name, value) in fields {
                        names.push(name);
                        rest.push(value);
                    }
                }
                serde_json::Value::Array(values) => rest.extend(values),
                _ => {}
            }
        }
        let drops = engine::Drops::default();
        let counters = drops
            .iter()
            .map(|(name, _)| name)
            .chain(wireguard::Dropped::ALL.map(wireguard::Dropped::name))
            .chain(openvpn::session::Dropped::REASONS)
            .chain(openvpn::session::CloseReason::REFUSALS);
        names.extend(counters.map(str::to_owned));
        let missing: Vec<_> = names
            .iter()
            .filter(|name| !page.contains(&format!("`{name}`")))
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn documents_of_other_versions_are_read() {
        let status: Status = serde_json::from_str(r#"{"interface":"wg0","future":1}"#).unwrap();
        assert_eq!(status.interface, "wg0");
    }
}
