//! Where datagrams go, where answers must come from, and the networks by which unauthenticated senders are counted.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The local side of a path: what `IP_PKTINFO` told of a received datagram, given back when
/// answering, so that an answer leaves from the address that received the request (a *sticky* source).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    /// Our address that the peer sent to.
    pub ip: IpAddr,
    /// The interface that received the datagram; 0 if unknown. Not used for sending, only to notice that the route to
    /// the peer has changed.
    pub ifindex: u32,
}

/// A peer's address, and the local address to send from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// The peer's address and UDP port.
    pub addr: SocketAddr,
    /// The local address, if the peer has sent to it; `None` lets the kernel choose.
    pub source: Option<Source>,
}

impl Endpoint {
    /// An endpoint the kernel chooses the source address for.
    #[must_use]
    pub fn new(addr: SocketAddr) -> Self {
        Self { addr, source: None }
    }
}

/// The two ECN bits of an IP header (RFC 3168 section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Ecn {
    /// The transport is not ECN-capable.
    #[default]
    NotEct,
    /// ECN-capable, codepoint 01.
    Ect1,
    /// ECN-capable, codepoint 10.
    Ect0,
    /// Congestion experienced.
    Ce,
}

impl Ecn {
    /// The codepoint in the low bits of a TOS or traffic-class byte.
    #[must_use]
    pub fn from_tos(tos: u8) -> Self {
        match tos & 3 {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::Ce,
        }
    }

    /// The codepoint as the low bits of a TOS byte.
    #[must_use]
    pub fn bits(self) -> u8 {
        match self {
            Self::NotEct => 0,
            Self::Ect1 => 1,
            Self::Ect0 => 2,
            Self::Ce => 3,
        }
    }
}

/// Addresses that a single host can easily have: an IPv4 address, or a /64 of IPv6 (RFC 4862, RFC 8981). Room, places
/// and turns for unauthenticated senders are shared out among these networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceNetwork(IpAddr);

impl SourceNetwork {
    /// The network of an address. An IPv4 address may be written as one of IPv6.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(ip) => ip.into(),
            IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
        })
    }
}

impl From<SocketAddr> for SourceNetwork {
    fn from(address: SocketAddr) -> Self {
        Self::of(address.ip())
    }
}

impl fmt::Display for SourceNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V4(ip) => write!(f, "{ip}"),
            IpAddr::V6(ip) => write!(f, "{ip}/64"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_an_ipv4_address_or_a_network_of_ipv6() {
        let of = |text: &str| SourceNetwork::from(text.parse::<SocketAddr>().unwrap());
        assert_eq!(of("192.0.2.1:1"), of("[::ffff:192.0.2.1]:2"));
        assert_ne!(of("192.0.2.1:1"), of("192.0.2.2:1"));
        assert_eq!(of("[2001:db8::1]:1"), of("[2001:db8::ffff:2]:1"));
        assert_ne!(of("[2001:db8::1]:1"), of("[2001:db8:0:1::1]:1"));
        assert_eq!(of("[2001:db8::1]:1").to_string(), "2001:db8::/64");
    }
}
