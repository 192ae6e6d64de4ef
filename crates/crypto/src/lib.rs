//! Packet ciphers that work a batch at a time, and the primitives of the handshakes.
//!
//! The data plane knows only [`PacketCipher`] and [`Batch`]: packets of one key in one slot of memory, sealed and opened
//! in place. What a cipher gains from seeing many packets at once (interleaved chains, one trip to an accelerator) stays
//! behind that trait. Each algorithm has several back ends ([`Backend`]): portable code, code for the CPU's vector registers,
//! accelerators; AWS-LC's, which looks at the CPU itself, and this crate's own where a batch makes it clearly faster. Which
//! one runs is measured ([`select`]). Nothing is allocated and no key is scheduled per packet.
//!
//! [`ChaCha20Poly1305`] is WireGuard's cipher; [`openvpn`] makes those of OpenVPN.
//!
//! The handshakes' own primitives ([`x25519`], [`blake2s`], [`aead`], [`hmac`]) take one message at a time. Secrets are erased when
//! dropped.

pub mod aead;
#[cfg(neon)]
mod aes_arm;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub mod backend;
mod batch;
pub mod blake2s;
mod blocks;
mod chacha20poly1305;
pub mod checksum;
mod cipher;
mod cpu;
pub mod engine;
pub mod hmac;
mod kernels;
mod key;
mod lanes;
#[cfg(neon)]
mod neon;
#[cfg(feature = "null")]
mod null;
pub mod openvpn;
mod packet_aead;
mod portable;
pub mod primitives;
mod random;
pub mod select;
mod unpredictable;
#[cfg(test)]
mod vectors;
pub mod x25519;

pub use backend::Backend;
pub use batch::{Batch, Packet};
pub use chacha20poly1305::ChaCha20Poly1305;
pub use cipher::PacketCipher;
pub use key::Key;
#[cfg(feature = "null")]
pub use null::Null;
pub use random::{equal, random};

/// Bytes of a ChaCha20-Poly1305 (or XChaCha20-Poly1305) tag.
pub const TAG_LEN: usize = 16;
