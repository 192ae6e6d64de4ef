//! Key files of tls-crypt-v2: a server's key, with which it wraps the key of every client, and a client's key with its
//! wrapping.
//!
//! ```text
//! client file  Kc [u8; 256] | WKc
//! WKc          tag [u8; 32] | AES-256-CTR(Kc | metadata) | len: u16 (of all of WKc)
//! metadata     kind: u8 | rest
//! server file  cipher key [u8; 64] | HMAC key [u8; 64], of which the first 32 each are used
//! ```

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use super::{KeyFileError, StaticKey};
use crate::pem;
use crate::wrap::client_key::Wrapper;

const CLIENT: &str = "OpenVPN tls-crypt-v2 client key";
const SERVER: &str = "OpenVPN tls-crypt-v2 server key";

/// Bytes of the longest wrapped client key.
pub const MAX_WRAPPED_LEN: usize = 1024;
/// Bytes of a wrapped client key without metadata: tag, key and length.
pub const MIN_WRAPPED_LEN: usize = 32 + StaticKey::LEN + 2;
/// Maximum number of bytes of metadata that a user can give: the room that is left, without the byte for the kind.
pub const MAX_USER_METADATA: usize = MAX_WRAPPED_LEN - MIN_WRAPPED_LEN - 1;

/// A client's key, and the same key wrapped for the server.
#[derive(Clone)]
pub struct ClientKey {
    key: StaticKey,
    wrapped: Vec<u8>,
}

impl ClientKey {
    /// Reads a client's key file, or the inline block of a configuration file.
    ///
    /// # Errors
    /// See [`KeyFileError`]. Whether the wrapped key is authentic only the server can tell.
    pub fn parse(text: &str) -> Result<Self, KeyFileError> {
        let bytes = decode(text, CLIENT, StaticKey::LEN + MAX_WRAPPED_LEN)?;
        let length = KeyFileError::Length {
            expected: "546 to 1280 bytes",
            found: bytes.len(),
        };
        let Some((key, wrapped)) = bytes.split_first_chunk() else {
            return Err(length);
        };
        if wrapped.len() < MIN_WRAPPED_LEN || wrapped.len() > MAX_WRAPPED_LEN {
            return Err(length);
        }
        // The field is the last two bytes, and there are more.
        let written = u16::from_be_bytes([wrapped[wrapped.len() - 2], wrapped[wrapped.len() - 1]]);
        if usize::from(written) != wrapped.len() {
            return Err(KeyFileError::WrappedLength {
                written,
                found: wrapped.len(),
            });
        }
        Ok(Self {
            key: StaticKey::new(key),
            wrapped: wrapped.to_vec(),
        })
    }

    /// Makes a key for a new client, as `--genkey tls-crypt-v2-client` does.
    ///
    /// # Errors
    /// If the metadata has too many bytes, or there is no randomness.
    pub fn generate(server: &ServerKey, metadata: &Metadata) -> Result<Self, KeyFileError> {
        let key = StaticKey::generate().ok_or(KeyFileError::Random)?;
        let wrapped =
            Wrapper::new(server)
                .wrap(&key, metadata)
                .ok_or_else(|| KeyFileError::Metadata {
                    found: metadata.body().len(),
                })?;
        Ok(Self { key, wrapped })
    }

    /// The key as a file.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        let bytes = Zeroizing::new([&self.key.as_bytes()[..], &self.wrapped].concat());
        pem::encode(&bytes, CLIENT)
    }

    /// Key without its wrapping.
    #[must_use]
    pub const fn key(&self) -> &StaticKey {
        &self.key
    }

    /// The key wrapped for the server: 290 to 1024 bytes, no secret.
    #[must_use]
    pub fn wrapped(&self) -> &[u8] {
        &self.wrapped
    }
}

/// The key is not shown.
impl fmt::Debug for ClientKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientKey(.., {} bytes wrapped)", self.wrapped.len())
    }
}

/// The key with which a server wraps the keys of its clients.
#[derive(Clone)]
pub struct ServerKey(Box<Zeroizing<[u8; Self::LEN]>>);

impl ServerKey {
    /// Bytes of a server's key.
    pub const LEN: usize = StaticKey::HALF;

    /// A key of these bytes.
    #[must_use]
    pub fn new(bytes: &[u8; Self::LEN]) -> Self {
        Self(Box::new(Zeroizing::new(*bytes)))
    }

    /// A random key, as `--genkey tls-crypt-v2-server` makes one.
    ///
    /// # Errors
    /// If there is no randomness.
    pub fn generate() -> Result<Self, KeyFileError> {
        let mut key = Self(Box::new(Zeroizing::new([0; Self::LEN])));
        aws_lc_rs::rand::fill(&mut key.0[..]).map_err(|_| KeyFileError::Random)?;
        Ok(key)
    }

    /// Reads a server's key file, or the inline block of a configuration file.
    ///
    /// # Errors
    /// See [`KeyFileError`].
    pub fn parse(text: &str) -> Result<Self, KeyFileError> {
        let bytes = decode(text, SERVER, 2 * Self::LEN)?;
        let key = bytes[..].try_into().map_err(|_| KeyFileError::Length {
            expected: "128 bytes",
            found: bytes.len(),
        })?;
        Ok(Self::new(key))
    }

    /// The key as a file.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        pem::encode(&self.0[..], SERVER)
    }

    pub(crate) fn cipher(&self) -> &[u8] {
        &self.0[..StaticKey::PART]
    }

    pub(crate) fn hmac(&self) -> &[u8] {
        &self.0[StaticKey::PART..]
    }
}

/// The key is not shown.
impl fmt::Debug for ServerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerKey(..)")
    }
}

/// The description of a client in its key: made with the key, authenticated by the server's key, and sent encrypted.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Metadata(Vec<u8>);

impl Metadata {
    const USER: u8 = 0;
    const TIMESTAMP: u8 = 1;

    /// Bytes that an administrator chose.
    #[must_use]
    pub fn user(bytes: &[u8]) -> Self {
        Self([&[Self::USER], bytes].concat())
    }

    /// The time at which the key was made, in seconds since 1970: the default metadata.
    #[must_use]
    pub fn timestamp(seconds: u64) -> Self {
        Self([&[Self::TIMESTAMP][..], &seconds.to_be_bytes()].concat())
    }

    /// Takes metadata from a wrapped key: the kind and the rest.
    pub(crate) fn from_wire(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }

    pub(crate) fn as_wire(&self) -> &[u8] {
        &self.0
    }

    /// The kind: 0 for the administrator's bytes, 1 for a time; others may come. `None` for empty metadata.
    #[must_use]
    pub fn kind(&self) -> Option<u8> {
        self.0.first().copied()
    }

    /// The content, without the kind.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        self.0.get(1..).unwrap_or_default()
    }

    /// The time at which the key was made, in seconds since 1970, if the metadata says it.
    #[must_use]
    pub fn made_at(&self) -> Option<u64> {
        match (self.kind()?, self.body().first_chunk()) {
            (Self::TIMESTAMP, Some(time)) => Some(u64::from_be_bytes(*time)),
            _ => None,
        }
    }
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.made_at() {
            Some(time) => write!(f, "Metadata(made at {time})"),
            None => write!(
                f,
                "Metadata(kind {:?}, {} bytes)",
                self.kind(),
                self.body().len()
            ),
        }
    }
}

/// The bytes in the first PEM block of this name: base64 between a BEGIN and an END line (RFC 7468). `most` bounds what
/// is decoded.
fn decode(text: &str, name: &'static str, most: usize) -> Result<Zeroizing<Vec<u8>>, KeyFileError> {
    let mut lines = text.lines().map(str::trim);
    let begin = |line: &str| armoured(line, "BEGIN") == Some(name);
    if !lines.any(begin) {
        return Err(KeyFileError::NoBegin { expected: name });
    }
    // Four characters are three bytes; what is longer is not collected.
    let longest = most.div_ceil(3) * 4;
    let mut body = Zeroizing::new(String::with_capacity(longest));
    for line in lines {
        if armoured(line, "END") == Some(name) {
            let bytes = STANDARD
                .decode(body.as_bytes())
                .map_err(|_| KeyFileError::Base64)?;
            return Ok(Zeroizing::new(bytes));
        }
        for piece in line.split_whitespace() {
            if body.len() + piece.len() > longest {
                return Err(KeyFileError::Base64);
            }
            body.push_str(piece);
        }
    }
    Err(KeyFileError::NoEnd { expected: name })
}

/// The label of an armour line of this kind.
fn armoured<'a>(line: &'a str, kind: &str) -> Option<&'a str> {
    line.strip_prefix("-----")?
        .strip_prefix(kind)?
        .strip_prefix(' ')?
        .strip_suffix("-----")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by `openvpn --genkey tls-crypt-v2-server` and `--genkey tls-crypt-v2-client`, without and with metadata.
    const SERVER: &str = include_str!("../../tests/data/v2-server.key");
    const CLIENT: &str = include_str!("../../tests/data/v2-client.key");
    const USER: &str = include_str!("../../tests/data/v2-client-user.key");

    #[test]
    fn stock_files_come_back() {
        assert_eq!(
            ServerKey::parse(SERVER).unwrap().to_text().trim(),
            SERVER.trim()
        );
        for text in [CLIENT, USER] {
            assert_eq!(
                ClientKey::parse(text).unwrap().to_text().trim(),
                text.trim()
            );
        }
    }

    #[test]
    fn stock_keys_unwrap() {
        let wrapper = Wrapper::new(&ServerKey::parse(SERVER).unwrap());
        let client = ClientKey::parse(CLIENT).unwrap();
        let (key, metadata) = wrapper.unwrap(client.wrapped()).unwrap();
        assert_eq!(key.as_bytes(), client.key().as_bytes());
        // The day on which the test data were made.
        assert_eq!(metadata.made_at().unwrap() / 86_400, 20_777);
        let user = ClientKey::parse(USER).unwrap();
        let (_, metadata) = wrapper.unwrap(user.wrapped()).unwrap();
        assert_eq!(
            (metadata.kind(), metadata.body()),
            (Some(0), &b"branch office 7"[..])
        );
        assert_eq!(metadata.made_at(), None);
    }

    #[test]
    fn generated_keys_unwrap() {
        let server = ServerKey::generate().unwrap();
        for metadata in [
            Metadata::timestamp(1_700_000_000),
            Metadata::user(b""),
            Metadata::user(&[7; MAX_USER_METADATA]),
        ] {
            let client = ClientKey::generate(&server, &metadata).unwrap();
            let client = ClientKey::parse(&client.to_text()).unwrap();
            let (key, read) = Wrapper::new(&server).unwrap(client.wrapped()).unwrap();
            assert_eq!(key.as_bytes(), client.key().as_bytes());
            assert_eq!(read, metadata);
        }
        let long = Metadata::user(&[7; MAX_USER_METADATA + 1]);
        assert_eq!(
            ClientKey::generate(&server, &long).unwrap_err(),
            KeyFileError::Metadata {
                found: MAX_USER_METADATA + 1
            }
        );
    }

    #[test]
    fn faults_are_named() {
        let client = ClientKey::parse(CLIENT).unwrap();
        let bytes = [&client.key().as_bytes()[..], client.wrapped()].concat();
        let parse =
            |bytes: &[u8]| ClientKey::parse(&pem::encode(bytes, super::CLIENT)).unwrap_err();
        assert!(matches!(
            parse(&bytes[..255]),
            KeyFileError::Length { found: 255, .. }
        ));
        assert!(matches!(
            parse(&bytes[..256]),
            KeyFileError::Length { found: 256, .. }
        ));
        assert!(matches!(
            parse(&bytes[..bytes.len() - 1]),
            KeyFileError::WrappedLength { .. }
        ));
        assert_eq!(parse(&[0; 4000]), KeyFileError::Base64);
        assert!(matches!(
            ClientKey::parse(SERVER),
            Err(KeyFileError::NoBegin { .. })
        ));
        assert!(matches!(
            ServerKey::parse(CLIENT),
            Err(KeyFileError::NoBegin { .. })
        ));
        let cut = &SERVER[..SERVER.len() - 30];
        assert!(matches!(
            ServerKey::parse(cut),
            Err(KeyFileError::NoEnd { .. })
        ));
    }

    #[test]
    fn debug_shows_no_key() {
        assert_eq!(
            format!("{:?}", ServerKey::parse(SERVER).unwrap()),
            "ServerKey(..)"
        );
        let shown = format!("{:?}", ClientKey::parse(CLIENT).unwrap());
        assert_eq!(shown, "ClientKey(.., 299 bytes wrapped)");
    }
}
