//! The server, its clients, and the simulated network between them.

use super::client::{Client, Outcome};
use super::data_plane::{DataPlane, heard};
use super::invariants;
use super::jobs::{Jobs, Start};
use super::management_client::ManagementClient;
use super::seen::Seen;
use super::setup;
use super::wire::{Agenda, Item, Packet};
use crate::inbox::Arrival;
use crate::openvpn::Ended;
use crate::openvpn::hooks::Hooks;
use crate::openvpn::policy::clients::ServerSide;
use crate::openvpn::policy::server_status::ServerStatus;
use crate::openvpn::policy::timestamp::Clock;
use crate::openvpn::seeded::Random;
use crate::openvpn::server::machine::{
    ClientFile, ConfigurationRead, Connections, Effect, Event, Machine, Now, Setup,
};
use crate::openvpn::signals::Signal;
use config::openvpn::OpenVpn;
use openvpn::server::Listener;
use openvpn::session::ClientSettings;
use plane::LineId;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

const SEC: Duration = Duration::from_secs(1);

/// Size of a world, and duration of its faults.
#[derive(Clone, Copy)]
pub(super) struct Size {
    pub(super) clients: usize,
    pub(super) max_clients: usize,
    pub(super) troubled: Duration,
    /// Handshakes run as background work.
    pub(super) apart: bool,
    /// Time after the start by which the last client connects.
    pub(super) come_within: Duration,
    /// `connect-freq-initial`
    pub(super) resets: (u32, Duration),
    /// Number of events between checks of the invariants.
    pub(super) check_every: u64,
}

pub(super) struct World {
    pub(super) size: Size,
    pub(super) now: Now,
    pub(super) random: Random,
    pub(super) agenda: Agenda,
    pub(super) machine: Machine<'static>,
    /// Configurations for reloads.
    configs: [&'static OpenVpn; 2],
    pub(super) clients: Vec<Client>,
    settings: Arc<ClientSettings>,
    pub(super) at: HashMap<SocketAddr, usize>,
    pub(super) data_plane: DataPlane,
    pub(super) jobs: Jobs,
    pub(super) management: ManagementClient,
    /// Counts of faults and rare events so far.
    pub(super) seen: Seen,
    pub(super) troubled: bool,
    /// Log lines about moved clients.
    pub(super) floats_told: u64,
    /// Log lines about sessions that were closed to make room.
    pub(super) crowded_out: u64,
    /// End of a network outage: nothing arrives before.
    pub(super) dead_until: Instant,
    /// The server's next deadline event.
    deadline: Option<Instant>,
    pub(super) next_port: u16,
    events: u64,
    ended: Option<Ended>,
}

impl World {
    pub(super) fn new(seed: u64, size: Size) -> Self {
        let now = Now {
            instant: Instant::now(),
            system: SystemTime::UNIX_EPOCH + SEC * 1_800_000_000,
        };
        let config_a = setup::config(size.max_clients, "");
        let config_b = setup::config(
            size.max_clients,
            "push \"route 192.168.9.0 255.255.255.0\"\n",
        );
        let settings = setup::listener_settings(config_a, size);
        let setup = Setup {
            config: config_a,
            material: Some([0; 32]),
            hooks: Hooks::new(config_a, None, now.system),
            temporary: "/tmp".into(),
            clock: Clock::utc(),
            mtu: 1500,
            listener: Listener::new(settings, now.instant, now.system),
            connections: Connections::new(size.max_clients, 1000),
            side: ServerSide {
                topology: config_a.network.topology.unwrap(),
                ifconfig: config_a.network.ifconfig,
                ifconfig_v6: None,
                pool_netmask: None,
                pool_bits_v6: None,
            },
            pool: Some(setup::pool()),
            passwords: None,
        };
        let mut world = Self {
            size,
            now,
            random: Random::new(seed),
            agenda: Agenda::default(),
            machine: Machine::new(setup, now),
            configs: [config_a, config_b],
            clients: (0..size.clients).map(Client::new).collect(),
            settings: Arc::new(setup::client_settings()),
            at: HashMap::new(),
            data_plane: DataPlane::default(),
            jobs: Jobs::default(),
            management: ManagementClient::new(),
            seen: Seen::default(),
            troubled: true,
            floats_told: 0,
            crowded_out: 0,
            dead_until: now.instant,
            deadline: None,
            next_port: 41_000,
            events: 0,
            ended: None,
        };
        world.tell(Event::InterfaceUp);
        for at in 0..size.clients {
            world.at.insert(world.clients[at].address, at);
            let soon = world.random.within(size.come_within);
            world.agenda.add(now.instant + soon, Item::Begin(at));
            world.agenda.add(now.instant + SEC + soon, Item::Talk(at));
        }
        world.agenda.add(now.instant, Item::Trouble);
        world
    }

    /// Stops all faults.
    pub(super) fn calm(&mut self) {
        self.troubled = false;
        self.dead_until = self.now.instant;
    }

    pub(super) fn run_for(&mut self, time: Duration) {
        let end = self.now.instant + time;
        let (mut steps, mut before) = (0, self.now.instant);
        loop {
            let next = [self.agenda.next_time(), self.deadline];
            let next = next.into_iter().flatten().min();
            let Some(next) = next.filter(|at| *at <= end && self.ended.is_none()) else {
                break;
            };
            self.pass(next);
            steps = if self.now.instant == before {
                steps + 1
            } else {
                0
            };
            before = self.now.instant;
            assert!(steps < 1_000_000, "time stands still");
            match self.agenda.take(self.now.instant) {
                Some(item) => self.happens(item),
                None => self.tell(Event::DeadlinePassed),
            }
        }
        self.pass(end);
    }

    fn pass(&mut self, to: Instant) {
        let passed = to.saturating_duration_since(self.now.instant);
        self.now.instant += passed;
        self.now.system += passed;
    }

    fn happens(&mut self, item: Item) {
        let now = self.now.instant;
        match item {
            Item::ToServer(from, Packet::Control(bytes)) => self.tell(Event::Packet(Arrival {
                from: heard(from),
                line: LineId::FIRST,
                stream: None,
                bytes: bytes.into(),
            })),
            Item::ToServer(from, Packet::Data(packet)) => {
                if let Some(event) = self.data_plane.arrive(from, &packet, now) {
                    self.tell(event);
                }
            }
            Item::ToClient(to, packet) => {
                let Some(at) = self.at.get(&to).copied() else {
                    return;
                };
                match packet {
                    Packet::Control(bytes) => self.client(at, |session, now, out| {
                        // Ignored: the sender repeats a dropped packet.
                        let _ = session.receive(&bytes, now, out);
                    }),
                    Packet::Data(packet) => {
                        self.clients[at].hear(&packet, now);
                    }
                }
            }
            Item::Begin(at) => {
                if self.clients[at].session.is_none() {
                    let system = self.now.system;
                    let outcome = self.clients[at].begin(&self.settings, now, system);
                    self.did(at, outcome);
                }
            }
            Item::Timer(at) => {
                // The deadline may be overdue after a jump in time.
                if self.clients[at].timer.is_some_and(|due| due <= now) {
                    self.clients[at].timer = None;
                    self.client(at, |session, now, out| session.expired(now, out));
                }
            }
            Item::Talk(at) => {
                let packets = self.clients[at].talk(now).into_iter().collect();
                let closed = false;
                self.did(at, Outcome { packets, closed });
                let next = now + SEC + self.random.within(SEC * 4);
                self.agenda.add(next, Item::Talk(at));
            }
            Item::JobDone(id, done) => {
                // A running job that was cancelled still ends.
                self.jobs.ended(id, &done, now, &mut self.random);
                self.tell(Event::JobDone(id, done));
            }
            Item::Handshaken(client, done) => {
                let orphaned = !self.machine.is_there(client);
                self.seen.orphaned_handshakes += u64::from(orphaned);
                self.tell(Event::Handshaken(client, done));
            }
            Item::Trouble if self.troubled => self.trouble(),
            Item::Trouble => {}
        }
    }

    /// Calls into a client's session.
    pub(super) fn client(
        &mut self,
        at: usize,
        call: impl FnOnce(&mut openvpn::session::Session, Instant, &mut Vec<openvpn::session::Output>),
    ) {
        let now = self.now.instant;
        let outcome = self.clients[at].call(now, |session, out| call(session, now, out));
        self.did(at, outcome);
    }

    fn did(&mut self, at: usize, outcome: Outcome) {
        let now = self.now.instant;
        let from = self.clients[at].address;
        for packet in outcome.packets {
            self.send(packet, |packet| Item::ToServer(from, packet));
        }
        if outcome.closed {
            let again = now + SEC + self.random.within(SEC * 5);
            self.agenda.add(again, Item::Begin(at));
        }
        let client = &mut self.clients[at];
        let due = client.session.as_ref().and_then(|it| it.next_deadline());
        if let Some(due) = due.map(|due| due.max(now))
            && client.timer != Some(due)
        {
            client.timer = Some(due);
            self.agenda.add(due, Item::Timer(at));
        }
    }

    /// Sends a packet over the wire, which may lose, duplicate or delay it.
    #[allow(clippy::needless_pass_by_value, reason = "as the executor has it")]
    fn send(&mut self, packet: Packet, item: impl Fn(Packet) -> Item) {
        let now = self.now.instant;
        if now < self.dead_until || (self.troubled && self.random.percent(8)) {
            return;
        }
        let twice = self.troubled && self.random.percent(3);
        for _ in 0..1 + u8::from(twice) {
            let delay = Duration::from_millis(5 + self.random.below(60));
            self.agenda.add(now + delay, item(packet.clone()));
        }
    }

    /// Gives the server an event and performs its effects.
    pub(super) fn tell(&mut self, event: Event<'static>) {
        let before = self.inside();
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            for effect in self.machine.handle(event, self.now) {
                events.extend(self.apply(effect));
            }
        }
        self.deadline = self.machine.next_deadline();
        self.events += 1;
        if self.events.is_multiple_of(self.size.check_every) {
            let inside = self.inside();
            assert!(
                inside <= self.size.max_clients.max(before),
                "more than max-clients"
            );
            invariants::check(&self.machine, &self.data_plane, &self.jobs);
        }
    }

    fn inside(&self) -> usize {
        if self.size.check_every > 1 && !self.events.is_multiple_of(self.size.check_every) {
            return 0;
        }
        self.status().clients.len()
    }

    /// Returns the server's status.
    pub(super) fn status(&self) -> ServerStatus {
        let state = |id| self.data_plane.state(id);
        self.machine.status(state, self.now)
    }

    /// Returns the counts of faults and rare events so far.
    pub(super) fn seen(&self) -> Seen {
        Seen {
            renewals: self.data_plane.renewals,
            floats: self.data_plane.floats,
            late_verdicts: self.jobs.late_verdicts,
            orphaned_jobs: self.jobs.orphaned,
            ..self.seen
        }
    }

    fn apply(&mut self, effect: Effect) -> Option<Event<'static>> {
        let now = self.now.instant;
        match effect {
            Effect::Plane(call) => {
                let (event, packet) = self.data_plane.call(call, now);
                if let Some((to, packet)) = packet {
                    self.send(packet, |packet| Item::ToClient(to, packet));
                }
                return event;
            }
            Effect::StartJob(id, _, job) => {
                match self.jobs.start(id, &job, &mut self.random, self.troubled) {
                    Start::Refused(event) => return Some(event),
                    Start::Ends(time, done) => {
                        self.agenda.add(now + time, Item::JobDone(id, done));
                    }
                    Start::Never => {}
                }
            }
            Effect::Handshake { client, work, .. } => {
                let done = Box::new(work.run());
                // Sometimes runs at once, as when the thread pool is full.
                if self.random.percent(10) {
                    return Some(Event::Handshaken(client, done));
                }
                let slow = self.troubled && self.random.percent(5);
                let most = if slow { SEC * 90 } else { SEC / 4 };
                let time = self.random.within(most);
                self.agenda.add(now + time, Item::Handshaken(client, done));
            }
            Effect::CancelJob(id) => assert!(self.jobs.running.remove(&id), "it has ended"),
            Effect::PollFiles(client, id) => return self.jobs.poll(client, id, now),
            Effect::ForgetFiles(id) => self.jobs.forget(id),
            Effect::ReadClientFile { client, .. } => {
                let luck = if self.troubled {
                    self.random.below(100)
                } else {
                    0
                };
                let file = match luck {
                    0..95 => ClientFile::Read(None),
                    95..97 => ClientFile::Unreadable("it is gone".to_owned()),
                    _ => ClientFile::Read(Some(("ccd/x".into(), "disable\n".to_owned()))),
                };
                return Some(Event::ClientFile(client, file));
            }
            Effect::ReadConfiguration => {
                let config = self.configs[self.random.below(2) as usize];
                let material = self.random.percent(80).then_some([0; 32]);
                let anew = Ok(());
                let read = ConfigurationRead {
                    config,
                    material,
                    anew,
                };
                let read = match self.random.percent(80) {
                    true => Ok(read),
                    false => Err("a line is wrong".to_owned()),
                };
                return Some(Event::ConfigurationRead(read));
            }
            Effect::FindRevoked(mut certified) => {
                certified.retain(|_| self.random.percent(5));
                let revoked = certified.into_iter().map(|(client, _)| client);
                return Some(Event::Revoked(revoked.collect()));
            }
            Effect::ReadPasswords => return Some(Event::PasswordsRead(Ok(None))),
            Effect::Log { level, text, .. } => {
                self.floats_told +=
                    u64::from(level == log::Level::Info && text.contains("floated"));
                self.crowded_out += u64::from(text.contains("made room"));
                self.management.logged(&text, self.now);
            }
            Effect::State(state, _) => self.management.state_changed(state, self.now),
            Effect::Exit(ended) => self.ended = Some(ended),
            _ => {}
        }
        None
    }

    /// Asserts that every permitted client is connected, on both ends.
    pub(super) fn all_are_in(&self) {
        let rows = self.status().clients;
        let wanted = self.size.clients.min(self.size.max_clients);
        assert_eq!(rows.len(), wanted, "clients in the status");
        let up = self.clients.iter().filter(|it| it.is_up()).count();
        assert!(up >= wanted, "{up} clients are up");
        assert!(self.data_plane.opened > 0);
    }

    /// Ends the server with SIGTERM.
    pub(super) fn end(&mut self) {
        self.tell(Event::Signal(Signal::Exit("SIGTERM")));
        self.run_for(SEC * 10);
        assert_eq!(self.ended, Some(Ended::Exit(0)));
    }

    pub(super) fn nothing_is_left(&self) {
        invariants::nothing_is_left(&self.machine, &self.data_plane, &self.jobs);
    }
}
