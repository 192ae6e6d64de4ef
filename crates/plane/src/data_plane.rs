//! The calls that control makes to a data plane, and the messages from the data plane to control.

use crate::{
    CipherName, KeyUsage, LINES_MAX, Line, LineId, LineMode, Moving, PeerId, PeerLines, PeerState,
    Protocol, Reorder, SessionKeys, StreamId,
};
use std::net::{IpAddr, SocketAddr};
use std::{fmt, io};

/// A data plane, which moves packets. Control holds it as a value.
///
/// The calls have the shape of the Linux kernel's OpenVPN offload (`ovpn`: new peer, new key, swap, delete, float,
/// statistics), so a kernel data plane fits behind them as well as one in user space. A data plane reports to the
/// [`Control`] that it gets when it is made. Dropping a data plane ends it; it no longer calls
/// [`Control`] once the drop has returned.
///
/// The trait may be used as an object. No packet passes through it. Only control calls it, at most a few times a second
/// for each peer; workers never do.
///
/// # Order
///
/// 1. [`open_line`](Transports::open_line), or [`add_stream`](Transports::add_stream): without one the data plane
///    receives nothing. It reads a connection from the call on, so it may report messages before the call returns.
/// 2. [`add_peer`](Self::add_peer), then [`set_line`](Self::set_line) to set the peer's address.
/// 3. [`add_keys`](Self::add_keys): the data plane opens packets of the session. Call it before you send the message
///    that lets the peer use the keys, or the peer's first packets are dropped.
/// 4. [`send_with`](Self::send_with): the data plane seals packets with keys that were added before.
/// 5. [`change_routes`](Self::change_routes): the data plane sends packets to the peer, and accepts the addresses of
///    those from it. Call it before the keys if packets are to wait for a session
///    ([`Wire::STAGES`](crate::Wire::STAGES)) and to cause [`Notice::NeedSession`].
/// 6. [`remove_keys`](Self::remove_keys) for old sessions; [`remove_peer`](Self::remove_peer) forgets everything about
///    a peer; [`remove_stream`](Self::remove_stream) and [`close_line`](Self::close_line) come last.
///
/// A call that names an unknown peer, session, line or stream does nothing, and says so if it returns anything. A
/// change takes effect before the call returns, for all packets that are read from then on; packets that a worker
/// already holds may still take the old path. No call is deferred, except [`inject`](Self::inject).
///
/// # Cost
///
/// Calls may take a lock that no packet waits for, may allocate and may make a few system calls; none waits for the
/// network. Three calls have a variable cost: [`change_routes`](Self::change_routes) grows with the logarithm of the
/// routes for each change, [`remove_peer`](Self::remove_peer) with that peer's routes and sessions,
/// [`set_sender`](Self::set_sender) with the number of senders set by it. [`add_keys`](Self::add_keys) schedules keys,
/// which takes some ten microseconds.
pub trait DataPlane: Send + Sync {
    /// The protocol of its packets and keys.
    type Protocol: Protocol;

    // Lines.

    /// Takes the sockets of a line away. Peers keep the line of that number, but nothing is sent over it.
    fn close_line(&self, line: LineId);

    /// Returns the local UDP port of a line: that of IPv4, if the line has two sockets.
    fn port(&self, line: LineId) -> Option<u16>;

    /// Sets the mark (`SO_MARK`) of packets that leave through the sockets of a line; 0 means no mark.
    ///
    /// # Errors
    /// The kernel's error (`EPERM`).
    fn set_mark(&self, line: LineId, mark: u32) -> io::Result<()>;

    /// Closes a connection and drops the packets that wait in it.
    fn remove_stream(&self, id: StreamId);

    // Peers.

    /// Makes a peer without line, keys and routes. Returns `false` if the number is in use.
    fn add_peer(&self, id: PeerId, moving: Moving) -> bool;

    /// Forgets a peer: its keys, routes, senders and lines, and the packets that wait for it. Its connection stays
    /// open.
    fn remove_peer(&self, id: PeerId);

    /// Sets the meaning of authentic packets that come from another address of a peer.
    fn set_moving(&self, id: PeerId, moving: Moving);

    /// Sets the address of a peer on one line, in place of the earlier one. If the peer has no line in use, it uses
    /// this one from now on.
    fn set_line(&self, id: PeerId, line: Line);

    /// Forgets a line of a peer. If that line is in use, nothing is sent until another is chosen or set.
    fn remove_line(&self, id: PeerId, line: LineId);

    /// Sends to a peer over this line from now on.
    fn use_line(&self, id: PeerId, line: LineId);

    /// Sets how a peer's packets use its lines from now on; the default is [`LineMode::Single`]. Packets that are not
    /// the peer's traffic, such as keepalives and messages, go as critical ones do.
    fn set_line_mode(&self, id: PeerId, mode: LineMode);

    /// Puts packets of a peer back into order before they are written; `None`, the default, writes them as they come.
    /// Packets that still wait when this ends are written when the peer's next packet comes, or at their deadline.
    fn set_reorder(&self, id: PeerId, reorder: Option<Reorder>);

    /// Returns the state of a peer's lines; empty if there is no such peer. Costs an allocation: for people and timers
    /// of seconds.
    fn peer_lines(&self, id: PeerId) -> PeerLines;

    /// Returns the bytes that each line has carried since the data plane was made, in both directions, by line number.
    /// This counts everything that went through the line's sockets, of all peers, with the headers of IP and UDP. For
    /// connections it counts all bytes and an estimate of TCP's headers.
    fn carried(&self) -> [u64; LINES_MAX];

    /// Forgets the local address that a peer sends to, because the route to the peer has changed. The kernel chooses
    /// the source address until a packet comes from the peer.
    fn forget_source(&self, id: PeerId);

    /// Assigns data packets of this sender that do not name their session
    /// ([`SessionName::OfSender`](crate::SessionName::OfSender)) to this peer's sessions, which are numbered from
    /// `first` on.
    fn set_sender(&self, id: PeerId, from: Sender, first: u32);

    /// Undoes [`set_sender`](Self::set_sender), unless the sender belongs to another peer by now.
    fn clear_sender(&self, id: PeerId, from: Sender);

    /// The state of a peer.
    fn peer(&self, id: PeerId) -> Option<PeerState>;

    /// Declares that control watches the peer's [`Times`](crate::Times) by itself: no
    /// [`Notice::Active`] comes until [`disarm`](Self::disarm). Returns whether control has to
    /// watch; `false` if a worker was faster, whose notice is already queued.
    fn arm(&self, id: PeerId) -> bool;

    /// Declares that control waits for [`Notice::Active`]. Check the times once more after this
    /// call: traffic just before it caused no notice.
    fn disarm(&self, id: PeerId);

    /// Has the data plane send a peer an empty packet after `ping` without another one, and watch for silence:
    /// [`Notice::Silent`] reports a silence longer than `silence`. The time counts from the call
    /// on. Only a data plane whose packets control does not see does this, and it reports each peer as alive while it
    /// waits ([`PeerState::times`]). With others control goes on by [`peer`](Self::peer) and [`inject`](Self::inject).
    fn keep_alive(
        &self,
        id: PeerId,
        ping: Option<std::time::Duration>,
        silence: Option<std::time::Duration>,
    ) {
        let _ = (id, ping, silence);
    }

    /// Counts a control message that the peer will authenticate as sent to the peer.
    fn note_sent(&self, id: PeerId, at: std::time::Instant, bytes: usize);

    /// Counts an authentic message for control as received from the peer.
    fn note_received(&self, id: PeerId, at: std::time::Instant, bytes: usize);

    // Keys.

    /// Opens packets of a session with these keys from now on, beginning with an empty replay window. The keys expire
    /// by their limits without another call.
    ///
    /// This first removes keys that the peer has for a session of this name. If those keys sealed, nothing is sealed
    /// until [`send_with`](Self::send_with). Packet numbers begin at 0: the material must be new, or nonces would
    /// repeat.
    ///
    /// # Errors
    /// There is no such peer, another peer has a session of this name, or the protocol refuses the material.
    fn add_keys(
        &self,
        id: PeerId,
        keys: SessionKeys<<Self::Protocol as Protocol>::Keys>,
    ) -> Result<CipherName, KeyError<<Self::Protocol as Protocol>::Error>>;

    /// Seals with the keys of this session from now on. Packets that wait for the peer are sealed with them and sent
    /// first. Packet numbers continue, so that a second call changes nothing.
    fn send_with(&self, id: PeerId, session: u32);

    /// Seals nothing for this peer until [`send_with`](Self::send_with). The keys of the session still open packets.
    fn stop_sending(&self, id: PeerId);

    /// Forgets the keys of a session. If they are the sealing keys, nothing is sent until
    /// [`send_with`](Self::send_with) names others.
    fn remove_keys(&self, id: PeerId, session: u32);

    /// Returns the use of a session's keys; all zeros if there are none.
    fn key_usage(&self, id: PeerId, session: u32) -> KeyUsage;

    // Messages.

    /// Sends a control message unchanged: as a datagram, or as a record behind its length. Needs no peer. Returns
    /// whether the message was sent.
    fn send(&self, to: &Line, message: &[u8]) -> bool;

    /// Sends a control message to a peer over the line in use. Without `to`, the message goes to the peer's known
    /// address. With `to`, where control believes the peer to be, it goes there. Its source is the address that the
    /// peer sends to, if the data plane knows the peer at `to`. Returns whether the message was sent.
    fn send_to_peer(&self, id: PeerId, to: Option<SocketAddr>, message: &[u8]) -> bool;

    /// Has a worker seal a control payload soon, in order among the peer's packets. The payload is dropped if there is
    /// no key.
    fn inject(&self, id: PeerId, payload: &[u8]);

    /// Injects a payload over this line only, whichever lines are in use. The payload is dropped if there is no key, or
    /// the peer does not have the line.
    fn inject_by(&self, id: PeerId, line: LineId, payload: &[u8]);

    /// Seals a control payload, unpadded, and sends it at once over the line in use, in one datagram that must not be
    /// fragmented. The peer's timers do not count it as data: no answer is expected.
    fn send_whole(&self, id: PeerId, payload: &[u8]) -> Whole {
        let _ = (id, payload);
        Whole::Nowhere
    }

    /// Seals a control payload with the keys of this session, whichever keys seal packets, and sends it at once. If it is
    /// empty, an empty data packet is sent. Otherwise the peer's timers count it as data: an answer is expected.
    #[cfg(feature = "postquantum")]
    fn send_on(&self, id: PeerId, session: u32, payload: &[u8]) {
        let _ = (id, session, payload);
    }

    /// Sends an empty data packet. Returns whether there was a key to seal it and an address to send it to.
    fn send_keepalive(&self, id: PeerId) -> bool;

    /// Sends the packets that wait for a session, if there is a key. Returns whether any had waited.
    fn send_staged(&self, id: PeerId) -> bool;

    /// Drops the packets that wait for a session.
    fn drop_staged(&self, id: PeerId);

    // The data plane as a whole.

    /// Changes which peer owns which addresses, in this order. Packets see all of the changes or none.
    fn change_routes(&self, changes: &[RouteChange]);

    /// Limits the sum of all lines to this many bits a second, all headers included. Packets wait in a fair queue of
    /// inner flows (RFC 8290), where a call does not wait for a download. `None`, the default: the lines are not the
    /// bottleneck, and nothing waits here.
    fn set_rate(&self, rate: Option<u64>);

    /// Limits each line separately, by number; 0 for lines that must carry no packet. Packets that may go over any line
    /// ([`LineMode::BalancePackets`]) go through the first that has room. Replaces [`set_rate`](Self::set_rate).
    fn set_line_rates(&self, rates: [u64; LINES_MAX]);

    /// Takes the interface's new MTU in bytes.
    fn set_mtu(&self, mtu: usize);

    /// The interface's MTU in bytes, as last told.
    fn mtu(&self) -> usize;

    /// Sets whether the data plane passes on packets from one peer to another, or leaves them to the kernel.
    fn set_hairpin(&self, hairpin: bool);

    /// Returns the current name of the interface.
    ///
    /// # Errors
    /// The interface no longer exists.
    fn interface(&self) -> io::Result<String>;

    /// Returns whether every worker has done a round since the last call, and asks all workers for another one. Returns
    /// true at the first call. For timers of seconds, which detect hung workers.
    fn pulse(&self) -> bool {
        true
    }

    /// Counters since the start. Costs a few allocations: for people and timers of seconds.
    fn statistics(&self) -> Statistics;
}

/// A data plane that takes over sockets. Beside [`DataPlane`], so that an object of that trait needs no types of
/// sockets.
pub trait Transports: DataPlane {
    /// The bound sockets of one line. Whoever makes them chooses the address, device and mark.
    type Sockets;
    /// A connected TCP stream.
    type Connection;

    /// Replaces the sockets of line `line`; the old ones close as soon as no worker uses them.
    ///
    /// # Errors
    /// There are [`LINES_MAX`] lines; descriptor limits.
    fn open_line(&self, line: LineId, sockets: Self::Sockets) -> io::Result<()>;

    /// Takes over a connection of line `line` and reads it from now on. Returns both ends' addresses.
    ///
    /// # Errors
    /// The kernel's error for the addresses; descriptor limits.
    fn add_stream(
        &self,
        id: StreamId,
        line: LineId,
        connection: Self::Connection,
    ) -> io::Result<crate::Endpoint>;
}

/// The fate of a datagram that must not be fragmented ([`DataPlane::send_whole`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whole {
    /// The data plane sent the datagram.
    Sent,
    /// This host refuses the datagram as too long.
    TooLong,
    /// There is no key or no address, or this host refused the datagram for another reason.
    Nowhere,
}

/// A change of the routes that lead packets to their peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteChange {
    /// The prefix belongs to this peer from now on, whatever peer it belonged to.
    Add {
        /// An address of the prefix; bits beyond its length are ignored.
        address: IpAddr,
        /// The prefix length in bits.
        len: u8,
        /// Peer that owns the prefix.
        peer: PeerId,
    },
    /// The prefix has no owner any more, if this peer was its owner.
    Remove {
        /// An address of the prefix.
        address: IpAddr,
        /// The prefix length in bits.
        len: u8,
        /// Peer that owns the prefix.
        peer: PeerId,
    },
}

/// The source of packets that do not name their session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sender {
    /// Datagrams from this address.
    Address(SocketAddr),
    /// Records of this connection.
    Stream(StreamId),
}

/// Why a data plane refused keys.
#[derive(Debug, PartialEq, Eq)]
pub enum KeyError<E> {
    /// There is no such peer: a fault of control.
    NoPeer(PeerId),
    /// Another peer has a session of this name: a fault of control.
    Taken(u32),
    /// The protocol refuses the material: a fault of the configuration or the peer.
    Material(E),
    /// This data plane does not support such packets, or could not take the keys; the text says why.
    Unable(String),
}

impl<E: fmt::Display> fmt::Display for KeyError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPeer(id) => write!(f, "keys for peer {}, which does not exist", id.0),
            Self::Taken(session) => {
                write!(
                    f,
                    "keys for session {session}, which belongs to another peer"
                )
            }
            Self::Material(error) => error.fmt(f),
            Self::Unable(why) => f.write_str(why),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for KeyError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NoPeer(_) | Self::Taken(_) | Self::Unable(_) => None,
            Self::Material(error) => error.source(),
        }
    }
}

/// The data plane's view of the protocol's state machine.
///
/// Called by workers: must not block, and must bound what it queues.
pub trait Control: Send + Sync + 'static {
    /// Takes a datagram that is not a data packet. `from` is the line that it came over, with the local address that it
    /// was sent to. [`DataPlane::send`] to `from` answers the datagram.
    ///
    /// Returns whether control took the datagram; `false` counts as a drop.
    fn datagram(&self, from: Line, bytes: &[u8]) -> bool;

    /// Takes a message that an authentic data packet of this peer carries instead of an IP packet.
    fn message(&self, peer: PeerId, bytes: &[u8]) {
        let _ = (peer, bytes);
    }

    /// Reports an event of this peer.
    fn notify(&self, peer: PeerId, notice: Notice);

    /// Reports that a stream has ended, or carried bytes that no peer would send.
    fn stream_closed(&self, stream: StreamId) {
        let _ = stream;
    }

    /// Reports that the data plane has stopped: the interface was deleted, or a worker has failed.
    fn device_gone(&self);
}

/// Reasons to look at a peer. All except [`NeedSession`](Self::NeedSession) are rare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Notice {
    /// A packet waits for a session. The data plane reports every such packet, so control keeps a set of peers and no
    /// queue.
    NeedSession,
    /// Traffic flows and this peer's timers are not armed.
    Active,
    /// The first packet of a session that the peer must confirm has come.
    Confirmed {
        /// Our name for that session.
        index: u32,
    },
    /// A key has passed the age or count after which it should be renewed, and is still used.
    Refresh {
        /// Our index of the key's session.
        index: u32,
    },
    /// An authentic packet came from another address: the peer has moved there.
    /// [`DataPlane::peer`] returns the address. The notice has none, because a peer may move
    /// with each packet and it would be outdated.
    Moved {
        /// The line over which the packet came.
        line: LineId,
    },
    /// This host refuses datagrams to the peer as longer than the path's MTU, and [`Wire::prefix`](crate::Wire::prefix)
    /// makes datagrams longer than usual: the interface's MTU is too large.
    TooLong,
    /// The peer was silent for longer than [`DataPlane::keep_alive`] allows. The data
    /// plane sends nothing more to it.
    Silent,
    /// The data plane cannot serve the peer any longer; the log has the reason.
    Failed,
    /// The peer compresses. The data plane reports the first compressed packet of a key.
    Compressed {
        /// Whether the data plane unpacked the packet; otherwise it dropped the packet.
        unpacked: bool,
    },
    /// The peer's packets lack the framing of compression that the ends agreed on. The data plane reports the first
    /// such packet of a key, and drops all of them.
    Unframed,
}

/// Gives the macro `$then` each counter of one direction: its description in Markdown, its name, and its metric, in
/// which `*` stands for `receive` or `transmit`. A new counter needs a row here, and the place that counts.
#[macro_export]
macro_rules! pipeline_counters {
    ($then:ident) => {
        $then! {
            /// Batches moved.
            batches, metric "millrace_tunnel_*_batches_total";
            /// Inner packets moved.
            packets, metric "millrace_tunnel_*_packets_total";
            /// Bytes of inner packets moved.
            bytes, metric "millrace_tunnel_*_bytes_total";
            /// Super-packets read from or written to the kernel.
            super_packets, metric "millrace_tunnel_*_super_packets_total";
            /// Packets that a peer had compressed: their lengths tell a listener something of their content. This end
            /// never compresses.
            unpacked, metric "millrace_tunnel_*_unpacked_packets_total";
            /// System calls made to move the packets.
            syscalls, metric "millrace_tunnel_*_syscalls_total";
            /// Batches that several workers may have shared.
            parallel_batches, metric "millrace_tunnel_*_parallel_batches_total";
            /// Microseconds that datagrams have recently waited in the sockets, averaged by bytes; 0 if unknown.
            waited_us, metric "millrace_tunnel_*_waited_seconds";
        }
    };
}

macro_rules! counts {
    ($($(#[$doc:meta])+ $name:ident, metric $metric:literal;)+) => {
        /// The work of one direction of a tunnel since its start.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct PipelineCounts {
            $($(#[$doc])+ pub $name: u64,)+
        }
    };
}

pipeline_counters!(counts);

/// The work of a data plane and how it is run. Counters that a data plane does not keep are 0 or absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Counts of packets from the interface to peers.
    pub outbound: PipelineCounts,
    /// Counts of packets from peers to the interface.
    pub inbound: PipelineCounts,
    /// Packets dropped, by reason, in the order of a packet's steps.
    pub drops: Vec<(&'static str, u64)>,
    /// Kernel features by name: `on`, or `off` and why. For several sockets, the state of the one that has fewer
    /// features.
    pub rungs: Vec<(&'static str, String)>,
    /// Threads that move packets; 0 where the kernel does.
    pub workers: usize,
    /// Whether several workers may share one direction.
    pub parallel: bool,
}
