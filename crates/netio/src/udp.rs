//! UDP sockets that send and receive trains of datagrams.
//!
//! A *train* is a run of datagrams of one size (the last may be shorter) that lie one after the other in memory and
//! share one remote address. With `UDP_SEGMENT` and `UDP_GRO` a train is one system call. Without, the same memory is
//! sent by `sendmmsg` or received by `recvmmsg`.

pub(crate) mod headers;
mod recv;
mod selftest;
pub(crate) mod send;
mod singles;
pub(crate) mod socket;
mod whole;

pub use plane::{Ecn, Endpoint, Source};
pub use recv::{Received, ReceivedTrain, RecvScratch, TRAIN_ROOM};
pub use selftest::{SelfTest, self_test};
pub use send::{SendReport, SendScratch, Train};
pub use socket::{Family, MtuDiscovery, SocketError, SocketOptions, UdpSocket};

/// Most segments of one `UDP_SEGMENT` send (Linux `UDP_MAX_SEGMENTS`; 128 since 6.9, but the smaller value works
/// everywhere).
pub const MAX_SEGMENTS: usize = 64;

/// Most payload bytes of one send: 65,535 less the IPv4 and UDP headers.
pub const MAX_TRAIN_BYTES: usize = 65_507;
