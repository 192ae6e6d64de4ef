//! News of the kernel's data plane of OpenVPN.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_sys::protocols::NETLINK_GENERIC;
use netlink_sys::{Socket, SocketAddr as NetlinkAddr};

use super::super::generic::HEADER_SIZE;
use super::super::{BUFFER_SIZE, Netlink, NetlinkError, attributes, decode_u32, messages, receive};
use super::state::{is, peer_of};
use super::{A_IFINDEX, A_KEYCONF, A_PEER, FAMILY, GROUP, KEY_ID, KEY_PEER_ID};

// Commands that are news.
const PEER_DEL_NTF: u8 = 5;
const KEY_SWAP_NTF: u8 = 9;
const PEER_FLOAT_NTF: u8 = 11;

const PEER_DEL_REASON: u16 = 15;

/// One piece of news.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OvpnEvent {
    /// A peer was removed.
    PeerGone {
        /// Its number.
        peer: u32,
        /// Why.
        why: PeerEnd,
    },
    /// The packet ids of the key that seals run out: it seals nothing more.
    KeyWorn {
        /// The peer.
        peer: u32,
        /// The number of the key.
        key_id: u8,
    },
    /// Authentic packets of a peer come from here now, and it is sent to there. Older kernels do so without a word:
    /// then [`Ovpn::peer`](super::Ovpn::peer) shows it.
    Floated {
        /// The peer.
        peer: u32,
        /// Where it is.
        to: SocketAddr,
    },
    /// More happened than the socket could hold: the caller must read the state anew.
    Overrun,
}

/// Why a peer was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PeerEnd {
    /// The interface is deleted, or another peer took its place.
    Teardown,
    /// The process said so.
    Asked,
    /// Nothing was heard from it for too long.
    Expired,
    /// Its socket failed, or is closed.
    Transport,
    /// A reason that came with a later kernel.
    Other(u32),
}

impl fmt::Display for PeerEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Teardown => f.write_str("its interface or its place is another's"),
            Self::Asked => f.write_str("that was asked for"),
            Self::Expired => f.write_str("nothing was heard from it"),
            Self::Transport => f.write_str("its socket failed or is closed"),
            Self::Other(reason) => write!(f, "reason {reason}"),
        }
    }
}

impl PeerEnd {
    fn from_wire(reason: u32) -> Self {
        match reason {
            0 => Self::Teardown,
            1 => Self::Asked,
            2 => Self::Expired,
            3 | 4 => Self::Transport,
            other => Self::Other(other),
        }
    }
}

/// A socket that hears what happens to the peers of one interface.
///
/// Its descriptor becomes readable when there is news; [`OvpnMonitor::next`] never blocks.
#[derive(Debug)]
pub struct OvpnMonitor {
    socket: Socket,
    index: u32,
    buffer: Box<[u8]>,
    pending: VecDeque<OvpnEvent>,
}

impl OvpnMonitor {
    /// Listens to the interface of this index, in the network namespace of the current thread. What happens after this
    /// call is heard.
    ///
    /// # Errors
    /// [`NetlinkError::is_not_found`] if the kernel has no such data plane.
    pub fn open(index: u32) -> Result<Self, NetlinkError> {
        let numbers = Netlink::open_generic()?.family(FAMILY)?;
        let group = numbers.group(GROUP).ok_or_else(|| NetlinkError::Answer {
            operation: "follow",
            object: "peers of ovpn".to_owned(),
            reason: "the family has no group of that name".to_owned(),
        })?;
        let mut socket = Socket::new(NETLINK_GENERIC).map_err(NetlinkError::Open)?;
        socket
            .bind(&NetlinkAddr::new(0, 0))
            .map_err(NetlinkError::Open)?;
        socket.add_membership(group).map_err(NetlinkError::Open)?;
        socket.set_non_blocking(true).map_err(NetlinkError::Open)?;
        Ok(Self {
            socket,
            index,
            buffer: vec![0; BUFFER_SIZE].into_boxed_slice(),
            pending: VecDeque::new(),
        })
    }

    /// The next piece of news, or nothing if there is none at the moment.
    ///
    /// # Errors
    /// [`NetlinkError::Socket`] if the socket fails.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator that ends is over; this one goes on when there is more news"
    )]
    pub fn next(&mut self) -> Result<Option<OvpnEvent>, NetlinkError> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Ok(Some(event));
            }
            match receive(&self.socket, &mut self.buffer) {
                Ok(length) => {
                    let found = messages(&self.buffer[..length]).flatten();
                    let found = found.filter_map(|message| event(message.payload(), self.index));
                    self.pending.extend(found);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error)
                    if error.raw_os_error() == Some(libc::ENOBUFS)
                        || error.kind() == io::ErrorKind::InvalidData =>
                {
                    return Ok(Some(OvpnEvent::Overrun));
                }
                Err(error) => {
                    return Err(NetlinkError::Socket {
                        operation: "follow",
                        object: "peers of ovpn".to_owned(),
                        error,
                    });
                }
            }
        }
    }
}

impl AsFd for OvpnMonitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Reads news about the interface `index`; nothing if it is about another.
pub(super) fn event(body: &[u8], index: u32) -> Option<OvpnEvent> {
    let command = *body.first()?;
    let all = || attributes(body.get(HEADER_SIZE..).unwrap_or_default());
    let of = |wanted| all().find(|(kind, _)| is(*kind, wanted));
    let (_, interface) = of(A_IFINDEX)?;
    if decode_u32(interface)? != index {
        return None;
    }
    match command {
        PEER_DEL_NTF => {
            let (_, peer) = of(A_PEER)?;
            let reason = attributes(peer).find(|(kind, _)| is(*kind, PEER_DEL_REASON));
            Some(OvpnEvent::PeerGone {
                peer: peer_of(peer)?.id,
                why: PeerEnd::from_wire(decode_u32(reason?.1)?),
            })
        }
        KEY_SWAP_NTF => {
            let (_, key) = of(A_KEYCONF)?;
            let (mut peer, mut key_id) = (None, None);
            for (kind, value) in attributes(key) {
                if is(kind, KEY_PEER_ID) {
                    peer = decode_u32(value);
                } else if is(kind, KEY_ID) {
                    key_id = number(value);
                }
            }
            Some(OvpnEvent::KeyWorn {
                peer: peer?,
                key_id: key_id?,
            })
        }
        PEER_FLOAT_NTF => {
            let (_, peer) = of(A_PEER)?;
            let peer = peer_of(peer)?;
            Some(OvpnEvent::Floated {
                peer: peer.id,
                to: peer.remote?,
            })
        }
        _ => None,
    }
}

/// The number of a key, which news have in 16 bits where requests have 32.
fn number(value: &[u8]) -> Option<u8> {
    match *value {
        [a, b] => u8::try_from(u16::from_ne_bytes([a, b])).ok(),
        _ => u8::try_from(decode_u32(value)?).ok(),
    }
}
