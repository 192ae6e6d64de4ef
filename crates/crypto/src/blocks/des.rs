//! DES and Triple DES in CBC mode.
//!
//! A few old servers have nothing else. Nobody should choose them for speed or for secrecy, and nothing is done here for
//! either: the arithmetic is RustCrypto's.

use ::des::cipher::{Block, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};

use super::Chain;

/// DES with a key of 56 bits and 8 of parity, which are ignored.
pub(crate) type Des = Cbc<::des::Des>;

/// DES, encrypting, decrypting and encrypting with three keys.
pub(crate) type TripleDes = Cbc<::des::TdesEde3>;

/// CBC over a RustCrypto cipher with blocks of 64 bits.
pub(crate) struct Cbc<C>(C);

impl<C> Cbc<C>
where
    C: KeyInit + BlockCipherEncrypt + BlockCipherDecrypt,
    Block<C>: From<[u8; 8]> + Into<[u8; 8]>,
{
    /// # Panics
    /// If `key` has not the cipher's length.
    pub(super) fn new(key: &[u8]) -> Self {
        // The caller's table of lengths and the cipher's type say the same.
        #[allow(clippy::unwrap_used)]
        Self(C::new_from_slice(key).unwrap())
    }

    pub(super) fn encrypt(&self, memory: &mut [u8], chains: &[Chain]) {
        for chain in chains {
            let (mut iv, blocks) = chain.parts::<8>(memory);
            for bytes in blocks {
                let mut block = Block::<C>::from(xor(*bytes, iv));
                self.0.encrypt_block(&mut block);
                iv = block.into();
                *bytes = iv;
            }
        }
    }

    pub(super) fn decrypt(&self, memory: &mut [u8], chains: &[Chain]) {
        for chain in chains {
            let (mut iv, blocks) = chain.parts::<8>(memory);
            for bytes in blocks {
                let mut block = Block::<C>::from(*bytes);
                self.0.decrypt_block(&mut block);
                let text = xor(block.into(), iv);
                iv = *bytes;
                *bytes = text;
            }
        }
    }
}

fn xor(a: [u8; 8], b: [u8; 8]) -> [u8; 8] {
    (u64::from_ne_bytes(a) ^ u64::from_ne_bytes(b)).to_ne_bytes()
}
