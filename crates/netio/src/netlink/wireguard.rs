//! `wireguard`, the kernel's own WireGuard: reads an interface with its peers, and sets preshared keys.
//!
//! Source: linux/wireguard.h.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use zeroize::{Zeroize as _, Zeroizing};

use super::generic::{HEADER_SIZE, Numbers, command};
use super::request::Body;
use super::{Netlink, NetlinkError, attributes, decode_ip};

const FAMILY: &str = "wireguard";
const VERSION: u8 = 1;

const GET_DEVICE: u8 = 0;
const SET_DEVICE: u8 = 1;

// Attributes of a device.
const DEVICE_IFINDEX: u16 = 1;
const DEVICE_PUBLIC_KEY: u16 = 4;
const DEVICE_PEERS: u16 = 8;

// Attributes of a peer.
const PEER_PUBLIC_KEY: u16 = 1;
const PEER_PRESHARED_KEY: u16 = 2;
const PEER_FLAGS: u16 = 3;
const PEER_LAST_HANDSHAKE: u16 = 6;
const PEER_RX_BYTES: u16 = 7;
const PEER_TX_BYTES: u16 = 8;
const PEER_ALLOWED_IPS: u16 = 9;

// Attributes of a range.
const RANGE_ADDRESS: u16 = 2;
const RANGE_PREFIX: u16 = 3;

/// Changes a peer only if it exists.
const UPDATE_ONLY: u32 = 1 << 2;

/// Flag in the number of a nested attribute.
const NESTED: u16 = 1 << 15;

/// An interface of the kernel's WireGuard.
#[derive(Debug)]
pub struct WireGuard {
    netlink: Netlink,
    numbers: Numbers,
    index: u32,
}

/// The keys of an interface and the state of its peers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WireGuardDevice {
    /// The interface's public key; `None` without a private key.
    pub public_key: Option<[u8; 32]>,
    /// The peers.
    pub peers: Vec<WireGuardPeer>,
}

/// A peer of the kernel's WireGuard.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct WireGuardPeer {
    /// The peer's public key.
    pub public_key: [u8; 32],
    /// The preshared key of the next handshake; all zero for none.
    pub preshared_key: Zeroizing<[u8; 32]>,
    /// Time of the last handshake, since 1970; zero if there was none.
    pub last_handshake: Duration,
    /// Bytes received from the peer, handshakes included.
    pub rx_bytes: u64,
    /// Bytes sent to the peer, handshakes included.
    pub tx_bytes: u64,
    /// The peer's ranges: network and prefix length.
    pub allowed_ips: Vec<(IpAddr, u8)>,
}

impl fmt::Debug for WireGuardPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WireGuardPeer")
            .field("public_key", &self.public_key)
            .field("last_handshake", &self.last_handshake)
            .finish_non_exhaustive()
    }
}

impl WireGuard {
    /// Opens a socket for the interface with this index, in the network namespace of the current thread.
    ///
    /// # Errors
    /// [`NetlinkError::is_not_found`] if the kernel has no WireGuard.
    pub fn open(index: u32) -> Result<Self, NetlinkError> {
        let mut netlink = Netlink::open_generic()?;
        let numbers = netlink.family(FAMILY)?;
        Ok(Self {
            netlink,
            numbers,
            index,
        })
    }

    /// Reads the interface and its peers.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the interface is not WireGuard's; [`NetlinkError::is_not_found`],
    /// [`NetlinkError::is_permission`].
    pub fn device(&mut self) -> Result<WireGuardDevice, NetlinkError> {
        let body = self.message(GET_DEVICE);
        let family = self.numbers.family;
        let parts = self
            .netlink
            .dump(family, &body, "read the WireGuard interface", parse);
        // The answers hold keys.
        self.netlink.buffer.zeroize();
        Ok(joined(parts?))
    }

    /// Sets the preshared key for the next handshake with a peer. An unknown peer is ignored.
    ///
    /// # Errors
    /// [`NetlinkError::is_not_found`] if the interface is gone; [`NetlinkError::is_permission`].
    pub fn set_preshared_key(
        &mut self,
        peer: &[u8; 32],
        key: &[u8; 32],
    ) -> Result<(), NetlinkError> {
        let body = with_preshared_key(self.message(SET_DEVICE), peer, key);
        let index = self.index;
        self.netlink.change(
            self.numbers.family,
            &body,
            0,
            "set a preshared key of interface",
            format_args!("{index}"),
        )
    }

    fn message(&self, of: u8) -> Body {
        command(of, VERSION).with(DEVICE_IFINDEX, &self.index.to_ne_bytes())
    }
}

fn with_preshared_key(mut message: Body, peer: &[u8; 32], key: &[u8; 32]) -> Body {
    let peer = Body::attributes()
        .with(PEER_PUBLIC_KEY, peer)
        .with(PEER_FLAGS, &UPDATE_ONLY.to_ne_bytes())
        .with(PEER_PRESHARED_KEY, key);
    let mut peers = Body::attributes();
    peers.push_body(NESTED, &peer);
    message.push_body(DEVICE_PEERS | NESTED, &peers);
    message
}

/// Joins the parts of an answer. A peer with many ranges continues in the next part.
fn joined(parts: Vec<WireGuardDevice>) -> WireGuardDevice {
    let mut whole = WireGuardDevice::default();
    for part in parts {
        whole.public_key = whole.public_key.or(part.public_key);
        for peer in part.peers {
            match whole.peers.last_mut() {
                Some(last) if last.public_key == peer.public_key => {
                    last.allowed_ips.extend(peer.allowed_ips);
                }
                _ => whole.peers.push(peer),
            }
        }
    }
    whole
}

/// Reads one part of an answer about a device.
fn parse(body: &[u8]) -> Option<WireGuardDevice> {
    let mut device = WireGuardDevice::default();
    for (kind, value) in attributes(body.get(HEADER_SIZE..)?) {
        match kind & !NESTED {
            DEVICE_PUBLIC_KEY => device.public_key = value.try_into().ok(),
            DEVICE_PEERS => {
                let peers = attributes(value);
                device.peers = peers.filter_map(|(_, it)| parse_peer(it)).collect();
            }
            _ => {}
        }
    }
    Some(device)
}

fn parse_peer(value: &[u8]) -> Option<WireGuardPeer> {
    let (mut peer, mut public_key) = (WireGuardPeer::default(), None);
    for (kind, value) in attributes(value) {
        match kind & !NESTED {
            PEER_PUBLIC_KEY => public_key = value.try_into().ok(),
            PEER_PRESHARED_KEY if value.len() == 32 => peer.preshared_key.copy_from_slice(value),
            PEER_LAST_HANDSHAKE => peer.last_handshake = timespec(value).unwrap_or_default(),
            PEER_RX_BYTES => peer.rx_bytes = u64::from_ne_bytes(value.try_into().ok()?),
            PEER_TX_BYTES => peer.tx_bytes = u64::from_ne_bytes(value.try_into().ok()?),
            PEER_ALLOWED_IPS => {
                let ranges = attributes(value);
                peer.allowed_ips = ranges.filter_map(|(_, it)| parse_range(it)).collect();
            }
            _ => {}
        }
    }
    peer.public_key = public_key?;
    Some(peer)
}

/// `struct __kernel_timespec`: two signed 64-bit numbers.
fn timespec(value: &[u8]) -> Option<Duration> {
    let (seconds, nanoseconds) = value.split_at_checked(8)?;
    let seconds = i64::from_ne_bytes(seconds.try_into().ok()?);
    let nanoseconds = i64::from_ne_bytes(nanoseconds.try_into().ok()?);
    Some(Duration::new(
        u64::try_from(seconds).ok()?,
        u32::try_from(nanoseconds).ok()?,
    ))
}

fn parse_range(value: &[u8]) -> Option<(IpAddr, u8)> {
    let (mut address, mut prefix) = (None, None);
    for (kind, value) in attributes(value) {
        match kind & !NESTED {
            RANGE_ADDRESS => address = decode_ip(value),
            RANGE_PREFIX => prefix = value.first().copied(),
            _ => {}
        }
    }
    Some((address?, prefix?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer's body with these peers.
    fn answer(peers: &[Body]) -> Vec<u8> {
        let mut list = Body::attributes();
        for peer in peers {
            list.push_body(NESTED, peer);
        }
        let mut body = command(GET_DEVICE, VERSION).with(DEVICE_PUBLIC_KEY, &[9; 32]);
        body.push_body(DEVICE_PEERS | NESTED, &list);
        body.payload().to_vec()
    }

    fn range(address: IpAddr, prefix: u8) -> Body {
        let mut range = Body::attributes();
        range.push_ip(RANGE_ADDRESS, Some(address));
        let range = range.with(RANGE_PREFIX, &[prefix]);
        let mut list = Body::attributes();
        list.push_body(NESTED, &range);
        list
    }

    #[test]
    fn a_peer_whose_ranges_fill_two_answers_is_one_peer() {
        let time = [5u64.to_ne_bytes(), 7u64.to_ne_bytes()].concat();
        let mut first = Body::attributes()
            .with(PEER_PUBLIC_KEY, &[1; 32])
            .with(PEER_PRESHARED_KEY, &[2; 32])
            .with(PEER_LAST_HANDSHAKE, &time)
            .with(PEER_RX_BYTES, &148u64.to_ne_bytes())
            .with(PEER_TX_BYTES, &92u64.to_ne_bytes());
        first.push_body(PEER_ALLOWED_IPS, &range([10, 0, 0, 2].into(), 32));
        let mut more = Body::attributes().with(PEER_PUBLIC_KEY, &[1; 32]);
        more.push_body(PEER_ALLOWED_IPS, &range([0xfd; 16].into(), 128));
        let other = Body::attributes().with(PEER_PUBLIC_KEY, &[3; 32]);
        let parts = [answer(&[first]), answer(&[more, other])].map(|it| parse(&it).unwrap());
        let device = joined(parts.to_vec());
        assert_eq!(device.public_key, Some([9; 32]));
        let [peer, other] = &device.peers[..] else {
            panic!("{device:?}");
        };
        assert_eq!(*peer.preshared_key, [2; 32]);
        assert_eq!(peer.last_handshake, Duration::new(5, 7));
        assert_eq!((peer.rx_bytes, peer.tx_bytes), (148, 92));
        let ranges = [([10, 0, 0, 2].into(), 32), ([0xfd; 16].into(), 128)];
        assert_eq!(peer.allowed_ips, ranges);
        assert_eq!(other.public_key, [3; 32]);
        assert!(!format!("{peer:?}").contains("preshared"), "{peer:?}");
    }

    #[test]
    fn a_key_is_set_at_a_peer_that_exists() {
        let message = with_preshared_key(command(SET_DEVICE, VERSION), &[1; 32], &[2; 32]);
        let parsed = parse(message.payload()).unwrap();
        assert_eq!(parsed.peers[0].public_key, [1; 32]);
        assert_eq!(*parsed.peers[0].preshared_key, [2; 32]);
        let flags = [
            &8u16.to_ne_bytes()[..],
            &3u16.to_ne_bytes(),
            &4u32.to_ne_bytes(),
        ]
        .concat();
        let payload = message.payload();
        assert!(payload.windows(8).any(|it| it == flags), "{payload:?}");
    }

    #[test]
    fn short_and_random_bodies_have_no_peers() {
        for length in 0..80 {
            let device = parse(&vec![0xff; length]).unwrap_or_default();
            assert_eq!(device, WireGuardDevice::default());
        }
    }
}
