//! The kernel's state of a peer.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use super::{
    A_PEER, NESTED, PEER_ID, PEER_LOCAL_IPV4, PEER_LOCAL_IPV6, PEER_REMOTE_IPV4, PEER_REMOTE_IPV6,
    PEER_REMOTE_IPV6_SCOPE_ID, PEER_REMOTE_PORT,
};
use crate::netlink::generic::HEADER_SIZE;
use crate::netlink::{attributes, decode_ip, decode_u32};

const PEER_VPN_RX_BYTES: u16 = 16;
const PEER_VPN_TX_BYTES: u16 = 17;
const PEER_VPN_RX_PACKETS: u16 = 18;
const PEER_VPN_TX_PACKETS: u16 = 19;
const PEER_LINK_RX_BYTES: u16 = 20;
const PEER_LINK_TX_BYTES: u16 = 21;
const PEER_LINK_RX_PACKETS: u16 = 22;
const PEER_LINK_TX_PACKETS: u16 = 23;

/// A peer, as the kernel describes it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OvpnPeerState {
    /// The peer's id.
    pub id: u32,
    /// The peer's address outside the tunnel.
    pub remote: Option<SocketAddr>,
    /// Our address that packets to the peer leave from.
    pub local: Option<IpAddr>,
    /// Counters of packets inside the tunnel.
    pub inside: OvpnFigures,
    /// Counters of data packets. The kernel counts received ones before it checks whether they are authentic.
    pub outside: OvpnFigures,
}

/// Packets and bytes of both directions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OvpnFigures {
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
}

/// Reads an answer about a peer; `None` if it has no peer id.
pub(super) fn parse(body: &[u8]) -> Option<OvpnPeerState> {
    let mut found = attributes(body.get(HEADER_SIZE..)?);
    let (_, peer) = found.find(|(kind, _)| is(*kind, A_PEER))?;
    peer_of(peer)
}

/// Whether an attribute has this number, whatever its flags are.
pub(super) fn is(kind: u16, wanted: u16) -> bool {
    kind & !NESTED == wanted & !NESTED
}

pub(super) fn peer_of(value: &[u8]) -> Option<OvpnPeerState> {
    let mut state = OvpnPeerState::default();
    let (mut id, mut scope) = (None, 0);
    for (kind, value) in attributes(value) {
        let (inside, outside) = (&mut state.inside, &mut state.outside);
        let figure = match kind & !NESTED {
            PEER_ID => {
                id = decode_u32(value);
                continue;
            }
            PEER_REMOTE_IPV6_SCOPE_ID => {
                scope = decode_u32(value).unwrap_or(0);
                continue;
            }
            PEER_LOCAL_IPV4 | PEER_LOCAL_IPV6 => {
                state.local = decode_ip(value).filter(|ip| !ip.is_unspecified());
                continue;
            }
            PEER_VPN_RX_BYTES => &mut inside.rx_bytes,
            PEER_VPN_TX_BYTES => &mut inside.tx_bytes,
            PEER_VPN_RX_PACKETS => &mut inside.rx_packets,
            PEER_VPN_TX_PACKETS => &mut inside.tx_packets,
            PEER_LINK_RX_BYTES => &mut outside.rx_bytes,
            PEER_LINK_TX_BYTES => &mut outside.tx_bytes,
            PEER_LINK_RX_PACKETS => &mut outside.rx_packets,
            PEER_LINK_TX_PACKETS => &mut outside.tx_packets,
            _ => continue,
        };
        *figure = uint(value);
    }
    state.id = id?;
    state.remote = remote(value, scope);
    Some(state)
}

fn remote(peer: &[u8], scope: u32) -> Option<SocketAddr> {
    let (mut ip, mut port) = (None, None);
    for (kind, value) in attributes(peer) {
        match kind & !NESTED {
            PEER_REMOTE_IPV4 | PEER_REMOTE_IPV6 => ip = decode_ip(value),
            PEER_REMOTE_PORT => port = value.get(..2)?.try_into().ok().map(u16::from_be_bytes),
            _ => {}
        }
    }
    Some(match ip? {
        IpAddr::V4(ip) => (ip, port?).into(),
        IpAddr::V6(ip) => SocketAddrV6::new(ip, port?, 0, scope).into(),
    })
}

/// A number that has 32 bits if that is enough, otherwise 64.
fn uint(value: &[u8]) -> u64 {
    match *value {
        [a, b, c, d] => u32::from_ne_bytes([a, b, c, d]).into(),
        [a, b, c, d, e, f, g, h] => u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
        _ => 0,
    }
}
