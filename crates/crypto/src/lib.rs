//! Packet ciphers that work a batch at a time, and the primitives of the handshakes.
//!
//! The data plane knows only [`PacketCipher`] and [`Batch`]: packets of one key in one slot of memory, sealed and
//! opened in place. The gain from many packets at once (interleaved chains, one trip to an accelerator) stays behind
//! that trait. Each algorithm has several back ends ([`Backend`]): portable code, code for the CPU's vector registers,
//! accelerators. They are AWS-LC's, which looks at the CPU itself, and this crate's own where a batch makes it clearly
//! faster. Measurement chooses the one that runs ([`select`]). Nothing is allocated and no key is scheduled per packet.
//!
//! [`packet_aead`] and [`PacketCbc`] are packet ciphers. They know the places of number, tag and IV, but no protocol:
//! the protocols define everything around these, and whose key it is.
//!
//! The handshakes' own primitives ([`x25519`], [`mlkem`], [`blake2s`], [`aead`], [`hmac`]) take one message at a time, and so does
//! [`Rc4`], which PPTP is encrypted with. Secrets are erased when dropped.

pub mod accelerator;
pub mod aead;
#[cfg(neon)]
mod aes_arm;
mod algorithm;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub mod blake2s;
mod blocks;
pub mod checksum;
mod cipher;
mod cpu;
mod digest;
pub mod header_key;
pub mod hmac;
mod implementations;
mod lanes;
pub mod mlkem;
#[cfg(neon)]
mod neon;
pub mod packet_aead;
mod packet_cbc;
mod packet_cipher;
mod portable;
pub mod primitives;
mod random;
mod rc4;
pub mod select;
#[cfg(test)]
mod vectors;
pub mod x25519;

pub use aead::Key;
pub use cipher::Cipher;
pub use digest::Digest;
pub use hmac::{SHA1_LEN, sha1};
pub use implementations::{Backend, UnknownBackend};
pub use packet_cbc::PacketCbc;
#[cfg(feature = "null")]
pub use packet_cipher::Null;
pub use packet_cipher::PacketCipher;
pub use plane::{Batch, Packet};
pub use random::{equal, random, unpredictable};
pub use rc4::Rc4;

/// Lower-case hexadecimal of `bytes`. Not for secrets: the text is not erased, and its time depends on the bytes.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes of a ChaCha20-Poly1305 (or XChaCha20-Poly1305) tag.
pub const TAG_LEN: usize = 16;
