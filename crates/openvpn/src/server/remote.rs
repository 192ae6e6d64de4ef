//! Where a client is: its address, and the transport that it comes by.

use plane::{Endpoint, Line, StreamId};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Where a client is. The same address over UDP and over TCP, or on two connections, is two clients: behind one NAT
/// they may be different machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Remote {
    /// The outer address and port.
    pub address: SocketAddr,
    /// The TCP connection; `None` over UDP.
    pub connection: Option<StreamId>,
}

impl Remote {
    /// A client that sends datagrams from `address`.
    #[must_use]
    pub const fn udp(address: SocketAddr) -> Self {
        Self {
            address,
            connection: None,
        }
    }

    /// A client at the other end of the TCP connection .
    #[must_use]
    pub const fn tcp(address: SocketAddr, connection: StreamId) -> Self {
        Self {
            address,
            connection: Some(connection),
        }
    }

    /// Whether it comes over TCP.
    #[must_use]
    pub const fn is_stream(&self) -> bool {
        self.connection.is_some()
    }

    /// The line to it, from `called`: our address that it calls, where that is known.
    #[must_use]
    pub const fn line(&self, called: Option<plane::Source>) -> Line {
        let endpoint = Endpoint {
            addr: self.address,
            source: called,
        };
        match self.connection {
            Some(stream) => Line::tcp(endpoint, stream),
            None => Line::udp(endpoint),
        }
    }
}

impl core::fmt::Display for Remote {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.address.fmt(f)
    }
}

/// What one host can easily be: an IPv4 address, or a /64 of IPv6. What is shared among strangers is shared by these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Source(IpAddr);

impl From<SocketAddr> for Source {
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
        let of = |text: &str| Source::from(text.parse::<SocketAddr>().unwrap());
        assert_eq!(of("192.0.2.1:1"), of("[::ffff:192.0.2.1]:2"));
        assert_ne!(of("192.0.2.1:1"), of("192.0.2.2:1"));
        assert_eq!(of("[2001:db8::1]:1"), of("[2001:db8::ffff:2]:1"));
        assert_ne!(of("[2001:db8::1]:1"), of("[2001:db8:0:1::1]:1"));
    }
}
