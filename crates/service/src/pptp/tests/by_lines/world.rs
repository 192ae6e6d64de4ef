//! A client with several lines, a server, and lines that lose packets and are cut.

use crate::pptp::client::ServerLines;
use crate::pptp::server::Answering;
use crate::pptp::tests::*;
use lines::control::LineFacts;
use plane::LineId;

/// Addresses of the client, by line.
pub(super) const HERE: [Ipv4Addr; 2] =
    [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(198, 51, 100, 1)];

/// Path of a packet over a line; each line connects to a different address of the server.
pub(super) const fn way_of(line: usize) -> Way {
    let ends = Ends {
        theirs: HERE[line],
        ours: Some(Ipv4Addr::new(203, 0, 113, 10 + line as u8)),
    };
    Way::between(LineId::FIRST, ends)
}

pub(super) const MALLORY: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 66);

pub(super) const SECOND: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
pub(super) struct Wire {
    /// Packets lost, of a thousand.
    pub(super) loss: u64,
    pub(super) delay: Duration,
    /// Whether the line drops every packet.
    pub(super) cut: bool,
    /// Whether the line's device has no carrier.
    pub(super) unplugged: bool,
    /// Whether a router on the path drops GRE.
    pub(super) tcp_only: bool,
}

/// The longest additional delay. Packets of one line do not overtake each other.
pub(super) const JITTER: u64 = 2000;

/// A GRE packet in transit.
pub(super) struct Flight {
    pub(super) due: Instant,
    pub(super) to_server: bool,
    pub(super) line: LineId,
    pub(super) packet: Vec<u8>,
}

pub(super) struct Lines {
    pub(super) now: Instant,
    pub(super) client: ClientMachine,
    pub(super) server: ServerMachine,
    pub(super) wires: [Wire; 2],
    pub(super) flights: Vec<Flight>,
    /// The line of the control connection, and the connection's number at the server.
    pub(super) stream: Option<(LineId, StreamId)>,
    /// A connection that is being established.
    pub(super) connecting: Option<(LineId, Instant)>,
    pub(super) dialled: Vec<LineId>,
    pub(super) ups: usize,
    pub(super) at_server: Notes,
    pub(super) at_client: Notes,
    pub(super) log: Vec<String>,
    /// Packets sent to the server, by line, followed by those sent by the server.
    pub(super) sent: [Vec<Vec<u8>>; 2],
    pub(super) answered: [Vec<Vec<u8>>; 2],
    pub(super) random: u64,
    /// Arrival time of the last packet, by direction and line.
    pub(super) last: [[Instant; 2]; 2],
    pub(super) client_is_gone: bool,
}

impl Lines {
    pub(super) fn new(mode: &str, answers: &str, more: &str) -> Self {
        let line = |name: &str, priority: u8| {
            format!(
                "[[uplink]]\nname = \"{name}\"\ninterface = \"{name}\"\npriority = {priority}\n"
            )
        };
        let text = format!(
            "{more}[uplinks]\nmode = \"{mode}\"\nhold = 10\n{}{}",
            line("fibre", 10),
            line("lte", 20)
        );
        let of_client = client_model(&THERE.to_string(), "word", &text);
        let Role::Client(role) = &of_client.role else {
            panic!("{of_client:?}");
        };
        let options = ClientOptions {
            host: role.host.clone(),
            port: role.port,
            reorder: of_client.reorder,
        };
        let mut made = settings::client(&of_client, role).unwrap();
        made.common.link.lines = true;
        let client = ClientMachine::new(made, options, entropy(3));
        let client = client.with_server_lines(ServerLines::new(&of_client.lines));
        let text = format!(
            "{more}listen = \"0.0.0.0\"\naddress = \"10.9.0.1/24\"\n{answers}\n[users]\nalice = \"word\"\n"
        );
        let model = model(&text);
        let Role::Server(role) = &model.role else {
            panic!("{model:?}");
        };
        let answering = Answering::new(&model.lines);
        let mut made = settings::server(&model, role);
        made.common.link.lines = answering.is_some();
        let users = Box::new(settings::users(role));
        let server = ServerMachine::new(made, users, entropy(5), model.reorder).unwrap();
        let wire = Wire {
            loss: 0,
            delay: Duration::from_millis(10),
            cut: false,
            unplugged: false,
            tcp_only: false,
        };
        Self {
            now: Instant::now(),
            client,
            server: server.answering(answering),
            wires: [wire; 2],
            flights: Vec::new(),
            stream: None,
            connecting: None,
            dialled: Vec::new(),
            ups: 0,
            at_server: Notes::default(),
            at_client: Notes::default(),
            log: Vec::new(),
            sent: [const { Vec::new() }; 2],
            answered: [const { Vec::new() }; 2],
            random: 1,
            last: [[Instant::now(); 2]; 2],
            client_is_gone: false,
        }
    }

    /// A world whose tunnel is up, with all lines joined.
    pub(super) fn joined(mode: &str, answers: &str, more: &str) -> Self {
        let mut lines = Self::new(mode, &format!("[uplinks]\nmode = \"{answers}\""), more);
        lines.wires[1].delay = Duration::from_millis(25);
        lines.tell(Event::Start);
        lines.pass(SECOND * 12);
        assert_eq!(
            (lines.ups, !lines.in_use().is_empty()),
            (1, true),
            "{:?}",
            lines.log
        );
        assert_eq!(lines.server_peer().lines.len(), 2, "{:?}", lines.log);
        lines
    }

    pub(super) fn server_peer(&self) -> crate::status::PeerStatus {
        let mut status = Status::default();
        self.server.describe(&mut status);
        status.peers.remove(0)
    }

    /// Names of the lines that the client uses.
    pub(super) fn in_use(&self) -> Vec<String> {
        let mut status = Status::default();
        self.client.describe(&mut status);
        let lines = status.peers.remove(0).lines.into_iter();
        lines.filter(|it| it.in_use).map(|it| it.name).collect()
    }

    pub(super) fn chance(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % 1000
    }

    pub(super) fn tell(&mut self, event: Event<'_>) {
        self.plug();
        let mut cx = self.at_client.cx(self.now);
        self.client.handle(event, &mut cx);
        self.of_client();
    }

    /// Passes the server an event.
    pub(super) fn tell_server(&mut self, event: Event<'_>) {
        let mut cx = self.at_server.cx(self.now);
        self.server.handle(event, &mut cx);
        self.of_server();
    }

    /// Shows the client the state of the lines' devices.
    fn plug(&mut self) {
        let facts = self.wires.map(|wire| {
            Some(LineFacts {
                ifindex: 1,
                running: !wire.unplugged,
                addressed: true,
            })
        });
        self.at_client.facts = facts.to_vec();
    }

    pub(super) fn fly(&mut self, to_server: bool, line: LineId, packet: Vec<u8>) {
        let wire = self.wires[line.index()];
        let gone = to_server && self.client_is_gone;
        if wire.cut || wire.unplugged || wire.tcp_only || gone || self.chance() < wire.loss {
            return;
        }
        let jitter = Duration::from_micros(self.chance() * JITTER / 1000);
        let last = &mut self.last[usize::from(to_server)][line.index()];
        let due = (self.now + wire.delay + jitter).max(*last);
        *last = due;
        self.flights.push(Flight {
            due,
            to_server,
            line,
            packet,
        });
    }

    pub(super) fn send_to_server(&mut self, way: Way, packet: Vec<u8>) {
        assert_eq!(way.to, THERE);
        self.sent[way.line.index()].push(packet.clone());
        self.fly(true, way.line, packet);
    }

    pub(super) fn send_to_client(&mut self, way: Way, packet: Vec<u8>) {
        let Some(line) = HERE.iter().position(|here| *here == way.to) else {
            return;
        };
        // The packet leaves from the address to which this line connects.
        assert_eq!(way.from, way_of(line).from);
        self.answered[line].push(packet.clone());
        self.fly(false, LineId(line as u8), packet);
    }

    pub(super) fn of_client(&mut self) {
        for effect in self.at_client.take() {
            match effect {
                Effect::Connect(_, line) => {
                    let line = line.expect("a line");
                    self.hang_up();
                    self.dialled.push(line);
                    self.connecting = Some((line, self.now + self.wires[line.index()].delay * 2));
                }
                Effect::Gre(way, packet) => self.send_to_server(way, packet),
                Effect::Up(..) => self.ups += 1,
                Effect::Knock(line) => {
                    let wire = self.wires[line.index()];
                    if !wire.cut && !wire.unplugged {
                        self.tell(Event::Knocked(line));
                    }
                }
                Effect::Log(_, words) => self.log.push(words),
                Effect::LogStranger(..) | Effect::LookUp(_) | Effect::End(_) => {}
            }
        }
    }

    pub(super) fn of_server(&mut self) {
        for effect in self.at_server.take() {
            if let Effect::Gre(way, packet) = effect {
                self.send_to_client(way, packet);
            }
        }
    }

    /// Closes the server's end of the control connection.
    pub(super) fn hang_up(&mut self) {
        if let Some((_, stream)) = self.stream.take() {
            self.tell_server(Event::Ended(stream));
            self.tell_server(Event::Closed(stream));
        }
    }

    /// Both ends find the control connection broken.
    pub(super) fn break_control(&mut self) {
        self.hang_up();
        self.tell(Event::Ended(ONLY));
        self.tell(Event::Closed(ONLY));
    }

    pub(super) fn connect(&mut self) {
        let Some((line, _)) = self.connecting.filter(|(_, due)| *due <= self.now) else {
            return;
        };
        self.connecting = None;
        if !self.wires[line.index()].cut {
            let here = way_of(line.index()).ends();
            let mut cx = self.at_server.cx(self.now);
            let stream = self.server.accept(here, &mut cx);
            let stream = stream.unwrap();
            self.stream = Some((line, stream));
            self.tell(Event::Connected);
        }
    }

    /// Transmits the bytes of both ends of the control connection.
    pub(super) fn carry(&mut self) {
        while let Some((line, stream)) = self.stream {
            if self.wires[line.index()].cut || self.client_is_gone {
                return;
            }
            let said = self.client.transmit(ONLY).to_vec();
            self.client.transmitted(ONLY, said.len());
            let answer = self.server.transmit(stream).to_vec();
            self.server.transmitted(stream, answer.len());
            if said.is_empty() && answer.is_empty() {
                if self.client.is_finished(ONLY) || self.server.is_finished(stream) {
                    self.break_control();
                }
                return;
            }
            if !said.is_empty() {
                let mut cx = self.at_server.cx(self.now);
                self.server.handle(Event::Control(stream, &said), &mut cx);
            }
            if !answer.is_empty() {
                self.tell(Event::Control(ONLY, &answer));
            }
            self.of_server();
        }
    }

    pub(super) fn land(&mut self) {
        let due = |flight: &mut Flight| flight.due <= self.now;
        let mut landed: Vec<Flight> = self.flights.extract_if(.., due).collect();
        landed.sort_by_key(|flight| flight.due);
        for mut flight in landed {
            let (line, packet) = (flight.line, &mut flight.packet);
            if flight.to_server {
                let mut cx = self.at_server.cx(self.now);
                self.server.inbound(way_of(line.index()), packet, &mut cx);
                self.of_server();
            } else {
                self.plug();
                let mut cx = self.at_client.cx(self.now);
                self.client.inbound(Way::by(line, THERE), packet, &mut cx);
                self.of_client();
            }
        }
    }

    /// Handles all events of the next `time`.
    pub(super) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        for _ in 0..1_000_000 {
            self.connect();
            self.land();
            self.carry();
            let client = self.client.deadline().filter(|_| !self.client_is_gone);
            let flights = self.flights.iter().map(|it| it.due).min();
            let connects = self.connecting.map(|(_, due)| due);
            let all = [client, self.server.deadline(), flights, connects];
            let next = all.into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= end) else {
                self.now = end;
                return;
            };
            self.now = self.now.max(next);
            self.server.release(&mut self.at_server.cx(self.now));
            self.tell_server(Event::Deadline);
            if client.is_some_and(|at| at <= self.now) {
                self.client.release(&mut self.at_client.cx(self.now));
                self.tell(Event::Deadline);
            }
        }
        panic!("time stands still: {:?}", self.log);
    }

    /// Sends a packet in both directions.
    pub(super) fn exchange(&mut self, number: u32) {
        let mut out = Vec::new();
        let numbered = |from, to| {
            let mut packet = packet(from, to, 0);
            packet[9] = 6;
            packet[32] = 0x50;
            packet[40..44].copy_from_slice(&number.to_be_bytes());
            packet
        };
        let packet = numbered(CLIENT, SERVER);
        let mut copies = Vec::new();
        let way = self
            .client
            .outbound(&packet, self.now, &mut out, &mut copies);
        if let Some(way) = way {
            for way in copies.into_iter().chain([way]) {
                self.send_to_server(way, out.clone());
            }
        }
        out.clear();
        let packet = numbered(SERVER, CLIENT);
        let mut copies = Vec::new();
        let way = self
            .server
            .outbound(&packet, self.now, &mut out, &mut copies);
        if let Some(way) = way {
            for way in copies.into_iter().chain([way]) {
                self.send_to_client(way, out.clone());
            }
        }
    }

    /// Sends `count` packets in both directions, a millisecond apart.
    pub(super) fn transfer(&mut self, count: u32) {
        for number in 0..count {
            self.exchange(number);
            self.pass(Duration::from_millis(1));
        }
        self.pass(SECOND);
    }

    /// Returns the numbers that arrived at both ends.
    pub(super) fn arrived(&mut self) -> [Vec<u32>; 2] {
        let number = |packet: Vec<u8>| u32::from_be_bytes(packet[40..44].try_into().unwrap());
        let all = [&mut self.at_server, &mut self.at_client];
        all.map(|at| at.delivered.drain(..).map(number).collect())
    }
}
