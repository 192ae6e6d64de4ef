//! A server: control connections of many clients, each with one call or more.

mod lines;
mod strangers;

use core::ops::Range;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Instant;

use plane::Guesses;

use crate::control::{
    Answer, CallEnd, CloseReason, Connection, ErrorCode, Event, OutgoingResult, Role, StopReason,
};
use crate::gre::{Ends, Packet, Tunnel};
use crate::lines::Addresses;
use crate::ppp::IpcpSettings;
use crate::session::authenticator::{Accounts, Door};
use crate::session::link::{Link, LinkOutput, Side};
use crate::session::output::{DownReason, SendError, Up};
use crate::session::settings::{Entropy, ServerSettings, StartError};

/// Number of a control connection at one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

/// Actions that a server requests from its caller, in order. Our call ID names a call; no two calls of a server share
/// one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerOutput {
    /// Send `packet` as the payload of an IP packet of protocol 47.
    Gre {
        /// The destination: the client, and our address that it called.
        to: Ends,
        /// Content of the GRE packet.
        packet: Vec<u8>,
    },
    /// The link of a call is up; repeated if the client renegotiates. The caller routes packets for [`Up::peer`] to the
    /// client, and drops packets from the client with other source addresses.
    Up {
        /// Number of the call.
        call: u16,
        /// Inner addresses of the call.
        up: Up,
    },
    /// The client and this server agreed to use several lines.
    Lines {
        /// Number of the call.
        call: u16,
    },
    /// The control connection of a call has ended, but the call continues over its lines.
    ControlLost {
        /// Number of the call.
        call: u16,
    },
    /// A call is over.
    Down {
        /// Number of the call.
        call: u16,
        /// Outer address of the client.
        client: Ipv4Addr,
        /// Why the call ended.
        reason: DownReason,
    },
    /// A control connection is over. Once everything is transmitted, the caller closes TCP and calls
    /// [`forget`](Server::forget).
    Closed {
        /// Number of the closed connection.
        connection: ConnectionId,
        /// Why the connection ended.
        reason: CloseReason,
    },
}

/// Counts of rejected probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeCounters {
    /// Probes that did not come from the client.
    pub forged: u64,
    /// Probes not newer than earlier ones.
    pub replayed: u64,
    /// Probes from an address that has not yet repeated a token, or from one too many; they were answered.
    pub unaccepted: u64,
}

struct Client {
    connection: Connection,
    ends: Ends,
    /// Calls whose client has logged in.
    admitted: u16,
    /// Since when the client has had no such call; without one, the client counts as a stranger.
    stranger: Option<Instant>,
    /// Calls that the client has requested since then.
    asked: u16,
}

struct ServerCall {
    call: Link,
    connection: ConnectionId,
    ends: Ends,
    /// The client's inner address, which returns to the pool; `None` until the client has logged in.
    inner: Option<Ipv4Addr>,
    /// Since when the client, which has logged in, waits for other calls of its account to show that they are alive.
    waits: Option<Instant>,
    /// Addresses of the call's lines, if both ends agree to several.
    addresses: Option<Addresses>,
    /// When the control connection was lost, if the call continues.
    lost: Option<Instant>,
}

/// A PPTP server without sockets; see the crate's documentation.
pub struct Server {
    settings: ServerSettings,
    entropy: Entropy,
    accounts: Box<dyn Accounts>,
    guesses: Guesses<Ipv4Addr>,
    clients: BTreeMap<ConnectionId, Client>,
    calls: BTreeMap<u16, ServerCall>,
    pool: Vec<Ipv4Addr>,
    next_connection: u64,
    next_call: u16,
    outputs: Vec<LinkOutput>,
    unknown_packets: u64,
    turned_away: u64,
    probes: ProbeCounters,
}

impl Server {
    /// A server without connections.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn new(
        settings: ServerSettings,
        accounts: Box<dyn Accounts>,
        entropy: Entropy,
    ) -> Result<Self, StartError> {
        settings.common.check()?;
        if settings.pool.is_empty() {
            return Err(StartError::NoAddresses);
        }
        let mut pool = settings.pool.clone();
        pool.reverse();
        Ok(Self {
            // A random start keeps packets of an earlier server process from reaching a new call.
            next_call: u16::from_le_bytes(entropy.bytes()),
            settings,
            entropy,
            accounts,
            guesses: Guesses::default(),
            clients: BTreeMap::new(),
            calls: BTreeMap::new(),
            pool,
            next_connection: 0,
            outputs: Vec::new(),
            unknown_packets: 0,
            turned_away: 0,
            probes: ProbeCounters::default(),
        })
    }

    /// Adds a client's TCP connection to port 1723. If too many clients have not logged in, closes the connection of
    /// one.
    pub fn accept(
        &mut self,
        ends: Ends,
        now: Instant,
        out: &mut Vec<ServerOutput>,
    ) -> ConnectionId {
        self.make_room(ends.theirs, now, out);
        let id = ConnectionId(self.next_connection);
        self.next_connection += 1;
        let settings = self.settings.common.control.clone();
        let connection = Connection::new(Role::Server, settings, now);
        let client = Client {
            connection,
            ends,
            admitted: 0,
            stranger: Some(now),
            asked: 0,
        };
        self.clients.insert(id, client);
        id
    }

    /// Bytes to send on a TCP connection. Check this after every call.
    #[must_use]
    pub fn transmit(&self, id: ConnectionId) -> &[u8] {
        self.clients
            .get(&id)
            .map_or(&[], |client| client.connection.transmit())
    }

    /// Records that TCP has taken the first `len` bytes of [`transmit`](Self::transmit).
    pub fn transmitted(&mut self, id: ConnectionId, len: usize) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.connection.transmitted(len);
        }
    }

    /// Takes bytes received on a TCP connection.
    pub fn receive_control(
        &mut self,
        id: ConnectionId,
        bytes: &[u8],
        now: Instant,
        out: &mut Vec<ServerOutput>,
    ) {
        self.on_connection(id, now, out, |it| it.receive(bytes, now));
    }

    /// Records that a TCP connection has ended.
    pub fn control_ended(&mut self, id: ConnectionId, now: Instant, out: &mut Vec<ServerOutput>) {
        self.on_connection(id, now, out, Connection::stream_ended);
    }

    /// Forgets a closed control connection.
    pub fn forget(&mut self, id: ConnectionId) {
        if self
            .clients
            .get(&id)
            .is_some_and(|client| client.connection.is_closed())
        {
            self.clients.remove(&id);
        }
    }

    /// Takes the payload of an IP packet of protocol 47. Returns its call and the range of the decrypted inner packet.
    pub fn receive_gre(
        &mut self,
        from: Ipv4Addr,
        packet: &mut [u8],
        now: Instant,
        out: &mut Vec<ServerOutput>,
    ) -> Option<(u16, Range<usize>)> {
        let id = Packet::parse(packet).map(|packet| packet.header.call_id);
        let call = id.ok().and_then(|id| Some((id, self.calls.get_mut(&id)?)));
        let Some((id, call)) = call.filter(|(_, call)| call.hears(from, now)) else {
            self.unknown_packets += 1;
            return None;
        };
        let mut door = Door {
            accounts: &*self.accounts,
            guesses: &mut self.guesses,
            source: call.ends.theirs,
        };
        let door = Some(&mut door);
        let inner = call.call.receive(packet, now, door, &mut self.outputs);
        if !self.outputs.is_empty() {
            self.link_outputs(id, now, out);
        }
        Some((id, inner?))
    }

    /// Appends the payload of an IP packet of protocol 47 that carries `packet` to `out`; returns its destination.
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn send(
        &mut self,
        call: u16,
        packet: &[u8],
        now: Instant,
        out: &mut Vec<u8>,
    ) -> Result<Ends, SendError> {
        let call = self.calls.get_mut(&call).ok_or(SendError::NotUp)?;
        call.call.send_inner(packet, out)?;
        Ok(call.used(now))
    }

    /// Ends a call and tells the client.
    pub fn end_call(&mut self, call: u16, now: Instant, out: &mut Vec<ServerOutput>) {
        if let Some(found) = self.calls.get_mut(&call) {
            found.call.stop(now, &mut self.outputs);
            self.link_outputs(call, now, out);
        }
    }

    /// Ends all calls and connections, and tells the clients.
    pub fn stop(&mut self, now: Instant, out: &mut Vec<ServerOutput>) {
        let calls: Vec<u16> = self.calls.keys().copied().collect();
        for call in calls {
            self.end_call(call, now, out);
        }
        let clients: Vec<ConnectionId> = self.clients.keys().copied().collect();
        for id in clients {
            self.on_connection(id, now, out, |it| it.stop(StopReason::LocalShutdown, now));
        }
    }

    /// When [`expire`](Self::expire) must be called next. Looks at each connection and call.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let connections = self
            .clients
            .values()
            .flat_map(|client| [client.connection.deadline(), client.patience()]);
        let calls = self.calls.values();
        let calls =
            calls.flat_map(|call| [call.call.deadline(), call.silent_at(), call.waits_until()]);
        connections.chain(calls).flatten().min()
    }

    /// Handles timers that are due. An early call does nothing.
    pub fn expire(&mut self, now: Instant, out: &mut Vec<ServerOutput>) {
        let due = |deadline: Option<Instant>| deadline.is_some_and(|deadline| deadline <= now);
        self.expire_strangers(now, out);
        let late = self
            .clients
            .iter()
            .filter(|(_, client)| due(client.connection.deadline()));
        let late: Vec<ConnectionId> = late.map(|(&id, _)| id).collect();
        for id in late {
            self.on_connection(id, now, out, |it| it.expire(now));
        }
        let late = self
            .calls
            .iter()
            .filter(|(_, call)| due(call.call.deadline()));
        let late: Vec<u16> = late.map(|(&id, _)| id).collect();
        for id in late {
            if let Some(call) = self.calls.get_mut(&id) {
                let mut door = Door {
                    accounts: &*self.accounts,
                    guesses: &mut self.guesses,
                    source: call.ends.theirs,
                };
                call.call.expire(now, Some(&mut door), &mut self.outputs);
                self.link_outputs(id, now, out);
            }
        }
        self.expire_newcomers(now, out);
        self.expire_lines(now, out);
    }

    /// The call with this ID.
    #[must_use]
    pub fn call(&self, id: u16) -> Option<&Link> {
        self.calls.get(&id).map(|call| &call.call)
    }

    /// The address of a call's client.
    #[must_use]
    pub fn client_of(&self, id: u16) -> Option<Ipv4Addr> {
        self.calls.get(&id).map(|call| call.ends.theirs)
    }

    /// Number of calls, and of addresses left in the pool.
    #[must_use]
    pub fn occupancy(&self) -> (usize, usize) {
        (self.calls.len(), self.pool.len())
    }

    /// Connections closed because too many clients had not logged in.
    #[must_use]
    pub const fn turned_away(&self) -> u64 {
        self.turned_away
    }

    /// GRE packets that belong to no call, or did not come from its client.
    #[must_use]
    pub const fn unknown_packets(&self) -> u64 {
        self.unknown_packets
    }

    /// Calls `act` on a control connection, if it is there, and handles its events.
    fn on_connection(
        &mut self,
        id: ConnectionId,
        now: Instant,
        out: &mut Vec<ServerOutput>,
        act: impl FnOnce(&mut Connection),
    ) {
        if let Some(client) = self.clients.get_mut(&id) {
            act(&mut client.connection);
        }
        self.events(id, now, out);
    }

    fn events(&mut self, id: ConnectionId, now: Instant, out: &mut Vec<ServerOutput>) {
        while let Some(event) = self
            .clients
            .get_mut(&id)
            .and_then(|client| client.connection.poll_event())
        {
            match event {
                Event::CallRequested { peer_call_id } => self.call_requested(id, peer_call_id),
                Event::CallDown {
                    call_id,
                    end: CallEnd::ConnectionClosed,
                } if self.outlives(call_id, now) => {}
                Event::CallDown { call_id, end } => {
                    self.drop_call(call_id, DownReason::Call(end), now, out);
                }
                Event::Closed(reason) => {
                    self.lost(id, reason, now, out);
                    out.push(ServerOutput::Closed {
                        connection: id,
                        reason,
                    });
                }
                Event::Established(_) | Event::CallUp { .. } => {}
            }
            self.start_calls(id, now, out);
        }
    }

    /// Answers a client's request for a call.
    fn call_requested(&mut self, id: ConnectionId, peer_call_id: u16) {
        let free = (0..=u16::MAX).map(|at| self.next_call.wrapping_add(at));
        let call_id = free
            .into_iter()
            .find(|call_id| !self.calls.contains_key(call_id));
        let call_id = call_id.filter(|_| !self.waits_for_login(id));
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        if client.is_insatiable() {
            return client.connection.abandon(CloseReason::TooManyCalls);
        }
        let Some(call_id) = call_id else {
            let refuse = Answer::Refuse {
                result: OutgoingResult::GeneralError,
                error: ErrorCode::NoResource,
            };
            // The request has just arrived, so this cannot fail.
            client.connection.answer_call(peer_call_id, refuse);
            return;
        };
        let answer = Answer::Accept { call_id };
        if !client.connection.answer_call(peer_call_id, answer) {
            return;
        }
        self.next_call = call_id.wrapping_add(1);
        let settings = &self.settings;
        let side = Side::Server {
            name: settings.name.clone(),
        };
        let ip = IpcpSettings {
            address: Some(settings.address),
            peer: None,
            ask_dns: false,
            dns: settings.dns,
        };
        let link = settings.common.link.clone();
        let window = settings.common.control.window;
        let tunnel = Tunnel::new(call_id, peer_call_id, window);
        let call = ServerCall {
            call: Link::new(side, link, ip, self.entropy.clone(), tunnel),
            connection: id,
            ends: client.ends,
            inner: None,
            waits: None,
            addresses: None,
            lost: None,
        };
        self.calls.insert(call_id, call);
    }

    /// Starts the links of calls that have just come up.
    fn start_calls(&mut self, id: ConnectionId, now: Instant, out: &mut Vec<ServerOutput>) {
        let fresh = self
            .calls
            .iter()
            .filter(|(_, call)| call.connection == id && !call.call.started);
        let fresh: Vec<u16> = fresh.map(|(&call, _)| call).collect();
        for call_id in fresh {
            if let Some(call) = self.calls.get_mut(&call_id) {
                call.call.start(now, &mut self.outputs);
                self.link_outputs(call_id, now, out);
            }
        }
    }

    fn link_outputs(&mut self, call: u16, now: Instant, out: &mut Vec<ServerOutput>) {
        let mut outputs = core::mem::take(&mut self.outputs);
        for output in outputs.drain(..) {
            match output {
                LinkOutput::Gre(packet) => {
                    if let Some(found) = self.calls.get(&call) {
                        found.send_by_all(packet, now, out);
                    }
                }
                LinkOutput::LoggedIn => self.logged_in(call, now, out),
                LinkOutput::Up(up) => out.push(ServerOutput::Up { call, up }),
                LinkOutput::Lines(agreed) => self.agreed(call, agreed, out),
                // Only clients report the latter.
                LinkOutput::Echoed | LinkOutput::ControlLost(_) => {}
                LinkOutput::Down(reason) => {
                    let id = self.calls.get(&call).map(|found| found.connection);
                    self.drop_call(call, reason, now, out);
                    if let Some(id) = id {
                        self.on_connection(id, now, out, |it| it.clear_call(call, now));
                    }
                }
            }
        }
        // The buffer is kept for reuse.
        self.outputs = outputs;
    }

    fn drop_call(
        &mut self,
        call: u16,
        reason: DownReason,
        now: Instant,
        out: &mut Vec<ServerOutput>,
    ) {
        let Some(dropped) = self.calls.remove(&call) else {
            return;
        };
        if let Some(inner) = dropped.inner {
            self.pool.push(inner);
            if let Some(client) = self.clients.get_mut(&dropped.connection) {
                client.lost_call(now);
            }
        }
        let client = dropped.ends.theirs;
        out.push(ServerOutput::Down {
            call,
            client,
            reason,
        });
    }
}

impl core::fmt::Debug for Server {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Server")
            .field("clients", &self.clients.len())
            .field("calls", &self.calls.len())
            .finish_non_exhaustive()
    }
}
