//! `ovpn`, the kernel's data plane of OpenVPN: its interfaces, their peers and keys. It is part of Linux since 6.16, and
//! older kernels may have it as a backported module.
//!
//! Sources: linux/ovpn.h and Documentation/netlink/specs/ovpn.yaml.

mod family;
mod interface;
mod monitor;
mod state;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};

use super::generic::{Numbers, command};
use super::request::Body;
use super::{Netlink, NetlinkError};

pub use family::OvpnFamily;
pub use interface::OvpnMode;
pub use monitor::{OvpnEvent, OvpnMonitor, PeerEnd};
pub use state::{OvpnFigures, OvpnPeerState};

const FAMILY: &str = "ovpn";
const VERSION: u8 = 1;
const GROUP: &str = "peers";

// Commands.
const PEER_NEW: u8 = 1;
const PEER_SET: u8 = 2;
const PEER_GET: u8 = 3;
const PEER_DEL: u8 = 4;
const KEY_NEW: u8 = 6;
const KEY_SWAP: u8 = 8;
const KEY_DEL: u8 = 10;

// Attributes of a message.
const A_IFINDEX: u16 = 1;
const A_PEER: u16 = 2 | NESTED;
const A_KEYCONF: u16 = 3 | NESTED;

/// Flag in the number of a nested attribute. Recent netlink families refuse nested attributes without it.
const NESTED: u16 = 1 << 15;

// Attributes of a peer.
const PEER_ID: u16 = 1;
const PEER_REMOTE_IPV4: u16 = 2;
const PEER_REMOTE_IPV6: u16 = 3;
const PEER_REMOTE_IPV6_SCOPE_ID: u16 = 4;
const PEER_REMOTE_PORT: u16 = 5;
const PEER_SOCKET: u16 = 6;
const PEER_VPN_IPV4: u16 = 8;
const PEER_VPN_IPV6: u16 = 9;
const PEER_LOCAL_IPV4: u16 = 10;
const PEER_LOCAL_IPV6: u16 = 11;
const PEER_KEEPALIVE_INTERVAL: u16 = 13;
const PEER_KEEPALIVE_TIMEOUT: u16 = 14;

// Attributes of a key, and of one direction of a key.
const KEY_PEER_ID: u16 = 1;
const KEY_SLOT: u16 = 2;
const KEY_ID: u16 = 3;
const KEY_CIPHER_ALG: u16 = 4;
const KEY_ENCRYPT_DIR: u16 = 5 | NESTED;
const KEY_DECRYPT_DIR: u16 = 6 | NESTED;
const DIRECTION_KEY: u16 = 1;
const DIRECTION_NONCE_TAIL: u16 = 2;

/// Bytes after the packet id in a nonce.
pub const OVPN_NONCE_TAIL: usize = 8;

/// The cipher of a key. The key's length tells the AES variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OvpnCipher {
    /// AES-GCM.
    AesGcm,
    /// ChaCha20-Poly1305.
    ChaCha20Poly1305,
}

/// The slot that a key occupies at a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OvpnSlot {
    /// The kernel encrypts and decrypts with this key.
    Primary,
    /// The kernel only decrypts with this key.
    Secondary,
}

/// A peer to add.
#[derive(Debug, Clone, Copy)]
pub struct OvpnPeer<'a> {
    /// The peer id in the peer's packets, 24 bits.
    pub id: u32,
    /// The UDP socket for the peer's packets. The process keeps it, and receives packets from it that are not data
    /// packets.
    pub socket: BorrowedFd<'a>,
    /// The peer's address outside the tunnel.
    pub remote: SocketAddr,
    /// Our address that the peer sends to, of the same family.
    pub local: Option<IpAddr>,
    /// The peer's IPv4 address inside the tunnel. An interface with several peers needs this or the IPv6 one; with a
    /// single peer neither may be set.
    pub inside_v4: Option<Ipv4Addr>,
    /// The peer's IPv6 address inside the tunnel.
    pub inside_v6: Option<Ipv6Addr>,
}

/// A key for one direction.
#[derive(Clone, Copy)]
pub struct OvpnDirection<'a> {
    /// Key of the cipher.
    pub key: &'a [u8],
    /// The bytes after the packet id in a nonce.
    pub nonce_tail: &'a [u8; OVPN_NONCE_TAIL],
}

impl fmt::Debug for OvpnDirection<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OvpnDirection { .. }")
    }
}

/// A key for a peer.
#[derive(Debug, Clone, Copy)]
pub struct OvpnKey<'a> {
    /// The peer's id.
    pub peer: u32,
    /// The slot, whose present key is replaced.
    pub slot: OvpnSlot,
    /// The key id in packets, 0 to 7.
    pub key_id: u8,
    /// The cipher.
    pub cipher: OvpnCipher,
    /// The key for sent packets.
    pub encrypt: OvpnDirection<'a>,
    /// The key for received packets.
    pub decrypt: OvpnDirection<'a>,
}

/// The peers and keys of one `ovpn` interface.
#[derive(Debug)]
pub struct Ovpn {
    netlink: Netlink,
    numbers: Numbers,
    index: u32,
}

impl Ovpn {
    /// Opens a socket for the interface with this index, in the network namespace of the current thread.
    ///
    /// # Errors
    /// [`NetlinkError::is_not_found`] if the kernel has no `ovpn`.
    pub fn open(index: u32) -> Result<Self, NetlinkError> {
        let mut netlink = Netlink::open_generic()?;
        let numbers = netlink.family(FAMILY)?;
        Ok(Self {
            netlink,
            numbers,
            index,
        })
    }

    /// Adds a peer without keys. On an interface for only one peer it replaces the previous one.
    ///
    /// # Errors
    /// [`NetlinkError::is_exists`], [`NetlinkError::is_permission`]; EBUSY if the socket serves another interface.
    pub fn add_peer(&mut self, peer: &OvpnPeer<'_>) -> Result<(), NetlinkError> {
        self.change_peer(PEER_NEW, peer.id, &new_peer(peer), "add peer")
    }

    /// Sets a peer's address outside the tunnel.
    ///
    /// # Errors
    /// [`NetlinkError::is_not_found`], [`NetlinkError::is_permission`].
    pub fn move_peer(
        &mut self,
        id: u32,
        remote: SocketAddr,
        local: Option<IpAddr>,
    ) -> Result<(), NetlinkError> {
        let mut body = Body::attributes().with(PEER_ID, &id.to_ne_bytes());
        push_way(&mut body, remote, local);
        self.change_peer(PEER_SET, id, &body, "move peer")
    }

    /// Sets a peer's addresses inside the tunnel, and removes one that is `None`.
    ///
    /// # Errors
    /// The errors of [`Ovpn::move_peer`].
    pub fn set_inside(
        &mut self,
        id: u32,
        v4: Option<Ipv4Addr>,
        v6: Option<Ipv6Addr>,
    ) -> Result<(), NetlinkError> {
        let body = inside(id, v4, v6);
        self.change_peer(PEER_SET, id, &body, "set the addresses of peer")
    }

    /// Makes the kernel ping a peer after `ping` seconds without another packet to it, and remove it after `timeout`
    /// seconds without a packet from it. The time counts from now; if either is 0, the kernel does neither.
    ///
    /// # Errors
    /// The errors of [`Ovpn::move_peer`]; ERANGE if one of them is more than a day.
    pub fn keep_alive(&mut self, id: u32, ping: u32, timeout: u32) -> Result<(), NetlinkError> {
        let body = Body::attributes()
            .with(PEER_ID, &id.to_ne_bytes())
            .with(PEER_KEEPALIVE_INTERVAL, &ping.to_ne_bytes())
            .with(PEER_KEEPALIVE_TIMEOUT, &timeout.to_ne_bytes());
        self.change_peer(PEER_SET, id, &body, "set the timers of peer")
    }

    /// The kernel's state of a peer.
    ///
    /// # Errors
    /// The errors of [`Ovpn::move_peer`].
    pub fn peer(&mut self, id: u32) -> Result<OvpnPeerState, NetlinkError> {
        let mut body = self.message(PEER_GET);
        let peer = Body::attributes().with(PEER_ID, &id.to_ne_bytes());
        body.push_body(A_PEER, &peer);
        self.netlink.query(
            self.numbers.family,
            &body,
            "read peer",
            format_args!("{id}"),
            state::parse,
        )
    }

    /// Removes a peer, and its keys.
    ///
    /// # Errors
    /// The errors of [`Ovpn::move_peer`].
    pub fn remove_peer(&mut self, id: u32) -> Result<(), NetlinkError> {
        let body = Body::attributes().with(PEER_ID, &id.to_ne_bytes());
        self.change_peer(PEER_DEL, id, &body, "remove peer")
    }

    /// Installs a key of a peer. Its packet ids start from the beginning: the key must be new.
    ///
    /// # Errors
    /// The errors of [`Ovpn::move_peer`]; ENOENT too if the kernel has no such cipher.
    pub fn add_key(&mut self, key: &OvpnKey<'_>) -> Result<(), NetlinkError> {
        self.change_key(KEY_NEW, key.peer, &new_key(key), "add a key to peer")
    }

    /// Swaps a peer's two keys.
    ///
    /// # Errors
    /// The errors of [`Ovpn::move_peer`].
    pub fn swap_keys(&mut self, peer: u32) -> Result<(), NetlinkError> {
        let body = Body::attributes().with(KEY_PEER_ID, &peer.to_ne_bytes());
        self.change_key(KEY_SWAP, peer, &body, "swap the keys of peer")
    }

    /// Removes a key; does nothing if there is none.
    ///
    /// # Errors
    /// The errors of [`Ovpn::move_peer`].
    pub fn remove_key(&mut self, peer: u32, slot: OvpnSlot) -> Result<(), NetlinkError> {
        let body = Body::attributes()
            .with(KEY_PEER_ID, &peer.to_ne_bytes())
            .with(KEY_SLOT, &slot.wire().to_ne_bytes());
        self.change_key(KEY_DEL, peer, &body, "remove a key of peer")
    }

    fn message(&self, kind: u8) -> Body {
        command(kind, VERSION).with(A_IFINDEX, &self.index.to_ne_bytes())
    }

    fn change_peer(
        &mut self,
        kind: u8,
        id: u32,
        peer: &Body,
        operation: &'static str,
    ) -> Result<(), NetlinkError> {
        self.change(kind, A_PEER, id, peer, operation)
    }

    fn change_key(
        &mut self,
        kind: u8,
        peer: u32,
        key: &Body,
        operation: &'static str,
    ) -> Result<(), NetlinkError> {
        self.change(kind, A_KEYCONF, peer, key, operation)
    }

    fn change(
        &mut self,
        kind: u8,
        attribute: u16,
        id: u32,
        inner: &Body,
        operation: &'static str,
    ) -> Result<(), NetlinkError> {
        let mut body = self.message(kind);
        body.push_body(attribute, inner);
        let family = self.numbers.family;
        self.netlink
            .change(family, &body, 0, operation, format_args!("{id}"))
    }
}

impl OvpnCipher {
    fn wire(self) -> u32 {
        match self {
            Self::AesGcm => 1,
            Self::ChaCha20Poly1305 => 2,
        }
    }
}

impl OvpnSlot {
    fn wire(self) -> u32 {
        match self {
            Self::Primary => 0,
            Self::Secondary => 1,
        }
    }
}

fn new_peer(peer: &OvpnPeer<'_>) -> Body {
    let mut body = Body::attributes().with(PEER_ID, &peer.id.to_ne_bytes());
    // An open descriptor is never negative.
    let socket = peer.socket.as_raw_fd().cast_unsigned();
    body.push_number(PEER_SOCKET, Some(socket));
    push_way(&mut body, peer.remote, peer.local);
    body.push_ip(PEER_VPN_IPV4, peer.inside_v4.map(IpAddr::V4));
    body.push_ip(PEER_VPN_IPV6, peer.inside_v6.map(IpAddr::V6));
    body
}

/// Names both families, an all-zero address meaning none: the kernel keeps the address of a family left out.
fn inside(id: u32, v4: Option<Ipv4Addr>, v6: Option<Ipv6Addr>) -> Body {
    let v4 = v4.unwrap_or(Ipv4Addr::UNSPECIFIED);
    let v6 = v6.unwrap_or(Ipv6Addr::UNSPECIFIED);
    Body::attributes()
        .with(PEER_ID, &id.to_ne_bytes())
        .with(PEER_VPN_IPV4, &v4.octets())
        .with(PEER_VPN_IPV6, &v6.octets())
}

fn push_way(body: &mut Body, remote: SocketAddr, local: Option<IpAddr>) {
    match remote {
        SocketAddr::V4(remote) => body.push(PEER_REMOTE_IPV4, &remote.ip().octets()),
        SocketAddr::V6(remote) => {
            body.push(PEER_REMOTE_IPV6, &remote.ip().octets());
            let scope = Some(remote.scope_id()).filter(|scope| *scope != 0);
            body.push_number(PEER_REMOTE_IPV6_SCOPE_ID, scope);
        }
    }
    body.push(PEER_REMOTE_PORT, &remote.port().to_be_bytes());
    match (local, remote) {
        (Some(local @ IpAddr::V4(_)), SocketAddr::V4(_)) => {
            body.push_ip(PEER_LOCAL_IPV4, Some(local));
        }
        (Some(local @ IpAddr::V6(_)), SocketAddr::V6(_)) => {
            body.push_ip(PEER_LOCAL_IPV6, Some(local));
        }
        _ => {}
    }
}

fn new_key(key: &OvpnKey<'_>) -> Body {
    let mut body = Body::attributes()
        .with(KEY_PEER_ID, &key.peer.to_ne_bytes())
        .with(KEY_SLOT, &key.slot.wire().to_ne_bytes())
        .with(KEY_ID, &u32::from(key.key_id).to_ne_bytes())
        .with(KEY_CIPHER_ALG, &key.cipher.wire().to_ne_bytes());
    body.push_body(KEY_ENCRYPT_DIR, &direction(key.encrypt));
    body.push_body(KEY_DECRYPT_DIR, &direction(key.decrypt));
    body
}

fn direction(direction: OvpnDirection<'_>) -> Body {
    Body::attributes()
        .with(DIRECTION_KEY, direction.key)
        .with(DIRECTION_NONCE_TAIL, direction.nonce_tail)
}

#[cfg(test)]
mod tests;
