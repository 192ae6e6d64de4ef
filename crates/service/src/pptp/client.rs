//! The client's machine: calls one server until it answers, and calls again after the call ends.

use super::counters;
use super::machine::{Cx, Event, Machine, ONLY, StreamId, Way};
use super::order::Order;
use crate::status::{PeerStatus, Status, expected_within};
use ::pptp::mppe;
use ::pptp::session::{
    Client as Session, ClientSettings, DownReason, Ends, Entropy, Link, LinkOutput, LoginError,
    Protection, SendError, Up,
};
use log::Level;
use plane::LineId;
use silence::Silence;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

mod failures;
mod line_events;
mod lines;
mod silence;

pub(super) use lines::ServerLines;

/// Pause before the next try, by the number of tries that failed in a row.
const PAUSES: [Duration; 5] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(10),
    Duration::from_secs(30),
];

/// Time for which a tunnel must be up to count as one that works.
const SETTLED: Duration = Duration::from_secs(60);

/// The most failed tries that count after a tunnel that was up for less time: its server is there.
const UNSETTLED: usize = 2;

/// How long a server may take to confirm the end.
const FAREWELL: Duration = Duration::from_secs(3);

/// The options of a client.
pub(super) struct ClientOptions {
    /// The server's name or address.
    pub host: String,
    /// TCP port of the server.
    pub port: u16,
    /// Whether the client puts packets back into order.
    pub reorder: Option<bool>,
}

/// Packets and bytes of both directions, and packets that the client dropped.
#[derive(Debug, Default)]
struct Counts {
    sent: [u64; 2],
    received: [u64; 2],
    strangers: u64,
    not_up: u64,
    too_long: u64,
    no_ipv4: u64,
    /// Packets that looked like the answer to a probe, but were forged.
    forged: u64,
}

/// State machine of a client.
pub(super) struct ClientMachine {
    options: ClientOptions,
    settings: ClientSettings,
    entropy: Entropy,
    /// Addresses found for the server, and the index of the one that is called.
    addresses: Vec<Ipv4Addr>,
    at: usize,
    session: Option<Session>,
    order: Option<Order>,
    up: Option<(Up, Instant)>,
    was_up: bool,
    /// Tries that failed in a row.
    failed: usize,
    again_at: Option<Instant>,
    /// Why the client will not try again.
    fatal: Option<String>,
    /// When the client must have ended, once it was told to.
    stop_by: Option<Instant>,
    outputs: Vec<LinkOutput>,
    counts: Counts,
    silence: Silence,
    lines: Option<Box<ServerLines>>,
    /// The control connection is open.
    is_connected: bool,
    /// The client waits for the server's addresses, and does not connect meanwhile.
    is_looking_up: bool,
    /// The client ends this call to make another over a different line.
    hangs_up: bool,
}

impl ClientMachine {
    pub(super) fn new(settings: ClientSettings, options: ClientOptions, entropy: Entropy) -> Self {
        Self {
            lines: None,
            is_connected: false,
            is_looking_up: false,
            hangs_up: false,
            options,
            settings,
            entropy,
            addresses: Vec::new(),
            at: 0,
            session: None,
            order: None,
            up: None,
            was_up: false,
            failed: 0,
            again_at: None,
            fatal: None,
            stop_by: None,
            outputs: Vec::new(),
            counts: Counts::default(),
            silence: Silence::default(),
        }
    }

    /// Reaches the server over these lines, if there are any.
    pub(super) fn with_server_lines(self, lines: Option<Box<ServerLines>>) -> Self {
        Self { lines, ..self }
    }

    fn server(&self) -> Ipv4Addr {
        let server = self.addresses.get(self.at).copied();
        server.unwrap_or(Ipv4Addr::UNSPECIFIED)
    }

    fn begin(&mut self, cx: &mut Cx<'_>) {
        self.silence.begin(cx.now);
        self.again_at = None;
        self.at = 0;
        match self.options.host.parse() {
            Ok(address) => {
                self.addresses = vec![address];
                self.connect(cx);
            }
            Err(_) => {
                self.is_looking_up = true;
                cx.host.look_up(self.options.host.clone());
            }
        }
    }

    fn connect(&mut self, cx: &mut Cx<'_>) {
        self.is_looking_up = false;
        let server = SocketAddrV4::new(self.server(), self.options.port);
        self.dial(server, cx);
    }

    /// Calls the server at once from the host's new source address. Interface and routes stay, and the server forgets
    /// the old call by itself.
    fn moved(&mut self, cx: &mut Cx<'_>) {
        if self.stop_by.is_some() || self.fatal.is_some() {
            return;
        }
        let words = format!("{}: the uplink has changed; calling again", self.server());
        cx.host.log(Level::Info, words);
        (self.session, self.order, self.up) = (None, None, None);
        self.is_connected = false;
        (self.failed, self.again_at) = (0, None);
        self.silence.begin(cx.now);
        match self.addresses.is_empty() {
            true => self.begin(cx),
            // A name server may be reachable only through the tunnel.
            false => self.connect(cx),
        }
    }

    /// Tries the server's next address, as the connection to this one failed.
    fn not_connected(&mut self, why: &str, cx: &mut Cx<'_>) {
        self.silence.not_connected();
        let why = format!("{}: {why}", self.server());
        if self.at + 1 < self.addresses.len() {
            self.at += 1;
            cx.host.log(Level::Info, why);
            self.connect(cx);
        } else {
            self.failed(&why, cx);
        }
    }

    fn looked_up(&mut self, found: Result<Vec<Ipv4Addr>, String>, cx: &mut Cx<'_>) {
        let none = "it has no IPv4 address, and PPTP has no IPv6".to_owned();
        match found.and_then(|found| {
            if found.is_empty() {
                Err(none)
            } else {
                Ok(found)
            }
        }) {
            Ok(found) => self.addresses = found,
            // A failed look-up is not fatal: the name servers may only be reachable through the tunnel, which is down.
            Err(error) if self.addresses.is_empty() => {
                let host = &self.options.host;
                return self.failed(&format!("{host}: {error}"), cx);
            }
            Err(_) => {}
        }
        self.connect(cx);
    }

    /// Handles a failed try, and sets the time of the next one.
    fn failed(&mut self, why: &str, cx: &mut Cx<'_>) {
        let pause = PAUSES[self.failed.min(PAUSES.len() - 1)];
        self.failed += 1;
        self.again_at = Some(cx.now + pause);
        self.ask_all_lines();
        let words = format!("{why}; trying again in {} s", pause.as_secs());
        cx.host.log(Level::Warn, words);
    }

    /// Carries out what the session requests.
    fn translate(&mut self, cx: &mut Cx<'_>) {
        for output in std::mem::take(&mut self.outputs) {
            match output {
                LinkOutput::Gre(packet) => self.send_by_all(&packet, cx),
                LinkOutput::Up(up) => self.came_up(up, cx),
                LinkOutput::Lines(several) => self.agreed(several, cx),
                LinkOutput::Echoed => self.echoed(cx.now),
                // Only a server's link reports this.
                LinkOutput::LoggedIn => {}
                LinkOutput::ControlLost(reason) => {
                    let words = format!(
                        "the control connection is lost, but the tunnel stays up: {reason}"
                    );
                    cx.host.log(Level::Info, words);
                    self.control_lost(cx);
                }
                LinkOutput::Down(reason) => self.went_down(&reason, cx),
            }
        }
    }

    pub(super) fn came_up(&mut self, up: Up, cx: &mut Cx<'_>) {
        let server = self.server();
        let session = self.session.as_ref();
        let call_id = session.map_or(0, Session::call_id);
        let several = session.is_some_and(Session::has_lines);
        let reorder = self.options.reorder.or_else(|| several.then_some(true));
        self.order = Order::of(call_id, up.protection, reorder);
        let words = format!(
            "connected to {server}: local address {}, {}, packets of up to {} bytes",
            up.address,
            describe(up.protection),
            up.mtu
        );
        // Rate-limited like log lines about strangers: the server may renegotiate as often as it likes.
        cx.host.log_stranger(Level::Info, words);
        self.was_up = true;
        cx.host.up(&up, server);
        self.up = Some((up, cx.now));
        self.silence.end();
        self.tell_silence(cx);
        self.ask_all_lines();
    }

    fn went_down(&mut self, reason: &DownReason, cx: &mut Cx<'_>) {
        self.order = None;
        let since = self.up.take().map(|(_, since)| since);
        let settled = since.map(|since| cx.now.saturating_duration_since(since) >= SETTLED);
        self.hung_up(reason, settled, cx.now);
        if !self.is_connected {
            // The control connection was lost before, so the session has nothing more to do.
            self.session = None;
        }
        if let Some(settled) = settled {
            self.failed = if settled {
                0
            } else {
                self.failed.min(UNSETTLED)
            };
        }
        if self.stop_by.is_some() || self.hangs_up {
            return;
        }
        let why = format!("{}: {reason}", self.server());
        // The failure is not final if the tunnel was up before: the login may work again.
        if !self.was_up && is_final(reason) {
            if matches!(reason, DownReason::Login(_)) {
                cx.host.refused(&why);
            }
            self.fatal = Some(why);
            self.silence.end();
        } else {
            self.failed(&why, cx);
        }
    }

    /// Whether no attempt, call or session is in progress.
    fn is_idle(&self) -> bool {
        self.session.is_none()
    }
}

/// Whether another try would fail for the same reason.
const fn is_final(reason: &DownReason) -> bool {
    match reason {
        DownReason::Login(error) => !matches!(error, LoginError::TimeOut),
        DownReason::NoLogin | DownReason::NoEncryption(_) => true,
        _ => false,
    }
}

/// Describes the protection of packets in words.
pub(super) fn describe(protection: Option<Protection>) -> String {
    let Some(Protection { key, stateless }) = protection else {
        return "not encrypted".to_owned();
    };
    let bits = mppe::KeyLength::bits(key);
    let mode = if stateless { "stateless" } else { "stateful" };
    format!("MPPE-{bits} {mode}")
}

/// Sets in the status when the other end of a call was last heard.
pub(super) fn set_heard(peer: &mut PeerStatus, call: Option<&Link>) {
    if let Some((last, asked_after, ends_after)) = call.and_then(Link::heard) {
        let within = expected_within(Some(asked_after), Some(ends_after));
        peer.set_heard(Some(last), within, Instant::now());
    }
}

impl Machine for ClientMachine {
    fn handle(&mut self, event: Event<'_>, cx: &mut Cx<'_>) {
        match event {
            Event::Start => {
                self.open_lines(cx);
                self.begin(cx);
            }
            // Otherwise the client has called a known address meanwhile.
            Event::LookedUp(found) if self.is_idle() && self.is_looking_up => {
                self.is_looking_up = false;
                self.looked_up(found, cx);
            }
            Event::LookedUp(_) => {}
            Event::Connected => {
                self.is_connected = true;
                self.silence.connected(cx.now);
                self.dialled(cx);
                let (settings, entropy) = (self.settings.clone(), self.entropy.clone());
                match Session::new(settings, entropy, cx.now) {
                    Ok(session) => self.session = Some(session),
                    Err(error) => cx.host.end(Err(error.to_string())),
                }
            }
            Event::NotConnected(why) => self.not_connected(&why, cx),
            Event::Control(_, bytes) => {
                if let Some(session) = &mut self.session {
                    session.receive_control(bytes, cx.now, &mut self.outputs);
                }
            }
            Event::Ended(_) => {
                if let Some(session) = &mut self.session {
                    session.control_ended(cx.now, &mut self.outputs);
                }
            }
            Event::Closed(_) => {
                self.is_connected = false;
                if self.goes_on() {
                    // The lines have called the server.
                    return self.translate(cx);
                }
                self.session = None;
                if self.stop_by.is_some() {
                    cx.host.end(Ok(()));
                } else if let Some(why) = self.fatal.take() {
                    cx.host.end(Err(why));
                }
            }
            Event::LinksChanged => self.read_lines(cx),
            Event::Moved => self.moved(cx),
            Event::Knocked(line) => self.knocked(line, cx),
            Event::Deadline => {
                self.tell_silence(cx);
                self.expire_lines(cx);
                if let Some(session) = &mut self.session {
                    session.expire(cx.now, &mut self.outputs);
                }
                if self.stop_by.is_some_and(|by| by <= cx.now) {
                    cx.host.end(Ok(()));
                } else if self.again_at.is_some_and(|at| at <= cx.now) && self.is_idle() {
                    self.begin(cx);
                }
            }
            Event::Stop => {
                self.again_at = None;
                self.silence.end();
                self.stop_by = Some(cx.now + FAREWELL);
                match &mut self.session {
                    Some(session) => session.stop(cx.now, &mut self.outputs),
                    None => cx.host.end(Ok(())),
                }
                if !self.is_connected && self.session.is_some() {
                    self.translate(cx);
                    cx.host.end(Ok(()));
                }
            }
        }
        self.translate(cx);
    }

    fn accept(&mut self, _: Ends, _: &mut Cx<'_>) -> Option<StreamId> {
        None
    }

    fn transmit(&self, _stream: StreamId) -> &[u8] {
        self.session.as_ref().map_or(&[], Session::transmit)
    }

    fn transmitted(&mut self, _stream: StreamId, len: usize) {
        if let Some(session) = &mut self.session {
            session.transmitted(len);
        }
    }

    fn is_finished(&self, stream: StreamId) -> bool {
        stream == ONLY && self.session.as_ref().is_some_and(Session::is_finished)
    }

    fn deadline(&self) -> Option<Instant> {
        let session = self.session.as_ref().and_then(Session::deadline);
        let order = self.order.as_ref().and_then(Order::deadline);
        // While a session is ending, the next try waits.
        let again = self.again_at.filter(|_| self.is_idle());
        let silence = self.silence.deadline();
        [
            session,
            order,
            again,
            self.stop_by,
            silence,
            self.lines_deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn outbound(
        &mut self,
        packet: &[u8],
        now: Instant,
        out: &mut Vec<u8>,
        copies: &mut Vec<Way>,
    ) -> Option<Way> {
        let before = out.len();
        let sent = match &mut self.session {
            Some(session) => session.send(packet, out),
            None => Err(SendError::NotUp),
        };
        match sent {
            Ok(()) => {
                self.counts.sent[0] += 1;
                self.counts.sent[1] += packet.len() as u64;
                let (to, sealed) = (self.server(), out.len() - before);
                return Some(match &mut self.lines {
                    None => Way::first(to),
                    Some(it) => it.sent((packet, sealed), to, now, copies),
                });
            }
            Err(SendError::NotUp) => self.counts.not_up += 1,
            Err(SendError::TooLong(_)) => self.counts.too_long += 1,
            Err(SendError::Protocol) => self.counts.no_ipv4 += 1,
        }
        None
    }

    fn inbound(&mut self, from: Way, packet: &mut [u8], cx: &mut Cx<'_>) {
        if from.to != self.server() {
            self.counts.strangers += 1;
            return;
        }
        self.silence.heard_gre();
        if self.lines.is_some() && ::pptp::lines::is_probe(packet) {
            self.answered(from.line, packet, cx);
            return;
        }
        let order = self.order.as_mut();
        let first = order.is_none_or(|order| order.arrived(packet, from.line, cx.now));
        if let Some(it) = &mut self.lines {
            it.traffic.received(from.line, packet.len(), first);
        }
        if first {
            self.open(packet, Some(from.line), cx);
        }
        self.release(cx);
    }

    fn release(&mut self, cx: &mut Cx<'_>) {
        while let Some(mut packet) = self.order.as_mut().and_then(|order| order.due(cx.now)) {
            self.open(&mut packet, None, cx);
        }
    }

    fn describe(&self, status: &mut Status) {
        status.role = Some("client".to_owned());
        let state = if self.up.is_some() {
            "connected"
        } else {
            "connecting"
        };
        status.state = Some(state.to_owned());
        let mut peer = PeerStatus {
            name: Some(self.options.host.clone()),
            endpoint: Some(self.server().to_string()),
            transport: Some("gre".to_owned()),
            username: Some(self.settings.user.clone()),
            rx_bytes: self.counts.received[1],
            tx_bytes: self.counts.sent[1],
            ..PeerStatus::default()
        };
        if let Some((up, _)) = &self.up {
            status.addresses = vec![up.address.to_string()];
            peer.cipher = Some(describe(up.protection));
            peer.allowed_ips = up.peer.iter().map(|peer| format!("{peer}/32")).collect();
        }
        let call = self.session.as_ref().and_then(Session::call);
        set_heard(&mut peer, call);
        self.describe_lines(&mut peer);
        status.peers = vec![peer];
        let counts = &self.counts;
        let drops = [
            ("no_session", counts.strangers),
            ("no_route", counts.not_up),
            ("too_long", counts.too_long),
            ("tun_malformed", counts.no_ipv4),
            ("forged_probe", counts.forged),
        ];
        counters::dataplane(status, counts.sent, counts.received, &drops);
        counters::add(call, &mut status.dataplane.drops);
    }
}

impl ClientMachine {
    /// Opens a packet that is next in order.
    fn open(&mut self, packet: &mut [u8], line: Option<LineId>, cx: &mut Cx<'_>) {
        let whole = packet.len();
        let Some(session) = &mut self.session else {
            self.counts.not_up += 1;
            return;
        };
        if let Some(inner) = session.receive_gre(packet, cx.now, &mut self.outputs) {
            let inner = &packet[inner];
            self.counts.received[0] += 1;
            self.counts.received[1] += inner.len() as u64;
            cx.host.deliver(inner);
            self.came_by(line, whole, cx.now);
        }
        if !self.outputs.is_empty() {
            self.translate(cx);
        }
    }
}
