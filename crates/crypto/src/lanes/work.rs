//! Unfinished messages in lanes.

use core::ops::Range;

use zeroize::Zeroize;

use super::routine::{MAX_LANES, MAX_WORDS, Routine, States, Word};
use crate::hmac::{MAX_LEN, Mac};

/// The chaining values after an HMAC's keys, and how many bytes of hash it takes. For a plain hash: its initial
/// chaining value, and no outer one.
pub(super) struct Keys<'a, W> {
    pub(super) inner: &'a [W],
    pub(super) outer: Option<&'a [W]>,
    pub(super) mac_len: usize,
}

/// A lane's next work.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Body,
    Tail,
    Outer,
    Idle,
}

/// Bytes of the longest tail: two blocks of SHA-512.
const TAIL_LEN: usize = 256;

/// Unfinished messages.
pub(super) struct Work<'a, W> {
    routine: Routine<W>,
    keys: Keys<'a, W>,
    memory: &'a [u8],
    messages: &'a [Range<usize>],
    /// The next message to be taken.
    next: usize,
    states: States<W>,
    steps: [Step; MAX_LANES],
    /// The message of each lane.
    current: [usize; MAX_LANES],
    /// Blocks left in each lane's step. An idle lane has any value.
    left: [usize; MAX_LANES],
}

impl<'a, W: Word> Work<'a, W> {
    const BLOCK_LEN: usize = W::LEN * 16;

    pub(super) fn new(
        routine: Routine<W>,
        keys: Keys<'a, W>,
        memory: &'a [u8],
        messages: &'a [Range<usize>],
    ) -> Self {
        Self {
            routine,
            keys,
            memory,
            messages,
            next: 0,
            states: States([[W::default(); MAX_LANES]; MAX_WORDS]),
            steps: [Step::Idle; MAX_LANES],
            current: [0; MAX_LANES],
            left: [0; MAX_LANES],
        }
    }

    /// Writes the code of every message.
    pub(super) fn all(&mut self, macs: &mut [Mac]) {
        // Outside of `self`, so that pointers into them stay valid while `self` changes. Only bytes that a lane has
        // written, or zeros, are read from them.
        let mut tails = [[0_u8; TAIL_LEN]; MAX_LANES];
        let mut at: [*const u8; MAX_LANES] = [tails[0].as_ptr(); MAX_LANES];
        let mut step = [0; MAX_LANES];
        // The block of an outer hash; each lane copies its inner hash into it.
        let mut outer = [0; TAIL_LEN];
        Self::pad(
            &mut outer,
            self.keys.mac_len,
            Self::BLOCK_LEN + self.keys.mac_len,
        );
        loop {
            for lane in 0..self.routine.lanes {
                while self.left[lane] == 0 {
                    self.advance(lane, &mut tails[lane], &outer, macs);
                    (at[lane], step[lane]) = match self.steps[lane] {
                        Step::Body => {
                            let message = self.messages[self.current[lane]].clone();
                            (self.memory[message].as_ptr(), Self::BLOCK_LEN)
                        }
                        Step::Tail | Step::Outer => (tails[lane].as_ptr(), Self::BLOCK_LEN),
                        Step::Idle => (tails[lane].as_ptr(), 0),
                    };
                }
            }
            let blocks = self.left[..self.routine.lanes].iter().copied().min();
            let Some(blocks) = blocks.filter(|&blocks| blocks != usize::MAX) else {
                break;
            };
            // SAFETY: the CPU was found to have the routine's instructions when it was made. Every lane's pointer is at
            // `left` whole blocks of a message or of a tail, or stays at a tail's beginning.
            unsafe { (self.routine.compress)(&mut self.states, &mut at, &step, blocks) };
            for left in &mut self.left[..self.routine.lanes] {
                if *left != usize::MAX {
                    *left -= blocks;
                }
            }
        }
        self.states.0.zeroize();
    }

    /// Ends the lane's step and begins the next one.
    fn advance(
        &mut self,
        lane: usize,
        tail: &mut [u8; TAIL_LEN],
        outer_block: &[u8; TAIL_LEN],
        macs: &mut [Mac],
    ) {
        match self.steps[lane] {
            Step::Idle => self.take(lane),
            Step::Body => {
                let message = &self.memory[self.messages[self.current[lane]].clone()];
                let rest = message.len() % Self::BLOCK_LEN;
                tail[..rest].copy_from_slice(&message[message.len() - rest..]);
                let before = match self.keys.outer {
                    Some(_) => Self::BLOCK_LEN,
                    None => 0,
                };
                self.left[lane] = Self::pad(tail, rest, before + message.len());
                self.steps[lane] = Step::Tail;
            }
            Step::Tail => match self.keys.outer {
                Some(outer) => {
                    tail[..Self::BLOCK_LEN].copy_from_slice(&outer_block[..Self::BLOCK_LEN]);
                    self.write_hash(lane, tail);
                    self.left[lane] = 1;
                    self.load_state(lane, outer);
                    self.steps[lane] = Step::Outer;
                }
                None => self.finish(lane, macs),
            },
            Step::Outer => self.finish(lane, macs),
        }
    }

    /// Stores the lane's code and gives the lane the next message.
    fn finish(&mut self, lane: usize, macs: &mut [Mac]) {
        let mut hash = [0; MAX_LEN];
        self.write_hash(lane, &mut hash);
        macs[self.current[lane]] = Mac::of_array(hash, self.keys.mac_len);
        self.take(lane);
    }

    /// Starts the next message in the lane. Its body may have no block.
    fn take(&mut self, lane: usize) {
        let Some(message) = self.messages.get(self.next) else {
            self.steps[lane] = Step::Idle;
            self.left[lane] = usize::MAX;
            return;
        };
        self.load_state(lane, self.keys.inner);
        self.steps[lane] = Step::Body;
        self.current[lane] = self.next;
        self.left[lane] = message.len() / Self::BLOCK_LEN;
        self.next += 1;
    }

    fn load_state(&mut self, lane: usize, state: &[W]) {
        for (words, word) in self.states.0.iter_mut().zip(state) {
            words[lane] = *word;
        }
    }

    /// Writes the part of the lane's hash that the code takes: whole words.
    fn write_hash(&self, lane: usize, bytes: &mut [u8]) {
        for word in 0..self.keys.mac_len / W::LEN {
            self.states.0[word][lane].write(&mut bytes[word * W::LEN..]);
        }
    }

    /// Ends a message of `total` bytes whose last `len` are in `tail` (FIPS 180-4, section 5.1), and returns the tail's
    /// blocks.
    fn pad(tail: &mut [u8; TAIL_LEN], len: usize, total: usize) -> usize {
        // The length takes two words.
        let blocks = (len + 1 + 2 * W::LEN).div_ceil(Self::BLOCK_LEN);
        let end = blocks * Self::BLOCK_LEN;
        tail[len] = 0x80;
        tail[len + 1..end - 8].fill(0);
        tail[end - 8..end].copy_from_slice(&(total as u64 * 8).to_be_bytes());
        blocks
    }
}
