//! Effects that an interface asks for.

use crate::lines::LineUsage;
use config::types;
#[cfg(doc)]
use plane::DataPlane;
use plane::{
    Endpoint, LINES_MAX, Line, LineId, LineMode, Moving, PeerId, RouteChange, SessionKeys,
};
use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::time::SystemTime;
use wireguard::{DataKeys, Datagram, Dropped};

/// Something to do, in the order in which it comes.
#[derive(Debug)]
// Only a handful of effects exist at a time, as with the protocol's outputs.
#[allow(clippy::large_enum_variant)]
pub enum Effect {
    /// Ask the data plane.
    Plane(PlaneRequest),
    /// Open sockets in the place of those that are open; [`Event::Bound`](super::Event::Bound) tells how it went.
    Bind {
        /// The UDP port; 0 for any.
        port: u16,
        /// The mark of what they send; 0 for none.
        mark: u32,
    },
    /// Close the sockets.
    Unbind,
    /// Mark what the open sockets send; [`Event::Marked`](super::Event::Marked) tells how it went.
    Mark(u32),
    /// Read what the host says of the lines; [`Event::LinesRead`](super::Event::LinesRead) tells.
    ReadLines,
    /// Open the sockets of a line in the place of those that are open;
    /// [`Event::LineOpened`](super::Event::LineOpened) tells how it went.
    OpenLine {
        /// The line.
        line: LineId,
        /// The UDP port; 0 for any.
        port: u16,
        /// The mark of what they send; 0 for none.
        mark: u32,
    },
    /// Ask the data plane what each line has carried; [`Event::LinesCounted`](super::Event::LinesCounted) tells.
    CountLines,
    /// Write down what lines have carried, for the next start.
    KeepUsage(Vec<LineUsage>),
    /// Write down, before anything else is done, that stamps of up to this time may have been sent.
    KeepFloor(SystemTime),
    /// Write down that the other end has proved itself at this address of this name, for a start at which no name server
    /// answers.
    KeepAddress(String, IpAddr),
    /// Write down where the peers are that have sessions, for a start that is to call them ([`Event::Recall`](super::Event::Recall)).
    KeepPeers(Vec<(types::Key32, Endpoint)>),
    /// Close the sockets of a line.
    CloseLine(LineId),
    /// Look a name up; [`Event::LookedUp`](super::Event::LookedUp) tells how it went. At most [`LOOKUPS_MAX`] run at a
    /// time.
    LookUp(LookUp),
    /// Read through which interface the host reaches these peers; [`Event::RoutesRead`](super::Event::RoutesRead) tells.
    ReadRoutes {
        /// The mark of what goes there.
        mark: u32,
        /// The peers and their addresses.
        peers: Vec<(PeerId, IpAddr)>,
    },
    /// Look whether the interface still exists; if not, [`Event::LinkGone`](super::Event::LinkGone) tells.
    CheckLink,
    /// Answer a client that configured the interface.
    Answer {
        /// The number that it came with.
        client: u64,
        /// How it went.
        result: Result<(), Refused>,
    },
    /// Tell the owner that what the host's settings depend on may be other than before.
    Changed,
    /// Ask the kernel what it has learned of the paths to the peers: it tells only those who ask.
    LookAtPath,
    /// Take answers to pings with this token out of what the peers send; 0 for none.
    WatchEchoes(u64),
    /// Tell the owner to read its configuration again.
    Reload,
    /// End.
    End(Ended),
    /// Write to the log.
    Log(log::Level, String),
    /// Write to the log about a peer: whose, and what.
    LogPeer(PeerId, Cow<'static, str>),
    /// Write to the log, for those who look for faults, that a handshake message led to no keys.
    LogDropped(SocketAddr, Dropped),
}

/// Most look-ups at a time: a resolver that does not answer takes its time with each.
pub const LOOKUPS_MAX: usize = 4;

/// Request to the data plane: each variant calls the [`DataPlane`] method that it links to.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)]
pub enum PlaneRequest {
    /// [`DataPlane::add_peer`]. WireGuard's peers roam: what is authentic moves them, or is another line of theirs.
    AddPeer(PeerId, Moving),
    /// [`DataPlane::remove_peer`].
    RemovePeer(PeerId),
    /// [`DataPlane::change_routes`].
    ChangeRoutes(Vec<RouteChange>),
    /// [`DataPlane::set_line`].
    SetLine(PeerId, Line),
    /// [`DataPlane::use_line`].
    UseLine(PeerId, LineId),
    /// [`DataPlane::set_line_mode`].
    SetLineMode(PeerId, LineMode),
    /// [`DataPlane::set_reorder`], with the usual limits.
    Reorder(PeerId),
    /// [`DataPlane::forget_source`].
    ForgetSource(PeerId),
    /// [`DataPlane::send`].
    Send(Line, Datagram),
    /// [`DataPlane::send_to_peer`], where the data plane knows it to be.
    SendToPeer(PeerId, Datagram),
    /// [`DataPlane::note_sent`], with this many bytes.
    NoteSent(PeerId, usize),
    /// [`DataPlane::note_received`], with this many bytes.
    NoteReceived(PeerId, usize),
    /// [`DataPlane::add_keys`].
    AddKeys(PeerId, SessionKeys<DataKeys>),
    /// [`DataPlane::send_with`] the keys of this session.
    SendWith(PeerId, u32),
    /// [`DataPlane::stop_sending`].
    StopSending(PeerId),
    /// [`DataPlane::remove_keys`] of this session.
    RemoveKeys(PeerId, u32),
    /// [`DataPlane::send_keepalive`].
    SendKeepalive(PeerId),
    /// [`DataPlane::send_whole`]: a probe, and its number. [`Event::ProbeTooLong`](super::Event::ProbeTooLong) tells where
    /// this host refuses it for its length.
    Probe(PeerId, u64, Vec<u8>),
    /// [`DataPlane::send_staged`].
    SendStaged(PeerId),
    /// [`DataPlane::drop_staged`].
    DropStaged(PeerId),
    /// [`DataPlane::disarm`], and one more look at the times: what happened meanwhile is to be told at once.
    Disarm(PeerId),
    /// [`DataPlane::set_rate`], in bits a second.
    SetRate(u64),
    /// [`DataPlane::set_line_rates`], in bits a second.
    SetLineRates([u64; LINES_MAX]),
    /// [`DataPlane::set_mtu`], in bytes.
    SetMtu(usize),
}

/// A name to be looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookUp {
    /// Owner of the address.
    pub whose: Whose,
    /// Endpoint as configured.
    pub endpoint: types::Endpoint,
    /// The name.
    pub host: String,
    /// The mark of the tunnel's own datagrams: with one, what others send goes into the tunnel.
    pub mark: u32,
}

/// Owner of the address that a name leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// A peer.
    Peer(PeerId),
    /// The relay of an uplink.
    Relay(LineId),
    /// The target that a relay forwards to.
    Target,
}

/// Why a configuration was refused. What came before the fault is in force, as with the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// For the `wg` tool.
    pub errno: i32,
    /// For a log.
    pub words: String,
}

/// Why an interface ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By a signal.
    Signal(i32),
    /// The interface was deleted.
    LinkDeleted,
    /// The configuration socket was removed.
    SocketRemoved,
}
