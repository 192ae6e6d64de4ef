//! The boundary: what control asks of a data plane.

use crate::{
    CipherName, KeyUsage, LINES_MAX, Line, LineId, LineMode, Moving, PeerId, PeerLines, PeerState,
    Protocol, Reorder, SessionKeys, Statistics, StreamId,
};
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// A data plane, which moves packets, as a value that control holds.
///
/// The calls have the shape of the Linux kernel's OpenVPN offload (`ovpn`: new peer, new key, swap, delete, float,
/// statistics), so that a data plane in a kernel fits behind them as the one in user space does. The other half of the
/// boundary, what a data plane tells, is [`Control`](crate::Control), given to it when it is made. Dropping a data plane
/// ends it; [`Control`](crate::Control) is not called any more when the drop has returned.
///
/// The trait may be used as an object. No packet passes through it: control calls it some times a second at most for
/// each peer, and never a worker.
///
/// # Order
///
/// 1. [`open_line`](Self::open_line), or [`add_stream`](Self::add_stream): without one nothing is received. A
///    connection is read from the call on, so messages may be reported before it returns.
/// 2. [`add_peer`](Self::add_peer), then [`set_line`](Self::set_line) to say where it is.
/// 3. [`add_keys`](Self::add_keys): packets of the session are opened. Before the message is sent that lets the peer
///    use the keys, else its first packets are dropped.
/// 4. [`send_with`](Self::send_with): packets are sealed with keys that were added before.
/// 5. [`change_routes`](Self::change_routes): packets find their way to the peer, and those from it are believed.
///    Before the keys where packets are to wait for a session ([`Wire::STAGES`](crate::Wire::STAGES)) and to bring
///    about [`Notice::NeedSession`](crate::Notice::NeedSession).
/// 6. [`remove_keys`](Self::remove_keys) for old sessions; [`remove_peer`](Self::remove_peer) takes back all that
///    was said of a peer; [`remove_stream`](Self::remove_stream) and [`close_line`](Self::close_line) come last.
///
/// A call that names a peer, session, line or stream that is not there does nothing, and says so if it returns
/// anything. A change takes effect before the call returns for all packets that are read from then on; packets that
/// a worker has at that moment may still go the old way. Nothing that was asked for is put off, except
/// [`inject`](Self::inject).
///
/// # Cost
///
/// Calls may take a lock that no packet waits for, may allocate and may make a few system calls; none waits for the
/// network. Three grow with something: [`change_routes`](Self::change_routes) with the logarithm of the routes for each
/// change, [`remove_peer`](Self::remove_peer) with that peer's routes and sessions, [`set_sender`](Self::set_sender)
/// with the number of such senders. [`add_keys`](Self::add_keys) schedules keys, some ten microseconds.
pub trait DataPlane: Send + Sync {
    /// The protocol of its packets and keys.
    type Protocol: Protocol;
    /// The bound sockets of one line. What they are bound to (address, device, mark) is their maker's choice.
    type Sockets;
    /// A connected stream.
    type Connection;

    // Lines.

    /// Gives line `line` these sockets, in place of those that it has. Old ones are closed as soon as no worker uses
    /// them.
    ///
    /// # Errors
    /// There are [`LINES_MAX`] lines; descriptor limits.
    fn open_line(&self, line: LineId, sockets: Self::Sockets) -> io::Result<()>;

    /// Takes the sockets of a line away. Peers keep their lines of that number, by which nothing
    /// is sent.
    fn close_line(&self, line: LineId);

    /// The local UDP port of a line; of two sockets that of IPv4.
    fn port(&self, line: LineId) -> Option<u16>;

    /// Gives what leaves through the sockets of a line another mark (`SO_MARK`); 0 is none.
    ///
    /// # Errors
    /// The kernel's error (`EPERM`).
    fn set_mark(&self, line: LineId, mark: u32) -> io::Result<()>;

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

    /// Closes a connection. What waits in it is dropped.
    fn remove_stream(&self, id: StreamId);

    // Peers.

    /// Makes a peer, without line, keys and routes. Returns `false` where there is one of this number.
    fn add_peer(&self, id: PeerId, moving: Moving) -> bool;

    /// Forgets a peer: its keys, routes, senders and lines, and what waits for it. Its connection stays open.
    fn remove_peer(&self, id: PeerId);

    /// Says what authentic packets of a peer from another address mean.
    fn set_moving(&self, id: PeerId, moving: Moving);

    /// Says where a peer is on one line, in place of what was known of that line. Where no line is used to send, this
    /// one is from now on.
    fn set_line(&self, id: PeerId, line: Line);

    /// Forgets a line of a peer. Of the one that is used to send: nothing is sent until another is chosen or set.
    fn remove_line(&self, id: PeerId, line: LineId);

    /// Sends to a peer by this line from now on.
    fn use_line(&self, id: PeerId, line: LineId);

    /// Says over which of its lines a peer's packets are sent from now on; [`LineMode::Single`] until then. Packets that
    /// are not the peer's traffic, as keepalives and messages, go as critical ones do.
    fn set_line_mode(&self, id: PeerId, mode: LineMode);

    /// Puts packets of a peer back into order before they are written, or writes them as they come, as until then. What
    /// waits when that ends is written when the peer's next packet comes, or when its time has come.
    fn set_reorder(&self, id: PeerId, reorder: Option<Reorder>);

    /// The state of a peer's lines. Nothing where there is no such peer. Costs an allocation: for people and timers of
    /// seconds.
    fn peer_lines(&self, id: PeerId) -> PeerLines;

    /// Bytes that each line has carried since the data plane was made, in both directions, by number: all that went through
    /// its sockets, whosever it was, with the headers of IP and UDP; of connections all bytes, and about what TCP adds.
    fn carried(&self) -> [u64; LINES_MAX];

    /// Forgets which of our addresses a peer calls: the way to it leads elsewhere now. The kernel chooses the source
    /// until the peer is heard.
    fn forget_source(&self, id: PeerId);

    /// Says whose data packets come from here that do not name their session
    /// ([`SessionName::OfSender`](crate::SessionName::OfSender)): those of the sessions from `first` on, which are
    /// this peer's.
    fn set_sender(&self, id: PeerId, from: Sender, first: u32);

    /// Takes that back, unless the sender has become another peer's.
    fn clear_sender(&self, id: PeerId, from: Sender);

    /// The state of a peer.
    fn peer(&self, id: PeerId) -> Option<PeerState>;

    /// Says that control looks at the peer's [`Times`](crate::Times) by itself: no
    /// [`Notice::Active`](crate::Notice::Active) comes until [`disarm`](Self::disarm). Returns whether control has to;
    /// `false` where a worker was faster, whose notice is on its way.
    fn arm(&self, id: PeerId) -> bool;

    /// Says that control waits for [`Notice::Active`](crate::Notice::Active). Look at the times once more after this:
    /// what happened just before was not told.
    fn disarm(&self, id: PeerId);

    /// Leaves it to the data plane to send a peer an empty packet after `ping` without another one, and to look after its
    /// silence: [`Notice::Silent`](crate::Notice::Silent) tells of one that is longer than `silence`. The time counts from
    /// the call on. Only a data plane whose packets control does not see does so, which calls each peer alive while it waits
    /// ([`PeerState::times`]); with others control goes on by [`peer`](Self::peer) and [`inject`](Self::inject).
    fn keep_alive(
        &self,
        id: PeerId,
        ping: Option<std::time::Duration>,
        silence: Option<std::time::Duration>,
    ) {
        let _ = (id, ping, silence);
    }

    /// Counts a message of control's that the peer will authenticate as sent to it.
    fn note_sent(&self, id: PeerId, at: std::time::Instant, bytes: usize);

    /// Counts an authentic message for control as received from the peer.
    fn note_received(&self, id: PeerId, at: std::time::Instant, bytes: usize);

    // Keys.

    /// Opens packets of a session with these keys from now on, beginning with an empty replay window. They expire by
    /// their limits without another call.
    ///
    /// Keys that the peer has for a session of this name are removed first, and nothing is sealed until
    /// [`send_with`](Self::send_with) where those sealed. Numbers begin at 0: the material must be new, or a nonce would
    /// come twice.
    ///
    /// # Errors
    /// There is no such peer, another peer has a session of this name, or the protocol refuses the material.
    fn add_keys(
        &self,
        id: PeerId,
        keys: SessionKeys<<Self::Protocol as Protocol>::Keys>,
    ) -> Result<CipherName, KeyError<<Self::Protocol as Protocol>::Error>>;

    /// Seals with the keys of this session from now on, after what waits for the peer was sealed with them and sent.
    /// Their packet numbers go on where they were: saying it twice changes nothing.
    fn send_with(&self, id: PeerId, session: u32);

    /// Seals nothing for this peer until keys are named again. The keys of the session go on opening.
    fn stop_sending(&self, id: PeerId);

    /// Forgets the keys of a session. Of the one that seals: nothing is sealed until others are named.
    fn remove_keys(&self, id: PeerId, session: u32);

    /// The use of a session's keys; nothing where they are not there.
    fn key_usage(&self, id: PeerId, session: u32) -> KeyUsage;

    // Messages.

    /// Sends a message of control's as it is: a datagram, or a record with its length before it. Needs no peer.
    /// Returns whether it went.
    fn send(&self, to: &Line, message: &[u8]) -> bool;

    /// Sends a message of control's to a peer by the line that is in use. With `to`, where control believes the peer
    /// to be, it goes there, from the address that the peer calls if the data plane knows it there; without, it goes
    /// where the peer is. Returns whether it went.
    fn send_to_peer(&self, id: PeerId, to: Option<SocketAddr>, message: &[u8]) -> bool;

    /// Seals a payload of control's among the peer's packets, in their order. Done by a worker, soon. Dropped where
    /// there is no key.
    fn inject(&self, id: PeerId, payload: &[u8]);

    /// Injects a payload by one line only, whichever are used. Dropped where the peer does not have it, too.
    fn inject_by(&self, id: PeerId, line: LineId, payload: &[u8]);

    /// Seals a payload of control's, unpadded, and sends it at once by the way that is in use, in one datagram that nothing on
    /// the way may cut. For the peer's timers it is no data: no answer is waited for.
    fn send_whole(&self, id: PeerId, payload: &[u8]) -> Whole {
        let _ = (id, payload);
        Whole::Nowhere
    }

    /// Sends an empty data packet. Returns whether there was a key and an address to send it.
    fn send_keepalive(&self, id: PeerId) -> bool;

    /// Sends what waits for a session if there is a key. Returns whether something had waited.
    fn send_staged(&self, id: PeerId) -> bool;

    /// Drops what waits for a session.
    fn drop_staged(&self, id: PeerId);

    // The whole.

    /// Changes which peer owns which addresses, in this order. Packets see all of the changes or none.
    fn change_routes(&self, changes: &[RouteChange]);

    /// Holds packets back in front of the lines, which carry so many bits a second together, all headers included:
    /// in a fair queue of inner flows (RFC 8290), where a call does not wait for a download. `None`, as until then: lines
    /// that are not the bottleneck, for which nothing waits here.
    fn set_rate(&self, rate: Option<u64>);

    /// Sets the rate in front of each line by itself, by number; 0 for lines by which no packet is to go. Packets that
    /// may go by any ([`LineMode::BalancePackets`]) go by the first that has room. In place of
    /// [`set_rate`](Self::set_rate).
    fn set_line_rates(&self, rates: [u64; LINES_MAX]);

    /// The interface's MTU in bytes has changed.
    fn set_mtu(&self, mtu: usize);

    /// The interface's MTU in bytes, as last told.
    fn mtu(&self) -> usize;

    /// Whether packets from one peer to another are passed on here, or left to the kernel.
    fn set_hairpin(&self, hairpin: bool);

    /// The name that the interface has now.
    ///
    /// # Errors
    /// It is no more.
    fn interface(&self) -> io::Result<String>;

    /// Whether every worker has done a round since this was last asked; asks them all for another one. True when it is asked
    /// for the first time. For timers of seconds, which look after workers that hang.
    fn pulse(&self) -> bool {
        true
    }

    /// Counters since the start. Costs a few allocations: for people and timers of seconds.
    fn statistics(&self) -> Statistics;
}

/// The fate of a datagram that nothing may cut ([`DataPlane::send_whole`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whole {
    /// It was sent.
    Sent,
    /// This host refuses it for its length.
    TooLong,
    /// There is no key or no address, or it was refused for another reason.
    Nowhere,
}

/// A change of the routes by which packets find their peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteChange {
    /// The prefix belongs to this peer from now on, whatever peer it belonged to.
    Add {
        /// An address of the prefix; bits beyond its length are ignored.
        address: IpAddr,
        /// Its length in bits.
        len: u8,
        /// The owner.
        peer: PeerId,
    },
    /// The prefix has no owner any more, if this peer was its owner.
    Remove {
        /// An address of the prefix.
        address: IpAddr,
        /// Its length in bits.
        len: u8,
        /// The owner.
        peer: PeerId,
    },
}

/// Where packets come from that do not name their session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sender {
    /// Datagrams from this address.
    Address(SocketAddr),
    /// Records of this connection.
    Stream(StreamId),
}

/// Why keys were not taken.
#[derive(Debug, PartialEq, Eq)]
pub enum KeyError<E> {
    /// There is no such peer. Control's fault.
    NoPeer(PeerId),
    /// Another peer has a session of this name. Control's fault.
    Taken(u32),
    /// The protocol refuses the material: the configuration's fault, or the peer's.
    Material(E),
    /// This data plane has no such packets, or could not take the keys: why.
    Unable(String),
}

impl<E: fmt::Display> fmt::Display for KeyError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPeer(id) => write!(f, "keys for peer {}, which is not there", id.0),
            Self::Taken(session) => {
                write!(f, "keys for session {session}, which is another peer's")
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
