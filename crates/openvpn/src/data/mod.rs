//! The data channel around its encryption: heads, compression framing, fragments, what is not a packet of the tunnel,
//! and the arithmetic of sizes.
//!
//! A packet leaves through [`mss`], [`framing`] and [`fragment`], is sealed and gets its [`header`]; it comes in the
//! other way round. Everything here is a function of bytes, and nothing keeps a packet but [`fragment::Reassembler`].

pub mod fragment;
pub mod framing;
pub mod header;
pub mod lzo;
pub mod mss;
pub mod mtu;
pub mod signal;
