//! Messages between the executor and the machines.

use crate::lines::LineFacts;
use crate::status::Status;
use ::pptp::session::{Ends, Up};
use log::Level;
use plane::LineId;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Instant;

/// A control connection's number.
pub(super) type StreamId = u64;

/// The number of a client's only control connection.
pub(super) const ONLY: StreamId = 0;

/// The line of a packet, and the addresses of both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    /// The line. Without several it is the first.
    pub line: LineId,
    /// The other end.
    pub to: Ipv4Addr,
    /// This end; `None` where the kernel chooses, which it does well where there is one address.
    pub from: Option<Ipv4Addr>,
}

impl Way {
    /// By the only line.
    pub(super) const fn first(to: Ipv4Addr) -> Self {
        Self::by(LineId::FIRST, to)
    }

    /// A way by a line that has an address.
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

    /// Its source and destination.
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
    /// Begin.
    Start,
    /// The addresses of the server's name, or why there are none.
    LookedUp(Result<Vec<Ipv4Addr>, String>),
    /// The connection that was asked for is there.
    Connected,
    /// It is not, and why.
    NotConnected(String),
    /// Bytes of a control connection.
    Control(StreamId, &'a [u8]),
    /// The peer has ended a control connection.
    Ended(StreamId),
    /// A control connection that was finished is closed.
    Closed(StreamId),
    /// The host's facts about the lines, in their order.
    LinesRead(&'a [Option<LineFacts>]),
    /// The host's devices or addresses are others.
    LinksChanged,
    /// The end of [`Effect::OpenLine`].
    LineOpened(LineId, Result<(), String>),
    /// The server answers at its port, by this line.
    Knocked(LineId),
    /// [`Machine::deadline`] has passed.
    Deadline,
    /// End everything.
    Stop,
}

/// A request of a machine, in order.
#[derive(Debug)]
pub(super) enum Effect {
    /// Look a name up.
    LookUp(String),
    /// Receive GRE from this address only, and connect to it, by this line if there are any.
    Connect(SocketAddrV4, Option<LineId>),
    /// Send the payload of an IP packet of protocol 47.
    Gre(Way, Vec<u8>),
    /// Read what the host says of the lines, for [`Event::LinesRead`].
    ReadLines,
    /// Open the socket of a line in the place of one that is open, with this mark, 0 for none.
    OpenLine(LineId, u32),
    /// Close it.
    CloseLine(LineId),
    /// See whether the server answers at its port by a line, for [`Event::Knocked`].
    Knock(LineId, SocketAddrV4),
    /// A client's tunnel is up: give the interface what was agreed on, and lead packets into it.
    Up {
        /// The agreement.
        up: Up,
        /// The server that it goes to.
        server: Ipv4Addr,
    },
    /// The server does not take the credentials.
    Refused(String),
    /// Say something.
    Log(Level, String),
    /// Write a line that a peer may cause as often as it likes: a client that has not logged in, or a server.
    LogStranger(Level, String),
    /// Nothing is left to do; with what went wrong.
    End(Result<(), String>),
}

/// A client or a server.
pub(super) trait Machine {
    /// Takes an event.
    fn handle(&mut self, event: Event<'_>, now: Instant, effects: &mut Vec<Effect>);

    /// A connection has come. `None` if it is to be closed at once.
    fn accept(&mut self, ends: Ends, now: Instant, effects: &mut Vec<Effect>) -> Option<StreamId>;

    /// Bytes for a control connection. To be looked at after every call.
    fn transmit(&self, stream: StreamId) -> &[u8];

    /// TCP has taken the first `len` bytes of them.
    fn transmitted(&mut self, stream: StreamId, len: usize);

    /// Whether a control connection can be closed once everything is transmitted.
    fn is_finished(&self, stream: StreamId) -> bool;

    /// When there is something to do without an event.
    fn deadline(&self) -> Option<Instant>;

    /// Appends the GRE that carries a packet of the interface to `out`, and says where to. `None` drops it.
    fn outbound(&mut self, packet: &[u8], now: Instant, out: &mut Vec<u8>) -> Option<Way>;

    /// Where copies of the packet that [`Machine::outbound`] sealed last go as well.
    fn copies(&self) -> &[Way];

    /// Takes the payload of an IP packet of protocol 47, and gives inner packets to `deliver`.
    fn inbound(
        &mut self,
        from: Way,
        packet: &mut [u8],
        now: Instant,
        deliver: &mut dyn FnMut(&[u8]),
        effects: &mut Vec<Effect>,
    );

    /// Gives packets to `deliver` that have waited for others which do not come.
    fn release(&mut self, now: Instant, deliver: &mut dyn FnMut(&[u8]), effects: &mut Vec<Effect>);

    /// Fills in what `millrace status` shows.
    fn describe(&self, status: &mut Status);
}
