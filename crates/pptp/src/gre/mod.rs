//! Enhanced GRE, which carries the frames of PPP (RFC 2637, section 4).
//!
//! Nothing in it is authenticated: packets can be put in by all that can send from the peer's address. What is refused costs a
//! counter, see [`Counters`].

mod header;
mod receiver;
mod sender;
mod tunnel;

pub use header::{Header, HeaderError, MAX_HEADER_LEN, PROTOCOL, Packet};
pub use receiver::{ACK_DELAY, Arrival, MAX_JUMP, Receiver, Refusal};
pub use sender::{BadAcknowledgement, Sender};
pub use tunnel::{Counters, Received, Tunnel};
