//! Bit-slicing: spreads the bits of blocks over lanes.
//!
//! AES's state is four rows of four columns of bytes. Here one row of all blocks in the lanes is eight words, one for
//! each bit of its bytes:
//!
//! ```text
//! plane i of row r:   column 3     | column 2     | column 1     | column 0
//!                     block 7 .. 0 | block 7 .. 0 | block 7 .. 0 | block 7 .. 0     bit i of byte (r, c) of each block
//! ```
//!
//! So shifting a row means rotating its words, mixing columns means adding words of other rows, and no operation needs
//! a mask. Words of 64 bits hold sixteen blocks.

use core::ops::{BitAnd, BitOr, BitXor, Shl, Shr};

use zeroize::Zeroize;

/// Blocks of the widest word.
pub(super) const MAX_BLOCKS: usize = 16;

/// A row of all blocks: a word for each bit of its bytes, the lowest first.
pub(super) type Row<W> = [W; 8];

/// The four rows of all blocks.
pub(super) type Rows<W> = [Row<W>; 4];

/// A word: four columns of lanes.
pub(super) trait Word:
    Copy
    + Default
    + Zeroize
    + BitAnd<Output = Self>
    + BitOr<Output = Self>
    + BitXor<Output = Self>
    + Shl<u32, Output = Self>
    + Shr<u32, Output = Self>
{
    /// Lanes of a column: the number of blocks processed together.
    const BLOCKS: usize;

    /// Repeats a byte in every byte of the word.
    fn splat(byte: u8) -> Self;

    /// Makes a word of the four columns of a row: of block `n` and, if there is room, of block `n + 8`.
    fn from_columns(first: u32, second: u32) -> Self;

    /// Splits a word into the columns that [`from_columns`](Self::from_columns) takes.
    fn columns(self) -> (u32, u32);

    /// Rotates the columns: each takes the lanes of the one `COLUMNS` further.
    fn turned<const COLUMNS: u32>(self) -> Self;
}

impl Word for u32 {
    const BLOCKS: usize = 8;

    #[inline(always)]
    fn splat(byte: u8) -> Self {
        Self::from_ne_bytes([byte; 4])
    }

    #[inline(always)]
    fn from_columns(first: u32, _: u32) -> Self {
        first
    }

    #[inline(always)]
    fn columns(self) -> (u32, u32) {
        (self, 0)
    }

    #[inline(always)]
    fn turned<const COLUMNS: u32>(self) -> Self {
        self.rotate_right(8 * COLUMNS)
    }
}

impl Word for u64 {
    const BLOCKS: usize = 16;

    #[inline(always)]
    fn splat(byte: u8) -> Self {
        Self::from_ne_bytes([byte; 8])
    }

    #[inline(always)]
    fn from_columns(first: u32, second: u32) -> Self {
        let apart = |columns: u32| {
            let pairs = Self::from(columns);
            let pairs = (pairs | pairs << 16) & 0x0000_ffff_0000_ffff;
            (pairs | pairs << 8) & 0x00ff_00ff_00ff_00ff
        };
        apart(first) | apart(second) << 8
    }

    #[inline(always)]
    fn columns(self) -> (u32, u32) {
        let together = |columns: Self| {
            let pairs = columns & 0x00ff_00ff_00ff_00ff;
            let pairs = (pairs | pairs >> 8) & 0x0000_ffff_0000_ffff;
            (pairs | pairs >> 16) as u32
        };
        (together(self), together(self >> 8))
    }

    #[inline(always)]
    fn turned<const COLUMNS: u32>(self) -> Self {
        self.rotate_right(16 * COLUMNS)
    }
}

/// Puts the first blocks, as many as the word has lanes, into the lanes.
pub(super) fn pack<W: Word>(blocks: &[[u8; 16]; MAX_BLOCKS]) -> Rows<W> {
    let mut rows = [[W::default(); 8]; 4];
    for (r, row) in rows.iter_mut().enumerate() {
        for (n, word) in row.iter_mut().enumerate() {
            let columns = |block: &[u8; 16]| {
                u32::from_le_bytes([block[r], block[r + 4], block[r + 8], block[r + 12]])
            };
            *word = W::from_columns(columns(&blocks[n]), columns(&blocks[n + 8]));
        }
        transpose(row);
    }
    rows
}

/// Takes the blocks out of their lanes. Blocks beyond the word's lanes become zeros or stay unchanged.
pub(super) fn unpack<W: Word>(mut rows: Rows<W>, blocks: &mut [[u8; 16]; MAX_BLOCKS]) {
    for (r, row) in rows.iter_mut().enumerate() {
        transpose(row);
        for (n, word) in row.iter().enumerate() {
            let (first, second) = word.columns();
            for (c, byte) in first.to_le_bytes().into_iter().enumerate() {
                blocks[n][r + 4 * c] = byte;
            }
            if W::BLOCKS > 8 {
                for (c, byte) in second.to_le_bytes().into_iter().enumerate() {
                    blocks[n + 8][r + 4 * c] = byte;
                }
            }
        }
    }
}

/// Transposes bits: in every byte of the eight words, bit `i` of word `n` and bit `n` of word `i` change places.
#[inline(always)]
fn transpose<W: Word>(words: &mut Row<W>) {
    for (distance, mask) in [(1, 0x55), (2, 0x33), (4, 0x0f)] {
        let mask = W::splat(mask);
        for low in 0..8_usize {
            if low & distance == 0 {
                let (a, b) = (words[low], words[low + distance]);
                let differing = (a >> distance as u32 ^ b) & mask;
                words[low + distance] = b ^ differing;
                words[low] = a ^ differing << distance as u32;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back<W: Word>() {
        let blocks = core::array::from_fn(|n| core::array::from_fn(|at| (n * 37 + at * 11) as u8));
        let rows = pack::<W>(&blocks);
        let mut unpacked = [[0; 16]; MAX_BLOCKS];
        unpack(rows, &mut unpacked);
        assert_eq!(unpacked[..W::BLOCKS], blocks[..W::BLOCKS]);
    }

    #[test]
    fn unpacked_is_what_was_packed() {
        there_and_back::<u32>();
        there_and_back::<u64>();
    }
}
