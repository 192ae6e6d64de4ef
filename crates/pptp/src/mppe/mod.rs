//! Microsoft Point-to-Point Encryption (RFC 3078), with keys from MS-CHAP version 2 (RFC 3079).
//!
//! RC4 without any check: who can change packets on their way changes bits of their contents at will, and the count that
//! keeps both ends in step as well. A packet that was opened is only known to look like one of IP.
//!
//! | bytes | field |
//! |---|---|
//! | 2 | bits A (flushed), B, C (compressed), D (encrypted), and a count of 12 bits |
//! | 1 to 2 | the inner frame's protocol, encrypted |
//! | rest | the inner packet, encrypted |

mod decryptor;
mod encryptor;
mod header;
mod keys;
mod stateful;
mod stateless;

pub use decryptor::Decryptor;
pub use encryptor::{Encryptor, ResetStyle};
pub use header::{HEADER_LEN, Header, OVERHEAD, OpenError};
pub use keys::{KeyLength, MasterKey, SessionKey, StartKey};
pub use stateful::Stateful;
pub use stateless::{BEHIND, MAX_AHEAD, Stateless};
