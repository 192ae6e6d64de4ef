//! A host in memory, for tests: it answers from its fields, and records the calls that it gets.

use super::host::Host;
use ::wireguard::WireGuard;
use config::types::Key32;
use lines::control::{LineFacts, LineUsage};
use lines::names::LookUp;
use plane::{Endpoint, LineId, Transports};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::SystemTime;

/// A data plane whose sockets are ports, as the one of `plane::fake`.
pub type FakePlane = dyn Transports<Protocol = WireGuard, Sockets = u16, Connection = SocketAddr>;

/// A host in memory.
pub struct FakeHost {
    /// The data plane that gets the sockets.
    pub plane: Arc<FakePlane>,
    /// The state of the lines' devices.
    pub facts: Vec<Option<LineFacts>>,
    /// Opening sockets fails.
    pub refuses: bool,
    /// Port returned when any port will do.
    pub port: u16,
    /// Index of the interface through which every address is reached.
    pub ifindex: u32,
    /// The source whose packets leave through another interface, and its index.
    pub rule: Option<(IpAddr, u32)>,
    /// How often the devices of the lines were read.
    pub reads: usize,
    /// Look-ups that were started.
    pub lookups: Vec<LookUp>,
    /// How often the MTUs of the paths were read.
    pub path_looks: usize,
    /// How often the owner was told of a change.
    pub changes: usize,
    /// Token of the awaited ping answers; 0 for none.
    pub token: u64,
    /// The last token other than 0.
    pub last_token: u64,
    /// Log messages.
    pub said: Vec<String>,
    /// The saved upper bound of stamps.
    pub floor: SystemTime,
    /// The saved bytes of lines, one entry for each write.
    pub usage: Vec<Vec<LineUsage>>,
    /// The saved addresses of names.
    pub addresses: Vec<(String, IpAddr)>,
    /// The saved addresses of peers.
    pub peers: Vec<(Key32, Endpoint)>,
    /// Numbers of rejected datagrams that the machine has asked for.
    pub samples: Vec<u32>,
    /// Our index of the session with a keepalive without `S4`.
    pub bare: Option<u32>,
    /// The interface's addresses.
    #[cfg(feature = "postquantum")]
    pub own: super::OwnAddresses,
    /// Jobs that were begun.
    #[cfg(feature = "postquantum")]
    pub jobs: Vec<(plane::PeerId, postquantum::Job)>,
}

impl FakeHost {
    /// Makes a host without lines, which opens sockets in this data plane.
    #[must_use]
    pub fn new(plane: Arc<FakePlane>) -> Self {
        Self {
            plane,
            facts: Vec::new(),
            refuses: false,
            port: 51820,
            ifindex: 1,
            rule: None,
            reads: 0,
            lookups: Vec::new(),
            path_looks: 0,
            changes: 0,
            token: 0,
            last_token: 0,
            said: Vec::new(),
            floor: SystemTime::UNIX_EPOCH,
            usage: Vec::new(),
            addresses: Vec::new(),
            peers: Vec::new(),
            samples: Vec::new(),
            bare: None,
            #[cfg(feature = "postquantum")]
            own: vec![([10, 0, 0, 1].into(), 24)],
            #[cfg(feature = "postquantum")]
            jobs: Vec::new(),
        }
    }
}

impl Host for FakeHost {
    fn open_sockets(&mut self, line: LineId, port: u16, _: u32) -> Result<u16, String> {
        if self.refuses {
            return Err("address in use".to_owned());
        }
        let port = if port == 0 { self.port } else { port };
        self.plane
            .open_line(line, port)
            .map_err(|e| e.to_string())?;
        Ok(port)
    }

    fn set_mark(&mut self, _: u32) -> Result<(), String> {
        Ok(())
    }

    fn line_facts(&mut self) -> Vec<Option<LineFacts>> {
        self.reads += 1;
        self.facts.clone()
    }

    fn keep_usage(&mut self, usage: &[LineUsage]) {
        self.usage.push(usage.to_vec());
    }

    fn keep_floor(&mut self, floor: SystemTime) {
        self.floor = floor;
    }

    fn keep_address(&mut self, name: &str, address: IpAddr) {
        self.addresses.push((name.to_owned(), address));
    }

    fn keep_peers(&mut self, peers: &[(Key32, Endpoint)]) {
        self.peers = peers.to_vec();
    }

    fn look_up(&mut self, lookup: LookUp) {
        self.lookups.push(lookup);
    }

    fn interfaces_to(&mut self, _: u32, ways: &[(IpAddr, IpAddr)]) -> Vec<Option<u32>> {
        let ruled = |from| self.rule.filter(|(source, _)| *source == from);
        let index = |(_, from): &(_, IpAddr)| ruled(*from).map_or(self.ifindex, |(_, it)| it);
        ways.iter().map(|way| Some(index(way))).collect()
    }

    #[cfg(feature = "amnezia")]
    fn sample(&mut self, count: u32) {
        self.samples.push(count);
    }

    #[cfg(feature = "amnezia")]
    fn take_bare_keepalive(&mut self) -> Option<u32> {
        self.bare.take()
    }

    fn check_link(&mut self) {}

    #[cfg(feature = "postquantum")]
    fn own_addresses(&mut self) -> super::OwnAddresses {
        self.own.clone()
    }

    #[cfg(feature = "postquantum")]
    fn compute(&mut self, peer: plane::PeerId, job: postquantum::Job) {
        self.jobs.push((peer, job));
    }

    fn watch_echoes(&mut self, token: u64) {
        self.token = token;
        if token != 0 {
            self.last_token = token;
        }
    }

    fn changed(&mut self) {
        self.changes += 1;
    }

    fn look_at_path(&mut self) {
        self.path_looks += 1;
    }

    fn log(&mut self, _: log::Level, words: &str) {
        self.said.push(words.to_owned());
    }
}
