//! Networks that strangers are counted by.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Addresses that a single host can easily have: an IPv4 address, or a /64 of IPv6. Room, places and turns for strangers are
/// shared by these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceNetwork(IpAddr);

impl From<SocketAddr> for SourceNetwork {
    fn from(address: SocketAddr) -> Self {
        Self(match address.ip().to_canonical() {
            IpAddr::V4(ip) => ip.into(),
            IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
        })
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
    }
}
