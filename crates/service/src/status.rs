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

/// The status document, the same for all protocols; docs/status.md describes it. A reader ignores unknown fields and
/// takes defaults for missing ones, so daemon and command may differ in age.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Status {
    /// Interface name.
    pub interface: String,
    /// `wireguard`, `openvpn` or `pptp`.
    pub protocol: String,
    /// `client` or `server`; none with WireGuard, whose peers are equal.
    pub role: Option<String>,
    /// With an OpenVPN or PPTP client `connecting` or `connected`. With every protocol `silent` or `no carrier`, if
    /// that holds for all peers, and `waiting` while `waiting_for` is set.
    pub state: Option<String>,
    /// What the tunnel waits for before it can come up, such as `an address of HOST`; none if nothing is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
    /// Our public key in base64; none without a private key.
    pub public_key: Option<String>,
    /// UDP port; 0 while there is none.
    pub listen_port: u16,
    /// TCP ports that a server listens on.
    pub listen_tcp: Vec<u16>,
    /// Mark of outgoing datagrams; 0 for none.
    pub fwmark: u32,
    /// The device that the sockets are bound to.
    #[serde(skip)]
    pub bound_device: Option<String>,
    /// MTU of the interface, in bytes.
    pub mtu: u32,
    /// Reason for this MTU, in words; none where the daemon does not set it.
    pub mtu_reason: Option<String>,
    /// The result of probing the paths to the peers, in words; none without probes.
    pub mtu_probe: Option<String>,
    /// Threads of the data plane.
    pub workers: usize,
    /// Milliseconds since the daemon's start, by a clock that never jumps. Rates are computed
    /// from the difference of two documents.
    pub uptime_ms: u64,
    /// With OpenVPN, the host's own addresses in the tunnel.
    pub addresses: Vec<String>,
    /// Warnings, one sentence each, such as settings that the host did not apply because the kernel refused a route.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The peers: of an OpenVPN server its clients, of an OpenVPN client the server.
    pub peers: Vec<PeerStatus>,
    /// Refused messages of the control channel or of the handshake, and failed sessions, counted by reason.
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
    /// With OpenVPN the common name of the peer's certificate, or its user name; none without either.
    pub name: Option<String>,
    /// With OpenVPN the user name with which the peer logged in, if it did.
    pub username: Option<String>,
    /// With an OpenVPN server the client's number, for `client-kill` at the management port.
    pub client_id: Option<u64>,
    /// `udp` or `tcp`.
    pub transport: Option<String>,
    /// With OpenVPN the cipher of its data packets, once it is agreed on.
    pub cipher: Option<String>,
    /// The kind of code that computes the cipher: `portable`, `simd` or `accelerator`.
    pub crypto_backend: Option<String>,
    /// The provider of that code.
    pub backend: Option<String>,
    /// With OpenVPN, the start of the session in seconds since 1970.
    pub connected_unix: Option<u64>,
    /// The peer's address, `ADDRESS:PORT`, if known.
    pub endpoint: Option<String>,
    /// The peer's ranges, `ADDRESS/PREFIX`: with an OpenVPN server the client's own addresses and the networks behind
    /// it.
    pub allowed_ips: Vec<String>,
    /// Seconds since 1970 of the last handshake, if there was one.
    pub last_handshake_unix: Option<u64>,
    /// Seconds since the last handshake, by a clock that never jumps.
    pub latest_handshake_age: Option<u64>,
    /// Seconds since the last authentic packet of any kind came from the peer, by a clock that never jumps.
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
    /// The lines by which the peer may be reached, if there are any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<LineStatus>,
    /// Counts of reordering the peer's packets, if that is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<OrderStatus>,
}

/// One line of a peer.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct LineStatus {
    /// Name of the line.
    pub name: String,
    /// `unknown`, `up`, `degraded` or `down`.
    pub state: String,
    /// Reason for the state, in words.
    pub reason: String,
    /// Seconds since the state changed; none before the first change.
    pub state_age: Option<u64>,
    /// Packets to the peer go by this line.
    pub in_use: bool,
    /// The smoothed round trip in milliseconds, once one was measured.
    pub round_trip_ms: Option<f64>,
    /// The monthly allowance, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap: Option<CapStatus>,
    /// Packets sent by this line, copies included.
    pub sent: u64,
    /// Bytes of those packets, headers and tags included.
    pub sent_bytes: u64,
    /// Bytes received, headers and tags included, without copies.
    pub received_bytes: u64,
    /// Packets whose first copy came in time by this line.
    pub accepted: u64,
    /// First copies that came too late, when nothing waited for them.
    pub late: u64,
    /// Accepted packets that waited for an earlier one.
    pub buffered: u64,
    /// Copies of packets that had already come.
    pub duplicated: u64,
    /// Copies too old to tell whether the packet had come.
    pub ancient: u64,
}

impl LineStatus {
    /// The word before its name: the path of a peer that calls is named by that peer's address.
    #[must_use]
    pub fn noun(&self) -> &'static str {
        match self.name.parse::<std::net::IpAddr>() {
            Ok(_) => "path",
            Err(_) => "uplink",
        }
    }
}

/// The allowance of a line for a month, and its use: bytes of both directions, with the headers of UDP and IP.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct CapStatus {
    /// The allowance.
    pub cap_bytes: u64,
    /// The bytes carried in this month.
    pub used_bytes: u64,
    /// The allowance that is left, in bytes; 0 once it is exceeded.
    pub left_bytes: u64,
    /// The first day of the next month, `YEAR-MONTH-DAY`; none while the clock is not set.
    pub renews: Option<String>,
}

/// Counts of putting a peer's packets into order, over all lines.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct OrderStatus {
    /// Packets that came in time to be put into order.
    pub accepted: u64,
    /// Packets that came too late, when nothing waited for them.
    pub late: u64,
    /// Packets that wait now for an earlier one.
    pub waiting: u64,
    /// Packets that never came.
    pub lost: u64,
    /// Packets that the peer was asked to send again.
    pub asked: u64,
    /// Packets that came after they were asked for again.
    pub repaired: u64,
}

/// Counters and settings of the data plane.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct DataplaneStatus {
    /// The cipher of the packets; empty with OpenVPN, where each peer has its own.
    pub cipher: String,
    /// The kind of code that computes the cipher: `portable`, `simd` or `accelerator`; empty without encryption.
    pub crypto_backend: String,
    /// The implementation of the cipher that this machine uses.
    pub backend: String,
    /// Whether this build has code for accelerators; none from a daemon that does not report it.
    pub accelerators: Option<bool>,
    /// The measurements behind the choice of implementation; empty if a profile made it, or there was only one
    /// candidate.
    pub measured: Vec<MeasuredStatus>,
    /// Each rung of the offload ladder: `on`, `off (setting)`, `off (kernel: WHY)` or
    /// `off (demoted: WHY)`.
    pub rungs: BTreeMap<String, String>,
    /// Packets from the TUN to the peers.
    pub outbound: PipelineStatus,
    /// Packets from the peers to the TUN.
    pub inbound: PipelineStatus,
    /// Packets dropped, by reason.
    pub drops: BTreeMap<String, u64>,
    /// What limits the speed between the two samples, in words; empty without rates, or with too little traffic to
    /// tell. Filled in by the command, not by the daemon.
    pub limits: String,
}

/// The measured time of one candidate for the cipher: the shortest processor time of several runs.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct MeasuredStatus {
    /// Name of the candidate.
    pub name: String,
    /// Kind of the candidate: `portable`, `simd` or `accelerator`.
    pub kind: String,
    /// Bytes of each packet in the measured batch.
    pub batch_len: usize,
    /// Nanoseconds for each packet of that batch; none where the candidate was already far behind with small packets.
    pub batch_ns: Option<u64>,
    /// Bytes of the packet that was measured alone.
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
    /// System calls made to move the packets.
    pub syscalls: u64,
    /// Batches that a helper worked on.
    pub parallel_batches: u64,
    /// How long packets have recently waited in the sockets, averaged by bytes, in microseconds; 0 if unknown.
    pub waited_us: u64,
    /// Packets that a peer had compressed. This end never compresses.
    pub unpacked: u64,
    /// Packets a second; filled in by the command, not by the daemon.
    pub packet_rate: Option<u64>,
    /// Bits of inner packets a second; filled in by the command, not by the daemon.
    pub bit_rate: Option<u64>,
}

impl PeerStatus {
    /// The fields that identify a peer in two documents.
    fn identity(&self) -> (&str, Option<u64>, Option<u64>) {
        (&self.public_key, self.client_id, self.connected_unix)
    }
}

/// Counts of refused messages, by reason.
#[derive(Clone, Debug, Default)]
pub struct Refusals(BTreeMap<&'static str, u64>);

impl Refusals {
    /// Starts all counters at zero, so that the status shows them before they count.
    pub fn new(reasons: impl IntoIterator<Item = &'static str>) -> Self {
        Self(reasons.into_iter().map(|reason| (reason, 0)).collect())
    }

    /// Counts one more refusal.
    pub fn count(&mut self, reason: &'static str) {
        *self.0.entry(reason).or_default() += 1;
    }

    /// The counts, for the status document.
    pub fn to_map(&self) -> BTreeMap<String, u64> {
        let pairs = self.0.iter();
        pairs.map(|(name, n)| ((*name).to_owned(), *n)).collect()
    }
}

impl Status {
    /// Fills in the rates from an `earlier` document of the same daemon. New peers have none, and neither has
    /// anything after a restart of the daemon.
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

/// Bits a second; none when the counter went back, which happens when a peer is made anew.
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
            // The second client has connected anew meanwhile.
            peers: vec![client(1, 7, 60), client(0, 5, 2000)],
            ..Status::default()
        };
        now.fill_rates(&before);
        assert_eq!(now.peers[0].rx_rate, None);
        assert_eq!(now.peers[1].rx_rate, Some(8000));
    }

    /// Programs are written by docs/status.md, so it must describe every field.
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
