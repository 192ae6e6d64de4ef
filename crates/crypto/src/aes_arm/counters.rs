//! Computes the effect of the counters of AES-GCM on the first round, once for each key, for ARMv7
//! (`src/neon/aes_ctr_arm.S`).

use zeroize::{Zeroize, ZeroizeOnDrop};

use super::bitsliced::KEY;
use crate::portable::substituted;

/// Groups of four times eight counters: `CTR_FOURS` in aes_ctr.h.
const FOURS: usize = 3;

/// The differences that the counters from 1 to 96 make in the first round of a counter block whose counter is zero:
/// `struct ctr_counters` in aes_ctr.h.
///
/// Only the bytes of one column differ from zero; for each of their bits, one register has four groups of eight blocks.
#[derive(Zeroize, ZeroizeOnDrop)]
#[repr(C, align(16))]
pub(super) struct Counters {
    bits: [[u8; KEY]; FOURS],
}

impl Counters {
    pub(super) fn empty() -> Self {
        Self {
            bits: [[0; KEY]; FOURS],
        }
    }

    /// # Panics
    /// If `key` has less than 16 bytes.
    pub(super) fn set(&mut self, key: &[u8]) {
        // The first round key is the key's first 16 bytes, and all but the last of the counter's four bytes are zero.
        let last = key[15];
        let zero = substituted(u32::from(last)) as u8;
        *self = Self::empty();
        for counter in 1..=FOURS * 32 {
            let byte = last ^ counter as u8;
            let change = substituted(u32::from(byte)) as u8 ^ zero;
            let double = (change << 1) ^ ((change >> 7) * 0x1b);
            let (four, eight, lane) =
                ((counter - 1) / 32, (counter - 1) / 8 % 4, (counter - 1) % 8);
            // The column of MixColumns that takes a block's last byte to the rows of the first column: 1, 1, 3, 2.
            let rows = [change, change, double ^ change, double];
            for (row, change) in rows.into_iter().enumerate() {
                for bit in 0..8 {
                    let set = (change >> (7 - bit)) & 1;
                    self.bits[four][16 * bit + 4 * eight + row] |= set << (7 - lane);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::aes_arm::bitsliced::place;

    /// aes_ctr_arm.S has a table of the places of the first column after a round.
    #[test]
    fn the_first_column_is_where_the_assembly_looks_for_it() {
        let places: Vec<_> = (0..4).map(|row| place(1, row)).collect();
        assert_eq!(places, [0, 9, 2, 11]);
    }
}
