//! A ChaCha20 keystream that hides the headers of datagrams.

use crate::Key;

/// Bytes of the nonce.
pub const NONCE_LEN: usize = 12;

/// A key that hides headers: IETF ChaCha20 from block 0, whose nonce is part of the datagram.
///
/// The keystream authenticates nothing, and a nonce that comes twice shows which headers differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderKey(Key);

impl HeaderKey {
    /// Wraps the key.
    #[must_use]
    pub const fn new(key: Key) -> Self {
        Self(key)
    }

    /// The key.
    #[must_use]
    pub const fn key(&self) -> &Key {
        &self.0
    }

    /// XORs the keystream into `bytes`: hides a header, or shows it again.
    pub fn apply(&self, nonce: &[u8; NONCE_LEN], bytes: &mut [u8]) {
        let (at, len) = (bytes.as_mut_ptr(), bytes.len());
        // SAFETY: in place is allowed; `bytes` has `len` bytes, the key 32 and the nonce 12.
        unsafe {
            aws_lc_sys::CRYPTO_chacha_20(
                at,
                at,
                len,
                self.0.as_bytes().as_ptr(),
                nonce.as_ptr(),
                0,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8439, appendix A.1: test vectors 1 and 5.
    #[test]
    fn the_keystream_is_that_of_the_rfc() {
        let mut nonce = [0; NONCE_LEN];
        let key = HeaderKey::new(Key::ZERO);
        let mut bytes = [0; 16];
        key.apply(&nonce, &mut bytes);
        let first = [
            0x76, 0xb8, 0xe0, 0xad, 0xa0, 0xf1, 0x3d, 0x90, 0x40, 0x5d, 0x6a, 0xe5, 0x53, 0x86,
            0xbd, 0x28,
        ];
        assert_eq!(bytes, first);
        key.apply(&nonce, &mut bytes);
        assert_eq!(bytes, [0; 16]);
        nonce[11] = 2;
        key.apply(&nonce, &mut bytes);
        assert_eq!(bytes[..4], [0xc2, 0xc6, 0x4d, 0x37]);
    }

    #[test]
    fn a_prefix_of_the_keystream_does_not_depend_on_the_length() {
        let key = HeaderKey::new(Key::from([7; 32]));
        let mut long = [0; 148];
        key.apply(&[3; NONCE_LEN], &mut long);
        for len in 0..148 {
            let mut bytes = vec![0; len];
            key.apply(&[3; NONCE_LEN], &mut bytes);
            assert_eq!(bytes, long[..len]);
        }
    }
}
