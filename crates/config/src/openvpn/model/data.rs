//! The data channel: ciphers, framing, replay.

use std::fmt;

/// A cipher of the data channel.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Cipher {
    /// `AES-128-GCM`.
    Aes128Gcm,
    /// `AES-192-GCM`.
    Aes192Gcm,
    /// `AES-256-GCM`.
    Aes256Gcm,
    /// `CHACHA20-POLY1305`.
    ChaCha20Poly1305,
    /// `AES-128-CBC`.
    Aes128Cbc,
    /// `AES-192-CBC`.
    Aes192Cbc,
    /// `AES-256-CBC`.
    Aes256Cbc,
    /// `BF-CBC`: blocks of 64 bits; insecure.
    BfCbc,
    /// `DES-CBC`: 56 bits; insecure.
    DesCbc,
    /// `DES-EDE3-CBC`: blocks of 64 bits; insecure.
    DesEde3Cbc,
    /// `none`: packets are readable by everybody.
    None,
}

impl Cipher {
    /// Every cipher.
    pub const ALL: [Self; 11] = [
        Self::Aes128Gcm,
        Self::Aes192Gcm,
        Self::Aes256Gcm,
        Self::ChaCha20Poly1305,
        Self::Aes128Cbc,
        Self::Aes192Cbc,
        Self::Aes256Cbc,
        Self::BfCbc,
        Self::DesCbc,
        Self::DesEde3Cbc,
        Self::None,
    ];

    /// The name that OpenVPN puts on the wire.
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
            Self::BfCbc => "BF-CBC",
            Self::DesCbc => "DES-CBC",
            Self::DesEde3Cbc => "DES-EDE3-CBC",
            Self::None => "none",
        }
    }

    /// The cipher of this name, in any case.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let same = |cipher: &&Self| cipher.name().eq_ignore_ascii_case(name);
        Self::ALL.iter().find(same).copied()
    }

    /// True for those that want `--allow-insecure-ciphers`.
    #[must_use]
    pub const fn is_insecure(self) -> bool {
        matches!(
            self,
            Self::BfCbc | Self::DesCbc | Self::DesEde3Cbc | Self::None
        )
    }

    /// True for those that authenticate by themselves and have no use for `auth`.
    #[must_use]
    pub const fn is_aead(self) -> bool {
        matches!(
            self,
            Self::Aes128Gcm | Self::Aes192Gcm | Self::Aes256Gcm | Self::ChaCha20Poly1305
        )
    }
}

impl fmt::Display for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A digest of `auth`: HMAC of CBC packets and of `tls-auth`.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Digest {
    /// `none`: packets of ciphers that do not authenticate by themselves are not authenticated.
    None,
    /// `MD5`.
    Md5,
    /// `SHA1`, the default.
    #[default]
    Sha1,
    /// `SHA224`.
    Sha224,
    /// `SHA256`.
    Sha256,
    /// `SHA384`.
    Sha384,
    /// `SHA512`.
    Sha512,
    /// `SHA512-256`.
    Sha512_256,
    /// `SHA3-256`.
    Sha3_256,
    /// `SHA3-384`.
    Sha3_384,
    /// `SHA3-512`.
    Sha3_512,
    /// `BLAKE2s256`.
    Blake2s256,
    /// `BLAKE2b512`.
    Blake2b512,
    /// `RIPEMD160`.
    Ripemd160,
}

impl Digest {
    /// Every digest.
    pub const ALL: [Self; 14] = [
        Self::None,
        Self::Md5,
        Self::Sha1,
        Self::Sha224,
        Self::Sha256,
        Self::Sha384,
        Self::Sha512,
        Self::Sha512_256,
        Self::Sha3_256,
        Self::Sha3_384,
        Self::Sha3_512,
        Self::Blake2s256,
        Self::Blake2b512,
        Self::Ripemd160,
    ];

    /// The name that OpenVPN puts on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Md5 => "MD5",
            Self::Sha1 => "SHA1",
            Self::Sha224 => "SHA224",
            Self::Sha256 => "SHA256",
            Self::Sha384 => "SHA384",
            Self::Sha512 => "SHA512",
            Self::Sha512_256 => "SHA512-256",
            Self::Sha3_256 => "SHA3-256",
            Self::Sha3_384 => "SHA3-384",
            Self::Sha3_512 => "SHA3-512",
            Self::Blake2s256 => "BLAKE2s256",
            Self::Blake2b512 => "BLAKE2b512",
            Self::Ripemd160 => "RIPEMD160",
        }
    }

    /// The digest of this name, in any case, also in OpenSSL's other spellings (`RSA-SHA256`,
    /// `SHA2-256`, `SHA-256`).
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let upper = name.to_ascii_uppercase().replace('/', "-");
        let bare = upper.strip_prefix("RSA-").unwrap_or(&upper);
        let sized = bare
            .strip_prefix("SHA2-")
            .or_else(|| bare.strip_prefix("SHA-"));
        let plain = sized.map_or_else(|| bare.to_owned(), |size| format!("SHA{size}"));
        let plain = match plain.as_str() {
            "RIPEMD" | "RMD160" | "RIPEMD-160" => "RIPEMD160",
            "BLAKE2S-256" => "BLAKE2s256",
            "BLAKE2B-512" => "BLAKE2b512",
            plain => plain,
        };
        let same = |digest: &&Self| digest.name().eq_ignore_ascii_case(plain);
        Self::ALL.iter().find(same).copied()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The bytes that `comp-lzo` and `compress` put around a packet. Nothing is ever compressed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Framing {
    /// None, and the peer must have none.
    #[default]
    None,
    /// `comp-lzo` in each form, `compress lzo`: one byte 0xFA in front.
    Lzo,
    /// `compress` alone, `compress stub`: byte 0xFB first, the packet's first byte last.
    Stub,
    /// `compress lz4`: as [`Framing::Stub`]; the peer may send LZ4.
    Lz4,
    /// `compress stub-v2`: nothing but an escape.
    StubV2,
    /// `compress lz4-v2`: as [`Framing::StubV2`]; the peer may send LZ4.
    Lz4V2,
}

/// What is said of the data channel before anything is negotiated.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DataChannel {
    /// `data-ciphers`: what is negotiated, in order of preference; never empty.
    pub ciphers: Vec<Cipher>,
    /// `data-ciphers-fallback`, or else a `cipher` that is not insecure: for a peer that
    /// negotiates nothing.
    pub fallback: Option<Cipher>,
    /// `cipher` as it stands, for the options string that the peers compare.
    pub cipher: Option<Cipher>,
    /// `auth`.
    pub auth: Digest,
    /// `--allow-insecure-ciphers`: a Millrace switch for 64-bit blocks, DES and `cipher none`.
    pub allow_insecure: bool,
    /// `comp-lzo`, `compress`.
    pub framing: Framing,
    /// `compress migrate`: a server moves clients to [`Framing::StubV2`] or `comp-lzo no`.
    pub migrate: bool,
}

impl Default for DataChannel {
    fn default() -> Self {
        Self {
            ciphers: vec![
                Cipher::Aes256Gcm,
                Cipher::Aes128Gcm,
                Cipher::ChaCha20Poly1305,
            ],
            fallback: None,
            cipher: None,
            auth: Digest::default(),
            allow_insecure: false,
            framing: Framing::default(),
            migrate: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back() {
        for digest in Digest::ALL {
            assert_eq!(Digest::from_name(digest.name()), Some(digest));
            assert_eq!(
                Digest::from_name(&digest.name().to_lowercase()),
                Some(digest)
            );
        }
        for cipher in Cipher::ALL {
            assert_eq!(Cipher::from_name(cipher.name()), Some(cipher));
            assert!(!(cipher.is_aead() && cipher.is_insecure()));
        }
        assert_eq!(Digest::from_name("rsa-sha256"), Some(Digest::Sha256));
        assert_eq!(Digest::from_name("SHA2-512/256"), Some(Digest::Sha512_256));
        assert_eq!(Digest::from_name("SHA-1"), Some(Digest::Sha1));
        assert_eq!(Digest::from_name("whirlpool"), None);
        assert_eq!(Cipher::from_name("aes-256-gcm"), Some(Cipher::Aes256Gcm));
        assert_eq!(Cipher::from_name("AES-256-CFB"), None);
    }
}
