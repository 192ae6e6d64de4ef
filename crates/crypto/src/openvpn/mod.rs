//! The ciphers of OpenVPN's data channel.
//!
//! | format | on the wire behind the header H |
//! |---|---|
//! | AEAD | `number:u32, tag[16], text` |
//! | AEAD with epochs | `epoch:u16, number:u48, text, tag[16]` |
//! | CBC and HMAC | `HMAC[L], IV[block], CBC(number:u32, payload, padding)` |
//! | no cipher | `HMAC[L], number:u32, payload` |
//!
//! H is the opcode byte alone (`DATA_V1`) or with three bytes of peer-id (`DATA_V2`). AEADs authenticate the second in
//! front of the number, and not the first; the HMAC covers neither. Everything is big-endian.
//!
//! [`data_channel`] makes one key's cipher of the algorithms that are still sound, [`legacy::data_channel`] of all.

mod aead;
mod cbc;
mod digest;
mod epoch;
mod names;

pub use digest::Digest;
pub use names::DataCipher;

use std::sync::Arc;

use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::PacketCipher;
use crate::backend::Backend;

/// The secrets of one direction of one key: 128 bytes, of which each algorithm takes as many as it needs from the
/// beginning of each half.
///
/// The implicit IV of the AEADs is the beginning of `hmac`; the first secret of the epoch format that of `cipher`.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct KeyMaterial {
    /// The cipher's key.
    pub cipher: [u8; 64],
    /// The HMAC's key.
    pub hmac: [u8; 64],
}

impl core::fmt::Debug for KeyMaterial {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("KeyMaterial { .. }")
    }
}

/// What stands in front of the head, and how packets are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `DATA_V1`: an opcode byte, which is not authenticated. 32-bit numbers.
    V1,
    /// `DATA_V2`: opcode and peer-id, four bytes, which AEADs authenticate. 32-bit numbers.
    V2,
    /// `DATA_V2` with epochs: 16 bits of epoch and 48 bits of number, AEADs alone.
    Epoch,
}

/// Why there is no such cipher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DataChannelError {
    /// Too weak to be used unless someone insists.
    #[error("{cipher} with {digest} is not secure: choose AES-256-GCM, or allow insecure ciphers")]
    Legacy {
        /// The cipher asked for.
        cipher: DataCipher,
        /// The digest asked for.
        digest: Digest,
    },
    /// The epoch format has a place for an AEAD's tag and none for an HMAC.
    #[error("the epoch format needs an AEAD, and {0} is none")]
    EpochNeedsAead(DataCipher),
    /// Nothing of the kind computes this cipher on this machine.
    #[error("this machine has no {backend} back end for {cipher}: choose auto or portable")]
    NoBackend {
        /// The back end asked for.
        backend: Backend,
        /// The cipher asked for.
        cipher: DataCipher,
    },
}

/// The cipher of one direction of one key.
///
/// `digest` matters to ciphers that are no AEAD; [`Digest::None`] leaves their packets unauthenticated. Packet numbers are
/// [`Packet::counter`](crate::Packet::counter): the first is 1, and in the epoch format the epoch stands in the upper 16
/// bits, from 1 too. Whether a number is 0 or came before is for the caller to check.
///
/// # Errors
/// [`DataChannelError`]: an insecure cipher, or one that the format cannot carry.
pub fn data_channel(
    cipher: DataCipher,
    digest: Digest,
    keys: &KeyMaterial,
    format: Format,
) -> Result<Arc<dyn PacketCipher>, DataChannelError> {
    if cipher.is_legacy() || (!cipher.is_aead() && digest.is_legacy()) {
        return Err(DataChannelError::Legacy { cipher, digest });
    }
    legacy::data_channel(cipher, digest, keys, format)
}

/// Ciphers that exist because old servers do.
pub mod legacy {
    use std::sync::Arc;

    use zeroize::Zeroizing;

    use super::cbc::CbcHmac;
    use super::epoch::EpochAead;
    use super::{DataChannelError, DataCipher, Digest, Format, KeyMaterial, aead};
    use crate::PacketCipher;
    use crate::backend::Backend;
    use crate::packet_aead::AeadAlgorithm;

    /// As [`data_channel`](super::data_channel), with every cipher and digest there is: blocks of 64 bits (a key may seal
    /// 64 MB at most), MD5, and none at all.
    ///
    /// # Errors
    /// [`DataChannelError::EpochNeedsAead`].
    pub fn data_channel(
        cipher: DataCipher,
        digest: Digest,
        keys: &KeyMaterial,
        format: Format,
    ) -> Result<Arc<dyn PacketCipher>, DataChannelError> {
        data_channel_on(None, cipher, digest, keys, format)
    }

    /// As [`data_channel`], with the fastest code of one kind; `None` is the choice made for this process.
    ///
    /// Of a cipher and a digest, one may have no code of that kind (there is but portable code for blocks of 64 bits): it
    /// takes what was chosen for this process.
    ///
    /// # Errors
    /// [`DataChannelError::EpochNeedsAead`], [`DataChannelError::NoBackend`].
    pub fn data_channel_on(
        backend: Option<Backend>,
        cipher: DataCipher,
        digest: Digest,
        keys: &KeyMaterial,
        format: Format,
    ) -> Result<Arc<dyn PacketCipher>, DataChannelError> {
        // Portable code there is of everything.
        let missing = DataChannelError::NoBackend {
            backend: backend.unwrap_or(Backend::Portable),
            cipher,
        };
        match AeadAlgorithm::of(cipher) {
            Some(algorithm) if format == Format::Epoch => {
                let mut secret = Zeroizing::new([0; 32]);
                secret.copy_from_slice(&keys.cipher[..32]);
                let aead = EpochAead::new(backend, algorithm, &secret).ok_or(missing)?;
                Ok(Arc::new(aead))
            }
            Some(algorithm) => aead::new(backend, algorithm, keys, format).ok_or(missing),
            None if format == Format::Epoch => Err(DataChannelError::EpochNeedsAead(cipher)),
            None => {
                let cbc = CbcHmac::new(backend, cipher, digest, keys).ok_or(missing)?;
                Ok(Arc::new(cbc))
            }
        }
    }
}
