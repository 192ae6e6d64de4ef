//! CBC mode over blocks of 64 bits, several chains at once.
//!
//! The rounds of these ciphers are look-ups in tables, each of which waits for the one before; a CPU can do several
//! such chains in the time of one.

use crate::implementations::Chain;

/// Chains that are processed together. Eight exceed the registers, but with Blowfish are still faster than six.
const LANES: usize = 8;

/// A block as its two big-endian words.
pub(super) type Halves = (u32, u32);

/// A cipher with its key.
pub(super) trait SmallBlocks {
    /// Encrypts or decrypts `N` independent blocks.
    fn rounds<const N: usize, const ENCRYPT: bool>(&self, blocks: [Halves; N]) -> [Halves; N];
}

/// Encrypts the chains in place.
///
/// # Panics
/// If a chain does not lie within `memory`.
pub(super) fn encrypt<C: SmallBlocks>(cipher: &C, memory: &mut [u8], chains: &[Chain]) {
    let mut lanes = [Lane::default(); LANES];
    let mut next = chains.iter();
    loop {
        // A lane whose chain has ended takes the next one. When none is left, the remaining chains end one by one: the
        // last of a batch are not worth more code.
        for lane in &mut lanes {
            while lane.at == lane.end
                && let Some(chain) = next.next()
            {
                *lane = Lane::new(memory, chain);
            }
        }
        let steps = lanes.iter().map(|lane| lane.end - lane.at).min();
        let steps = steps.unwrap_or(0) / 8;
        if steps == 0 {
            break;
        }
        encrypt_together(cipher, memory, &mut lanes, steps);
    }
    for lane in &mut lanes {
        let steps = (lane.end - lane.at) / 8;
        encrypt_together(cipher, memory, core::array::from_mut(lane), steps);
    }
}

#[inline(always)]
fn encrypt_together<C: SmallBlocks, const N: usize>(
    cipher: &C,
    memory: &mut [u8],
    lanes: &mut [Lane; N],
    steps: usize,
) {
    let mut previous = lanes.map(|lane| lane.previous);
    let starts = lanes.map(|lane| lane.at);
    for step in 0..steps {
        let mut blocks = previous;
        for lane in 0..N {
            let text = load(&memory[starts[lane] + step * 8..]);
            blocks[lane].0 ^= text.0;
            blocks[lane].1 ^= text.1;
        }
        previous = cipher.rounds::<N, true>(blocks);
        for lane in 0..N {
            store(&mut memory[starts[lane] + step * 8..], previous[lane]);
        }
    }
    for (lane, previous) in lanes.iter_mut().zip(previous) {
        lane.previous = previous;
        lane.at += steps * 8;
    }
}

/// Decrypts the chains in place.
///
/// # Panics
/// If a chain does not lie within `memory`.
pub(super) fn decrypt<C: SmallBlocks>(cipher: &C, memory: &mut [u8], chains: &[Chain]) {
    for chain in chains {
        let (iv, blocks) = chain.parts::<8>(memory);
        let mut previous = load(&iv);
        // Decryption has no chains: no block waits for another.
        let (groups, rest) = blocks.as_chunks_mut::<LANES>();
        for group in groups {
            decrypt_together(cipher, group, &mut previous);
        }
        for block in rest {
            decrypt_together(cipher, core::array::from_mut(block), &mut previous);
        }
    }
}

#[inline(always)]
fn decrypt_together<C: SmallBlocks, const N: usize>(
    cipher: &C,
    bytes: &mut [[u8; 8]; N],
    previous: &mut Halves,
) {
    let sealed: [Halves; N] = core::array::from_fn(|at| load(&bytes[at]));
    let opened = cipher.rounds::<N, false>(sealed);
    for at in 0..N {
        let text = (opened[at].0 ^ previous.0, opened[at].1 ^ previous.1);
        store(&mut bytes[at], text);
        *previous = sealed[at];
    }
}

/// State of a chain.
#[derive(Clone, Copy, Default)]
struct Lane {
    at: usize,
    end: usize,
    previous: Halves,
}

impl Lane {
    fn new(memory: &mut [u8], chain: &Chain) -> Self {
        let (iv, blocks) = chain.parts::<8>(memory);
        Self {
            at: chain.start,
            end: chain.start + blocks.len() * 8,
            previous: load(&iv),
        }
    }
}

/// The first block of `bytes`.
#[inline(always)]
pub(super) fn load(bytes: &[u8]) -> Halves {
    let [a, b, c, d, e, f, g, h] = *bytes.first_chunk().unwrap_or(&[0; 8]);
    (
        u32::from_be_bytes([a, b, c, d]),
        u32::from_be_bytes([e, f, g, h]),
    )
}

#[inline(always)]
fn store(bytes: &mut [u8], (left, right): Halves) {
    bytes[..4].copy_from_slice(&left.to_be_bytes());
    bytes[4..8].copy_from_slice(&right.to_be_bytes());
}
