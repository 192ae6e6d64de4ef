//! A machine of the world: an interface, its data plane and its clocks.

use crate::plane::Plane;
use config::uapi::{Request, Requests, SetDevice, write_get};
use crypto::x25519::PrivateKey;
use plane::Now;
use plane::{DataPlane as _, LineId};
use service::wireguard::Machine;
use service::wireguard::fixture::FakeHost;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant, SystemTime};

/// A host's configuration of one of its peers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Saying {
    pub(crate) preshared: Option<[u8; 32]>,
    pub(crate) endpoint: Option<SocketAddr>,
    pub(crate) keepalive: u16,
}

pub(crate) struct Host {
    pub(crate) machine: Machine,
    pub(crate) plane: Plane,
    /// Everything else that the machine calls, with its files.
    pub(crate) outside: FakeHost,
    pub(crate) key: [u8; 32],
    /// The host's address on the wire, which may change.
    pub(crate) ip: IpAddr,
    /// The host's address in the tunnel.
    pub(crate) inner: IpAddr,
    pub(crate) link_up: bool,
    /// The time of day when the world began, by the host's clock.
    pub(crate) wall: SystemTime,
    /// Until this time the host is under load: more handshake messages wait than it can serve.
    pub(crate) load: Option<Instant>,
    /// Received packets, each with its sender.
    pub(crate) heard: BTreeMap<u64, IpAddr>,
}

pub(crate) fn hex(bytes: &[u8; 32]) -> String {
    let mut text = String::new();
    for byte in bytes {
        write!(text, "{byte:02x}").unwrap();
    }
    text
}

impl Host {
    pub(crate) fn new(number: usize, key: [u8; 32], now: Now) -> Self {
        let number = number as u8;
        let plane = Plane::new();
        Self {
            machine: Machine::new(now, u64::from(number)),
            outside: FakeHost::new(plane.fake.clone()),
            plane,
            key,
            ip: Ipv4Addr::new(10, 0, 0, number + 1).into(),
            inner: Ipv4Addr::new(192, 168, 0, number + 1).into(),
            link_up: false,
            wall: now.wall,
            load: None,
            heard: BTreeMap::new(),
        }
    }

    /// Simulates a power failure: only data on disk survives. The clock then shows `wall`.
    pub(crate) fn begin_anew(&mut self, wall: SystemTime, now: Now) {
        self.wall = wall;
        let now = Now { wall, ..now };
        self.machine = Machine::new(now, 7);
        self.machine.restore_floor(self.outside.floor);
        self.plane = Plane::new();
        self.link_up = false;
        self.outside = FakeHost {
            floor: self.outside.floor,
            peers: std::mem::take(&mut self.outside.peers),
            ..FakeHost::new(self.plane.fake.clone())
        };
    }

    pub(crate) fn public(&self) -> [u8; 32] {
        *PrivateKey::new(self.key).public().as_bytes()
    }

    pub(crate) fn now(&self, now: Instant, elapsed: Duration) -> Now {
        Now {
            monotonic: now,
            wall: self.wall + elapsed,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::new(self.ip, self.bound().unwrap_or(51820))
    }

    /// The port of the sockets, if they are open.
    pub(crate) fn bound(&self) -> Option<u16> {
        self.plane.fake.port(LineId::FIRST)
    }

    /// The text for `wg show`.
    pub(crate) fn told(&self) -> String {
        let (device, peers) = self.machine.state(&*self.plane.fake);
        let mut text = Vec::new();
        write_get(&mut text, &device, peers).unwrap();
        String::from_utf8(text).unwrap()
    }
}

/// Parses this text into the request that `wg` would send.
pub(crate) fn configuration(text: &str) -> SetDevice {
    let text = format!("set=1\n{text}\n");
    let request = Requests::new(text.as_bytes()).next_request().unwrap();
    match request.unwrap() {
        Ok(Request::Set(set)) => set,
        other => panic!("{text}: {other:?}"),
    }
}

/// The configuration lines for a peer whose tunnel address is `inner`.
pub(crate) fn peer_text(public: &[u8; 32], inner: IpAddr, saying: &Saying) -> String {
    let mut text = format!("public_key={}\n", hex(public));
    if let Some(key) = &saying.preshared {
        writeln!(text, "preshared_key={}", hex(key)).unwrap();
    }
    if let Some(endpoint) = saying.endpoint {
        writeln!(text, "endpoint={endpoint}").unwrap();
    }
    let keepalive = saying.keepalive;
    writeln!(text, "persistent_keepalive_interval={keepalive}").unwrap();
    writeln!(text, "replace_allowed_ips=true\nallowed_ip={inner}/32").unwrap();
    text
}
