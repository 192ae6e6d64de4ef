//! The features that both sides announce, and the choice between them.

pub mod cipher;
pub mod occ;
pub mod peer_info;

pub use cipher::{Cipher, CipherList, CipherListError};
pub use occ::{OccOptions, Transport};
pub use peer_info::{IvProto, PeerInfo};
