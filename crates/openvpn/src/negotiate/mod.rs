//! The abilities that both sides tell each other, and their agreement.

pub mod cipher;
pub mod occ;
pub mod peer_info;

pub use cipher::{Cipher, CipherList, CipherListError};
pub use occ::{OccOptions, Transport};
pub use peer_info::{IvProto, PeerInfo};
