//! Enhanced GRE, which carries the frames of PPP (RFC 2637, section 4).
//!
//! GRE authenticates nothing: anyone who can send from the peer's address can inject packets. Refused packets are
//! counted, see [`Counters`].

mod header;
mod receiver;
mod sender;
mod tunnel;

pub use header::{Header, HeaderError, MAX_HEADER_LEN, PROTOCOL, Packet};
pub use receiver::{ACK_DELAY, Arrival, MAX_JUMP, Receiver, Refusal};
pub use sender::{BadAcknowledgement, Sender};
pub use tunnel::{Counters, Received, Tunnel};
