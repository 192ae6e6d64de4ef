//! SHA-1 of a whole message: old protocols make keys with it. Collisions can be found; nothing new should use it.

use crate::Digest;
use crate::hmac::State;
use zeroize::Zeroize as _;

/// Bytes of the hash.
pub const SHA1_LEN: usize = 20;

/// The hash of the concatenated parts. No copy stays in memory; the caller erases this one, if it is secret.
#[must_use]
pub fn sha1(parts: &[&[u8]]) -> [u8; SHA1_LEN] {
    let mut hash = [0; SHA1_LEN];
    // Every digest except `None` has a state.
    if let Some(mut state) = State::new(Digest::Sha1) {
        for part in parts {
            state.update(part);
        }
        let mut whole = state.finish();
        hash.copy_from_slice(&whole[..SHA1_LEN]);
        // Erases the copy, since keys are made of the hash; the bytes behind it are zeros.
        whole[..SHA1_LEN].zeroize();
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_rfc_3174() {
        for (parts, expected) in [
            (
                &[&b"a"[..], b"bc"][..],
                "a9993e364706816aba3e25717850c26c9cd0d89d",
            ),
            (
                &[
                    b"abcdbcdecdefdefgefghfghighijhi",
                    b"",
                    b"jkijkljklmklmnlmnomnopnopq",
                ],
                "84983e441c3bd26ebaae4aa1f95129e5e54670f1",
            ),
        ] {
            let found: String = sha1(parts)
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            assert_eq!(found, expected);
        }
    }
}
