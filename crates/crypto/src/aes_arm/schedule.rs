//! The key schedule of AES (FIPS 197, section 5.2), in constant time.

use zeroize::Zeroizing;

/// Round keys of the longest key.
pub(super) const MAX_KEYS: usize = 15;

/// The key before the first round, and the key of each round.
pub(super) type RoundKeys = Zeroizing<[[u8; 16]; MAX_KEYS]>;

/// The number of rounds with a key of so many bytes.
pub(super) const fn rounds(key_len: usize) -> usize {
    key_len / 4 + 6
}

/// The keys of all rounds; the first `rounds + 1` are used.
///
/// # Panics
/// If `key` has not 16, 24 or 32 bytes.
pub(super) fn expand(key: &[u8]) -> RoundKeys {
    assert!(matches!(key.len(), 16 | 24 | 32));
    let words = key.len() / 4;
    let mut keys = RoundKeys::default();
    let all = keys.as_flattened_mut().as_chunks_mut::<4>().0;
    all[..words].copy_from_slice(key.as_chunks().0);
    let mut constant = 1;
    for at in words..4 * (rounds(key.len()) + 1) {
        let mut next = u32::from_le_bytes(all[at - 1]);
        if at % words == 0 {
            next = substituted(next.rotate_right(8)) ^ constant;
            constant = doubled(constant);
        } else if words == 8 && at % words == 4 {
            next = substituted(next);
        }
        next ^= u32::from_le_bytes(all[at - words]);
        all[at] = next.to_le_bytes();
    }
    keys
}

/// The lowest bit of each of four bytes.
const LOW: u32 = 0x0101_0101;

/// Four bytes, each times x in the field of AES.
const fn doubled(bytes: u32) -> u32 {
    ((bytes & 0x7f7f_7f7f) << 1) ^ (((bytes >> 7) & LOW) * 0x1b)
}

/// Four bytes times four others.
pub(super) const fn product(mut one: u32, other: u32) -> u32 {
    let mut sum = 0;
    let mut bit = 0;
    while bit < 8 {
        sum ^= one & (((other >> bit) & LOW) * 0xff);
        one = doubled(one);
        bit += 1;
    }
    sum
}

/// The S-box on each of four bytes: the inverse, which is the power 254, and a sum of its rotations.
pub(super) const fn substituted(bytes: u32) -> u32 {
    let mut inverse = bytes;
    let mut squarings = 0;
    // Six steps make the power 127, and a last squaring 254.
    while squarings < 6 {
        inverse = product(product(inverse, inverse), bytes);
        squarings += 1;
    }
    inverse = product(inverse, inverse);
    let mut sum = inverse;
    let mut turn = 1;
    while turn <= 4 {
        let kept = LOW * (0xff >> turn);
        sum ^=
            ((inverse & kept) << turn) | ((inverse >> (8 - turn)) & (LOW * (0xff >> (8 - turn))));
        turn += 1;
    }
    sum ^ (LOW * 0x63)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(len: usize) -> Vec<u8> {
        let bytes = "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4";
        (0..len)
            .map(|at| u8::from_str_radix(&bytes[2 * at..2 * at + 2], 16).unwrap())
            .collect()
    }

    /// FIPS 197, appendix A.
    #[test]
    fn the_last_words_are_those_of_the_standard() {
        let from = |hex: &str| -> Vec<u8> {
            (0..hex.len() / 2)
                .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap())
                .collect()
        };
        let short = from("2b7e151628aed2a6abf7158809cf4f3c");
        assert_eq!(expand(&short)[10][12..], from("b6630ca6"));
        let middle = from("8e73b0f7da0e6452c810f32b809079e562f8ead2522c6b7b");
        assert_eq!(expand(&middle)[12][12..], from("01002202"));
        assert_eq!(expand(&key(32))[14][12..], from("706c631e"));
    }
}
