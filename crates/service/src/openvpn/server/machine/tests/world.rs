//! The server, its clients, and the simulated network between them.

use super::client::{Client, Outcome};
use super::data_plane::{DataPlane, heard};
use super::invariants;
use super::jobs::Jobs;
use super::management_client::ManagementClient;
use super::seen::Seen;
use super::setup;
use super::wire::{Agenda, Item, Packet};
use crate::inbox::Arrival;
use crate::openvpn::Ended;
use crate::openvpn::seeded::Random;
use crate::openvpn::server::machine::{
    ClientFile, ClientKey, ConfigurationRead, Connections, Cx, Event, Host, Job, JobId, Machine,
    Polled, Setup,
};
use config::openvpn::OpenVpn;
use openvpn::server::Listener;
use openvpn::session::{ClientSettings, Handshake};
use openvpn::verify::PeerCertificate;
use openvpn_host::accounts::ServerSide;
use openvpn_host::accounts::client_names::ClientNames;
use openvpn_host::accounts::htpasswd::PasswordFile;
use openvpn_host::hooks::Hooks;
use openvpn_host::management::State;
use openvpn_host::signals::Signal;
use openvpn_host::status_file::server::ServerStatus;
use openvpn_host::timestamp::Clock;
use plane::Now;
use plane::{LineId, SourceNetwork, StreamId};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

const SEC: Duration = Duration::from_secs(1);

/// Size of a world, and duration of its faults.
#[derive(Clone, Copy)]
pub(super) struct Size {
    pub(super) clients: usize,
    pub(super) max_clients: usize,
    pub(super) troubled: Duration,
    /// Whether handshakes run as background work.
    pub(super) apart: bool,
    /// Time after the start by which the last client connects.
    pub(super) come_within: Duration,
    /// `connect-freq-initial`
    pub(super) resets: (u32, Duration),
    /// Number of events between checks of the invariants.
    pub(super) check_every: u64,
}

pub(super) struct World {
    pub(super) machine: Machine<'static>,
    pub(super) data_plane: DataPlane,
    pub(super) around: Around,
}

/// Everything but the server and its data plane: the server's host, the wire and the clients.
pub(super) struct Around {
    pub(super) size: Size,
    pub(super) now: Now,
    pub(super) random: Random,
    pub(super) agenda: Agenda,
    /// Configurations for reloads.
    configs: [&'static OpenVpn; 2],
    pub(super) clients: Vec<Client>,
    settings: Arc<ClientSettings>,
    pub(super) at: HashMap<SocketAddr, usize>,
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
    /// Events that the server gets next.
    next: VecDeque<Event<'static>>,
    pub(super) ended: Option<Ended>,
    /// The file of each client in `client-config-dir`, while there are no faults.
    pub(super) file: Option<String>,
    /// Warnings and errors in the log, while there are no faults.
    pub(super) logged: Vec<String>,
    /// Whether files that only the start reads are unreadable, while there are no faults.
    pub(super) unreadable: bool,
    /// How often the certificate was read again.
    pub(super) renewals: u32,
}

impl World {
    pub(super) fn new(seed: u64, size: Size) -> Self {
        Self::with(seed, size, "")
    }

    /// A world whose server has `more` lines in its configuration.
    pub(super) fn with(seed: u64, size: Size, more: &'static str) -> Self {
        let now = Now {
            monotonic: Instant::now(),
            wall: SystemTime::UNIX_EPOCH + SEC * 1_800_000_000,
        };
        let config_a = setup::config(size.max_clients, more);
        let config_b = setup::config(
            size.max_clients,
            "push \"route 192.168.9.0 255.255.255.0\"\n",
        );
        let settings = setup::listener_settings(config_a, size);
        let setup = Setup {
            config: config_a,
            material: Some([0; 32]),
            hooks: Hooks::new(config_a, None, now.wall),
            temporary: "/tmp".into(),
            clock: Clock::utc(),
            mtu: 1500,
            listener: Listener::new(settings, now.monotonic, now.wall),
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
            names: ClientNames::read(config_a).unwrap(),
        };
        let around = Around {
            size,
            now,
            random: Random::new(seed),
            agenda: Agenda::default(),
            configs: [config_a, config_b],
            clients: (0..size.clients).map(Client::new).collect(),
            settings: Arc::new(setup::client_settings()),
            at: HashMap::new(),
            jobs: Jobs::default(),
            management: ManagementClient::new(),
            seen: Seen::default(),
            troubled: true,
            floats_told: 0,
            crowded_out: 0,
            dead_until: now.monotonic,
            deadline: None,
            next_port: 41_000,
            events: 0,
            next: VecDeque::new(),
            ended: None,
            file: None,
            logged: Vec::new(),
            unreadable: false,
            renewals: 0,
        };
        let mut world = Self {
            machine: Machine::new(setup, now),
            data_plane: DataPlane::new(),
            around,
        };
        world.tell(Event::InterfaceUp);
        for at in 0..size.clients {
            world.around.at.insert(world.around.clients[at].address, at);
            let soon = world.around.random.within(size.come_within);
            world
                .around
                .agenda
                .add(now.monotonic + soon, Item::Begin(at));
            world
                .around
                .agenda
                .add(now.monotonic + SEC + soon, Item::Talk(at));
        }
        world.around.agenda.add(now.monotonic, Item::Trouble);
        world
    }

    /// Stops all faults.
    pub(super) fn calm(&mut self) {
        self.around.troubled = false;
        self.around.dead_until = self.around.now.monotonic;
    }

    pub(super) fn run_for(&mut self, time: Duration) {
        let end = self.around.now.monotonic + time;
        let (mut steps, mut before) = (0, self.around.now.monotonic);
        loop {
            let next = [self.around.agenda.next_time(), self.around.deadline];
            let next = next.into_iter().flatten().min();
            let Some(next) = next.filter(|at| *at <= end && self.around.ended.is_none()) else {
                break;
            };
            self.pass(next);
            steps = if self.around.now.monotonic == before {
                steps + 1
            } else {
                0
            };
            before = self.around.now.monotonic;
            assert!(steps < 1_000_000, "time stands still");
            match self.around.agenda.take(self.around.now.monotonic) {
                Some(item) => self.happens(item),
                None => self.tell(Event::DeadlinePassed),
            }
        }
        self.pass(end);
    }

    fn pass(&mut self, to: Instant) {
        let passed = to.saturating_duration_since(self.around.now.monotonic);
        self.around.now.monotonic += passed;
        self.around.now.wall += passed;
    }

    fn happens(&mut self, item: Item) {
        let now = self.around.now.monotonic;
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
                let Some(at) = self.around.at.get(&to).copied() else {
                    return;
                };
                match packet {
                    Packet::Control(bytes) => self.client(at, |session, now, out| {
                        // Ignored: the sender repeats a dropped packet.
                        let _ = session.receive(&bytes, now, out);
                    }),
                    Packet::Data(packet) => {
                        self.around.clients[at].hear(&packet, now);
                    }
                }
            }
            Item::Begin(at) => {
                if self.around.clients[at].session.is_none() {
                    let system = self.around.now.wall;
                    let outcome = self.around.clients[at].begin(&self.around.settings, now, system);
                    self.did(at, outcome);
                }
            }
            Item::Timer(at) => {
                // The deadline may be overdue after a jump in time.
                if self.around.clients[at].timer.is_some_and(|due| due <= now) {
                    self.around.clients[at].timer = None;
                    self.client(at, |session, now, out| session.expired(now, out));
                }
            }
            Item::Talk(at) => {
                let packets = self.around.clients[at].talk(now).into_iter().collect();
                let closed = false;
                self.did(at, Outcome { packets, closed });
                let next = now + SEC + self.around.random.within(SEC * 4);
                self.around.agenda.add(next, Item::Talk(at));
            }
            Item::JobDone(id, done) => {
                // A running job that was cancelled still ends.
                self.around
                    .jobs
                    .ended(id, &done, now, &mut self.around.random);
                self.tell(Event::JobDone(id, done));
            }
            Item::Handshaken(client, done) => {
                let orphaned = !self.machine.is_there(client);
                self.around.seen.orphaned_handshakes += u64::from(orphaned);
                self.tell(Event::Handshaken(client, done));
            }
            Item::Trouble if self.around.troubled => self.trouble(),
            Item::Trouble => {}
        }
    }

    /// Calls into a client's session.
    pub(super) fn client(
        &mut self,
        at: usize,
        call: impl FnOnce(&mut openvpn::session::Session, Instant, &mut Vec<openvpn::session::Output>),
    ) {
        let now = self.around.now.monotonic;
        let outcome = self.around.clients[at].call(now, |session, out| call(session, now, out));
        self.did(at, outcome);
    }

    fn did(&mut self, at: usize, outcome: Outcome) {
        let now = self.around.now.monotonic;
        let from = self.around.clients[at].address;
        for packet in outcome.packets {
            self.send(packet, |packet| Item::ToServer(from, packet));
        }
        if outcome.closed {
            let again = now + SEC + self.around.random.within(SEC * 5);
            self.around.agenda.add(again, Item::Begin(at));
        }
        let client = &mut self.around.clients[at];
        let due = client.session.as_ref().and_then(|it| it.next_deadline());
        if let Some(due) = due.map(|due| due.max(now))
            && client.timer != Some(due)
        {
            client.timer = Some(due);
            self.around.agenda.add(due, Item::Timer(at));
        }
    }

    /// Sends a packet over the wire, which may lose, duplicate or delay it.
    #[allow(clippy::needless_pass_by_value, reason = "as the executor has it")]
    fn send(&mut self, packet: Packet, item: impl Fn(Packet) -> Item) {
        let now = self.around.now.monotonic;
        if now < self.around.dead_until || (self.around.troubled && self.around.random.percent(8)) {
            return;
        }
        let twice = self.around.troubled && self.around.random.percent(3);
        for _ in 0..1 + u8::from(twice) {
            let delay = Duration::from_millis(5 + self.around.random.below(60));
            self.around.agenda.add(now + delay, item(packet.clone()));
        }
    }

    /// Passes the server an event and performs its effects.
    pub(super) fn tell(&mut self, event: Event<'static>) {
        let before = self.inside();
        self.around.next.push_back(event);
        while let Some(event) = self.around.next.pop_front() {
            let mut cx = Cx {
                now: self.around.now,
                plane: &self.data_plane.fake,
                host: &mut self.around,
            };
            self.machine.handle(event, &mut cx);
            for (to, packet) in self.data_plane.called(self.around.now.monotonic) {
                self.send(packet, |packet| Item::ToClient(to, packet));
            }
        }
        self.around.deadline = self.machine.next_deadline(self.around.now.monotonic);
        self.around.events += 1;
        if self
            .around
            .events
            .is_multiple_of(self.around.size.check_every)
        {
            let inside = self.inside();
            assert!(
                inside <= self.around.size.max_clients.max(before),
                "more than max-clients"
            );
            invariants::check(&self.machine, &self.data_plane, &self.around.jobs);
        }
    }

    fn inside(&self) -> usize {
        if self.around.size.check_every > 1
            && !self
                .around
                .events
                .is_multiple_of(self.around.size.check_every)
        {
            return 0;
        }
        self.status().clients.len()
    }

    /// Returns the server's status.
    pub(super) fn status(&self) -> ServerStatus {
        self.machine.status(&self.data_plane.fake, self.around.now)
    }

    /// Returns the counts of faults and rare events so far.
    pub(super) fn seen(&self) -> Seen {
        Seen {
            renewals: self.data_plane.renewals,
            floats: self.data_plane.floats,
            late_verdicts: self.around.jobs.late_verdicts,
            orphaned_jobs: self.around.jobs.orphaned,
            ..self.around.seen
        }
    }

    /// Asserts that every permitted client is connected, on both ends.
    pub(super) fn all_are_in(&self) {
        let rows = self.status().clients;
        let wanted = self.around.size.clients.min(self.around.size.max_clients);
        assert_eq!(rows.len(), wanted, "clients in the status");
        let up = self.around.clients.iter().filter(|it| it.is_up()).count();
        assert!(up >= wanted, "{up} clients are up");
        assert!(self.data_plane.opened > 0);
    }

    /// Ends the server with SIGTERM.
    pub(super) fn end(&mut self) {
        self.tell(Event::Signal(Signal::Exit("SIGTERM")));
        self.run_for(SEC * 10);
        assert_eq!(self.around.ended, Some(Ended::Exit(0)));
    }

    pub(super) fn nothing_is_left(&self) {
        invariants::nothing_is_left(&self.machine, &self.data_plane, &self.around.jobs);
    }
}

impl Host for Around {
    fn log(&mut self, level: log::Level, text: &str) {
        self.floats_told += u64::from(level == log::Level::Info && text.contains("floated"));
        self.crowded_out += u64::from(text.contains("to make room"));
        if level <= log::Level::Warn && !self.troubled {
            self.logged.push(text.to_owned());
        }
        self.management.logged(text, self.now);
    }

    fn announce(&mut self, text: &str) {
        self.log(log::Level::Info, text);
    }

    fn add_stream(&mut self, _: StreamId) -> io::Result<()> {
        Ok(())
    }

    fn remove_stream(&mut self, _: StreamId) {}

    fn stop_listening(&mut self) {}

    fn raise_open_files(&mut self, _: usize) -> usize {
        1000
    }

    fn start(&mut self, id: JobId, _: Option<SourceNetwork>, job: Job) -> Result<(), String> {
        let started = self.jobs.start(id, &job, &mut self.random, self.troubled)?;
        if let Some((time, done)) = started {
            let at = self.now.monotonic + time;
            self.agenda.add(at, Item::JobDone(id, done));
        }
        Ok(())
    }

    fn cancel(&mut self, id: JobId) {
        assert!(self.jobs.running.remove(&id), "it has ended");
    }

    fn poll(&mut self, id: JobId) -> Option<Polled> {
        self.jobs.poll(id, self.now.monotonic)
    }

    fn forget(&mut self, id: JobId) {
        self.jobs.forget(id);
    }

    fn handshake(&mut self, client: ClientKey, _: SourceNetwork, _: bool, work: Box<Handshake>) {
        let done = Box::new(work.run());
        // Sometimes runs at once, as when the thread pool is full.
        if self.random.percent(10) {
            return self.next.push_back(Event::Handshaken(client, done));
        }
        let slow = self.troubled && self.random.percent(5);
        let most = if slow { SEC * 90 } else { SEC / 4 };
        let at = self.now.monotonic + self.random.within(most);
        self.agenda.add(at, Item::Handshaken(client, done));
    }

    fn cancel_handshake(&mut self, _: ClientKey) {}

    fn client_file(&mut self, _: &Path, _: &str, _: bool) -> ClientFile {
        let luck = match self.troubled {
            true => self.random.below(100),
            false => 0,
        };
        let file = self.file.clone().filter(|_| !self.troubled);
        match luck {
            0..95 => ClientFile::Read(file.map(|text| ("ccd/x".into(), text))),
            95..97 => ClientFile::Unreadable("it is gone".to_owned()),
            _ => ClientFile::Read(Some(("ccd/x".into(), "disable\n".to_owned()))),
        }
    }

    fn read_configuration(&mut self) {
        let read = ConfigurationRead {
            config: self.configs[match self.troubled {
                true => self.random.below(2) as usize,
                false => 0,
            }],
            material: match self.troubled {
                true => self.random.percent(80),
                false => !self.unreadable,
            }
            .then_some([0; 32]),
            anew: Ok(()),
        };
        let read = match !self.troubled || self.random.percent(80) {
            true => Ok(read),
            false => Err("a line is wrong".to_owned()),
        };
        self.next.push_back(Event::ConfigurationRead(read));
    }

    fn names(&mut self, config: &OpenVpn) -> Result<ClientNames, String> {
        ClientNames::read(config)
    }

    fn passwords(&mut self, _: &OpenVpn) -> Result<Option<Arc<PasswordFile>>, String> {
        Ok(None)
    }

    fn renew_certificate(&mut self, _: &OpenVpn) {
        self.renewals += 1;
    }

    fn refresh_revocations(&mut self, _: &OpenVpn) {}

    fn is_revoked(&mut self, _: &PeerCertificate) -> bool {
        self.random.percent(5)
    }

    fn write_file(&mut self, _: &Path, _: &str) {}

    fn give_memory_back(&mut self) {}

    fn is_up(&mut self) {}

    fn state(&mut self, state: State, _: &str) {
        self.management.state_changed(state, self.now);
    }

    fn log_status(&mut self, _: ServerStatus) {}

    fn last_status(&mut self, _: ServerStatus) {}

    fn change_routes(&mut self, _: &OpenVpn) {}

    fn take_down(&mut self) {}

    fn end(&mut self, ended: Ended) {
        self.ended = Some(ended);
    }
}
