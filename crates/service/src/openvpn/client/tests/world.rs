//! A client and its servers on a simulated network and clock.

use super::data_plane::{DataPlane, Says, is_data};
use super::fake_host::Settings;
use super::server::{Sent, Server};
use crate::inbox::Arrival;
use crate::openvpn::Ended;
use crate::openvpn::client::event::Event;
use crate::openvpn::client::host::Cx;
use crate::openvpn::client::machine::{Machine, Parts};
use crate::openvpn::client::steps::Steps;
#[cfg(feature = "kernel")]
use crate::openvpn::kernel_plane::Choice;
use crate::openvpn::seeded::Random;
use config::openvpn::OpenVpn;
use lines::control::LineUsage;
use netio::udp::Endpoint;
use openvpn::data::inband;
use openvpn::data::wire::OpenVpn as Packets;
use openvpn::message::Message;
use openvpn::server::Remote;
use openvpn_host::management::State;
use openvpn_host::scripts::Hook;
use plane::Now;
use plane::fake::FakeDataPlane;
use plane::{LineId, LineMode, LineSet, Notice, StreamId};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

/// Steps at one moment that count as a busy loop.
const STEPS_AT_ONCE: usize = 500;

pub(super) fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Packet or event in flight.
pub(super) enum Flying {
    ToServer(SocketAddr, Remote, Vec<u8>),
    ToClient(SocketAddr, Remote, Vec<u8>),
    /// An event for the client.
    Event(Event),
}

/// Chance of each fault, in percent.
#[derive(Clone, Copy, Default)]
pub(super) struct Faults {
    pub(super) loss: u64,
    /// Look-ups that fail; half as many are never answered.
    pub(super) names: u64,
    pub(super) dials: u64,
    pub(super) host: u64,
    pub(super) scripts: u64,
    /// Management clients send a wrong password.
    pub(super) passwords: u64,
}

pub(super) struct World {
    pub(super) config: &'static OpenVpn,
    /// The client, except while it handles an event.
    machine: Option<Machine<'static>>,
    steps: Steps,
    pub(super) start: Instant,
    pub(super) now: Instant,
    /// The wall clock, which may jump.
    pub(super) wall: SystemTime,
    pub(super) random: Random,
    pub(super) faults: Faults,
    pub(super) servers: Vec<Server>,
    /// Whether the line carries packets.
    pub(super) line: bool,
    /// Which of several lines carry packets.
    pub(super) carries: [bool; 2],
    /// Which of several lines have a device that is up.
    pub(super) devices: [bool; 2],
    /// Whether sent packets count as data packets.
    pub(super) data: bool,
    /// Lines with open sockets.
    pub(super) open: BTreeSet<LineId>,
    /// Tests of lines, with their times.
    pub(super) tries: Vec<(Instant, LineId)>,
    /// Relay address of each line; `told`: the relay knows the client; `hellos`: number of hellos sent.
    pub(super) relayed: [Option<SocketAddr>; 2],
    pub(super) told: bool,
    /// Packets that a relay dropped because it did not know the client.
    pub(super) unannounced: usize,
    pub(super) hellos: usize,
    /// The line in use, and the sending mode of several lines.
    pub(super) used: LineId,
    pub(super) mode: LineMode,
    /// The client's outer address.
    pub(super) address: SocketAddr,
    /// The server's address and stream.
    pub(super) peer: Option<(SocketAddr, Option<StreamId>)>,
    /// Whether the data plane may follow the server.
    pub(super) float: bool,
    /// The server's address after a move.
    pub(super) heard_at: Option<SocketAddr>,
    pub(super) plane: DataPlane,
    /// The interface's data plane, as the client calls it.
    pub(super) fake: Option<Rc<FakeDataPlane<Packets>>>,
    pub(super) host: Settings,
    pub(super) interface: bool,
    /// How long a management client keeps the tunnel on hold.
    pub(super) holds: Option<Duration>,
    pub(super) streams: u64,
    flying: BTreeMap<(Instant, u64), Flying>,
    number: u64,
    pub(super) ended: Option<Ended>,
    pub(super) states: Vec<State>,
    pub(super) log: Vec<String>,
    /// Lines printed for the user who started the tunnel.
    pub(super) said: Vec<String>,
    /// Names and addresses that the client saved.
    pub(super) kept: Vec<(String, IpAddr)>,
    /// Dials, with time and server.
    pub(super) dials: Vec<(Instant, SocketAddr)>,
    /// How often a deadline woke the client.
    pub(super) wakes: usize,
    /// How often the client prompted for a password.
    pub(super) asked: usize,
    /// Name that the last dial shows a proxy.
    pub(super) proxy_user: Option<String>,
    /// Why no server answers, as the manager was told.
    pub(super) silent: Option<String>,
    /// A session was up since the last dial.
    pub(super) was_up: bool,
    /// Script that is running.
    pub(super) running: Option<Hook>,
    /// Bytes carried by each line since the interface was made, and the saved counts.
    pub(super) carried: [u64; 2],
    pub(super) usage: Vec<Vec<LineUsage>>,
    /// Scripts that have ended.
    pub(super) scripts: Vec<Hook>,
    /// Number of plan requests.
    pub(super) plans: usize,
    /// Duration of scripts; random if `None`.
    pub(super) script_time: Option<Duration>,
}

impl World {
    pub(super) fn new(config: &'static OpenVpn, servers: &[SocketAddr], seed: u64) -> Self {
        let start = Instant::now();
        // Within the certificates' validity.
        let wall = SystemTime::UNIX_EPOCH + secs(1_800_000_000);
        let now = Now {
            monotonic: start,
            wall,
        };
        Self {
            config,
            machine: Some(super::machine(config)),
            steps: Steps::default(),
            start,
            now: start,
            wall,
            random: Random::new(seed),
            faults: Faults::default(),
            servers: servers.iter().map(|it| Server::new(*it, now)).collect(),
            line: true,
            carries: [true; 2],
            devices: [true; 2],
            data: false,
            open: BTreeSet::new(),
            tries: Vec::new(),
            relayed: [None; 2],
            heard_at: None,
            told: false,
            unannounced: 0,
            hellos: 0,
            used: LineId::FIRST,
            mode: LineMode::Single,
            address: SocketAddr::from(([198, 51, 100, 7], 40_000)),
            peer: None,
            float: false,
            plane: DataPlane::default(),
            fake: None,
            host: Settings::default(),
            interface: false,
            holds: None,
            streams: 0,
            flying: BTreeMap::new(),
            number: 0,
            ended: None,
            states: Vec::new(),
            log: Vec::new(),
            said: Vec::new(),
            kept: Vec::new(),
            dials: Vec::new(),
            wakes: 0,
            asked: 0,
            proxy_user: None,
            silent: None,
            was_up: false,
            running: None,
            carried: [0; 2],
            usage: Vec::new(),
            scripts: Vec::new(),
            plans: 0,
            script_time: None,
        }
    }

    pub(super) fn now(&self) -> Now {
        Now {
            monotonic: self.now,
            wall: self.wall + (self.now - self.start),
        }
    }

    pub(super) fn throw(&mut self, delay: Duration, flying: Flying) {
        self.number += 1;
        self.flying.insert((self.now + delay, self.number), flying);
    }

    /// Returns a random duration between these milliseconds.
    fn between(&mut self, least: u64, most: u64) -> Duration {
        let range = Duration::from_millis(most - least);
        Duration::from_millis(least) + self.random.within(range)
    }

    pub(super) fn later(&mut self, least: u64, most: u64, event: Event) {
        let delay = self.between(least, most);
        self.throw(delay, Flying::Event(event));
    }

    pub(super) fn machine(&self) -> &Machine<'static> {
        self.machine.as_ref().unwrap()
    }

    /// Replaces the client by one that exits with this status when it gives up.
    pub(super) fn exits_with(&mut self, given_up: u8) {
        let parts = super::parts(self.config);
        self.machine = Some(Machine::new(Parts { given_up, ..parts }));
    }

    /// Replaces the client by one whose packets are moved as chosen.
    #[cfg(feature = "kernel")]
    pub(super) fn is_moved_by(&mut self, mover: &'static Choice) {
        let parts = super::parts(self.config);
        self.machine = Some(Machine::new(Parts { mover, ..parts }));
    }

    /// Calls the client.
    pub(super) fn with_machine(&mut self, call: impl FnOnce(&mut Machine<'static>, &mut Cx<'_>)) {
        let mut machine = self.machine.take().unwrap();
        let mut steps = std::mem::take(&mut self.steps);
        let mut cx = Cx {
            now: self.now(),
            plane: self.data_plane(),
            connected: machine.is_connected(),
            host: self,
            steps: &mut steps,
        };
        call(&mut machine, &mut cx);
        (self.machine, self.steps) = (Some(machine), steps);
        self.called();
    }

    /// Passes the client an event, and the events that follow at once.
    pub(super) fn handle(&mut self, event: Event) {
        self.steps.results.push_back(event);
        let mut count = 0;
        while let Some(event) = self.steps.results.pop_front() {
            count += 1;
            assert!(count < STEPS_AT_ONCE, "it never comes to rest");
            if self.ended.is_some() {
                return;
            }
            if let Event::ScriptFinished(hook, _) = &event {
                self.running = None;
                self.scripts.push(*hook);
                let mut steps = std::mem::take(&mut self.steps);
                steps.script_ended(self);
                self.steps = steps;
            }
            self.with_machine(|machine, cx| machine.handle(event, cx));
        }
        self.check();
    }

    /// Asserts the invariants.
    fn check(&mut self) {
        let connection = self.machine().connection().is_some();
        if self.machine().is_connected() {
            assert!(connection, "connected to something");
            assert!(
                self.host.set.is_some() && self.host.routes,
                "routes are set while connected"
            );
        }
        // Some steps still wait for the script.
        if self.running.is_some() {
            return;
        }
        if !connection {
            assert!(self.plane.keys.is_empty(), "no key is left");
            if !self.config.service.persist_tun {
                let left = self.host.set.is_some() || self.host.routes;
                assert!(!left, "nothing is set without a connection");
            }
        }
        if self.ended.is_some() {
            assert!(
                self.host.set.is_none() && !self.host.routes,
                "everything is undone"
            );
        }
    }

    /// Sends a packet to the server over this line.
    pub(super) fn send(&mut self, packet: &[u8]) {
        let lines = match self.mode {
            LineMode::Duplicate(lines) => lines,
            _ => LineSet::of(self.used),
        };
        for line in lines {
            self.send_by(line, packet.to_vec());
        }
    }

    /// Sends a packet to the server over this line.
    pub(super) fn send_by(&mut self, line: LineId, packet: Vec<u8>) {
        let Some((server, stream)) = self.peer else {
            return;
        };
        let address = self.address_on(line);
        let from = match stream {
            None => Remote::udp(address),
            Some(stream) => Remote::tcp(address, stream),
        };
        let forwarded = self.relayed[line.index()].is_none() || self.told;
        self.unannounced += usize::from(!forwarded);
        if let Some(delay) = self
            .carry(stream)
            .filter(|_| self.carries(line) && forwarded)
        {
            self.throw(delay, Flying::ToServer(server, from, packet));
        }
    }

    /// The client's outer address on a line.
    fn address_on(&self, line: LineId) -> SocketAddr {
        let mut address = self.address;
        address.set_port(address.port() + u16::from(line.0));
        address
    }

    pub(super) fn carries(&self, line: LineId) -> bool {
        let several = !self.config.lines.lines.is_empty();
        let open = match self.peer {
            Some((_, Some(_))) => self.devices[line.index()],
            _ => !several || self.open.contains(&line),
        };
        open && self.carries[line.index()]
    }

    /// Sends packets from a server to its clients.
    pub(super) fn fly(&mut self, from: SocketAddr, sent: Vec<Sent>) {
        for (to, packet) in sent {
            if let Some(delay) = self.carry(to.connection) {
                self.throw(delay, Flying::ToClient(from, to, packet));
            }
        }
    }

    /// Delay of a packet on the line; `None` if it is lost.
    fn carry(&mut self, stream: Option<StreamId>) -> Option<Duration> {
        let lost = stream.is_none() && self.random.percent(self.faults.loss);
        let jitter = match stream {
            None => self.between(5, 60),
            Some(_) => Duration::from_millis(20),
        };
        (self.line && !lost).then_some(jitter)
    }

    fn arrive(&mut self, flying: Flying) {
        let now = self.now();
        match flying {
            Flying::Event(event) => self.handle(event),
            Flying::ToServer(to, from, packet) => {
                let server = self.servers.iter_mut().find(|it| it.address == to);
                let sent = server.map(|it| it.receive(&packet, from, now));
                self.fly(to, sent.unwrap_or_default());
            }
            Flying::ToClient(from, to, packet) => self.arrive_at_client(from, to, packet),
        }
    }

    fn arrive_at_client(&mut self, from: SocketAddr, to: Remote, packet: Vec<u8>) {
        let Some((peer, stream)) = self.peer else {
            return;
        };
        let lines = [LineId(0), LineId(1)];
        let here = |line: &LineId| to.address == self.address_on(*line);
        let Some(line) = lines.into_iter().find(here) else {
            return;
        };
        if to.connection != stream || !self.carries(line) {
            return;
        }
        if is_data(&packet) {
            let known = from == peer || self.float;
            if !known || !self.plane.open(&packet, self.now) {
                return;
            }
            if from != peer {
                self.heard_at = Some(from);
                self.handle(Event::Notice(Notice::Moved { line }));
            }
            if Says::of(&packet) == Says::Options {
                self.handle(Event::Message(inband::options("V4").into()));
            }
            return;
        }
        self.handle(Event::Control(Arrival {
            from: Endpoint::new(self.relayed[line.index()].unwrap_or(from)),
            line,
            stream,
            bytes: packet.into(),
        }));
    }

    /// Cuts or restores the line. Streams do not survive that.
    pub(super) fn set_line(&mut self, line: bool) {
        self.line = line;
        if let (false, Some((_, Some(stream)))) = (line, self.peer) {
            self.later(1_000, 60_000, Event::StreamClosed(stream));
        }
        self.handle(Event::NetworkChanged);
    }

    /// Renews the keys on a server.
    pub(super) fn renew(&mut self, server: usize) {
        let now = self.now();
        let sent = self.servers[server].renew(now);
        let from = self.servers[server].address;
        self.fly(from, sent);
    }

    /// Has a server send its clients a message.
    pub(super) fn tell_clients(&mut self, server: usize, message: &Message) {
        let now = self.now();
        let sent = self.servers[server].say(message, 1, now);
        let from = self.servers[server].address;
        self.fly(from, sent);
    }

    /// Has a server disconnect its clients.
    pub(super) fn send_away(&mut self, server: usize, restart: &openvpn::message::Restart) {
        let now = self.now();
        let sent = self.servers[server].send_away(restart, now);
        let from = self.servers[server].address;
        self.fly(from, sent);
    }

    fn next(&self) -> Option<Instant> {
        let client = self.machine().next_deadline();
        let servers = self.servers.iter().filter_map(Server::next_deadline);
        let flying = self.flying.keys().next().map(|it| it.0);
        servers.chain(client).chain(flying).min()
    }

    /// Lets time pass until the client ends or the duration is over.
    pub(super) fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        let mut steps = 0;
        while self.ended.is_none() {
            let event = |it: &Flying| matches!(it, Flying::Event(_));
            let waits = self.machine().next_deadline().is_some() || self.flying.values().any(event);
            assert!(waits, "it waits for nothing that will ever come");
            let Some(next) = self.next().filter(|next| *next <= end) else {
                break;
            };
            steps = if next <= self.now { steps + 1 } else { 0 };
            assert!(steps < STEPS_AT_ONCE, "time stands still");
            self.now = self.now.max(next);
            self.step();
        }
        self.now = end;
    }

    fn step(&mut self) {
        let now = self.now();
        if self
            .machine()
            .next_deadline()
            .is_some_and(|at| at <= self.now)
        {
            self.wakes += 1;
            return self.handle(Event::Deadline);
        }
        if let Some((&key, _)) = self.flying.first_key_value()
            && key.0 <= self.now
            && let Some(flying) = self.flying.remove(&key)
        {
            return self.arrive(flying);
        }
        for at in 0..self.servers.len() {
            let server = &mut self.servers[at];
            if server.next_deadline().is_some_and(|at| at <= self.now) {
                let (from, sent) = (server.address, server.expired(now));
                self.fly(from, sent);
            }
        }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.machine().is_connected()
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.now - self.start
    }
}
