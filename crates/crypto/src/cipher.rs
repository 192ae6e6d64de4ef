//! The ciphers and their names.

/// A cipher of packets: an AEAD, a block cipher in CBC mode, or none. This is the only list of ciphers; each protocol
/// and configuration decides which of them may be used.
///
/// Names are OpenSSL's, which OpenVPN uses on the wire and in its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cipher {
    /// AES-128-GCM.
    Aes128Gcm,
    /// AES-192-GCM.
    Aes192Gcm,
    /// AES-256-GCM.
    Aes256Gcm,
    /// CHACHA20-POLY1305.
    ChaCha20Poly1305,
    /// AES-128-CBC.
    Aes128Cbc,
    /// AES-192-CBC.
    Aes192Cbc,
    /// AES-256-CBC.
    Aes256Cbc,
    /// BF-CBC: Blowfish with a key of 128 bits. Insecure.
    BlowfishCbc,
    /// DES-CBC. Insecure.
    DesCbc,
    /// DES-EDE3-CBC. Insecure.
    TripleDesCbc,
    /// none: no encryption. Insecure.
    None,
}

impl Cipher {
    /// All ciphers, the strongest first.
    pub const ALL: [Self; 11] = [
        Self::Aes256Gcm,
        Self::ChaCha20Poly1305,
        Self::Aes192Gcm,
        Self::Aes128Gcm,
        Self::Aes256Cbc,
        Self::Aes192Cbc,
        Self::Aes128Cbc,
        Self::BlowfishCbc,
        Self::TripleDesCbc,
        Self::DesCbc,
        Self::None,
    ];

    /// The cipher called `name`, in upper or lower case, or by one of OpenSSL's other names for it (`id-aes128-GCM`).
    /// `[null-cipher]` means no cipher, as in OpenVPN's option strings.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let alias = match name {
            _ if name.eq_ignore_ascii_case("[null-cipher]") => Some(Self::None),
            _ if name.eq_ignore_ascii_case("id-aes128-GCM") => Some(Self::Aes128Gcm),
            _ if name.eq_ignore_ascii_case("id-aes192-GCM") => Some(Self::Aes192Gcm),
            _ if name.eq_ignore_ascii_case("id-aes256-GCM") => Some(Self::Aes256Gcm),
            _ => None,
        };
        alias.or_else(|| {
            Self::ALL
                .into_iter()
                .find(|cipher| cipher.name().eq_ignore_ascii_case(name))
        })
    }

    /// The name in files, on the wire and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes128Gcm => "AES-128-GCM",
            Self::Aes192Gcm => "AES-192-GCM",
            Self::Aes256Gcm => "AES-256-GCM",
            Self::ChaCha20Poly1305 => "CHACHA20-POLY1305",
            Self::Aes128Cbc => "AES-128-CBC",
            Self::Aes192Cbc => "AES-192-CBC",
            Self::Aes256Cbc => "AES-256-CBC",
            Self::BlowfishCbc => "BF-CBC",
            Self::DesCbc => "DES-CBC",
            Self::TripleDesCbc => "DES-EDE3-CBC",
            Self::None => "none",
        }
    }

    /// Bytes of key.
    #[must_use]
    pub const fn key_len(self) -> usize {
        match self {
            Self::Aes128Gcm | Self::Aes128Cbc | Self::BlowfishCbc => 16,
            Self::Aes192Gcm | Self::Aes192Cbc | Self::TripleDesCbc => 24,
            Self::Aes256Gcm | Self::Aes256Cbc | Self::ChaCha20Poly1305 => 32,
            Self::DesCbc => 8,
            Self::None => 0,
        }
    }

    /// Bytes of a block, to which payloads are padded; 1 without padding.
    #[must_use]
    pub const fn block_len(self) -> usize {
        match self {
            Self::Aes128Cbc | Self::Aes192Cbc | Self::Aes256Cbc => 16,
            Self::BlowfishCbc | Self::DesCbc | Self::TripleDesCbc => 8,
            _ => 1,
        }
    }

    /// Bytes of initialisation vector in each packet; an AEAD's nonce comes from the packet's number instead.
    #[must_use]
    pub const fn iv_len(self) -> usize {
        match self.block_len() {
            1 => 0,
            len => len,
        }
    }

    /// Whether the cipher authenticates too, so that no digest is needed.
    #[must_use]
    pub const fn is_aead(self) -> bool {
        matches!(
            self,
            Self::Aes128Gcm | Self::Aes192Gcm | Self::Aes256Gcm | Self::ChaCha20Poly1305
        )
    }

    /// Whether the cipher is insecure and must be requested explicitly: no encryption, keys of 56 bits, or blocks of 64
    /// bits.
    #[must_use]
    pub const fn is_insecure(self) -> bool {
        matches!(
            self,
            Self::BlowfishCbc | Self::DesCbc | Self::TripleDesCbc | Self::None
        )
    }

    /// Whether blocks have 64 bits, so that a key must be replaced after 64 MB.
    #[must_use]
    pub const fn has_small_blocks(self) -> bool {
        self.block_len() == 8
    }
}

impl core::fmt::Display for Cipher {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways_in_any_case() {
        for cipher in Cipher::ALL {
            assert_eq!(Cipher::from_name(cipher.name()), Some(cipher));
            assert_eq!(
                Cipher::from_name(&cipher.name().to_lowercase()),
                Some(cipher)
            );
        }
        assert_eq!(Cipher::from_name("id-aes256-gcm"), Some(Cipher::Aes256Gcm));
        assert_eq!(Cipher::from_name("AES-256-CFB"), None);
        assert_eq!(Cipher::from_name(""), None);
    }
}
