//! BLAKE2s (RFC 7693): plain, keyed, and inside HMAC (RFC 2104).

use blake2::digest::consts::{U16, U32};
use blake2::digest::{KeyInit, Mac};
use blake2::{Blake2s256, Blake2sMac, Digest};
use zeroize::Zeroizing;

use crate::Key;

/// Bytes of a BLAKE2s block.
const BLOCK_LEN: usize = 64;

/// The hash of the concatenation of `parts`.
#[must_use]
pub fn hash(parts: &[&[u8]]) -> [u8; 32] {
    let mut state = Blake2s256::new();
    for part in parts {
        state.update(part);
    }
    state.finalize().into()
}

/// Keyed BLAKE2s with an output of 16 bytes: the MAC of WireGuard's messages.
///
/// `key` has at most 32 bytes; the type of array shows its length at compile time.
#[must_use]
pub fn mac<const N: usize>(key: &[u8; N], parts: &[&[u8]]) -> [u8; 16] {
    const { assert!(N <= 32, "a key of BLAKE2s has at most 32 bytes") };
    // Only the key's length can be wrong, and the line above has checked it.
    #[allow(clippy::unwrap_used)]
    let mut state = <Blake2sMac<U16> as KeyInit>::new_from_slice(key).unwrap();
    for part in parts {
        state.update(part);
    }
    state.finalize().into_bytes().into()
}

/// HMAC-BLAKE2s of the concatenation of `parts`.
///
/// HMAC over the unkeyed hash and not BLAKE2s' own keyed mode, as Noise requires.
#[must_use]
pub fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut block = Zeroizing::new([0; BLOCK_LEN]);
    if key.len() > BLOCK_LEN {
        block[..32].copy_from_slice(&hash(&[key]));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let mut inner = Blake2s256::new();
    inner.update(Zeroizing::new(block.map(|byte| byte ^ 0x36)).as_slice());
    for part in parts {
        inner.update(part);
    }
    let inner: Zeroizing<[u8; 32]> = Zeroizing::new(inner.finalize().into());
    let mut outer = Blake2s256::new();
    outer.update(Zeroizing::new(block.map(|byte| byte ^ 0x5c)).as_slice());
    outer.update(inner.as_slice());
    let sum: blake2::digest::Output<Blake2s256> = outer.finalize();
    let sum: blake2::digest::array::Array<u8, U32> = sum;
    sum.into()
}

/// HKDF (RFC 5869) over HMAC-BLAKE2s with `N` outputs of 32 bytes: `Kdf1` to `Kdf3` of WireGuard's paper.
#[must_use]
pub fn kdf<const N: usize>(chaining_key: &[u8], input: &[u8]) -> [Key; N] {
    let secret = Key::from(hmac(chaining_key, &[input]));
    let mut last = None::<Key>;
    let mut number = 0;
    [(); N].map(|()| {
        number += 1;
        let before = last.as_ref().map_or(&[][..], |key| key.as_bytes());
        let key = Key::from(hmac(secret.as_bytes(), &[before, &[number]]));
        last = Some(key.clone());
        key
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn the_example_of_rfc_7693() {
        let sum = "508c5e8c327c14e2e1a72ba34eeb452f37458b209ed63a294d999b4c86675982";
        assert_eq!(hex(&hash(&[b"abc"])), sum);
        assert_eq!(hex(&hash(&[b"a", b"", b"bc"])), sum);
    }

    #[test]
    fn hmac_hashes_a_long_key_and_pads_a_short_one() {
        let long = [7; 65];
        assert_eq!(hmac(&long, &[b"x"]), hmac(&hash(&[&long]), &[b"x"]));
        assert_eq!(hmac(&[7], &[b"x", b"y"]), hmac(&[7, 0], &[b"xy"]));
        assert_ne!(hmac(&[7], &[b"x"]), hmac(&[8], &[b"x"]));
    }

    #[test]
    fn the_short_mac_is_not_a_cut_hash() {
        // BLAKE2 puts the length of its output into its parameters.
        assert_ne!(mac(&[], &[b"abc"])[..], hash(&[b"abc"])[..16]);
        assert_ne!(mac(&[1; 32], &[b"abc"]), mac(&[1; 16], &[b"abc"]));
    }
}
