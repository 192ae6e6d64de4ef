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

/// A request of the machine, to be carried out in order.
#[derive(Debug)]
// Only a handful of effects exist at a time, as with the protocol's outputs.
#[allow(clippy::large_enum_variant)]
pub enum Effect {
    /// Send a request to the data plane.
    Plane(PlaneRequest),
    /// Replace the open sockets by new ones; [`Event::Bound`](super::Event::Bound) tells the result.
    Bind {
        /// The UDP port; 0 for any.
        port: u16,
        /// The mark of packets that they send; 0 for none.
        mark: u32,
    },
    /// Close the sockets.
    Unbind,
    /// Set the mark of packets from the open sockets; [`Event::Marked`](super::Event::Marked) tells the result.
    Mark(u32),
    /// Read the host's facts about the lines; [`Event::LinesRead`](super::Event::LinesRead) returns them.
    ReadLines,
    /// Replace the open sockets of a line by new ones; [`Event::LineOpened`](super::Event::LineOpened) tells the
    /// result.
    OpenLine {
        /// The line.
        line: LineId,
        /// The UDP port; 0 for any.
        port: u16,
        /// The mark of packets that they send; 0 for none.
        mark: u32,
    },
    /// Ask the data plane for the bytes of each line; [`Event::LinesCounted`](super::Event::LinesCounted) returns
    /// them.
    CountLines,
    /// Write the lines' bytes to their file, for the next start.
    KeepUsage(Vec<LineUsage>),
    /// Write the latest time that sent stamps may have to its file, before any further effect.
    KeepFloor(SystemTime),
    /// Write to a file that the other end has authenticated at this address of this name, for a start at which no
    /// name server answers.
    KeepAddress(String, IpAddr),
    /// Write the addresses of peers with a session to a file, for a start that is to call them
    /// ([`Event::Recall`](super::Event::Recall)).
    KeepPeers(Vec<(types::Key32, Endpoint)>),
    /// Close the sockets of a line.
    CloseLine(LineId),
    /// Look a name up; [`Event::LookedUp`](super::Event::LookedUp) tells the result. At most [`LOOKUPS_MAX`] run at a
    /// time.
    LookUp(LookUp),
    /// Read the interfaces by which the host reaches these peers; [`Event::RoutesRead`](super::Event::RoutesRead)
    /// returns them.
    ReadRoutes {
        /// The mark of packets to them.
        mark: u32,
        /// The peers and their addresses.
        peers: Vec<(PeerId, IpAddr)>,
    },
    /// Check that the interface still exists; if not, [`Event::LinkGone`](super::Event::LinkGone) follows.
    CheckLink,
    /// Answer a client that configured the interface.
    Answer {
        /// The number of the client's request.
        client: u64,
        /// The result.
        result: Result<(), Refused>,
    },
    /// Tell the owner that the host's settings may need a change.
    Changed,
    /// Ask the kernel for the path MTUs to the peers: it does not report them by itself.
    LookAtPath,
    /// Take answers to pings with this token out of the peers' packets; 0 for none.
    WatchEchoes(u64),
    /// Tell the owner to read its configuration again.
    Reload,
    /// End the interface.
    End(Ended),
    /// Write to the log.
    Log(log::Level, String),
    /// Write a line about a peer to the log.
    LogPeer(PeerId, Cow<'static, str>),
    /// Write to the debug log that a handshake message was refused.
    LogDropped(SocketAddr, Dropped),
}

/// Most look-ups at a time: each may wait long for a resolver that does not answer.
pub const LOOKUPS_MAX: usize = 4;

/// Request to the data plane: each variant calls the [`DataPlane`] method that it links to.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)]
pub enum PlaneRequest {
    /// [`DataPlane::add_peer`]. WireGuard's peers roam: an authentic packet moves them, or counts as another line of
    /// theirs.
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
    /// [`DataPlane::send_to_peer`], to the address that the data plane knows.
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
    /// [`DataPlane::send_whole`]: a probe, and its number. [`Event::ProbeTooLong`](super::Event::ProbeTooLong)
    /// follows if this host refuses its length.
    Probe(PeerId, u64, Vec<u8>),
    /// [`DataPlane::send_staged`].
    SendStaged(PeerId),
    /// [`DataPlane::drop_staged`].
    DropStaged(PeerId),
    /// [`DataPlane::disarm`], then one more look at the times, so that activity in between is reported at once.
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
    /// Who needs the address.
    pub whose: Whose,
    /// Endpoint as configured.
    pub endpoint: types::Endpoint,
    /// The name.
    pub host: String,
    /// The mark of the tunnel's own datagrams. If there is one, unmarked packets go into the tunnel.
    pub mark: u32,
}

/// Who needs the address of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// A peer.
    Peer(PeerId),
    /// The relay of an uplink.
    Relay(LineId),
    /// The target that a relay forwards to.
    Target,
}

/// Why a configuration was refused. Settings before the fault are in force, as with the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Error number for the `wg` tool.
    pub errno: i32,
    /// Message for the log.
    pub words: String,
}

/// Why an interface ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// A signal ended it.
    Signal(i32),
    /// The interface was deleted.
    LinkDeleted,
    /// The configuration socket was removed.
    SocketRemoved,
}
