//! A client and a server, a TCP connection that keeps order, and a network that a test can disturb.

use super::client::{ClientMachine, ClientOptions};
use super::machine::{Cx, Event, Host, Machine, ONLY, Silent, StreamId, Way};
use super::server::ServerMachine;
use super::{network, settings};
use crate::status::Status;
use ::config::permissions::Permissions;
use ::config::pptp::{self, Pptp, Role};
use ::pptp::session::{Ends, Entropy, Up};
use lines::control::LineFacts;
use log::Level;
use plane::LineId;
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::time::{Duration, Instant};

mod by_lines;

/// Outer addresses.
const HERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const THERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// The client's address, and the server's address to which it connects, which is not the server's only one.
const CALLED: Ends = Ends {
    theirs: HERE,
    ours: Some(Ipv4Addr::new(198, 51, 100, 7)),
};
/// Inner addresses.
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);

const ALLOWED: &str = "protocol = \"pptp\"\nallow-insecure = \"pptp\"\ninterface = \"pptp0\"\n";

pub(super) fn model(text: &str) -> Pptp {
    let import = pptp::parse(
        &format!("{ALLOWED}{text}"),
        Path::new("x.toml"),
        Permissions::NONE,
    );
    import.into_model().unwrap()
}

pub(super) fn client_model(host: &str, password: &str, more: &str) -> Pptp {
    model(&format!(
        "server = \"{host}\"\nusername = \"alice\"\npassword = \"{password}\"\n{more}"
    ))
}

fn entropy(seed: u8) -> Entropy {
    Entropy::new(move |bytes| bytes.fill(seed))
}

/// A request of a machine, in order.
#[derive(Debug)]
enum Effect {
    LookUp(String),
    Connect(SocketAddrV4, Option<LineId>),
    Gre(Way, Vec<u8>),
    Knock(LineId),
    Up(Up, Ipv4Addr),
    Log(Level, String),
    LogStranger(String),
    End(Result<(), String>),
}

/// A host that records the effects of a machine.
#[derive(Default)]
struct Notes {
    effects: Vec<Effect>,
    /// Inner packets that were delivered.
    delivered: Vec<Vec<u8>>,
    facts: Vec<Option<LineFacts>>,
    /// Reports about the server's silence.
    silent: Vec<Option<Silent>>,
    /// Connections fail, at once or later.
    unreachable: bool,
    late: bool,
}

impl Notes {
    fn cx(&mut self, now: Instant) -> Cx<'_> {
        Cx { now, host: self }
    }

    fn take(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }
}

impl Host for Notes {
    fn look_up(&mut self, host: String) {
        self.effects.push(Effect::LookUp(host));
    }

    fn connect(&mut self, server: SocketAddrV4, line: Option<LineId>) -> Result<(), String> {
        self.effects.push(Effect::Connect(server, line));
        match self.unreachable && !self.late {
            true => Err("no way".to_owned()),
            false => Ok(()),
        }
    }

    fn send(&mut self, way: Way, packet: &[u8]) {
        self.effects.push(Effect::Gre(way, packet.to_vec()));
    }

    fn deliver(&mut self, packet: &[u8]) {
        self.delivered.push(packet.to_vec());
    }

    fn line_facts(&mut self) -> Vec<Option<LineFacts>> {
        self.facts.clone()
    }

    fn open_line(&mut self, _: LineId, _: u32) -> Result<(), String> {
        Ok(())
    }

    fn close_line(&mut self, _: LineId) {}

    fn knock(&mut self, line: LineId, _: SocketAddrV4) {
        self.effects.push(Effect::Knock(line));
    }

    fn up(&mut self, up: &Up, server: Ipv4Addr) {
        self.effects.push(Effect::Up(up.clone(), server));
    }

    fn silent(&mut self, why: Option<Silent>) {
        self.silent.push(why);
    }

    fn refused(&mut self, _: &str) {}

    fn log(&mut self, level: Level, words: String) {
        self.effects.push(Effect::Log(level, words));
    }

    fn log_stranger(&mut self, _: Level, words: String) {
        self.effects.push(Effect::LogStranger(words));
    }

    fn end(&mut self, result: Result<(), String>) {
        self.effects.push(Effect::End(result));
    }
}

struct World {
    now: Instant,
    client: ClientMachine,
    server: ServerMachine,
    stream: Option<StreamId>,
    /// The network drops the server's GRE.
    loses_gre: bool,
    /// GRE packets in transit to the server, and to the client.
    to_server: VecDeque<Vec<u8>>,
    to_client: VecDeque<Vec<u8>>,
    /// The hosts of both machines.
    at_server: Notes,
    at_client: Notes,
    /// The client's effects, by name.
    asked: Vec<String>,
    calls: Vec<SocketAddrV4>,
    up: Option<Up>,
    log: Vec<String>,
    ended: Option<Result<(), String>>,
}

impl World {
    fn new(host: &str, password: &str, more: &str) -> Self {
        let model_of_client = client_model(host, password, more);
        let Role::Client(client) = &model_of_client.role else {
            panic!("{model_of_client:?}");
        };
        let options = ClientOptions {
            host: client.host.clone(),
            port: client.port,
            reorder: model_of_client.reorder,
        };
        let made = settings::client(&model_of_client, client).unwrap();
        let client = ClientMachine::new(made, options, entropy(3));
        let text = "listen = \"0.0.0.0\"\naddress = \"10.9.0.1/24\"\n";
        let model = model(&format!("{text}{more}[users]\nalice = \"word\"\n"));
        let Role::Server(server) = &model.role else {
            panic!("{model:?}");
        };
        let users = Box::new(settings::users(server));
        let made = settings::server(&model, server);
        let server = ServerMachine::new(made, users, entropy(5), model.reorder).unwrap();
        Self {
            now: Instant::now(),
            client,
            server,
            stream: None,
            loses_gre: false,
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
            at_server: Notes::default(),
            at_client: Notes::default(),
            asked: Vec::new(),
            calls: Vec::new(),
            up: None,
            log: Vec::new(),
            ended: None,
        }
    }

    /// A world whose tunnel is up, without packets in transit.
    fn connected(more: &str) -> Self {
        let mut world = Self::new(&THERE.to_string(), "word", more);
        world.tell(Event::Start);
        world.run(|world| world.up.is_some());
        world
    }

    fn tell(&mut self, event: Event<'_>) {
        let mut cx = self.at_client.cx(self.now);
        self.client.handle(event, &mut cx);
        self.of_client();
    }

    /// Passes the server an event.
    fn tell_server(&mut self, event: Event<'_>) {
        let mut cx = self.at_server.cx(self.now);
        self.server.handle(event, &mut cx);
        self.of_server();
    }

    fn of_client(&mut self) {
        for effect in self.at_client.take() {
            match effect {
                Effect::LookUp(host) => self.asked.push(host),
                Effect::Connect(server, line) => {
                    assert_eq!(line, None);
                    self.calls.push(server);
                    if !self.at_client.unreachable {
                        let mut cx = self.at_server.cx(self.now);
                        self.stream = self.server.accept(CALLED, &mut cx);
                        self.tell(Event::Connected);
                    } else if self.at_client.late {
                        self.tell(Event::NotConnected("no way".to_owned()));
                    }
                }
                Effect::Gre(way, packet) => {
                    assert_eq!(way, Way::first(THERE));
                    self.to_server.push_back(packet);
                }
                Effect::Up(up, server) => {
                    assert_eq!(server, THERE);
                    self.up = Some(up);
                }
                Effect::Log(_, words) | Effect::LogStranger(words) => self.log.push(words),
                Effect::End(result) => self.ended = Some(result),
                knock @ Effect::Knock(..) => panic!("unexpected without uplinks: {knock:?}"),
            }
        }
    }

    fn of_server(&mut self) {
        for effect in self.at_server.take() {
            if let Effect::Gre(way, packet) = effect {
                assert_eq!(way, Way::between(LineId::FIRST, CALLED));
                if !self.loses_gre {
                    self.to_client.push_back(packet);
                }
            }
        }
    }

    /// Carries the bytes of both ends of the control connection.
    fn carry(&mut self) {
        while let Some(stream) = self.stream {
            let said = self.client.transmit(ONLY).to_vec();
            self.client.transmitted(ONLY, said.len());
            let answered = self.server.transmit(stream).to_vec();
            self.server.transmitted(stream, answered.len());
            if !said.is_empty() {
                self.tell_server(Event::Control(stream, &said));
            }
            if !answered.is_empty() {
                self.tell(Event::Control(ONLY, &answered));
            }
            if said.is_empty() && answered.is_empty() {
                let finished = self.client.is_finished(ONLY) || self.server.is_finished(stream);
                if finished {
                    self.hang_up();
                }
                return;
            }
        }
    }

    /// Closes the control connection.
    fn hang_up(&mut self) {
        let Some(stream) = self.stream.take() else {
            return;
        };
        self.tell_server(Event::Ended(stream));
        self.tell_server(Event::Closed(stream));
        self.tell(Event::Ended(ONLY));
        self.tell(Event::Closed(ONLY));
    }

    fn deliver(&mut self) {
        let mut cx = self.at_server.cx(self.now);
        while let Some(mut packet) = self.to_server.pop_front() {
            self.server.inbound(Way::first(HERE), &mut packet, &mut cx);
        }
        let mut cx = self.at_client.cx(self.now);
        while let Some(mut packet) = self.to_client.pop_front() {
            self.client.inbound(Way::first(THERE), &mut packet, &mut cx);
        }
        self.of_server();
        self.of_client();
    }

    /// Handles events and lets time pass, until the condition holds.
    fn run(&mut self, until: impl Fn(&Self) -> bool) {
        for _ in 0..10_000 {
            self.carry();
            self.deliver();
            let idle = self.to_server.is_empty() && self.to_client.is_empty();
            if !idle {
                continue;
            }
            if until(self) {
                return;
            }
            let deadlines = [self.client.deadline(), self.server.deadline()];
            let next = deadlines.into_iter().flatten().min().expect("a deadline");
            self.now = self.now.max(next);
            self.server.release(&mut self.at_server.cx(self.now));
            self.tell_server(Event::Deadline);
            self.client.release(&mut self.at_client.cx(self.now));
            self.tell(Event::Deadline);
        }
        panic!("it never came: {:?}", self.log);
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        // Echoes keep the clock going.
        self.run(|world| world.now >= end);
    }

    fn client_sends(&mut self, packet: &[u8]) {
        let (mut out, mut copies) = (Vec::new(), Vec::new());
        let way = self
            .client
            .outbound(packet, self.now, &mut out, &mut copies);
        if way.is_some() {
            self.to_server.push_back(out);
        }
    }

    fn server_sends(&mut self, packet: &[u8]) {
        let (mut out, mut copies) = (Vec::new(), Vec::new());
        let way = self
            .server
            .outbound(packet, self.now, &mut out, &mut copies);
        if way.is_some() {
            self.to_client.push_back(out);
        }
    }

    fn drops(machine: &impl Machine, reason: &str) -> u64 {
        let mut status = Status::default();
        machine.describe(&mut status);
        status.dataplane.drops[reason]
    }
}

/// Builds an IPv4 packet.
fn packet(from: Ipv4Addr, to: Ipv4Addr, number: u8) -> Vec<u8> {
    let mut packet = vec![number; 60];
    packet[..20].fill(0);
    packet[0] = 0x45;
    packet[3] = 60;
    packet[12..16].copy_from_slice(&from.octets());
    packet[16..20].copy_from_slice(&to.octets());
    packet
}

#[test]
fn packets_go_both_ways_and_the_end_is_told() {
    for more in ["", "mppe = \"128,stateful\"\n", "mppe = \"none\"\n"] {
        let mut world = World::connected(more);
        assert_eq!(world.up.as_ref().unwrap().address, CLIENT);
        for number in 0..200 {
            world.client_sends(&packet(CLIENT, SERVER, number));
            world.server_sends(&packet(SERVER, CLIENT, number));
            world.deliver();
        }
        let expected = |from, to| (0..200).map(|n| packet(from, to, n)).collect::<Vec<_>>();
        assert_eq!(
            world.at_server.delivered,
            expected(CLIENT, SERVER),
            "{more}"
        );
        assert_eq!(
            world.at_client.delivered,
            expected(SERVER, CLIENT),
            "{more}"
        );
        world.tell(Event::Stop);
        world.run(|world| world.ended.is_some());
        assert_eq!(world.ended, Some(Ok(())));
        let mut status = Status::default();
        world.server.describe(&mut status);
        assert!(status.peers.is_empty());
    }
}

/// A client can restart the negotiation of the network protocol as often as it likes.
#[test]
fn a_client_that_negotiates_anew_fills_no_log() {
    let mut world = World::connected("mppe = \"none\"\n");
    let mut status = Status::default();
    world.server.describe(&mut status);
    let call = status.peers[0].client_id.unwrap() as u16;
    let up = Up {
        address: SERVER,
        peer: Some(CLIENT),
        user: Some("alice".to_owned()),
        ..world.up.clone().unwrap()
    };
    let mut notes = Notes::default();
    for _ in 0..100 {
        let mut cx = notes.cx(world.now);
        world.server.came_up(call, up.clone(), &mut cx);
    }
    let effects = notes.take();
    let shown = |it: &&Effect| matches!(it, Effect::Log(level, _) if *level < Level::Debug);
    assert_eq!(effects.iter().filter(shown).count(), 0, "it was up before");
}

/// A server can do the same: its log lines count as those of strangers.
#[test]
fn a_server_that_negotiates_anew_fills_no_log() {
    let mut world = World::connected("mppe = \"none\"\n");
    let (up, mut notes) = (world.up.clone().unwrap(), Notes::default());
    for _ in 0..100 {
        let mut cx = notes.cx(world.now);
        world.client.came_up(up.clone(), &mut cx);
    }
    let effects = notes.take();
    let logged = effects.iter().filter(|it| matches!(it, Effect::Log(..)));
    assert_eq!(logged.count(), 0);
}

#[test]
fn packets_of_one_stream_that_were_overtaken_are_waited_for() {
    let mut world = World::connected("mppe = \"128,stateful\"\n");
    world.client_sends(&packet(CLIENT, SERVER, 0));
    world.deliver();
    for first in (1..=233_u8).step_by(8) {
        for number in first..first + 8 {
            world.client_sends(&packet(CLIENT, SERVER, number));
        }
        // Three packets overtake the first.
        let late = world.to_server.pop_front().unwrap();
        world.to_server.insert(3, late);
        world.deliver();
    }
    let numbers: Vec<u8> = world
        .at_server
        .delivered
        .iter()
        .map(|packet| packet[30])
        .collect();
    assert_eq!(numbers, (0..=240).collect::<Vec<_>>());
    assert_eq!(World::drops(&world.server, "undecryptable"), 0);
}

#[test]
fn a_packet_of_one_stream_that_is_lost_costs_a_moment_only() {
    let mut world = World::connected("mppe = \"128,stateful\"\n");
    world.client_sends(&packet(CLIENT, SERVER, 0));
    world.to_server.pop_back();
    for number in 1..10 {
        world.client_sends(&packet(CLIENT, SERVER, number));
    }
    // The packet was dropped, and the sender was asked to restart the negotiation.
    let end = world.now + Duration::from_secs(2);
    world.run(|world| world.now >= end);
    world.client_sends(&packet(CLIENT, SERVER, 77));
    world.deliver();
    assert_eq!(world.at_server.delivered.last().unwrap()[30], 77);
}

#[test]
fn a_source_that_is_not_the_clients_and_a_destination_without_one_are_dropped() {
    let mut world = World::connected("");
    world.client_sends(&packet(Ipv4Addr::new(10, 9, 0, 3), SERVER, 1));
    world.client_sends(&packet(CLIENT, SERVER, 2));
    world.server_sends(&packet(SERVER, Ipv4Addr::new(10, 9, 0, 3), 3));
    world.server_sends(&[0x60; 40]);
    world.deliver();
    assert_eq!(world.at_server.delivered, [packet(CLIENT, SERVER, 2)]);
    assert!(world.at_client.delivered.is_empty());
    for reason in ["wrong_source", "no_route", "tun_malformed"] {
        assert_eq!(World::drops(&world.server, reason), 1, "{reason}");
    }
}

#[test]
fn packets_from_elsewhere_are_counted_only() {
    let mut world = World::connected("");
    world.client_sends(&packet(CLIENT, SERVER, 1));
    let mut stolen = world.to_server.pop_front().unwrap();
    let stranger = Ipv4Addr::new(198, 51, 100, 1);
    let mut notes = Notes::default();
    let (from, mut cx) = (Way::first(stranger), notes.cx(world.now));
    world.server.inbound(from, &mut stolen, &mut cx);
    world.client.inbound(from, &mut stolen, &mut cx);
    assert!(notes.effects.is_empty() && notes.delivered.is_empty());
    assert_eq!(World::drops(&world.server, "no_session"), 1);
    assert_eq!(World::drops(&world.client, "no_session"), 1);
}

#[test]
fn a_server_out_of_reach_is_called_again_after_longer_and_longer() {
    for late in [false, true] {
        let mut world = World::new(&THERE.to_string(), "word", "");
        (world.at_client.unreachable, world.at_client.late) = (true, late);
        let start = world.now;
        world.tell(Event::Start);
        world.run(|world| world.calls.len() == 7);
        let passed = (world.now - start).as_secs();
        assert_eq!(passed, 1 + 2 + 4 + 10 + 30 + 30);
        world.at_client.unreachable = false;
        world.run(|world| world.up.is_some());
        assert_eq!(world.ended, None);
    }
}

/// Each change of the silence is reported once, 10 s after it began.
#[test]
fn a_silent_server_is_reported_until_the_tunnel_is_up() {
    let mut world = World::new(&THERE.to_string(), "word", "");
    (world.at_client.unreachable, world.at_client.late) = (true, true);
    let start = world.now;
    world.tell(Event::Start);
    world.run(|world| !world.at_client.silent.is_empty());
    assert_eq!((world.now - start).as_secs(), 10);
    world.at_client.unreachable = false;
    world.loses_gre = true;
    world.run(|world| world.stream.is_some());
    let connected = world.now;
    world.run(|world| world.at_client.silent.len() > 1);
    assert_eq!((world.now - connected).as_secs(), 10);
    // Further calls fail for the same reason.
    world.run(|world| world.calls.len() > 8);
    world.loses_gre = false;
    world.run(|world| world.up.is_some());
    let all = [Some(Silent::Server), Some(Silent::Gre), None];
    assert_eq!(world.at_client.silent, all);
    world.up = None;
    world.hang_up();
    world.run(|world| world.up.is_some());
    assert_eq!(world.at_client.silent, all, "it is back soon");
}

#[test]
fn a_tunnel_that_breaks_is_made_anew() {
    let mut world = World::connected("");
    // It breaks again before it has been up for a minute. A server that ends every call is not called without end.
    for pause in [1, 2, 4, 4, 4, 4, 4] {
        let start = world.now;
        world.up = None;
        world.hang_up();
        world.run(|world| world.up.is_some());
        assert_eq!((world.now - start).as_secs(), pause);
    }
    world.client_sends(&packet(CLIENT, SERVER, 9));
    world.pass(Duration::from_secs(1));
    assert_eq!(world.at_server.delivered, [packet(CLIENT, SERVER, 9)]);
}

/// The network loses more packets than a receiver makes keys ahead, so the ends cannot get back in step.
#[test]
fn a_long_outage_under_load_costs_seconds() {
    let mut world = World::connected("");
    let sent = packet(CLIENT, SERVER, 9);
    for _ in 0..5_000 {
        world.client_sends(&sent);
        world.to_server.clear();
    }
    let start = world.now;
    while world.at_server.delivered.is_empty() {
        assert!(
            world.now - start < Duration::from_secs(5),
            "{:?}",
            world.log
        );
        world.client_sends(&sent);
        world.carry();
        world.deliver();
        world.now += Duration::from_millis(20);
        world.tell_server(Event::Deadline);
        world.tell(Event::Deadline);
    }
}

/// The server still has the old call, which it cannot reach any more.
#[test]
fn a_client_that_has_moved_calls_again_at_once() {
    let mut world = World::connected("");
    let (start, old) = (world.now, world.stream.take());
    world.up = None;
    world.tell(Event::Moved);
    assert_ne!(world.stream, old);
    world.run(|world| world.up.is_some());
    assert!(world.now - start < Duration::from_secs(1));
    assert_eq!(world.calls.len(), 2);
    // The answer to an earlier look-up changes nothing.
    world.tell(Event::LookedUp(Ok(vec![HERE])));
    assert_eq!(world.calls.len(), 2);
    let inner = world.up.as_ref().unwrap().address;
    world.client_sends(&packet(inner, SERVER, 9));
    world.deliver();
    assert_eq!(world.at_server.delivered, [packet(inner, SERVER, 9)]);
    world.tell(Event::Stop);
    let calls = world.calls.len();
    world.tell(Event::Moved);
    assert_eq!(world.calls.len(), calls, "the tunnel is to end");
}

#[test]
fn a_route_that_appears_ends_a_pause() {
    for host in [THERE.to_string(), "vpn.example".to_owned()] {
        let mut world = World::new(&host, "word", "");
        world.at_client.unreachable = true;
        world.tell(Event::Start);
        for lookups in 1..6 {
            world.run(|world| world.calls.len() >= lookups || world.asked.len() >= lookups);
            if !world.asked.is_empty() {
                world.tell(Event::LookedUp(Err("no name server".to_owned())));
            }
        }
        world.at_client.unreachable = false;
        let (start, asked) = (world.now, world.asked.len());
        world.tell(Event::Moved);
        if asked > 0 {
            assert_eq!(world.asked.len(), asked + 1);
            world.tell(Event::LookedUp(Ok(vec![THERE])));
        }
        world.run(|world| world.up.is_some());
        assert!(world.now - start < Duration::from_secs(1), "{host}");
    }
}

/// A new route begins a second look-up. Its answer does not end the connection that the first answer began.
#[test]
fn a_second_answer_does_not_disturb_a_connection() {
    let mut world = World::new("vpn.example", "word", "");
    world.tell(Event::Start);
    world.tell(Event::Moved);
    world.tell(Event::LookedUp(Ok(vec![THERE])));
    let calls = world.calls.len();
    world.tell(Event::LookedUp(Ok(vec![THERE])));
    assert_eq!((calls, world.calls.len()), (1, 1));
}

#[test]
fn a_name_is_looked_up_and_its_addresses_are_tried_in_turn() {
    let mut world = World::new("vpn.example", "word", "");
    world.tell(Event::Start);
    assert_eq!(world.asked, ["vpn.example"]);
    world.tell(Event::LookedUp(Err("no name server".to_owned())));
    assert!(world.log[0].contains("vpn.example: no name server"));
    world.run(|world| world.asked.len() == 2);
    world.tell(Event::LookedUp(Ok(Vec::new())));
    assert!(world.log[1].contains("no IPv4"), "{:?}", world.log);
    world.run(|world| world.asked.len() == 3);
    world.at_client.unreachable = true;
    world.tell(Event::LookedUp(Ok(vec![HERE, THERE])));
    let called: Vec<Ipv4Addr> = world.calls.iter().map(|call| *call.ip()).collect();
    assert_eq!(called, [HERE, THERE]);
    // The known addresses are used while the name server is unreachable.
    world.run(|world| world.asked.len() == 4);
    world.tell(Event::LookedUp(Err("no name server".to_owned())));
    assert_eq!(world.calls.len(), 4);
}

#[test]
fn a_servers_inner_address_that_is_its_outer_one_gets_no_route() {
    let more = "default-route = true\nroutes = [\"10.0.0.0/8\"]\nmtu = 1300\n";
    let model = client_model("vpn.example", "word", more);
    let Role::Client(client) = &model.role else {
        panic!("{model:?}");
    };
    let up = |peer| Up {
        address: CLIENT,
        peer: Some(peer),
        dns: [Some(SERVER), None],
        mtu: 1396,
        protection: None,
        user: None,
    };
    let want = network::of_client(&model, client, &up(SERVER), THERE, false);
    assert_eq!(want.addresses[0].peer, Some(SERVER.into()));
    assert_eq!(want.mtu, host::Mtu::Exact(1300));
    assert_eq!(want.routes.len(), 1);
    assert!(want.default_v4.is_some() && want.name_servers.is_none());
    assert_eq!(want.endpoints, [THERE]);
    let want = network::of_client(&model, client, &up(THERE), THERE, false);
    assert_eq!(want.addresses[0].peer, None);
}
