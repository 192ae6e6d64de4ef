//! The server's machine: its clients, and which of them each inner address belongs to.

use super::client::{describe, set_heard};
use super::counters;
use super::machine::{Cx, Event, Machine, StreamId, Way};
use super::order::Order;
use crate::status::{PeerStatus, Status};
use ::pptp::gre::Packet;
use ::pptp::session::{
    Accounts, ConnectionId, Ends, Entropy, SendError, Server as Session, ServerOutput,
    ServerSettings, StartError, Up,
};
use log::Level;
use plane::LineId;
use std::collections::{BTreeMap, HashMap};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

mod lines;

pub(super) use lines::Answering;
use lines::ClientLines;

/// How long clients may take to confirm the end.
const FAREWELL: Duration = Duration::from_secs(3);

/// A client whose call is up.
struct Client {
    /// The client's inner address.
    inner: Ipv4Addr,
    /// The client's outer address.
    outer: Ipv4Addr,
    up: Up,
    since: SystemTime,
    order: Option<Order>,
    /// The client's lines, if it calls over several.
    lines: Option<Box<ClientLines>>,
    sent: [u64; 2],
    received: [u64; 2],
}

/// State machine of a server.
pub(super) struct ServerMachine {
    session: Session,
    reorder: Option<bool>,
    answering: Option<Answering>,
    /// Calls that are up, by our call ID.
    clients: BTreeMap<u16, Client>,
    /// Calls by the client's inner address.
    routes: HashMap<Ipv4Addr, u16>,
    /// Where control connections come from.
    connections: BTreeMap<StreamId, Ipv4Addr>,
    finished: Vec<StreamId>,
    stop_by: Option<Instant>,
    outputs: Vec<ServerOutput>,
    /// Dropped packets: for no client, too long for one, not IPv4, and from an address that is not the client's.
    drops: [u64; 4],
    /// Packets and bytes of both directions.
    sent: [u64; 2],
    received: [u64; 2],
    logins_refused: u64,
}

impl ServerMachine {
    /// # Errors
    /// See [`StartError`].
    pub(super) fn new(
        settings: ServerSettings,
        accounts: Box<dyn Accounts>,
        entropy: Entropy,
        reorder: Option<bool>,
    ) -> Result<Self, StartError> {
        Ok(Self {
            session: Session::new(settings, accounts, entropy)?,
            reorder,
            answering: None,
            clients: BTreeMap::new(),
            routes: HashMap::new(),
            connections: BTreeMap::new(),
            finished: Vec::new(),
            stop_by: None,
            outputs: Vec::new(),
            drops: [0; 4],
            sent: [0; 2],
            received: [0; 2],
            logins_refused: 0,
        })
    }

    /// Carries out what the session requests.
    fn translate(&mut self, cx: &mut Cx<'_>) {
        for output in std::mem::take(&mut self.outputs) {
            match output {
                ServerOutput::Gre { to, packet } => {
                    cx.host.send(Way::between(LineId::FIRST, to), &packet);
                }
                ServerOutput::Up { call, up } => self.came_up(call, up, cx),
                ServerOutput::Lines { call } => self.agreed(call, cx),
                ServerOutput::ControlLost { call } => self.control_lost(call, cx),
                ServerOutput::Down {
                    call,
                    client: outer,
                    reason,
                } => {
                    if let ::pptp::session::DownReason::Login(_) = reason {
                        self.logins_refused += 1;
                    }
                    if let Some(client) = self.clients.remove(&call) {
                        self.routes.remove(&client.inner);
                        let words = format!("{}: {reason}", name(&client.up));
                        cx.host.log(Level::Info, words);
                    } else {
                        let words = format!("{outer}: {reason}");
                        cx.host.log_stranger(Level::Info, words);
                    }
                }
                ServerOutput::Closed { connection, reason } => {
                    if let Some(from) = self.connections.get(&connection.0) {
                        let words = format!("{from}: {reason}");
                        cx.host.log_stranger(Level::Debug, words);
                    }
                    self.finished.push(connection.0);
                }
            }
        }
    }

    pub(super) fn came_up(&mut self, call: u16, up: Up, cx: &mut Cx<'_>) {
        let (Some(inner), Some(outer)) = (up.peer, self.session.client_of(call)) else {
            return;
        };
        let words = format!(
            "{}: up from {outer} as {inner}, {}, packets of up to {} bytes",
            name(&up),
            describe(up.protection),
            up.mtu
        );
        // At a lower log level: a client may renegotiate as often as it likes.
        let level = match self.clients.contains_key(&call) {
            true => Level::Debug,
            false => Level::Info,
        };
        cx.host.log(level, words);
        self.routes.insert(inner, call);
        let order = Order::of(call, up.protection, self.reorder);
        let client = Client {
            inner,
            outer,
            up,
            since: SystemTime::now(),
            order,
            lines: None,
            sent: [0; 2],
            received: [0; 2],
        };
        // The client may have renegotiated.
        if let Some(old) = self.clients.insert(call, client)
            && old.inner != inner
        {
            self.routes.remove(&old.inner);
        }
        if self.session.addresses(call).is_some() {
            self.agreed(call, cx);
        }
    }

    /// Opens a packet that is next in order.
    fn open(&mut self, from: Ipv4Addr, packet: &mut [u8], cx: &mut Cx<'_>) {
        let opened = self
            .session
            .receive_gre(from, packet, cx.now, &mut self.outputs);
        if let Some((call, inner)) = opened
            && let Some(client) = self.clients.get_mut(&call)
        {
            let inner = &packet[inner];
            if source_of(inner) == Some(client.inner) {
                for counts in [&mut client.received, &mut self.received] {
                    counts[0] += 1;
                    counts[1] += inner.len() as u64;
                }
                cx.host.deliver(inner);
            } else {
                self.drops[3] += 1;
            }
        }
        if !self.outputs.is_empty() {
            self.translate(cx);
        }
    }
}

/// A client's name in the log. The name that the client gave is escaped, so that the terminal does not obey it.
fn name(up: &Up) -> String {
    let name = up.user.as_deref().unwrap_or("(no name)");
    config::shown(name)
}

/// The source address of an IPv4 packet.
fn source_of(packet: &[u8]) -> Option<Ipv4Addr> {
    address_at(packet, 12)
}

fn address_at(packet: &[u8], at: usize) -> Option<Ipv4Addr> {
    let &address = packet.get(at..)?.first_chunk::<4>()?;
    (packet[0] >> 4 == 4).then_some(address.into())
}

impl Machine for ServerMachine {
    fn handle(&mut self, event: Event<'_>, cx: &mut Cx<'_>) {
        match event {
            Event::Control(stream, bytes) => {
                let id = ConnectionId(stream);
                self.session
                    .receive_control(id, bytes, cx.now, &mut self.outputs);
            }
            Event::Ended(stream) => {
                let id = ConnectionId(stream);
                self.session.control_ended(id, cx.now, &mut self.outputs);
            }
            Event::Closed(stream) => {
                self.session.forget(ConnectionId(stream));
                self.connections.remove(&stream);
                self.finished.retain(|finished| *finished != stream);
            }
            Event::Deadline => {
                self.session.expire(cx.now, &mut self.outputs);
                if self.stop_by.is_some_and(|by| by <= cx.now) {
                    cx.host.end(Ok(()));
                }
            }
            Event::Stop => {
                self.stop_by = Some(cx.now + FAREWELL);
                self.session.stop(cx.now, &mut self.outputs);
            }
            // A server calls nobody.
            Event::Start
            | Event::LookedUp(_)
            | Event::Connected
            | Event::NotConnected(_)
            | Event::LinksChanged
            | Event::Moved
            | Event::Knocked(_) => {}
        }
        self.translate(cx);
        if self.stop_by.is_some() && self.connections.is_empty() {
            cx.host.end(Ok(()));
        }
    }

    fn accept(&mut self, ends: Ends, cx: &mut Cx<'_>) -> Option<StreamId> {
        if self.stop_by.is_some() {
            return None;
        }
        let ConnectionId(stream) = self.session.accept(ends, cx.now, &mut self.outputs);
        self.connections.insert(stream, ends.theirs);
        self.translate(cx);
        Some(stream)
    }

    fn transmit(&self, stream: StreamId) -> &[u8] {
        self.session.transmit(ConnectionId(stream))
    }

    fn transmitted(&mut self, stream: StreamId, len: usize) {
        self.session.transmitted(ConnectionId(stream), len);
    }

    fn is_finished(&self, stream: StreamId) -> bool {
        self.finished.contains(&stream)
    }

    fn deadline(&self) -> Option<Instant> {
        let orders = self.clients.values();
        let orders = orders.filter_map(|client| client.order.as_ref()?.deadline());
        let others = [self.session.deadline(), self.stop_by];
        orders.chain(others.into_iter().flatten()).min()
    }

    fn outbound(
        &mut self,
        packet: &[u8],
        now: Instant,
        out: &mut Vec<u8>,
        copies: &mut Vec<Way>,
    ) -> Option<Way> {
        let before = out.len();
        let Some(to) = address_at(packet, 16) else {
            self.drops[2] += 1;
            return None;
        };
        let call = self.routes.get(&to).copied();
        let client = call.and_then(|call| Some((call, self.clients.get_mut(&call)?)));
        let Some((call, client)) = client else {
            self.drops[0] += 1;
            return None;
        };
        match self.session.send(call, packet, now, out) {
            Ok(to) => {
                for counts in [&mut client.sent, &mut self.sent] {
                    counts[0] += 1;
                    counts[1] += packet.len() as u64;
                }
                let packet = (packet, out.len() - before);
                let lines = client.lines.as_mut().zip(self.session.addresses(call));
                let way = lines.and_then(|(lines, all)| lines.send(packet, all, now, copies));
                return Some(way.unwrap_or_else(|| Way::between(LineId::FIRST, to)));
            }
            Err(SendError::NotUp) => self.drops[0] += 1,
            Err(SendError::TooLong(_)) => self.drops[1] += 1,
            Err(SendError::Protocol) => self.drops[2] += 1,
        }
        None
    }

    fn inbound(&mut self, way: Way, packet: &mut [u8], cx: &mut Cx<'_>) {
        let from = way.to;
        if self.answering.is_some() && ::pptp::lines::is_probe(packet) {
            self.session
                .probed(way.ends(), packet, cx.now, &mut self.outputs);
            return self.translate(cx);
        }
        let call = Packet::parse(packet).map_or(0, |packet| packet.header.call_id);
        let several = self
            .answering
            .and_then(|_| self.line_of(call, from, cx.now));
        let client = self.clients.get_mut(&call).and_then(|client| {
            let only = || (client.lines.is_none() && client.outer == from).then_some(LineId::FIRST);
            Some((several.or_else(only)?, client))
        });
        let Some((line, client)) = client else {
            return self.open(from, packet, cx);
        };
        let order = client.order.as_mut();
        let orders = order.is_some();
        let first = order.is_none_or(|order| order.arrived(packet, line, cx.now));
        if let Some(lines) = &mut client.lines {
            lines.traffic.received(line, packet.len(), first);
        }
        if first {
            self.open(from, packet, cx);
        }
        if orders {
            self.release_of(call, cx);
        }
    }

    fn release(&mut self, cx: &mut Cx<'_>) {
        let due = self.clients.iter().filter(|(_, client)| {
            let deadline = client.order.as_ref().and_then(Order::deadline);
            deadline.is_some_and(|deadline| deadline <= cx.now)
        });
        let due: Vec<u16> = due.map(|(call, _)| *call).collect();
        for call in due {
            self.release_of(call, cx);
        }
    }

    fn describe(&self, status: &mut Status) {
        status.role = Some("server".to_owned());
        let [unrouted, too_long, no_ipv4, foreign] = self.drops;
        let drops = [
            ("no_session", self.session.unknown_packets()),
            ("no_route", unrouted),
            ("too_long", too_long),
            ("tun_malformed", no_ipv4),
            ("wrong_source", foreign),
            ("forged_probe", self.session.probe_counters().forged),
            ("replayed_probe", self.session.probe_counters().replayed),
            ("unaccepted_probe", self.session.probe_counters().unaccepted),
        ];
        counters::dataplane(status, self.sent, self.received, &drops);
        for (call, client) in &self.clients {
            counters::add(self.session.call(*call), &mut status.dataplane.drops);
            let since = client.since.duration_since(UNIX_EPOCH);
            let mut peer = PeerStatus {
                name: client.up.user.clone(),
                username: client.up.user.clone(),
                client_id: Some(u64::from(*call)),
                transport: Some("gre".to_owned()),
                cipher: Some(describe(client.up.protection)),
                connected_unix: since.ok().map(|since| since.as_secs()),
                endpoint: Some(client.outer.to_string()),
                allowed_ips: vec![format!("{}/32", client.inner)],
                rx_bytes: client.received[1],
                tx_bytes: client.sent[1],
                ..PeerStatus::default()
            };
            set_heard(&mut peer, self.session.call(*call));
            client.describe_lines(self.session.addresses(*call), &mut peer);
            status.peers.push(peer);
        }
        let refused = &mut status.refused;
        refused.insert("connection_limit".to_owned(), self.session.turned_away());
        refused.insert("auth_failed".to_owned(), self.logins_refused);
    }
}

impl ServerMachine {
    /// Opens the packets of one call that waited for an earlier one.
    fn release_of(&mut self, call: u16, cx: &mut Cx<'_>) {
        loop {
            let Some(client) = self.clients.get_mut(&call) else {
                return;
            };
            let outer = client.outer;
            let due = client.order.as_mut().and_then(|order| order.due(cx.now));
            let Some(mut packet) = due else {
                return;
            };
            // The source was checked when the packet came.
            let from = self.session.used_of(call, cx.now).unwrap_or(outer);
            self.open(from, &mut packet, cx);
        }
    }
}
