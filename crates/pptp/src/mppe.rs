//! Microsoft Point-to-Point Encryption (RFC 3078), with keys from MS-CHAP version 2 (RFC 3079).
//!
//! MPPE is RC4 without an integrity check. An attacker on the path can flip bits of packets, and of the count that
//! keeps both ends in step. A decrypted packet is only known to look like an IP packet.
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
