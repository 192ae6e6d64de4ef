//! Hosts with real sessions, and a simulated data plane around each.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use openvpn::message::AuthFailed;
use openvpn::push::PushOptions;
use openvpn::server::{ClientId, Listener, ListenerSettings, Remote, ServerOutput};
use openvpn::session::{
    AuthRequest, CloseReason, Decision, Handshake, Handshaken, Output, Session,
};

use crate::link::{Link, Random};
use crate::plane::{Event, Plane};
use crate::setup::{Setup, wall};

pub(crate) const SERVER: SocketAddr = SocketAddr::new(
    std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)),
    1194,
);

pub(crate) fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(crate) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) struct Host {
    pub(crate) session: Session,
    pub(crate) address: SocketAddr,
    pub(crate) plane: Plane,
    pub(crate) events: Vec<Event>,
    /// Whether the client still reads and sends.
    pub(crate) alive: bool,
}

/// The server's handshakes in other threads.
#[derive(Default)]
pub(crate) struct Handshakes {
    /// Duration of a handshake.
    pub(crate) take: Duration,
    away: BTreeMap<(Instant, u64), (ClientId, Handshaken)>,
    pub(crate) done: u64,
    begun: u64,
}

impl Handshakes {
    pub(crate) fn away(&self) -> usize {
        self.away.len()
    }

    fn begin(&mut self, client: ClientId, work: Handshake, now: Instant) {
        let twice = self.away.values().any(|(other, _)| *other == client);
        assert!(!twice, "{client:?} has one already");
        self.begun += 1;
        let key = (now + self.take, self.begun);
        self.away.insert(key, (client, work.run()));
    }

    fn end(&mut self, now: Instant) -> Option<(ClientId, Handshaken)> {
        let first = self.away.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }
}

type Judge = Box<dyn FnMut(&AuthRequest) -> Option<Decision>>;

pub(crate) struct World {
    pub(crate) start: Instant,
    pub(crate) now: Instant,
    pub(crate) setup: Setup,
    pub(crate) clients: Vec<Host>,
    pub(crate) listener: Listener,
    pub(crate) planes: HashMap<ClientId, Plane>,
    pub(crate) server_events: Vec<(ClientId, Event)>,
    pub(crate) judge: Judge,
    pub(crate) push: Vec<String>,
    /// Whether the server answers push requests.
    pub(crate) pushes: bool,
    pub(crate) link: Link,
    pub(crate) random: Random,
    pub(crate) handshakes: Handshakes,
    /// Interval at which both ends send data.
    pub(crate) data_every: Option<Duration>,
    next_data: Instant,
    flying: BTreeMap<(Instant, u64), (SocketAddr, SocketAddr, Vec<u8>)>,
    number: u64,
    /// All datagrams in sending order: source, destination, bytes.
    pub(crate) sent: Vec<(SocketAddr, SocketAddr, Vec<u8>)>,
}

impl World {
    pub(crate) fn new(setup: Setup) -> Self {
        let now = Instant::now();
        let server = Arc::new(setup.server.clone());
        let mut settings = ListenerSettings::new(server, setup.server_wrap.clone());
        settings.starts = setup.starts;
        settings.max_clients = setup.max_clients;
        Self {
            start: now,
            now,
            listener: Listener::new(settings, now, wall()),
            setup,
            clients: Vec::new(),
            planes: HashMap::new(),
            server_events: Vec::new(),
            judge: Box::new(|_| Some(Decision::Accept)),
            push: vec![
                "route-gateway 10.8.0.1".to_owned(),
                "topology subnet".to_owned(),
                "ifconfig 10.8.0.2 255.255.255.0".to_owned(),
            ],
            pushes: true,
            link: Box::new(|_, _| vec![millis(10)]),
            random: Random(1),
            handshakes: Handshakes::default(),
            data_every: None,
            next_data: now,
            flying: BTreeMap::new(),
            number: 0,
            sent: Vec::new(),
        }
    }

    /// Creates a world with one client that has started connecting.
    pub(crate) fn with_client(setup: Setup) -> Self {
        let mut world = Self::new(setup);
        world.add_client();
        world
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.now - self.start
    }

    fn time_of_day(&self) -> SystemTime {
        wall() + self.elapsed()
    }

    pub(crate) fn add_client(&mut self) -> usize {
        let at = self.clients.len();
        let address = SocketAddr::from(([198, 51, 100, (at % 250) as u8], 40_000 + at as u16));
        self.add_client_at(address)
    }

    pub(crate) fn add_client_at(&mut self, address: SocketAddr) -> usize {
        let mut out = Vec::new();
        let settings = Arc::new(self.setup.client.clone());
        let credentials = self.setup.credentials.clone();
        let wall = self.time_of_day();
        let session = Session::client(settings, credentials, self.now, wall, &mut out).unwrap();
        self.clients.push(Host {
            session,
            address,
            plane: Plane::default(),
            events: Vec::new(),
            alive: true,
        });
        let at = self.clients.len() - 1;
        self.perform_client(at, out);
        at
    }

    /// Calls into a client and processes its outputs.
    pub(crate) fn client<R>(
        &mut self,
        at: usize,
        call: impl FnOnce(&mut Session, Instant, &mut Vec<Output>) -> R,
    ) -> R {
        let mut out = Vec::new();
        let now = self.now;
        let result = call(&mut self.clients[at].session, now, &mut out);
        self.perform_client(at, out);
        result
    }

    /// Calls into a session of the server.
    pub(crate) fn server<R>(
        &mut self,
        id: ClientId,
        call: impl FnOnce(&mut Session, Instant, &mut Vec<Output>) -> R,
    ) -> R {
        let mut out = Vec::new();
        let now = self.now;
        let result = self
            .listener
            .with(id, &mut out, |session, out| call(session, now, out))
            .expect("a session");
        self.perform_server(out);
        result
    }

    fn perform_client(&mut self, at: usize, out: Vec<Output>) {
        let from = self.clients[at].address;
        for output in out {
            if let Output::Send(datagram) = output {
                self.throw(from, SERVER, datagram);
                continue;
            }
            let host = &mut self.clients[at];
            let event = host.plane.perform(output);
            if let Some(Event::Ping) = event
                && let Some(packet) = host.plane.seal(self.now)
            {
                self.throw(from, SERVER, packet);
            }
            self.clients[at].events.extend(event);
        }
    }

    pub(crate) fn perform_server(&mut self, out: Vec<ServerOutput>) {
        let now = self.now;
        let mut waiting = std::collections::VecDeque::from(out);
        while let Some(output) = waiting.pop_front() {
            let (client, output) = match output {
                ServerOutput::Send { to, datagram, .. } => {
                    self.throw(SERVER, to.address, datagram);
                    continue;
                }
                ServerOutput::Started { client, .. } => {
                    self.planes.insert(client, Plane::default());
                    continue;
                }
                ServerOutput::Client { client, output } => (client, output),
            };
            let output = match output {
                Output::Handshake(work) => {
                    self.handshakes.begin(client, *work, now);
                    continue;
                }
                other => other,
            };
            let mut more = Vec::new();
            match &output {
                Output::Authenticate(request) => {
                    if let Some(decision) = (self.judge)(request) {
                        let id = request.id;
                        self.listener.with(client, &mut more, |session, out| {
                            session.authenticated(id, decision, now, out);
                        });
                    }
                }
                Output::PushRequested if self.pushes => {
                    let options = PushOptions {
                        options: self.push.clone(),
                        tun_mtu: Some(1500),
                        peer_id: Some(client.0),
                    };
                    self.listener.with(client, &mut more, |session, out| {
                        session.push(&options, now, out);
                    });
                }
                _ => {}
            }
            let plane = self.planes.get_mut(&client).expect("started first");
            let event = plane.perform(output);
            if let Some(Event::Ping) = event
                && let Some(packet) = plane.seal(now)
                && let Some(to) = self.listener.remote(client)
            {
                self.throw(SERVER, to.address, packet);
            }
            self.server_events
                .extend(event.map(|event| (client, event)));
            waiting.extend(more);
        }
    }

    pub(crate) fn throw(&mut self, from: SocketAddr, to: SocketAddr, datagram: Vec<u8>) {
        for delay in (self.link)(&mut self.random, &datagram) {
            self.number += 1;
            let key = (self.now + delay, self.number);
            self.flying.insert(key, (from, to, datagram.clone()));
        }
        self.sent.push((from, to, datagram));
    }

    /// Sends a data packet from both ends of every established session.
    fn send_data(&mut self) {
        for at in 0..self.clients.len() {
            let host = &mut self.clients[at];
            if host.alive
                && let Some(packet) = host.plane.seal(self.now)
            {
                let from = host.address;
                self.throw(from, SERVER, packet);
            }
        }
        for id in self.listener.clients().collect::<Vec<_>>() {
            let to = self.listener.remote(id).expect("a session");
            if let Some(packet) = self.planes.get_mut(&id).and_then(|it| it.seal(self.now)) {
                self.throw(SERVER, to.address, packet);
            }
        }
    }

    pub(crate) fn arrive(&mut self, from: SocketAddr, to: SocketAddr, datagram: &[u8]) {
        let now = self.now;
        let is_data = datagram.first().is_some_and(|it| it >> 3 == 9) && datagram.len() == 133;
        if to == SERVER {
            if is_data {
                let id = ClientId(u32::from_be_bytes(datagram[1..5].try_into().unwrap()));
                if let Some(plane) = self.planes.get_mut(&id) {
                    plane.open(datagram, now);
                }
                return;
            }
            let mut out = Vec::new();
            // The data plane counts drops.
            let _ = self
                .listener
                .receive(datagram, Remote::udp(from), None, now, &mut out);
            return self.perform_server(out);
        }
        let Some(at) = self
            .clients
            .iter()
            .rposition(|it| it.address == to && it.alive)
        else {
            return;
        };
        if is_data {
            return self.clients[at].plane.open(datagram, now);
        }
        self.client(at, |session, now, out| {
            let _ = session.receive(datagram, now, out);
        });
    }

    fn next(&self) -> Option<Instant> {
        let hosts = self.clients.iter().filter(|it| it.alive);
        let deadlines = hosts.filter_map(|it| it.session.next_deadline());
        let arrival = self.flying.keys().next().map(|it| it.0);
        deadlines
            .chain(self.listener.next_deadline())
            .chain(arrival)
            .chain(self.handshakes.away.keys().next().map(|it| it.0))
            .chain(self.data_every.map(|_| self.next_data))
            .min()
    }

    /// Lets time pass until `end` after the start.
    pub(crate) fn run_until(&mut self, end: Duration) {
        let mut steps = 0;
        let mut before = self.now;
        while let Some(next) = self.next() {
            if next > self.start + end {
                break;
            }
            self.now = self.now.max(next);
            steps = if self.now == before { steps + 1 } else { 0 };
            before = self.now;
            assert!(steps < 10_000, "time stands still");
            self.step();
        }
        self.now = self.start + end;
    }

    pub(crate) fn run_for(&mut self, time: Duration) {
        self.run_until(self.elapsed() + time);
    }

    fn step(&mut self) {
        if let Some((&key, _)) = self.flying.first_key_value()
            && key.0 <= self.now
            && let Some((from, to, datagram)) = self.flying.remove(&key)
        {
            return self.arrive(from, to, &datagram);
        }
        if let Some((client, done)) = self.handshakes.end(self.now) {
            self.handshakes.done += 1;
            let (mut out, now) = (Vec::new(), self.now);
            self.listener.with(client, &mut out, |session, out| {
                session.handshaken(done, now, out);
            });
            return self.perform_server(out);
        }
        if let Some(every) = self.data_every
            && self.next_data <= self.now
        {
            self.next_data = self.now + every;
            return self.send_data();
        }
        for at in 0..self.clients.len() {
            let host = &self.clients[at];
            if host.alive
                && host
                    .session
                    .next_deadline()
                    .is_some_and(|it| it <= self.now)
            {
                self.client(at, |_, _, _| {});
                let times = self.clients[at].plane.times;
                self.client(at, |session, now, out| {
                    session.activity(times);
                    session.expired(now, out);
                });
                return;
            }
        }
        let mut out = Vec::new();
        let planes = &self.planes;
        self.listener.expired(
            self.now,
            |id| planes.get(&id).map(|it| it.times).unwrap_or_default(),
            &mut out,
        );
        self.perform_server(out);
    }

    /// The server's only established session.
    pub(crate) fn up(&self) -> ClientId {
        let mut up = self
            .listener
            .clients()
            .filter(|it| self.listener.session(*it).is_some_and(Session::is_up));
        let id = up.next().expect("a session that is up");
        assert!(up.next().is_none(), "only one");
        id
    }

    pub(crate) fn client_is_up(&self, at: usize) -> bool {
        self.clients[at].session.is_up()
    }

    pub(crate) fn closed(&self, at: usize) -> Option<&CloseReason> {
        self.clients[at].events.iter().find_map(|it| match it {
            Event::Closed(reason) => Some(reason),
            _ => None,
        })
    }

    pub(crate) fn server_closed(&self) -> Vec<&CloseReason> {
        let closed = self.server_events.iter().filter_map(|(_, it)| match it {
            Event::Closed(reason) => Some(reason),
            _ => None,
        });
        closed.collect()
    }

    pub(crate) fn renegotiated(&self, at: usize) -> Vec<u8> {
        let keys = self.clients[at].events.iter().filter_map(|it| match it {
            Event::Renegotiated(key_id) => Some(*key_id),
            _ => None,
        });
        keys.collect()
    }

    pub(crate) fn requests(&self) -> Vec<&AuthRequest> {
        let requests = self.server_events.iter().filter_map(|(_, it)| match it {
            Event::Authenticate(request) => Some(request),
            _ => None,
        });
        requests.collect()
    }
}

pub(crate) fn reject(reason: &str) -> Decision {
    Decision::Reject(AuthFailed::because(reason))
}
