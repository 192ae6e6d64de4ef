//! The data channel: ciphers, framing, replay protection.

pub use crypto::{Cipher, Digest};

/// The bytes that `comp-lzo` and `compress` put around a packet. Millrace never compresses.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Framing {
    /// No framing; the peer must have none either.
    #[default]
    None,
    /// `comp-lzo` in each form, `compress lzo`: one byte 0xFA in front.
    Lzo,
    /// `compress` without a word, `compress stub`: byte 0xFB first, the packet's first byte last.
    Stub,
    /// `compress lz4`: as [`Framing::Stub`]; the peer may send LZ4.
    Lz4,
    /// `compress stub-v2`: only an escape for ambiguous first bytes.
    StubV2,
    /// `compress lz4-v2`: as [`Framing::StubV2`]; the peer may send LZ4.
    Lz4V2,
}

/// The data channel's settings before anything is negotiated.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DataChannel {
    /// `data-ciphers`: ciphers to negotiate, in order of preference; never empty.
    pub ciphers: Vec<Cipher>,
    /// `data-ciphers-fallback`, or else `cipher` if it is not insecure: for a peer that does not negotiate.
    pub fallback: Option<Cipher>,
    /// `cipher` as written, for the options string that the peers compare.
    pub cipher: Option<Cipher>,
    /// `auth`.
    pub auth: Digest,
    /// `--allow-insecure-ciphers`: a Millrace switch for 64-bit blocks, DES and `cipher none`.
    pub allow_insecure: bool,
    /// `comp-lzo`, `compress`.
    pub framing: Framing,
    /// Whether packets that the peer compressed are decompressed: yes, unless `allow-compression no` is given.
    pub unpack: bool,
    /// `compress migrate`: a server moves clients to [`Framing::StubV2`] or `comp-lzo no`.
    pub migrate: bool,
    /// `reorder`, a Millrace switch: puts UDP packets back into order before they are written.
    pub reorder: bool,
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
            reorder: false,
        }
    }
}
