//! Keys, and other secret texts.

use std::fmt;
use std::hash::{Hash, Hasher};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;
use zeroize::{Zeroize as _, ZeroizeOnDrop, Zeroizing};

/// Length of every WireGuard key (private, public, preshared) in bytes.
pub const KEY_LEN: usize = 32;

/// Length of a key in base64, its `=` included, in characters.
pub const KEY_BASE64_LEN: usize = 44;

/// Length of a key in hexadecimal, in characters.
pub const KEY_HEX_LEN: usize = 64;

/// A 32-byte key: private, public or preshared.
/// The bytes are overwritten when the value is dropped. `Debug` never shows them, as the type also holds secrets;
/// code that shows a public key calls [`Key32::to_base64`].
#[derive(Clone, Default)]
pub struct Key32([u8; KEY_LEN]);

impl Key32 {
    /// Takes the 32 raw bytes.
    #[must_use]
    pub const fn new(bytes: [u8; KEY_LEN]) -> Self {
        Self(bytes)
    }

    /// Reads the 44-character base64 form that `wg` prints and `.conf` files hold.
    ///
    /// # Errors
    /// [`KeyError`] when the text is not exactly one 32-byte key in canonical base64.
    pub fn from_base64(text: &str) -> Result<Self, KeyError> {
        if text.len() != KEY_BASE64_LEN {
            return Err(KeyError::Length {
                found: text.len(),
                wanted: KEY_BASE64_LEN,
            });
        }
        // One byte more than a key, as the decoder counts the padding.
        let mut bytes = Zeroizing::new([0; KEY_LEN + 1]);
        match STANDARD.decode_slice(text, bytes.as_mut_slice()) {
            Ok(KEY_LEN) => {}
            _ => return Err(KeyError::Base64),
        }
        let mut key = Self::default();
        key.0.copy_from_slice(&bytes[..KEY_LEN]);
        Ok(key)
    }

    /// Reads the 64-digit hexadecimal form of the UAPI, in either case.
    ///
    /// # Errors
    /// [`KeyError`] when the text is not exactly 64 hexadecimal digits.
    pub fn from_hex(text: &str) -> Result<Self, KeyError> {
        let digits = text.as_bytes();
        if digits.len() != KEY_HEX_LEN {
            return Err(KeyError::Length {
                found: digits.len(),
                wanted: KEY_HEX_LEN,
            });
        }
        let mut key = Self::default();
        for (byte, pair) in key.0.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = hex_digit(pair[0])? << 4 | hex_digit(pair[1])?;
        }
        Ok(key)
    }

    /// The base64 form; the text is overwritten when dropped, as it may be a secret.
    #[must_use]
    pub fn to_base64(&self) -> Zeroizing<String> {
        Zeroizing::new(STANDARD.encode(self.0))
    }

    /// The start of the base64 form and `…`, for a public key beside a name.
    #[must_use]
    pub fn short(&self) -> String {
        short_key(&self.to_base64())
    }

    /// The lower-case hexadecimal form; the text is overwritten when dropped.
    #[must_use]
    pub fn to_hex(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(KEY_HEX_LEN));
        for byte in self.0 {
            for digit in [byte >> 4, byte & 0xf] {
                text.push(char::from(if digit < 10 {
                    b'0' + digit
                } else {
                    b'a' + digit - 10
                }));
            }
        }
        text
    }

    /// Key as raw bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; KEY_LEN] {
        &self.0
    }

    /// True for the all-zero key, which stands for "no key" in every WireGuard interface.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.0.iter().fold(0, |all, byte| all | byte) == 0
    }
}

/// The start of a key in base64 and `…`.
#[must_use]
pub fn short_key(key: &str) -> String {
    key.chars().take(8).chain(['\u{2026}']).collect()
}

impl Drop for Key32 {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl ZeroizeOnDrop for Key32 {}

impl PartialEq for Key32 {
    /// Compares all bytes in constant time, so that the time does not reveal a secret.
    fn eq(&self, other: &Self) -> bool {
        let differing = self.0.iter().zip(&other.0).fold(0, |d, (a, b)| d | (a ^ b));
        differing == 0
    }
}

impl Eq for Key32 {}

impl Hash for Key32 {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl From<[u8; KEY_LEN]> for Key32 {
    fn from(bytes: [u8; KEY_LEN]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for Key32 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key32(hidden)")
    }
}

/// A text that `Debug` hides and that is overwritten when dropped: keys, passwords, tokens, and the texts around them
/// in inline blocks.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes the text over.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// Secret text in the clear.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self::new(text.to_owned())
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::new)
    }
}

fn hex_digit(digit: u8) -> Result<u8, KeyError> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        b'A'..=b'F' => Ok(digit - b'A' + 10),
        _ => Err(KeyError::Hex),
    }
}

/// Why a text is not a key. Never repeats the text: it may be most of a secret.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum KeyError {
    /// Too long or too short.
    #[error("a key needs {wanted} characters here, but this has {found}; copy the whole key")]
    Length {
        /// Length of the text in bytes.
        found: usize,
        /// The required length in bytes.
        wanted: usize,
    },
    /// The text is not base64, or has stray bits at its end.
    #[error("not a base64 key; print one with `wg genkey` or `wg pubkey`")]
    Base64,
    /// The text is not hexadecimal.
    #[error("not a hexadecimal key of 64 digits")]
    Hex,
}
#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_key_keeps_its_value_and_hides_it() {
        let text = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=";
        let key = Key32::from_base64(text).unwrap();
        assert_eq!(key.to_base64().as_str(), text);
        assert_eq!(Key32::from_hex(&key.to_hex()).unwrap(), key);
        assert_eq!(format!("{key:?}"), "Key32(hidden)");
        assert!(!key.is_zero());
        assert!(Key32::default().is_zero());
    }

    #[test]
    fn keys_of_another_shape_are_refused() {
        // Too short; bad digit; no padding; stray bits in the last digit.
        for text in [
            "",
            "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk",
            "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBm*=",
            "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBml=",
            "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmkA",
        ] {
            assert!(Key32::from_base64(text).is_err(), "{text}");
        }
        assert!(Key32::from_hex(&"g".repeat(64)).is_err());
        assert!(Key32::from_hex(&"0".repeat(63)).is_err());
        assert!(Key32::from_hex(&"é".repeat(32)).is_err());
    }

    proptest! {
        #[test]
        fn any_key_goes_round(bytes in any::<[u8; KEY_LEN]>()) {
            let key = Key32::new(bytes);
            prop_assert_eq!(&Key32::from_base64(&key.to_base64()).unwrap(), &key);
            prop_assert_eq!(&Key32::from_hex(&key.to_hex()).unwrap(), &key);
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,80}") {
            let _ = Key32::from_base64(&text);
            let _ = Key32::from_hex(&text);
        }
    }
}
