//! The machine of a client or a server, and the host on which it acts.

use crate::status::Status;
use ::pptp::session::{Ends, Up};
use lines::control::LineFacts;
use log::Level;
use plane::LineId;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Instant;

/// The number of a control connection.
pub(super) type StreamId = u64;

/// The number that a client's single control connection has.
pub(super) const ONLY: StreamId = 0;

/// The line of a packet, and the addresses of both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    /// The line; the first one where there are not several.
    pub line: LineId,
    /// The other end's address.
    pub to: Ipv4Addr,
    /// This end's address; `None` lets the kernel choose, which is right where there is one address.
    pub from: Option<Ipv4Addr>,
}

impl Way {
    /// Path over the single line.
    pub(super) const fn first(to: Ipv4Addr) -> Self {
        Self::by(LineId::FIRST, to)
    }

    /// Path over a line whose socket is bound to an address.
    pub(super) const fn by(line: LineId, to: Ipv4Addr) -> Self {
        let from = None;
        Self { line, to, from }
    }

    /// Path between these ends.
    pub(super) const fn between(line: LineId, ends: Ends) -> Self {
        Self {
            line,
            to: ends.theirs,
            from: ends.ours,
        }
    }

    /// Source and destination of the path.
    pub(super) const fn ends(self) -> Ends {
        Ends {
            theirs: self.to,
            ours: self.from,
        }
    }
}

/// Packets that a client's server does not send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Silent {
    /// The server does not answer at its port.
    Server,
    /// The server answers at its port, but sends no GRE.
    Gre,
}

/// An event for a machine.
#[derive(Debug)]
pub(super) enum Event<'a> {
    /// Start of the tunnel.
    Start,
    /// The addresses of the server's name, or why the look-up failed.
    LookedUp(Result<Vec<Ipv4Addr>, String>),
    /// The requested connection is open.
    Connected,
    /// The requested connection failed, for this reason.
    NotConnected(String),
    /// Bytes from a control connection.
    Control(StreamId, &'a [u8]),
    /// The peer has ended a control connection.
    Ended(StreamId),
    /// The executor has closed a finished control connection.
    Closed(StreamId),
    /// The host's devices or addresses have changed.
    LinksChanged,
    /// The call's source address no longer leads to the server, but another does; or a route to the server has
    /// appeared. Only for clients without lines.
    Moved,
    /// The server answers at its port, over this line.
    Knocked(LineId),
    /// [`Machine::deadline`] has passed.
    Deadline,
    /// The tunnel is to end.
    Stop,
}

/// The sockets, the interface and the log of a machine, which the executor or a test provides.
pub(super) trait Host {
    /// Looks a name up; [`Event::LookedUp`] follows.
    fn look_up(&mut self, host: String);

    /// Connects to a server and receives GRE from it only, over this line if there are any. [`Event::Connected`] or
    /// [`Event::NotConnected`] follows, unless the connection fails at once.
    fn connect(&mut self, server: SocketAddrV4, line: Option<LineId>) -> Result<(), String>;

    /// Queues the payload of an IP packet of protocol 47.
    fn send(&mut self, way: Way, packet: &[u8]);

    /// Writes an inner packet to the interface.
    fn deliver(&mut self, packet: &[u8]);

    /// Reads the facts about the lines, in their order.
    fn line_facts(&mut self) -> Vec<Option<LineFacts>>;

    /// Replaces the socket of a line by a new one, with this mark, 0 for none.
    fn open_line(&mut self, line: LineId, mark: u32) -> Result<(), String>;

    /// Closes the socket of a line.
    fn close_line(&mut self, line: LineId);

    /// Tests whether the server answers at its port over a line; [`Event::Knocked`] follows if so.
    fn knock(&mut self, line: LineId, server: SocketAddrV4);

    /// Sets the agreed addresses on the interface, and routes packets into it: a client's tunnel is up.
    fn up(&mut self, up: &Up, server: Ipv4Addr);

    /// Reports that the server has been silent for some time; `None` once the tunnel is up.
    fn silent(&mut self, why: Option<Silent>);

    /// Reports that the server refuses the credentials.
    fn refused(&mut self, why: &str);

    /// Writes a line to the log.
    fn log(&mut self, level: Level, words: String);

    /// Writes a line that a peer can cause as often as it likes: a client that has not logged in, or a server.
    fn log_stranger(&mut self, level: Level, words: String);

    /// Ends the tunnel, with the error if one ended it.
    fn end(&mut self, result: Result<(), String>);
}

/// The time of an event, and the host.
pub(super) struct Cx<'a> {
    pub(super) now: Instant,
    pub(super) host: &'a mut dyn Host,
}

/// A client's or a server's decisions.
pub(super) trait Machine {
    /// Handles an event.
    fn handle(&mut self, event: Event<'_>, cx: &mut Cx<'_>);

    /// Handles a new connection. Returns `None` to close it at once.
    fn accept(&mut self, ends: Ends, cx: &mut Cx<'_>) -> Option<StreamId>;

    /// Bytes to send over a control connection. Look at them after every call.
    fn transmit(&self, stream: StreamId) -> &[u8];

    /// Removes the first `len` of those bytes, which TCP has taken.
    fn transmitted(&mut self, stream: StreamId, len: usize);

    /// Whether a control connection can be closed once everything is transmitted.
    fn is_finished(&self, stream: StreamId) -> bool;

    /// When the machine has something to do if no event comes.
    fn deadline(&self) -> Option<Instant>;

    /// Appends to `out` the GRE that carries a packet of the interface. Returns its path; `None` drops it. Appends the
    /// paths of further copies to `copies`, which is empty before.
    fn outbound(
        &mut self,
        packet: &[u8],
        now: Instant,
        out: &mut Vec<u8>,
        copies: &mut Vec<Way>,
    ) -> Option<Way>;

    /// Handles the payload of an IP packet of protocol 47, and delivers inner packets.
    fn inbound(&mut self, from: Way, packet: &mut [u8], cx: &mut Cx<'_>);

    /// Delivers the packets that have waited in vain for earlier ones.
    fn release(&mut self, cx: &mut Cx<'_>);

    /// Fills in the document for `millrace status`.
    fn describe(&self, status: &mut Status);
}
