//! UDP sockets that send and receive trains of datagrams.
//!
//! A *train* is a run of datagrams of one size (the last may be shorter) that lie one after the other in memory and
//! share one remote address. With `UDP_SEGMENT` and `UDP_GRO` a train is one system call. Without, the same memory is
//! sent by `sendmmsg` or received by `recvmmsg`.

mod recv;
mod selftest;
pub(crate) mod send;
pub(crate) mod socket;
#[cfg(feature = "steer")]
mod steer;

pub use plane::{Ecn, Endpoint, Source};
pub use recv::{Received, ReceivedTrain, RecvScratch, TRAIN_ROOM};
pub use selftest::{SelfTest, self_test};
pub use send::{SendReport, SendScratch, Train};
pub use socket::{Family, MtuDiscovery, SocketError, SocketOptions, UdpSocket};
#[cfg(feature = "steer")]
pub use steer::SharedPort;

/// Maximum number of segments of one `UDP_SEGMENT` send (Linux `UDP_MAX_SEGMENTS`; 128 since 6.9, but the smaller value
/// works everywhere).
pub const MAX_SEGMENTS: usize = 64;

/// Maximum number of payload bytes of one send: 65,535 less the IPv4 and UDP headers.
pub const MAX_TRAIN_BYTES: usize = 65_507;

/// Maximum number of messages of one system call.
pub(crate) const MESSAGES: usize = 64;

/// Room for the three control messages that we send or receive together, in bytes.
pub(crate) const CONTROL_LEN: usize = 128;

/// A control buffer with the alignment of `cmsghdr`.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(crate) struct Control(pub(crate) [u8; CONTROL_LEN]);

impl Control {
    pub(crate) const EMPTY: Self = Self([0; CONTROL_LEN]);
}

/// Message headers and the buffers that they point to, about 22 KiB.
pub(crate) struct Headers {
    pub(crate) headers: Vec<libc::mmsghdr>,
    pub(crate) vectors: Vec<libc::iovec>,
    pub(crate) names: Vec<libc::sockaddr_storage>,
    pub(crate) controls: Vec<Control>,
}

// SAFETY: the raw pointers inside the headers are written again before each system call and never
// read afterwards, so the headers carry no borrowed state between threads.
unsafe impl Send for Headers {}

impl Headers {
    pub(crate) fn new() -> Self {
        // SAFETY: all-zero bytes are valid values of these C structures.
        let (header, vector, name) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed(), std::mem::zeroed()) };
        Self {
            headers: vec![header; MESSAGES],
            vectors: vec![vector; MESSAGES],
            names: vec![name; MESSAGES],
            controls: vec![Control::EMPTY; MESSAGES],
        }
    }
}
