//! Block ciphers in CBC mode, many chains at once.
//!
//! When encrypting, a block waits for the one before it, so that one chain leaves most of a CPU idle. Chains of
//! different packets are independent.

#[cfg(target_arch = "x86_64")]
mod aesni;
mod blowfish;
mod des;
mod pi;
mod small;
#[cfg(target_arch = "x86_64")]
mod vaes;

use core::ops::Range;

use crate::Cipher;
use crate::implementations::{Backend, CbcImplementation, Pair};
#[cfg(target_arch = "x86_64")]
pub(crate) use aesni::AesNi;
use blowfish::Blowfish;
use des::{Des, TripleDes};
#[cfg(target_arch = "x86_64")]
pub(crate) use vaes::Vaes;

/// An initialisation vector and the whole blocks behind it, in a memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Chain {
    /// First byte of the first block, behind the initialisation vector.
    pub(crate) start: usize,
    /// Bytes of all blocks.
    pub(crate) len: usize,
}

impl Chain {
    /// The chain over `text`.
    ///
    /// # Panics
    /// If there is no room for `iv_len` bytes in front of `text`.
    pub(crate) fn new(text: &Range<usize>, iv_len: usize) -> Self {
        assert!(text.start >= iv_len);
        Self {
            start: text.start,
            len: text.len(),
        }
    }

    /// Whether the chain lies within a memory of `memory_len` bytes, with `iv_len` bytes in front of it.
    #[cfg(any(neon, target_arch = "x86_64"))]
    pub(crate) fn is_within(&self, memory_len: usize, iv_len: usize) -> bool {
        self.start >= iv_len && self.start <= memory_len && self.len <= memory_len - self.start
    }

    /// The range of the blocks, behind the initialisation vector.
    #[cfg(any(test, feature = "accelerators"))]
    pub(crate) fn text(&self) -> Range<usize> {
        self.start..self.start + self.len
    }

    /// The chain's initialisation vector and text.
    pub(crate) fn parts<'a, const N: usize>(
        &self,
        memory: &'a mut [u8],
    ) -> ([u8; N], &'a mut [[u8; N]]) {
        let (front, rest) = memory.split_at_mut(self.start);
        let mut iv = [0; N];
        iv.copy_from_slice(&front[self.start - N..]);
        (iv, rest[..self.len].as_chunks_mut().0)
    }
}

/// A block cipher with its key.
pub(crate) enum BlockCipher {
    /// The implementations to encrypt and to decrypt.
    Aes(Pair<dyn CbcImplementation>, Pair<dyn CbcImplementation>),
    Blowfish(Box<Blowfish>),
    Des(Box<Des>),
    TripleDes(Box<TripleDes>),
}

impl BlockCipher {
    /// Prepares the first bytes of `key`, as many as the cipher takes. `None` if `cipher` is no block cipher, or the
    /// machine has no such back end for it. Ciphers with blocks of 64 bits are portable.
    pub(crate) fn new(backend: Option<Backend>, cipher: Cipher, key: &[u8; 64]) -> Option<Self> {
        let key = &key[..cipher.key_len()];
        Some(match cipher {
            Cipher::Aes128Cbc | Cipher::Aes192Cbc | Cipher::Aes256Cbc => {
                let (encrypting, decrypting) = Pair::cbc(backend, key)?;
                Self::Aes(encrypting, decrypting)
            }
            _ if !matches!(backend, None | Some(Backend::Portable)) => return None,
            Cipher::BlowfishCbc => Self::Blowfish(Box::new(Blowfish::new(key))),
            Cipher::DesCbc => Self::Des(Box::new(Des::new(key))),
            Cipher::TripleDesCbc => Self::TripleDes(Box::new(TripleDes::new(key))),
            _ => return None,
        })
    }

    /// Encrypts the chains in place.
    ///
    /// # Panics
    /// If a chain does not lie within `memory`.
    pub(crate) fn encrypt(&self, memory: &mut [u8], chains: &[Chain]) {
        match self {
            Self::Aes(aes, _) => aes.of(chains.len()).encrypt(memory, chains),
            Self::Blowfish(blowfish) => small::encrypt(&**blowfish, memory, chains),
            Self::Des(des) => small::encrypt(&**des, memory, chains),
            Self::TripleDes(des) => small::encrypt(&**des, memory, chains),
        }
    }

    /// Decrypts the chains in place.
    ///
    /// # Panics
    /// If a chain does not lie within `memory`.
    pub(crate) fn decrypt(&self, memory: &mut [u8], chains: &[Chain]) {
        match self {
            Self::Aes(_, aes) => aes.of(chains.len()).decrypt(memory, chains),
            Self::Blowfish(blowfish) => small::decrypt(&**blowfish, memory, chains),
            Self::Des(des) => small::decrypt(&**des, memory, chains),
            Self::TripleDes(des) => small::decrypt(&**des, memory, chains),
        }
    }

    /// The name of the code that encrypts or decrypts so many chains at once.
    pub(crate) fn describe(&self, encrypting: bool, chains: usize) -> &'static str {
        match self {
            Self::Aes(aes, _) if encrypting => aes.of(chains).describe(),
            Self::Aes(_, aes) => aes.of(chains).describe(),
            Self::Blowfish(_) | Self::Des(_) | Self::TripleDes(_) => self.backend(),
        }
    }

    /// The back end of the code.
    pub(crate) fn backend(&self) -> &'static str {
        match self {
            Self::Aes(aes, _) => aes.many().describe(),
            Self::Blowfish(_) | Self::Des(_) | Self::TripleDes(_) => {
                "own (portable, eight chains at once)"
            }
        }
    }
}
