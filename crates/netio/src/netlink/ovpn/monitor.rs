//! Events of `ovpn`, the kernel's data plane of OpenVPN.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_sys::protocols::NETLINK_GENERIC;

use super::state::{is, peer_of};
use super::{A_IFINDEX, A_KEYCONF, A_PEER, FAMILY, GROUP, KEY_ID, KEY_PEER_ID};
use crate::netlink::generic::HEADER_SIZE;
use crate::netlink::{Follower, Netlink, NetlinkError, News, attributes, decode_u32, messages};

// Commands of events.
const PEER_DEL_NTF: u8 = 5;
const KEY_SWAP_NTF: u8 = 9;
const PEER_FLOAT_NTF: u8 = 11;

const PEER_DEL_REASON: u16 = 15;

/// Event that the kernel reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OvpnEvent {
    /// A peer was removed.
    PeerGone {
        /// The peer's id.
        peer: u32,
        /// Why the kernel removed the peer.
        why: PeerEnd,
    },
    /// The encrypting key has used up its packet ids: the kernel sends nothing more with it.
    KeyWorn {
        /// The peer's id.
        peer: u32,
        /// The key id.
        key_id: u8,
    },
    /// The peer has moved: authentic packets now come from this address, and the kernel sends to it. Older kernels do
    /// not report this; [`Ovpn::peer`](super::Ovpn::peer) shows it then.
    Floated {
        /// The peer's id.
        peer: u32,
        /// The peer's new address.
        to: SocketAddr,
    },
    /// The socket has lost events: the caller must read the state again.
    Overrun,
}

/// Why a peer was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PeerEnd {
    /// The interface is deleted, or another peer replaced this one.
    Teardown,
    /// This process asked for the removal.
    Asked,
    /// The kernel received nothing from the peer for too long.
    Expired,
    /// The peer's socket failed or was closed.
    Transport,
    /// A reason that only a later kernel gives.
    Other(u32),
}

impl fmt::Display for PeerEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Teardown => f.write_str("its interface or its place is another's"),
            Self::Asked => f.write_str("user space removed it"),
            Self::Expired => f.write_str("no packet arrived from it"),
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

/// A socket that reports events about the peers of one interface.
///
/// The monitor's descriptor becomes readable when an event waits; [`OvpnMonitor::next`] never blocks.
#[derive(Debug)]
pub struct OvpnMonitor {
    follower: Follower,
    index: u32,
    pending: VecDeque<OvpnEvent>,
}

impl OvpnMonitor {
    /// Listens to the interface with this index, in the network namespace of the current thread. Later events are
    /// reported.
    ///
    /// # Errors
    /// [`NetlinkError::is_not_found`] if the kernel has no `ovpn`.
    pub fn open(index: u32) -> Result<Self, NetlinkError> {
        let numbers = Netlink::open_generic()?.family(FAMILY)?;
        let group = numbers.group(GROUP).ok_or_else(|| NetlinkError::Answer {
            operation: "follow",
            object: "peers of ovpn".to_owned(),
            reason: "the family has no group of that name".to_owned(),
        })?;
        let follower = Follower::open(NETLINK_GENERIC, 0, "peers of ovpn")?;
        follower
            .socket
            .add_membership(group)
            .map_err(NetlinkError::Open)?;
        Ok(Self {
            follower,
            index,
            pending: VecDeque::new(),
        })
    }

    /// The next event; `None` if none waits.
    ///
    /// # Errors
    /// [`NetlinkError::Socket`] if the socket fails.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator does not resume after `None`, but this one does"
    )]
    pub fn next(&mut self) -> Result<Option<OvpnEvent>, NetlinkError> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Ok(Some(event));
            }
            match self.follower.receive()? {
                News::Messages(bytes) => {
                    let found = messages(bytes).flatten();
                    let found = found.filter_map(|message| event(message.payload(), self.index));
                    self.pending.extend(found);
                }
                News::None => return Ok(None),
                News::Lost => return Ok(Some(OvpnEvent::Overrun)),
            }
        }
    }
}

impl AsFd for OvpnMonitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.follower.socket.as_fd()
    }
}

/// Reads an event about the interface `index`; `None` if it is about another.
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

/// A key id, which has 16 bits in events and 32 in requests.
fn number(value: &[u8]) -> Option<u8> {
    match *value {
        [a, b] => u8::try_from(u16::from_ne_bytes([a, b])).ok(),
        _ => u8::try_from(decode_u32(value)?).ok(),
    }
}
