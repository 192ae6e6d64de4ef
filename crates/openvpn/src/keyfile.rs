//! Keys that both ends share in advance: the static key of tls-auth and tls-crypt, and in [`v2`] those of
//! tls-crypt-v2.

pub mod v2;

use std::fmt;

use thiserror::Error;
use zeroize::Zeroizing;

const BEGIN: &str = "-----BEGIN OpenVPN Static key V1-----";
const END: &str = "-----END OpenVPN Static key V1-----";

/// Which half of a static key an end sends with: `--key-direction`, or the second argument of `--tls-auth`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KeyDirection {
    /// Both directions use the first half: no direction was configured.
    #[default]
    Bidirectional,
    /// 0: sends with the first half, receives with the second. By custom the server's.
    Normal,
    /// 1: the reverse. By custom the client's.
    Inverse,
}

impl KeyDirection {
    /// Which half is for sending and which for receiving.
    pub(crate) const fn halves(self) -> (usize, usize) {
        match self {
            Self::Bidirectional => (0, 0),
            Self::Normal => (0, 1),
            Self::Inverse => (1, 0),
        }
    }
}

/// The 256 bytes of a static key: two halves, each 64 bytes for a cipher and 64 for an HMAC.
#[derive(Clone)]
pub struct StaticKey(Box<Zeroizing<[u8; Self::LEN]>>);

impl StaticKey {
    /// Bytes of a static key.
    pub const LEN: usize = 256;
    /// Bytes of one half.
    pub(crate) const HALF: usize = 128;
    /// Bytes for the cipher, and for the HMAC, in a half.
    pub(crate) const PART: usize = 64;

    /// A key of these bytes.
    #[must_use]
    pub fn new(bytes: &[u8; Self::LEN]) -> Self {
        Self(Box::new(Zeroizing::new(*bytes)))
    }

    /// A random key; `None` if the system has no randomness to give.
    #[must_use]
    pub fn generate() -> Option<Self> {
        let mut key = Self(Box::new(Zeroizing::new([0; Self::LEN])));
        aws_lc_rs::rand::fill(&mut key.0[..]).ok()?;
        Some(key)
    }

    /// Reads a key file, or the inline block of a configuration file. Text outside the BEGIN and END lines is ignored.
    ///
    /// # Errors
    /// See [`KeyFileError`].
    pub fn parse(text: &str) -> Result<Self, KeyFileError> {
        let mut lines = text.lines().enumerate();
        if !lines.any(|(_, line)| line.trim() == BEGIN) {
            return Err(KeyFileError::NoBegin {
                expected: "OpenVPN Static key V1",
            });
        }
        let mut key = Self(Box::new(Zeroizing::new([0; Self::LEN])));
        let mut digits = 0;
        for (index, line) in lines {
            let line = line.trim();
            if line == END {
                return if digits == 2 * Self::LEN {
                    Ok(key)
                } else {
                    Err(KeyFileError::Length {
                        expected: "256 bytes",
                        found: digits / 2,
                    })
                };
            }
            for digit in line.chars().filter(|c| !c.is_whitespace()) {
                let value = digit
                    .to_digit(16)
                    .ok_or(KeyFileError::Digit { line: index + 1 })?;
                let byte = key.0.get_mut(digits / 2).ok_or(KeyFileError::Length {
                    expected: "256 bytes",
                    found: Self::LEN + 1,
                })?;
                // A hexadecimal digit is less than 16.
                *byte = *byte << 4 | value as u8;
                digits += 1;
            }
        }
        Err(KeyFileError::NoEnd {
            expected: "OpenVPN Static key V1",
        })
    }

    /// The key as a file, as `--genkey secret` (and `tls-auth`, `tls-crypt`) writes it.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(700));
        text.push_str("#\n# 2048 bit OpenVPN static key\n#\n");
        text.push_str(BEGIN);
        text.push('\n');
        for line in self.0.chunks(16) {
            for byte in line {
                for digit in [byte >> 4, byte & 15] {
                    text.push(char::from(b"0123456789abcdef"[usize::from(digit)]));
                }
            }
            text.push('\n');
        }
        text.push_str(END);
        text.push('\n');
        text
    }

    /// Key as raw bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }

    /// The key whose every byte is that of this key XOR that of `other`.
    #[must_use]
    pub fn xor(&self, other: &[u8; Self::LEN]) -> Self {
        let mut key = self.clone();
        key.0.iter_mut().zip(other).for_each(|(a, b)| *a ^= b);
        key
    }

    /// The bytes for the cipher in a half, 0 or 1.
    pub(crate) fn cipher(&self, half: usize) -> &[u8] {
        &self.0[half * Self::HALF..][..Self::PART]
    }

    /// The bytes for the HMAC in a half, 0 or 1.
    pub(crate) fn hmac(&self, half: usize) -> &[u8] {
        &self.0[half * Self::HALF + Self::PART..][..Self::PART]
    }
}

/// Debug output hides the key.
impl fmt::Debug for StaticKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StaticKey(..)")
    }
}

/// Why a key file cannot be used: the fault of its writer or of a copy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KeyFileError {
    /// No line begins a key of the expected kind.
    #[error(
        "the line `-----BEGIN {expected}-----` is missing; is this the right kind of key file?"
    )]
    NoBegin {
        /// The text of the missing line.
        expected: &'static str,
    },
    /// No line ends the key.
    #[error("the line `-----END {expected}-----` is missing; the key is cut off")]
    NoEnd {
        /// The text of the missing line.
        expected: &'static str,
    },
    /// A character that is not a hexadecimal digit.
    #[error("line {line} of the key has a character that is not a hexadecimal digit")]
    Digit {
        /// The line, counted from 1, from the start of the text.
        line: usize,
    },
    /// The body is not base64.
    #[error("the text between BEGIN and END is not base64")]
    Base64,
    /// Too many bytes or too few.
    #[error("the key has {found} bytes, not {expected}")]
    Length {
        /// The length that the key must have.
        expected: &'static str,
        /// The length found; may be less than in the file if there are too many bytes.
        found: usize,
    },
    /// The length that is written in a wrapped client key is not that of the bytes.
    #[error(
        "the wrapped client key is damaged: its length field says {written}, but it has {found} bytes"
    )]
    WrappedLength {
        /// The length in the field.
        written: u16,
        /// Bytes found.
        found: usize,
    },
    /// The metadata is too long.
    #[error("the metadata has {found} bytes, but at most {most} fit into a client key", most = v2::MAX_USER_METADATA)]
    Metadata {
        /// Bytes of metadata.
        found: usize,
    },
    /// The system has no randomness to make a key from.
    #[error("the system gave no random bytes")]
    Random,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by `openvpn --genkey secret`.
    const TEXT: &str = include_str!("../tests/data/static.key");

    #[test]
    fn text_comes_back() {
        let key = StaticKey::parse(TEXT).unwrap();
        assert_eq!(key.to_text().as_str(), TEXT);
        let key = StaticKey::generate().unwrap();
        let again = StaticKey::parse(&key.to_text()).unwrap();
        assert_eq!(again.as_bytes(), key.as_bytes());
    }

    #[test]
    fn inline_blocks_come_as_they_are() {
        let crlf = TEXT.replace('\n', "\r\n");
        let indented = TEXT.replace('\n', "\n\t ");
        let spaced = TEXT.replace("5", " 5 ");
        let wanted = StaticKey::parse(TEXT).unwrap();
        for text in [crlf, indented] {
            assert_eq!(
                StaticKey::parse(&text).unwrap().as_bytes(),
                wanted.as_bytes()
            );
        }
        assert!(StaticKey::parse(&spaced).is_ok());
    }

    #[test]
    fn faults_are_named() {
        assert_eq!(
            StaticKey::parse("").unwrap_err(),
            KeyFileError::NoBegin {
                expected: "OpenVPN Static key V1"
            }
        );
        let cut = &TEXT[..TEXT.len() - 20];
        assert!(matches!(
            StaticKey::parse(cut),
            Err(KeyFileError::Digit { .. } | KeyFileError::NoEnd { .. })
        ));
        let mut lines: Vec<_> = TEXT.lines().collect();
        let removed = lines.remove(6);
        assert_eq!(
            StaticKey::parse(&lines.join("\n")).unwrap_err(),
            KeyFileError::Length {
                expected: "256 bytes",
                found: 240
            }
        );
        lines.insert(6, removed);
        lines.insert(6, removed);
        assert_eq!(
            StaticKey::parse(&lines.join("\n")).unwrap_err(),
            KeyFileError::Length {
                expected: "256 bytes",
                found: 257
            }
        );
        lines[6] = "0123x";
        assert_eq!(
            StaticKey::parse(&lines.join("\n")).unwrap_err(),
            KeyFileError::Digit { line: 7 }
        );
    }

    #[test]
    fn halves_by_direction() {
        let bytes = std::array::from_fn(|i| i as u8);
        let key = StaticKey::new(&bytes);
        assert_eq!((key.cipher(0)[0], key.hmac(0)[0]), (0, 64));
        assert_eq!((key.cipher(1)[0], key.hmac(1)[0]), (128, 192));
        assert_eq!(key.xor(&bytes).as_bytes(), &[0; 256]);
        assert_eq!(format!("{key:?}"), "StaticKey(..)");
    }
}
