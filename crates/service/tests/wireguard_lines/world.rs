//! Two interfaces, of which the first has two lines, on a virtual wire and a virtual clock.

use config::lines::{Line as LineOf, LineMode, Lines};
use config::uapi::{Request, Requests, SetDevice};
use crypto::x25519::PrivateKey;
use plane::Now;
use plane::fake::{Call, FakeDataPlane};
use plane::{DataPlane as _, Endpoint, Line, LineId, Notice, PeerId, Source};
use service::wireguard::fixture::FakeHost;
use service::wireguard::{Cx, Event, LineFacts, LineUsage, Machine};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use wireguard::WireGuard;

/// Index of the host with lines; its peer follows.
pub(crate) const A: usize = 0;
pub(crate) const B: usize = 1;

pub(crate) const PORT: u16 = 51820;
const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 9)), PORT);

/// Interval between data packets in each direction.
pub(crate) const EACH: Duration = Duration::from_millis(20);

/// Bytes that a line carries for each packet.
pub(crate) const PACKET: u64 = 1000;

#[derive(Clone)]
enum Message {
    Handshake(Vec<u8>),
    /// The receiver's index for the session, whether it is more than a keepalive, and the packet's number.
    Data(u32, bool, u64),
}

pub(crate) struct Host {
    pub(crate) machine: Machine,
    plane: Arc<FakeDataPlane<WireGuard>>,
    pub(crate) outside: FakeHost,
    /// The peer's index for each session, and whether the peer must confirm it.
    sessions: BTreeMap<u32, (u32, bool)>,
    /// The line mode of the data plane, and how often it was set.
    pub(crate) mode: (plane::LineMode, usize),
    /// The data plane's rate in bits a second.
    pub(crate) rate: Option<u64>,
    /// The rate of each line.
    pub(crate) rates: [u64; 2],
    /// Numbers of the received packets.
    seen: BTreeSet<u64>,
    /// Number of sent initiations.
    pub(crate) asked: usize,
    /// Number of sessions made as the initiator.
    pub(crate) begun: usize,
}

pub(crate) struct World {
    start: Instant,
    /// The time of A's clock at the start, unless it was set since.
    pub(crate) wall: SystemTime,
    pub(crate) now: Instant,
    pub(crate) hosts: [Host; 2],
    delay: [Duration; 2],
    pub(crate) cut: [bool; 2],
    queue: BTreeMap<(Instant, u64), (usize, usize, Message)>,
    number: u64,
    /// Sessions that B has forgotten.
    forgotten: BTreeSet<u32>,
    /// Number of data packets that A sent, number that B received, and the time when A last received one.
    pub(crate) sent: u64,
    pub(crate) taken: u64,
    pub(crate) answered: Instant,
}

fn key(host: usize) -> [u8; 32] {
    [host as u8 + 7; 32]
}

/// A device that is up, with an address.
const fn there(ifindex: u32) -> Option<LineFacts> {
    Some(LineFacts {
        ifindex,
        running: true,
        addressed: true,
    })
}

/// A's address on a line.
fn address(line: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, line as u8, 1).into()
}

pub(crate) fn configuration(host: usize) -> SetDevice {
    let hex = |bytes: &[u8; 32]| {
        bytes.iter().fold(String::new(), |mut text, byte| {
            write!(text, "{byte:02x}").unwrap();
            text
        })
    };
    let (own, other) = (hex(&key(host)), PrivateKey::new(key(1 - host)).public());
    let other = hex(other.as_bytes());
    let mut text = format!("set=1\nprivate_key={own}\nlisten_port={PORT}\npublic_key={other}\n");
    if host == A {
        writeln!(text, "endpoint={SERVER}").unwrap();
    }
    text += "allowed_ip=0.0.0.0/0\n\n";
    let request = Requests::new(text.as_bytes()).next_request().unwrap();
    match request.unwrap() {
        Ok(Request::Set(set)) => set,
        other => panic!("{other:?}"),
    }
}

impl World {
    pub(crate) fn new(delay: [u64; 2]) -> Self {
        Self::with_mode(delay, LineMode::Failover)
    }

    pub(crate) fn with_mode(delay: [u64; 2], mode: LineMode) -> Self {
        Self::with_lines(delay, mode, [None; 2])
    }

    /// Creates a world whose packets wait for lines with a rate.
    pub(crate) fn with_lines(delay: [u64; 2], mode: LineMode, rates: [Option<u64>; 2]) -> Self {
        let line = |name: &str, at: u8| LineOf {
            name: name.to_owned(),
            interface: Some(name.to_owned()),
            priority: at + 1,
            rate: rates[usize::from(at)],
            ..LineOf::default()
        };
        let lines = Lines {
            mode,
            hold: Duration::from_secs(5),
            reorder: false,
            shape: rates[0].is_some(),
            lines: vec![line("dsl", 0), line("lte", 1)],
        };
        let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        Self::with_settings(delay, &lines, &[], wall)
    }

    /// Creates a world with earlier usage of the lines, and this clock time.
    pub(crate) fn with_settings(
        delay: [u64; 2],
        lines: &Lines,
        usage: &[LineUsage],
        wall: SystemTime,
    ) -> Self {
        let now = Instant::now();
        let at = Now {
            monotonic: now,
            wall,
        };
        let host = |number: usize| {
            let plane = Arc::new(FakeDataPlane::new(WireGuard::new(), "wg0", 1420));
            Host {
                machine: Machine::new(at, number as u64),
                outside: FakeHost::new(plane.clone()),
                plane,
                sessions: BTreeMap::new(),
                mode: (plane::LineMode::Single, 0),
                rate: None,
                rates: [0; 2],
                seen: BTreeSet::new(),
                asked: 0,
                begun: 0,
            }
        };
        let mut world = Self {
            start: now,
            wall,
            now,
            hosts: [host(A), host(B)],
            delay: delay.map(Duration::from_millis),
            cut: [false; 2],
            queue: BTreeMap::new(),
            number: 0,
            forgotten: BTreeSet::new(),
            sent: 0,
            taken: 0,
            answered: now,
        };
        world.hosts[A].outside.facts = [1, 2].map(there).to_vec();
        world.hosts[A].machine.set_lines(lines);
        world.hosts[A].machine.restore_lines(usage);
        for host in [A, B] {
            world.tell(host, Event::Start);
            let (up, mtu) = (true, 1420);
            world.tell(host, Event::Link { up, mtu });
            let set = configuration(host);
            let set = world.with(host, |machine, cx| machine.configure(&set, cx));
            set.unwrap();
        }
        world
    }

    pub(crate) fn tell(&mut self, at: usize, event: Event) {
        self.with(at, |machine, cx| machine.handle(event, cx));
    }

    /// Calls a host's machine, and performs the calls to its data plane.
    pub(crate) fn with<T>(
        &mut self,
        at: usize,
        call: impl FnOnce(&mut Machine, &mut Cx<'_>) -> T,
    ) -> T {
        let host = &mut self.hosts[at];
        let now = Now {
            monotonic: self.now,
            wall: self.wall + (self.now - self.start),
        };
        let plane = Arc::clone(&host.plane);
        let result = call(
            &mut host.machine,
            &mut Cx::new(now, &*plane, &mut host.outside),
        );
        for call in plane.take_calls() {
            self.follow(at, call);
        }
        assert_eq!(plane.astray(), []);
        result
    }

    /// A's log.
    pub(crate) fn log(&self) -> &[String] {
        &self.hosts[A].outside.said
    }

    /// Removes the device of one of A's lines, or restores it, and informs A. Returns the facts of before.
    pub(crate) fn set_facts(&mut self, line: usize, facts: Option<LineFacts>) -> Option<LineFacts> {
        let before = std::mem::replace(&mut self.hosts[A].outside.facts[line], facts);
        self.tell(A, Event::LinksChanged);
        before
    }

    /// The line that a host uses towards the other.
    pub(crate) fn used(&self, at: usize) -> Option<usize> {
        let line = self.hosts[at].plane.peer(PeerId(0))?.line?;
        Some(match at {
            A => line.id.index(),
            _ => usize::from(line.endpoint.addr.ip() != address(0)),
        })
    }

    /// The lines over which a packet or a message is sent.
    fn ways(&self, at: usize, message: bool) -> Vec<usize> {
        let several: Vec<usize> = match self.hosts[at].mode.0 {
            plane::LineMode::Duplicate(lines) => lines.map(|line| line.index()).collect(),
            plane::LineMode::Critical(lines) if message => lines.map(|line| line.index()).collect(),
            plane::LineMode::Balance(shares) | plane::LineMode::BalancePackets(shares) => {
                let lines: Vec<usize> = (0..2).filter(|at| shares[*at] > 0).collect();
                // Each packet counts as a flow of its own.
                let turn = self.number as usize % lines.len().max(1);
                match message {
                    true => lines,
                    false => lines.get(turn).copied().into_iter().collect(),
                }
            }
            _ => Vec::new(),
        };
        match several.is_empty() {
            true => self.used(at).into_iter().collect(),
            false => several,
        }
    }

    fn follow(&mut self, at: usize, call: Call) {
        match call {
            Call::SetLineMode(_, mode) => {
                let host = &mut self.hosts[at];
                host.mode = (mode, host.mode.1 + 1);
            }
            Call::SetRate(rate) => self.hosts[at].rate = rate,
            Call::SetLineRates(rates) => self.hosts[at].rates = [rates[0], rates[1]],
            Call::Send(line, bytes) => {
                self.hosts[at].asked += usize::from(bytes.first() == Some(&1));
                let by = match at {
                    A => line.id.index(),
                    _ => usize::from(line.endpoint.addr.ip() != address(0)),
                };
                self.throw(at, by, Message::Handshake(bytes));
            }
            Call::SendToPeer(_, None, bytes) => {
                for by in self.ways(at, true) {
                    self.throw(at, by, Message::Handshake(bytes.clone()));
                }
            }
            Call::AddKeys {
                session,
                remote,
                confirm,
                ..
            } => {
                self.hosts[at].sessions.insert(session, (remote, confirm));
                self.hosts[at].begun += usize::from(!confirm);
            }
            Call::SendKeepalive(_) => {
                self.data(at, false);
            }
            Call::NoteReceived(..) => {
                let now = self.now;
                self.hosts[at].plane.change_peer(PeerId(0), |state| {
                    state.times.last_received = Some(now);
                    state.times.unanswered_since = None;
                });
            }
            _ => {}
        }
    }

    /// B loses its sessions, as after a restart.
    pub(crate) fn forget(&mut self) {
        self.forgotten.extend(self.hosts[B].sessions.keys());
    }

    /// Sends a data packet; returns whether there was a key.
    fn data(&mut self, at: usize, full: bool) -> bool {
        let host = &self.hosts[at];
        let ways = self.ways(at, !full);
        let Some(session) = host.plane.sealing(PeerId(0)).filter(|_| !ways.is_empty()) else {
            return false;
        };
        let (remote, _) = host.sessions[&session];
        let now = self.now;
        host.plane.change_peer(PeerId(0), |state| {
            state.times.last_sent = Some(now);
            if full {
                state.times.last_data_sent = Some(now);
                state.times.unanswered_since.get_or_insert(now);
            }
        });
        self.number += 1;
        let number = self.number;
        for by in ways {
            self.throw(at, by, Message::Data(remote, full, number));
        }
        true
    }

    fn throw(&mut self, from: usize, by: usize, message: Message) {
        if from == A {
            self.carry(by);
        }
        if !self.cut[by] {
            self.number += 1;
            let key = (self.now + self.delay[by], self.number);
            self.queue.insert(key, (1 - from, by, message));
        }
    }

    /// Counts a packet on one of A's lines.
    fn carry(&self, by: usize) {
        self.hosts[A].plane.carry(LineId(by as u8), PACKET);
    }

    fn arrive(&mut self, at: usize, by: usize, message: Message) {
        if self.cut[by] {
            return;
        }
        if at == A {
            self.carry(by);
        }
        let from = match at {
            A => Endpoint {
                addr: SERVER,
                source: Some(Source {
                    ip: address(by),
                    ifindex: by as u32 + 1,
                }),
            },
            _ => Endpoint {
                addr: (address(by), PORT).into(),
                source: Some(Source {
                    ip: SERVER.ip(),
                    ifindex: 1,
                }),
            },
        };
        let now = self.now;
        match message {
            Message::Handshake(bytes) => self.tell(
                at,
                Event::Handshake {
                    from: Line {
                        id: LineId(if at == A { by as u8 } else { 0 }),
                        ..Line::udp(from)
                    },
                    bytes: bytes.into(),
                    waiting: 0,
                },
            ),
            Message::Data(session, full, number) => {
                let host = &mut self.hosts[at];
                let forgotten = at == B && self.forgotten.contains(&session);
                if forgotten || !host.plane.sessions(PeerId(0)).contains(&session) {
                    return;
                }
                let used = host.plane.peer(PeerId(0)).unwrap().line.unwrap();
                if !host.seen.insert(number) {
                    host.plane.change_peer(PeerId(0), |state| {
                        if at == A && used.id.index() == by {
                            state.heard = Some(now);
                        }
                    });
                    return;
                }
                host.plane.change_peer(PeerId(0), |state| {
                    state.times.last_received = Some(now);
                    if full {
                        state.times.last_data_received = Some(now);
                    }
                    state.times.unanswered_since = None;
                    if at == A && used.id.index() == by {
                        state.heard = Some(now);
                    }
                    if at == B {
                        // The peer follows the source address.
                        state.line.as_mut().unwrap().endpoint = from;
                    }
                });
                let confirm = host.sessions.get_mut(&session);
                let index = session;
                if confirm.is_some_and(|(_, confirm)| std::mem::take(confirm)) {
                    host.plane.send_with(PeerId(0), session);
                    host.plane.take_calls();
                    let notices = vec![(PeerId(0), Notice::Confirmed { index })];
                    self.tell(at, Event::Notices(notices));
                }
                match (at, full) {
                    (A, true) => self.answered = now,
                    (B, true) => {
                        self.taken += 1;
                        self.data(B, true);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Lets time pass, with data if `talks` is set.
    pub(crate) fn run(&mut self, time: Duration, talks: bool) {
        let end = self.now + time;
        let mut next = self.now;
        loop {
            let deadlines = self.hosts.each_ref().map(|it| it.machine.next_deadline());
            let timer = (0..2).filter_map(|at| Some((deadlines[at]?, at))).min();
            let queued = self.queue.first_key_value().map(|(key, _)| key.0);
            let timer_at = timer.map(|(at, _)| at);
            let first = [queued, timer_at, talks.then_some(next)];
            let Some(at) = first.into_iter().flatten().min().filter(|at| *at <= end) else {
                break;
            };
            self.now = self.now.max(at);
            if talks && at == next {
                next += EACH;
                if self.data(A, true) {
                    self.sent += 1;
                } else {
                    let notices = vec![(PeerId(0), Notice::NeedSession)];
                    self.tell(A, Event::Notices(notices));
                }
            } else if queued == Some(at) {
                let (_, (to, by, message)) = self.queue.pop_first().unwrap();
                self.arrive(to, by, message);
            } else if let Some((_, host)) = timer {
                self.tell(host, Event::Deadline);
                let later = self.hosts[host].machine.next_deadline();
                assert!(later.is_none_or(|later| later > self.now), "still due");
            }
        }
        self.now = end;
    }

    pub(crate) fn states(&self) -> Vec<String> {
        let reports = self.hosts[A].machine.line_reports(PeerId(0));
        reports.into_iter().map(|report| report.state).collect()
    }

    pub(crate) fn said(&self, words: &str) -> usize {
        let said = self.log().iter();
        said.filter(|it| it.contains(words)).count()
    }
}
