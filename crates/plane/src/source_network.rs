//! Networks by which unauthenticated senders are counted.

use core::fmt;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};

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
