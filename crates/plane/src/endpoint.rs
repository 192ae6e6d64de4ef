//! Where datagrams go and where answers must come from.

use std::net::{IpAddr, SocketAddr};

/// The local side of a path: what `IP_PKTINFO` told of a received datagram, given back when
/// answering, so that an answer leaves from the address that was called (a *sticky* source).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    /// Our address that the peer called.
    pub ip: IpAddr,
    /// The interface that received the datagram; 0 if unknown. Not used for sending, only to notice that the route to
    /// the peer has changed.
    pub ifindex: u32,
}

/// A peer's address and the local address to call it from.
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
    /// Not ECN-capable.
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
