//! AmneziaWG, generations 1.0 to 3.1: WireGuard whose datagrams look like no protocol in particular.
//!
//! A datagram is `S || message || trailer`. `S` is random bytes of a length that both ends know, the message is
//! WireGuard's with another number in its type field, and the trailer of 3.1 is random bytes behind a handshake
//! message. With a header protection key (3.0), a ChaCha20 keystream hides the header of a data packet and the whole of
//! a handshake message; its nonce is the first 12 bytes of the datagram. MACs cover the message without `S` and
//! trailer, as it is before the keystream hides it. Handshakes, keys and the sealed bytes are WireGuard's own.
//!
//! Nothing is negotiated: [`Settings`] of both ends must agree. All-default settings are WireGuard, byte for byte.

mod fault;
mod junk;
mod mismatch;
mod profile;
mod range;
mod settings;
mod template;
mod timings;
mod trial;
#[cfg(test)]
mod vectors;

pub use fault::{Fault, Hint};
pub use mismatch::Mismatch;
pub use profile::{Fits, Kind, Profile};
pub use range::Range;
pub use settings::{KEYS, Settings};
pub use template::Template;
pub use trial::{Finding, TRIALS_MAX};

pub(crate) use junk::Junk;
pub(crate) use profile::Message;
pub(crate) use timings::{Draws, Timings};
pub(crate) use trial::{TRIED_LEN_MAX, Trials};

/// Bytes of the longest UDP datagram over IPv4.
pub const PACKET_MAX: usize = 65_507;

/// Bytes of the longest `S`: no path carries more beside a packet.
pub const PREFIX_MAX: u16 = 1280;

/// Maximum number of random packets before an initiation.
pub const JUNK_MAX: u16 = 128;

/// Bytes of a datagram that nearly every path carries over IPv4: random packets are no longer.
const COMMON_PATH: u16 = 1500 - 28;
