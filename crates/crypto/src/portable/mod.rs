//! Portable code in constant time: whole numbers of the machine's word, and nothing else of the CPU.
//!
//! It is what a chip without vector registers runs, and what the others are compared with. AWS-LC has portable code too, which
//! takes one packet at a time; where its assembly for the plain instructions is the better one, the measurement says so.
//!
//! | algorithm | how | constant time because |
//! |---|---|---|
//! | AES | bit-sliced, a block in each of 8 or 16 lanes of a word, over the borders of packets | only logic, no table |
//! | GHASH | products of numbers with holes | multiplication, no table; cores of application class multiply in constant time |
//! | ChaCha20, SHA | as they are written down | made of additions, rotations and logic |
//! | Poly1305 | four words of 32 bits | multiplication and masks |

mod aes;
mod cbc;
mod chacha20;
mod chacha20poly1305;
mod gcm;
mod ghash;
mod poly1305;
mod sbox;
mod slices;

pub(crate) use cbc::Cbc;
pub(crate) use chacha20poly1305::ChaChaPoly;
pub(crate) use gcm::Gcm;

/// The machine's word, by which AES's lanes count.
#[cfg(target_pointer_width = "64")]
type Native = u64;

/// The machine's word, by which AES's lanes count.
#[cfg(not(target_pointer_width = "64"))]
type Native = u32;

/// Fills blocks that will not be read with zeros, which a compiler must not leave out. In one go, unlike `zeroize`'s byte
/// after byte: a single small packet would notice that.
fn erase(blocks: &mut [[u8; 16]]) {
    blocks.fill([0; 16]);
    zeroize::optimization_barrier(blocks);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erased_blocks_are_zeros() {
        let mut blocks = [[7; 16]; 5];
        erase(&mut blocks[1..]);
        assert_eq!(blocks, [[7; 16], [0; 16], [0; 16], [0; 16], [0; 16]]);
    }
}
