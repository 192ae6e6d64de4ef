//! The data channel: ciphers, framing, replay.

use std::fmt;

pub use crypto::openvpn::Digest;

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

/// The bytes that `comp-lzo` and `compress` put around a packet. We never compress.
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
    /// Whether packets that the peer compressed are unpacked: unless `allow-compression no` is written.
    pub unpack: bool,
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
            unpack: true,
            migrate: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back() {
        for cipher in Cipher::ALL {
            assert_eq!(Cipher::from_name(cipher.name()), Some(cipher));
            assert!(!(cipher.is_aead() && cipher.is_insecure()));
        }
        assert_eq!(Cipher::from_name("aes-256-gcm"), Some(Cipher::Aes256Gcm));
        assert_eq!(Cipher::from_name("AES-256-CFB"), None);
    }
}
