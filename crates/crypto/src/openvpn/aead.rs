//! AEAD packets with numbers of 32 bits: `number:u32, tag[16], text`.

use std::sync::Arc;

use super::{DataCipher, Format, KeyMaterial};
use crate::PacketCipher;
use crate::backend::Backend;
use crate::packet_aead::{AeadAlgorithm, Layout, PacketAead};

/// Bytes of `DATA_V2`'s header, which is authenticated.
pub(super) const V2_HEADER: usize = 4;

/// The nonce is the number and eight bytes of the HMAC's key, which would else have no use.
struct NumberFirst {
    header: usize,
    implicit_iv: [u8; 8],
}

impl Layout for NumberFirst {
    const NUMBER: usize = 4;
    const TAG_BEHIND: bool = false;

    fn header(&self) -> usize {
        self.header
    }

    fn write_number(&self, counter: u64, bytes: &mut [u8]) -> bool {
        let Ok(number) = u32::try_from(counter) else {
            return false;
        };
        bytes.copy_from_slice(&number.to_be_bytes());
        true
    }

    fn read_number(&self, bytes: &[u8], _: u64) -> u64 {
        bytes
            .iter()
            .fold(0, |number, &byte| number << 8 | u64::from(byte))
    }

    fn nonce(&self, counter: u64) -> [u8; 12] {
        let mut nonce = [0; 12];
        // Only numbers that fit in 32 bits come here with a packet to be sealed or opened.
        nonce[..4].copy_from_slice(&(counter as u32).to_be_bytes());
        nonce[4..].copy_from_slice(&self.implicit_iv);
        nonce
    }
}

impl AeadAlgorithm {
    /// The AEAD that a data cipher is, if it is one.
    pub(super) fn of(cipher: DataCipher) -> Option<Self> {
        match cipher {
            DataCipher::Aes128Gcm => Some(Self::Aes128Gcm),
            DataCipher::Aes192Gcm => Some(Self::Aes192Gcm),
            DataCipher::Aes256Gcm => Some(Self::Aes256Gcm),
            DataCipher::ChaCha20Poly1305 => Some(Self::ChaCha20Poly1305),
            _ => None,
        }
    }
}

/// A cipher of [`Format::V1`] or [`Format::V2`]. `None` if the machine has no such back end.
pub(super) fn new(
    backend: Option<Backend>,
    algorithm: AeadAlgorithm,
    keys: &KeyMaterial,
    format: Format,
) -> Option<Arc<dyn PacketCipher>> {
    let mut implicit_iv = [0; 8];
    implicit_iv.copy_from_slice(&keys.hmac[..8]);
    let layout = NumberFirst {
        header: if format == Format::V1 { 0 } else { V2_HEADER },
        implicit_iv,
    };
    let packets = PacketAead::new(backend, algorithm, &keys.cipher, layout)?;
    Some(Arc::new(packets))
}
