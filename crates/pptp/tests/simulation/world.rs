//! A client and a server, an ordered TCP connection, and a network that loses, delays and duplicates GRE packets.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pptp::mschap::Password;
use pptp::session::{
    Accounts, Client, ClientSettings, ConnectionId, DownReason, Ends, Entropy, LinkOutput, Server,
    ServerOutput, ServerSettings, Up,
};

/// A SplitMix64 generator.
#[derive(Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

pub(crate) fn entropy(seed: u64) -> Entropy {
    let random = Arc::new(Mutex::new(Random(seed)));
    Entropy::new(move |bytes| {
        let mut random = random.lock().unwrap();
        bytes.fill_with(|| random.next() as u8);
    })
}

/// Faults of the network for GRE packets; chances in a thousand.
#[derive(Clone, Copy, Default)]
pub(crate) struct Network {
    pub(crate) loss: u64,
    pub(crate) duplication: u64,
    /// Largest extra delay: packets sent closer together may be reordered.
    pub(crate) jitter: Duration,
}

pub(crate) const DELAY: Duration = Duration::from_millis(10);
pub(crate) const CLIENT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// The client, and the address of the server that it calls.
pub(crate) const CALLED: Ends = Ends {
    theirs: CLIENT,
    ours: Some(Ipv4Addr::new(198, 51, 100, 7)),
};
pub(crate) const USER: &str = "user";
pub(crate) const OTHER_USER: &str = "bob";

/// Two users of one name, in two domains.
pub(crate) const DOMAIN_USERS: [&str; 2] = ["A\\bob", "B\\bob"];
pub(crate) const PASSWORD: &str = "a password that you use nowhere else";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Client,
    Server,
}

enum Arrival {
    Tcp(End, Vec<u8>),
    Gre(End, Vec<u8>),
}

pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) random: Random,
    pub(crate) network: Network,
    pub(crate) client: Client,
    pub(crate) server: Server,
    pub(crate) connection: ConnectionId,
    arrivals: BTreeMap<(Instant, u64), Arrival>,
    serial: u64,
    pub(crate) client_up: Option<Up>,
    pub(crate) client_lines: Option<bool>,
    pub(crate) server_lines: bool,
    pub(crate) server_up: Option<(u16, Up)>,
    pub(crate) client_down: Option<DownReason>,
    pub(crate) server_down: Option<DownReason>,
    pub(crate) closed: bool,
    /// Inner packets that arrived, at the client and at the server.
    pub(crate) received: [Vec<Vec<u8>>; 2],
    /// Sequence numbers of the GRE data packets whose first copy has arrived.
    pub(crate) arrived: [BTreeSet<u32>; 2],
    /// A change applied to each GRE packet in transit.
    pub(crate) tamper: Option<fn(&mut Random, &mut Vec<u8>)>,
}

pub(crate) fn client_settings() -> ClientSettings {
    let mut settings = ClientSettings::new(USER.into(), Password::new(PASSWORD.into()));
    settings.common.allow_insecure = true;
    settings
}

pub(crate) fn server_settings() -> ServerSettings {
    let pool = (10..14).map(|last| Ipv4Addr::new(10, 0, 0, last)).collect();
    let mut settings = ServerSettings::new(Ipv4Addr::new(10, 0, 0, 1), pool);
    settings.common.allow_insecure = true;
    settings.dns = [Some(Ipv4Addr::new(10, 0, 0, 53)), None];
    settings
}

pub(crate) fn accounts() -> Box<dyn Accounts> {
    Box::new(
        [USER, OTHER_USER, DOMAIN_USERS[0], DOMAIN_USERS[1]]
            .map(|user| (user.into(), Password::new(PASSWORD.into())))
            .to_vec(),
    )
}

impl World {
    pub(crate) fn new(seed: u64, client: ClientSettings, server: ServerSettings) -> Self {
        let now = Instant::now();
        let client = Client::new(client, entropy(seed), now).unwrap();
        let mut server = Server::new(server, accounts(), entropy(!seed)).unwrap();
        let connection = server.accept(CALLED, now, &mut Vec::new());
        let mut world = Self {
            now,
            random: Random(seed ^ 0x5555),
            network: Network::default(),
            client,
            server,
            connection,
            arrivals: BTreeMap::new(),
            serial: 0,
            client_up: None,
            client_lines: None,
            server_lines: false,
            server_up: None,
            client_down: None,
            server_down: None,
            closed: false,
            received: [Vec::new(), Vec::new()],
            arrived: [BTreeSet::new(), BTreeSet::new()],
            tamper: None,
        };
        world.flush(Vec::new(), Vec::new());
        world
    }

    /// Runs until no work is left, `until` returns true, or `most` has passed.
    pub(crate) fn run(&mut self, most: Duration, until: impl Fn(&Self) -> bool) -> bool {
        let end = self.now + most;
        while !until(self) {
            let arrival = self.arrivals.keys().next().map(|(at, _)| *at);
            let deadlines = [self.client.deadline(), self.server.deadline(), arrival];
            let Some(next) = deadlines
                .into_iter()
                .flatten()
                .min()
                .filter(|&next| next <= end)
            else {
                self.now = end;
                return until(self);
            };
            self.now = self.now.max(next);
            self.step();
        }
        true
    }

    pub(crate) fn both_up(&self) -> bool {
        self.client_up.is_some() && self.server_up.is_some()
    }

    fn step(&mut self) {
        let (mut client, mut server) = (Vec::new(), Vec::new());
        let now = self.now;
        while self
            .arrivals
            .keys()
            .next()
            .is_some_and(|(at, _)| *at <= now)
        {
            let (_, arrival) = self.arrivals.pop_first().unwrap();
            match arrival {
                Arrival::Tcp(End::Client, bytes) => {
                    self.client.receive_control(&bytes, now, &mut client);
                }
                Arrival::Tcp(End::Server, bytes) => {
                    self.server
                        .receive_control(self.connection, &bytes, now, &mut server);
                }
                Arrival::Gre(End::Client, mut packet) => {
                    self.arrived[0].extend(sequence(&packet));
                    if let Some(inner) = self.client.receive_gre(&mut packet, now, &mut client) {
                        self.received[0].push(packet[inner].to_vec());
                    }
                }
                Arrival::Gre(End::Server, mut packet) => {
                    self.arrived[1].extend(sequence(&packet));
                    let found = self
                        .server
                        .receive_gre(CLIENT, &mut packet, now, &mut server);
                    if let Some((_, inner)) = found {
                        self.received[1].push(packet[inner].to_vec());
                    }
                }
            }
        }
        self.client.expire(now, &mut client);
        self.server.expire(now, &mut server);
        self.flush(client, server);
    }

    /// Processes the outputs of both ends.
    pub(crate) fn flush(&mut self, client: Vec<LinkOutput>, server: Vec<ServerOutput>) {
        for output in client {
            match output {
                LinkOutput::Gre(packet) => self.gre(End::Server, packet),
                LinkOutput::Up(up) => self.client_up = Some(up),
                LinkOutput::Lines(agreed) => self.client_lines = Some(agreed),
                LinkOutput::LoggedIn | LinkOutput::Echoed | LinkOutput::ControlLost(_) => {}
                LinkOutput::Down(reason) => {
                    assert_eq!(self.client_down, None, "it goes down once");
                    self.client_down = Some(reason);
                }
            }
        }
        for output in server {
            match output {
                ServerOutput::Gre { to, packet } => {
                    assert_eq!(to, CALLED);
                    self.gre(End::Client, packet);
                }
                ServerOutput::Up { call, up } => self.server_up = Some((call, up)),
                ServerOutput::Lines { .. } => self.server_lines = true,
                ServerOutput::ControlLost { .. } => {}
                ServerOutput::Down { reason, .. } => self.server_down = Some(reason),
                ServerOutput::Closed { .. } => self.closed = true,
            }
        }
        let bytes = self.client.transmit().to_vec();
        self.client.transmitted(bytes.len());
        self.tcp(End::Server, &bytes);
        let bytes = self.server.transmit(self.connection).to_vec();
        self.server.transmitted(self.connection, bytes.len());
        self.tcp(End::Client, &bytes);
    }

    fn tcp(&mut self, to: End, bytes: &[u8]) {
        if !bytes.is_empty() {
            // Splits the TCP stream at a random position.
            let cut = self.random.below(bytes.len() as u64 + 1) as usize;
            for part in [&bytes[..cut], &bytes[cut..]] {
                self.arrive(DELAY, Arrival::Tcp(to, part.to_vec()));
            }
        }
    }

    pub(crate) fn gre(&mut self, to: End, mut packet: Vec<u8>) {
        if let Some(tamper) = self.tamper {
            tamper(&mut self.random, &mut packet);
        }
        let copies = 1 + u64::from(self.random.below(1000) < self.network.duplication);
        for _ in 0..copies {
            if self.random.below(1000) < self.network.loss {
                continue;
            }
            let jitter = self.network.jitter.as_micros() as u64;
            let extra = Duration::from_micros(self.random.below(jitter + 1));
            self.arrive(DELAY + extra, Arrival::Gre(to, packet.clone()));
        }
    }

    fn arrive(&mut self, delay: Duration, arrival: Arrival) {
        self.serial += 1;
        self.arrivals
            .insert((self.now + delay, self.serial), arrival);
    }

    /// Sends an inner packet, and returns its sequence number.
    pub(crate) fn send(&mut self, from: End, packet: &[u8]) -> u32 {
        let mut out = Vec::new();
        match from {
            End::Client => {
                let sent = self.client.send(packet, &mut out);
                sent.unwrap_or_else(|error| panic!("{error}: {:?}", self.client));
                let number = sequence(&out).unwrap();
                self.gre(End::Server, out);
                number
            }
            End::Server => {
                let call = self.server_up.as_ref().unwrap().0;
                let sent = self.server.send(call, packet, self.now, &mut out);
                sent.unwrap_or_else(|error| panic!("{error}: {:?}", self.server.call(call)));
                let number = sequence(&out).unwrap();
                self.gre(End::Client, out);
                number
            }
        }
    }
}

/// The sequence number of a GRE packet.
fn sequence(packet: &[u8]) -> Option<u32> {
    pptp::gre::Packet::parse(packet).ok()?.header.sequence
}

/// An IPv4 packet, as far as these tests check it, with unique content.
pub(crate) fn packet(random: &mut Random, number: u32) -> Vec<u8> {
    let mut packet = vec![0x45, 0];
    packet.extend(number.to_be_bytes());
    let len = 20 + random.below(1200) as usize;
    packet.resize_with(len, || random.next() as u8);
    packet
}
