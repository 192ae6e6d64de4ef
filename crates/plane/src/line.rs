//! Lines: the ways by which a tunnel reaches its peers.

use crate::Endpoint;

/// The maximum number of lines of one tunnel. A router has a handful of uplinks.
pub const LINES_MAX: usize = 16;

/// The number of a line of a tunnel, below [`LINES_MAX`]. A tunnel with one line has number 0 only.
///
/// A line of the tunnel is a local end: sockets that are bound to an address, a device or a mark. All peers share it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LineId(pub u8);

impl LineId {
    /// The only line of a tunnel with one, and the first of a tunnel with several.
    pub const FIRST: Self = Self(0);

    /// The number as an index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The number of a connection (TCP), unique among those that a data plane has at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u64);

/// The transport of a peer's packets on one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// UDP datagrams, through the sockets of the line.
    Udp,
    /// Records of a TCP connection, each behind its length in 16 bits.
    Tcp(StreamId),
    /// Packets of GRE (RFC 2637, enhanced GRE), through a raw socket of the line.
    Gre,
}

/// One line of one peer: the local end, the peer's address, and the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Line {
    /// The local end.
    pub id: LineId,
    /// The peer's address, and the local address that the peer sends to, if known.
    pub endpoint: Endpoint,
    /// The transport of the packets.
    pub transport: Transport,
}

impl Line {
    /// Datagrams to `endpoint` through the first line.
    #[must_use]
    pub const fn udp(endpoint: Endpoint) -> Self {
        Self {
            id: LineId::FIRST,
            endpoint,
            transport: Transport::Udp,
        }
    }

    /// Records to `endpoint` through this connection, which belongs to the first line.
    #[must_use]
    pub const fn tcp(endpoint: Endpoint, stream: StreamId) -> Self {
        Self {
            id: LineId::FIRST,
            endpoint,
            transport: Transport::Tcp(stream),
        }
    }
}
