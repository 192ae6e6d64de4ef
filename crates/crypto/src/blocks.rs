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

use crate::Cipher;
use crate::implementations::{Backend, CbcImplementation, Chain, Pair};
#[cfg(target_arch = "x86_64")]
pub(crate) use aesni::AesNi;
use blowfish::Blowfish;
use des::{Des, TripleDes};
#[cfg(target_arch = "x86_64")]
pub(crate) use vaes::Vaes;

/// A block cipher with its key.
pub(crate) enum BlockCipher {
    /// The implementations to encrypt and to decrypt.
    Aes(Pair<dyn CbcImplementation>, Pair<dyn CbcImplementation>),
    Blowfish(Box<Blowfish>),
    Des(Box<Des>),
    TripleDes(Box<TripleDes>),
}

impl BlockCipher {
    /// Prepares the first bytes of `key`, as many as the cipher takes. `None` if `cipher` is not a block cipher, or the
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
