//! Events and effects between the executor and the machines.

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
    /// A way by the single line.
    pub(super) const fn first(to: Ipv4Addr) -> Self {
        Self::by(LineId::FIRST, to)
    }

    /// A way by a line whose socket is bound to an address.
    pub(super) const fn by(line: LineId, to: Ipv4Addr) -> Self {
        let from = None;
        Self { line, to, from }
    }

    /// A way between these ends.
    pub(super) const fn between(line: LineId, ends: Ends) -> Self {
        Self {
            line,
            to: ends.theirs,
            from: ends.ours,
        }
    }

    /// The way's source and destination.
    pub(super) const fn ends(self) -> Ends {
        Ends {
            theirs: self.to,
            ours: self.from,
        }
    }
}

/// An event for a machine.
#[derive(Debug)]
pub(super) enum Event<'a> {
    /// The tunnel starts.
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
    /// The host's facts about the lines, in their order.
    LinesRead(&'a [Option<LineFacts>]),
    /// The host's devices or addresses have changed.
    LinksChanged,
    /// The result of [`Effect::OpenLine`].
    LineOpened(LineId, Result<(), String>),
    /// The server answers at its port, by this line.
    Knocked(LineId),
    /// [`Machine::deadline`] has passed.
    Deadline,
    /// The tunnel is to end.
    Stop,
}

/// A request of a machine, in order.
#[derive(Debug)]
pub(super) enum Effect {
    /// Look a name up.
    LookUp(String),
    /// Connect to this address and receive GRE from it only, by this line if there are any.
    Connect(SocketAddrV4, Option<LineId>),
    /// Send the payload of an IP packet of protocol 47.
    Gre(Way, Vec<u8>),
    /// Read the host's facts about the lines, for [`Event::LinesRead`].
    ReadLines,
    /// Replace the socket of a line by a new one, with this mark, 0 for none.
    OpenLine(LineId, u32),
    /// Close the socket of a line.
    CloseLine(LineId),
    /// Test whether the server answers at its port by a line, for [`Event::Knocked`].
    Knock(LineId, SocketAddrV4),
    /// A client's tunnel is up: set the agreed addresses on the interface, and route packets into it.
    Up {
        /// The agreed settings.
        up: Up,
        /// The server's address.
        server: Ipv4Addr,
    },
    /// The server refuses the credentials.
    Refused(String),
    /// Write a line to the log.
    Log(Level, String),
    /// Write a line that a peer can cause as often as it likes: a client that has not logged in, or a server.
    LogStranger(Level, String),
    /// End the tunnel, with the error if one ended it.
    End(Result<(), String>),
}

/// A client's or a server's decisions.
pub(super) trait Machine {
    /// Handles an event.
    fn handle(&mut self, event: Event<'_>, now: Instant, effects: &mut Vec<Effect>);

    /// Handles a new connection. Returns `None` to close it at once.
    fn accept(&mut self, ends: Ends, now: Instant, effects: &mut Vec<Effect>) -> Option<StreamId>;

    /// Bytes to send by a control connection. Look at them after every call.
    fn transmit(&self, stream: StreamId) -> &[u8];

    /// Removes the first `len` of those bytes, which TCP has taken.
    fn transmitted(&mut self, stream: StreamId, len: usize);

    /// Whether a control connection can be closed once everything is transmitted.
    fn is_finished(&self, stream: StreamId) -> bool;

    /// When the machine has something to do if no event comes.
    fn deadline(&self) -> Option<Instant>;

    /// Appends to `out` the GRE that carries a packet of the interface. Returns its way; `None` drops it.
    fn outbound(&mut self, packet: &[u8], now: Instant, out: &mut Vec<u8>) -> Option<Way>;

    /// Ways for copies of the packet that [`Machine::outbound`] sealed last.
    fn copies(&self) -> &[Way];

    /// Handles the payload of an IP packet of protocol 47, and gives inner packets to `deliver`.
    fn inbound(
        &mut self,
        from: Way,
        packet: &mut [u8],
        now: Instant,
        deliver: &mut dyn FnMut(&[u8]),
        effects: &mut Vec<Effect>,
    );

    /// Gives `deliver` the packets that have waited in vain for earlier ones.
    fn release(&mut self, now: Instant, deliver: &mut dyn FnMut(&[u8]), effects: &mut Vec<Effect>);

    /// Fills in the document for `millrace status`.
    fn describe(&self, status: &mut Status);
}
