//! The data channel: heads, ciphers, compression framing, fragments, what is not a packet of the tunnel, and the
//! arithmetic of sizes.
//!
//! A packet leaves through [`plane::mss`], compression framing and [`fragment`], gets its [head](wire::Layout) and is
//! sealed by a [`cipher`]; [`mod@format`] does these for one key, and [`protocol`] says what a data plane makes it of.
//! A packet arrives in the reverse order. Only [`fragment::Reassembler`] keeps packets.

pub mod cipher;
pub mod format;
pub mod fragment;
pub mod inband;
pub mod lzo;
pub mod mtu;
pub mod protocol;
pub mod wire;
