//! Where a connection comes from.

use std::fmt;
use std::net::IpAddr;

/// One source of requests: an address of IPv4, or the /64 of one of IPv6, of which a single device has as many
/// addresses as it likes (RFC 4862, RFC 8981).
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Network(IpAddr);

impl Network {
    /// The one that an address is of. An address of IPv4 may be written as one of IPv6.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(six) => IpAddr::V6((u128::from(six) >> 64 << 64).into()),
            four => four,
        })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V4(four) => write!(f, "{four}"),
            IpAddr::V6(six) => write!(f, "{six}/64"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Network {
        Network::of(text.parse().unwrap())
    }

    #[test]
    fn a_device_with_many_addresses_of_ipv6_is_one_source() {
        assert_eq!(of("fd00::1"), of("fd00::ffff:0:0:2"));
        assert_ne!(of("fd00::1"), of("fd00:0:0:1::1"));
        assert_eq!(of("10.0.0.1"), of("::ffff:10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
        assert_eq!(of("fd00::5").to_string(), "fd00::/64");
    }
}
