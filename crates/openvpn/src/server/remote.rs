//! Where a client is: its address, and the transport that it comes by.

use plane::{Endpoint, Line, StreamId};
use std::net::SocketAddr;

/// A client's address and transport. The same address over UDP and over TCP, or on two connections, is two clients:
/// behind one NAT they may be different machines.
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

    /// A client at the other end of the TCP connection.
    #[must_use]
    pub const fn tcp(address: SocketAddr, connection: StreamId) -> Self {
        Self {
            address,
            connection: Some(connection),
        }
    }

    /// Whether the client comes over TCP.
    #[must_use]
    pub const fn is_stream(&self) -> bool {
        self.connection.is_some()
    }

    /// The line to the client, from `called`: our address that the client calls, if known.
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
