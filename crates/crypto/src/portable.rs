//! Portable code in constant time: integers of the machine's word size, and no other CPU features.
//!
//! Chips without vector registers run this code, and the other code is compared with it. AWS-LC has portable code too,
//! which takes one packet at a time. Where its assembly for plain instructions is faster, measurement chooses it.
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
mod gcm;
mod ghash;
mod poly1305;
mod sbox;
mod slices;

#[cfg(all(neon, target_arch = "arm"))]
pub(crate) use aes::substituted;
#[cfg(any(target_arch = "x86_64", neon))]
pub(crate) use aes::{MAX_ROUNDS, expand, rounds};
pub(crate) use cbc::Cbc;
pub(crate) use chacha20::ChaChaPoly;
pub(crate) use gcm::Gcm;

/// The machine's word, which sets the number of AES's lanes.
#[cfg(target_pointer_width = "64")]
type Native = u64;

/// The machine's word, which sets the number of AES's lanes.
#[cfg(not(target_pointer_width = "64"))]
type Native = u32;

/// Fills blocks with zeros in a way that a compiler cannot remove, though nothing reads them again. Writes them at
/// once: `zeroize` writes byte by byte, which would be noticeable for a single small packet.
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
