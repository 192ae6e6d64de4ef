//! HMACs of many messages at once: a message in each lane of the vector registers.
//!
//! SHA's rounds wait for each other, so that one message cannot fill wide registers. Sixteen messages can; in portable code
//! there is a single lane. A lane goes
//! through its message in four steps, and then takes the next one, so that messages of all lengths go together:
//!
//! ```text
//! body    the whole blocks, where they lie in memory
//! tail    what remains, and the padding: one block or two, from a buffer
//! outer   the hash of that, behind the outer key: one block
//! take    the code; then the next message, or none: the lane is idle
//! ```

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(neon)]
mod neon;
mod scalar;
mod sha1;
mod sha2;

use core::ops::Range;

use zeroize::Zeroize;

use crate::hmac::{Hmac, MAX_LEN, Mac, MacKey, State};
use crate::kernels::MacKernel;

/// Lanes of the widest. On ARM the kernels in assembly and C rely on it.
const MAX_LANES: usize = if cfg!(neon) { 4 } else { 16 };

/// Words of the longest chaining value.
const MAX_WORDS: usize = 8;

/// A word of a hash: 32 or 64 bits.
pub(crate) trait Word: Copy + Default + Zeroize {
    /// Bytes of it.
    const LEN: usize;

    /// Writes it, big-endian.
    fn write(self, bytes: &mut [u8]);
}

impl Word for u32 {
    const LEN: usize = 4;

    fn write(self, bytes: &mut [u8]) {
        bytes[..4].copy_from_slice(&self.to_be_bytes());
    }
}

impl Word for u64 {
    const LEN: usize = 8;

    fn write(self, bytes: &mut [u8]) {
        bytes[..8].copy_from_slice(&self.to_be_bytes());
    }
}

/// The chaining values of all lanes, by word.
#[repr(C, align(64))]
struct States<W>([[W; MAX_LANES]; MAX_WORDS]);

/// Hashes a number of blocks in every lane: the blocks at `at`, which goes on by `step` for each.
///
/// # Safety
/// The CPU has the instructions, and the blocks are in memory that can be read.
type Compress<W> = unsafe extern "C" fn(
    states: &mut States<W>,
    at: &mut [*const u8; MAX_LANES],
    step: &[usize; MAX_LANES],
    blocks: usize,
);

/// Code for one hash on this machine.
#[derive(Clone, Copy)]
struct Kernel<W> {
    compress: Compress<W>,
    /// How many of [`MAX_LANES`] it uses.
    lanes: usize,
    /// Messages from which on it is faster than hashing one after the other, without SHA's own instructions and with them.
    /// The second was measured with 1,420 bytes on a Xeon that has them, the first follows from what the library is said to
    /// do without.
    worth: [usize; 2],
    name: &'static str,
}

impl<W> Kernel<W> {
    fn share(&self, messages: usize) -> usize {
        let rest = messages % self.lanes;
        if rest < self.worth[usize::from(has_sha())] {
            messages - rest
        } else {
            messages
        }
    }
}

/// Whether the CPU has instructions for SHA-1 and SHA-256.
fn has_sha() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("sha");
    #[cfg(target_arch = "aarch64")]
    return crate::cpu::has_sha();
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    false
}

/// HMACs in lanes; what would leave most of them empty goes through the library.
pub(crate) struct MacLanes {
    lanes: Lanes,
    hmac: Hmac,
}

impl MacLanes {
    /// One lane, on any machine; `None` for what is neither SHA-1 nor SHA-2.
    pub(crate) fn portable(key: &MacKey) -> Option<Self> {
        Self::of_width(key, Width::Scalar)
    }

    /// Eight lanes, or four of SHA-512's; `None` on a machine that lacks the instructions.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn avx2(key: &MacKey) -> Option<Self> {
        Self::of_width(key, Width::Avx2)
    }

    /// Sixteen lanes, or eight of SHA-512's; `None` on a machine that lacks the instructions.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn avx512(key: &MacKey) -> Option<Self> {
        Self::of_width(key, Width::Avx512)
    }

    /// Four lanes, or two of SHA-512's; `None` on a machine that lacks the instructions.
    #[cfg(neon)]
    pub(crate) fn neon(key: &MacKey) -> Option<Self> {
        Self::of_width(key, Width::Neon)
    }

    /// Two lanes, by the instructions for SHA-1 and SHA-256; `None` on a machine that lacks them, and for SHA-512.
    #[cfg(all(neon, target_arch = "aarch64"))]
    pub(crate) fn sha(key: &MacKey) -> Option<Self> {
        Self::of_width(key, Width::Sha)
    }

    fn of_width(key: &MacKey, width: Width) -> Option<Self> {
        Some(Self {
            lanes: Lanes::of_width(key.hmac().states().0, width)?,
            hmac: key.hmac().clone(),
        })
    }
}

impl MacKernel for MacLanes {
    fn sign_each(&self, memory: &[u8], messages: &[Range<usize>], macs: &mut [Mac]) {
        let (many, few) = messages.split_at(self.lanes.share(messages.len()));
        let (many_macs, few_macs) = macs.split_at_mut(many.len());
        let mac_len = self.hmac.digest().len();
        let (inner, outer) = self.hmac.states();
        self.lanes
            .sign((inner, Some(outer)), mac_len, memory, many, many_macs);
        for (message, mac) in few.iter().zip(few_macs) {
            *mac = self.hmac.sign(&[&memory[message.clone()]]);
        }
    }

    fn hash_each(&self, memory: &[u8], messages: &[Range<usize>], hashes: &mut [Mac]) -> bool {
        let digest = self.hmac.digest();
        let Some(start) = State::new(digest) else {
            return false;
        };
        let (many, few) = messages.split_at(self.lanes.share(messages.len()));
        let (many_hashes, few_hashes) = hashes.split_at_mut(many.len());
        self.lanes
            .sign((&start, None), digest.len(), memory, many, many_hashes);
        for (message, hash) in few.iter().zip(few_hashes) {
            *hash = digest.hash(&memory[message.clone()]);
        }
        true
    }

    fn describe(&self) -> &'static str {
        self.lanes.name()
    }
}

/// The code for an HMAC's hash on this machine.
#[derive(Clone, Copy)]
enum Lanes {
    Sha1(Kernel32),
    Sha256(Kernel32),
    Sha512(Kernel64),
}

/// A kernel over words of 32 bits.
#[derive(Clone, Copy)]
struct Kernel32(Kernel<u32>);

/// A kernel over words of 64 bits.
#[derive(Clone, Copy)]
struct Kernel64(Kernel<u64>);

/// Which instructions to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Width {
    Scalar,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(neon)]
    Neon,
    #[cfg(all(neon, target_arch = "aarch64"))]
    Sha,
}

impl Lanes {
    /// The code of one width, if the machine has the instructions.
    fn of_width(hash: &State, width: Width) -> Option<Self> {
        let present = match width {
            Width::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Width::Avx2 => is_x86_feature_detected!("avx2"),
            #[cfg(target_arch = "x86_64")]
            Width::Avx512 => {
                is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw")
            }
            #[cfg(neon)]
            Width::Neon => crate::cpu::has_neon(),
            #[cfg(all(neon, target_arch = "aarch64"))]
            Width::Sha => has_sha(),
        };
        if !present {
            return None;
        }
        Some(match (hash, width) {
            (State::Sha1(_), Width::Scalar) => Self::Sha1(Kernel32(scalar::SHA1)),
            (State::Sha256(..), Width::Scalar) => Self::Sha256(Kernel32(scalar::SHA256)),
            (State::Sha512(..), Width::Scalar) => Self::Sha512(Kernel64(scalar::SHA512)),
            #[cfg(target_arch = "x86_64")]
            (State::Sha1(_), Width::Avx2) => Self::Sha1(Kernel32(avx2::SHA1)),
            #[cfg(target_arch = "x86_64")]
            (State::Sha256(..), Width::Avx2) => Self::Sha256(Kernel32(avx2::SHA256)),
            #[cfg(target_arch = "x86_64")]
            (State::Sha512(..), Width::Avx2) => Self::Sha512(Kernel64(avx2::SHA512)),
            #[cfg(target_arch = "x86_64")]
            (State::Sha1(_), Width::Avx512) => Self::Sha1(Kernel32(avx512::SHA1)),
            #[cfg(target_arch = "x86_64")]
            (State::Sha256(..), Width::Avx512) => Self::Sha256(Kernel32(avx512::SHA256)),
            #[cfg(target_arch = "x86_64")]
            (State::Sha512(..), Width::Avx512) => Self::Sha512(Kernel64(avx512::SHA512)),
            #[cfg(neon)]
            (State::Sha1(_), Width::Neon) => Self::Sha1(Kernel32(neon::SHA1)),
            #[cfg(neon)]
            (State::Sha256(..), Width::Neon) => Self::Sha256(Kernel32(neon::SHA256)),
            #[cfg(neon)]
            (State::Sha512(..), Width::Neon) => Self::Sha512(Kernel64(neon::SHA512)),
            #[cfg(all(neon, target_arch = "aarch64"))]
            (State::Sha1(_), Width::Sha) => Self::Sha1(Kernel32(neon::SHA1_INSTRUCTIONS)),
            #[cfg(all(neon, target_arch = "aarch64"))]
            (State::Sha256(..), Width::Sha) => Self::Sha256(Kernel32(neon::SHA256_INSTRUCTIONS)),
            #[cfg(all(neon, target_arch = "aarch64"))]
            (State::Sha512(..), Width::Sha) => return None,
            (State::Other(_), _) => return None,
        })
    }

    /// How many of `messages`, from the first, are for it: all, but for what would leave most lanes empty.
    fn share(&self, messages: usize) -> usize {
        match self {
            Self::Sha1(kernel) | Self::Sha256(kernel) => kernel.0.share(messages),
            Self::Sha512(kernel) => kernel.0.share(messages),
        }
    }

    /// Whose code it is, for which instructions.
    fn name(&self) -> &'static str {
        match self {
            Self::Sha1(kernel) | Self::Sha256(kernel) => kernel.0.name,
            Self::Sha512(kernel) => kernel.0.name,
        }
    }

    /// The code of each message, or without an outer state its plain hash.
    ///
    /// # Panics
    /// If a message does not lie within `memory`, or there are more messages than `macs`.
    fn sign(
        &self,
        (inner, outer): (&State, Option<&State>),
        mac_len: usize,
        memory: &[u8],
        messages: &[Range<usize>],
        macs: &mut [Mac],
    ) {
        match self {
            Self::Sha1(kernel) | Self::Sha256(kernel) => {
                if let Some(inner) = inner.words32() {
                    let keys = Keys {
                        inner,
                        outer: outer.and_then(State::words32),
                        mac_len,
                    };
                    Work::new(kernel.0, keys, memory, messages).all(macs);
                }
            }
            Self::Sha512(kernel) => {
                if let Some(inner) = inner.words64() {
                    let keys = Keys {
                        inner,
                        outer: outer.and_then(State::words64),
                        mac_len,
                    };
                    Work::new(kernel.0, keys, memory, messages).all(macs);
                }
            }
        }
    }
}

/// The chaining values behind an HMAC's keys, and how many bytes of hash it takes. For a plain hash its initial chaining
/// value, and no outer one.
struct Keys<'a, W> {
    inner: &'a [W],
    outer: Option<&'a [W]>,
    mac_len: usize,
}

/// What a lane does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Body,
    Tail,
    Outer,
    Idle,
}

/// Bytes of the longest tail: two blocks of SHA-512.
const TAIL_LEN: usize = 256;

/// Messages under way.
struct Work<'a, W> {
    kernel: Kernel<W>,
    keys: Keys<'a, W>,
    memory: &'a [u8],
    messages: &'a [Range<usize>],
    /// The next message to be taken.
    next: usize,
    states: States<W>,
    steps: [Step; MAX_LANES],
    /// The message of each lane.
    current: [usize; MAX_LANES],
    /// Blocks left in each lane's step. An idle lane has any number.
    left: [usize; MAX_LANES],
}

impl<'a, W: Word> Work<'a, W> {
    const BLOCK_LEN: usize = W::LEN * 16;

    fn new(
        kernel: Kernel<W>,
        keys: Keys<'a, W>,
        memory: &'a [u8],
        messages: &'a [Range<usize>],
    ) -> Self {
        Self {
            kernel,
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

    fn all(&mut self, macs: &mut [Mac]) {
        // Outside of `self`, so that what points into them stays good while `self` changes. Nothing is read of them but what
        // a lane has written, or zeros.
        let mut tails = [[0_u8; TAIL_LEN]; MAX_LANES];
        let mut at: [*const u8; MAX_LANES] = [tails[0].as_ptr(); MAX_LANES];
        let mut step = [0; MAX_LANES];
        // The block of an outer hash, for the inner one to be put into.
        let mut outer = [0; TAIL_LEN];
        Self::pad(
            &mut outer,
            self.keys.mac_len,
            Self::BLOCK_LEN + self.keys.mac_len,
        );
        loop {
            for lane in 0..self.kernel.lanes {
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
            let blocks = self.left[..self.kernel.lanes].iter().copied().min();
            let Some(blocks) = blocks.filter(|&blocks| blocks != usize::MAX) else {
                break;
            };
            // SAFETY: who made the kernel has found its instructions. Every lane's pointer is at `left` whole blocks of a
            // message or of a tail, or stays at a tail's beginning.
            unsafe { (self.kernel.compress)(&mut self.states, &mut at, &step, blocks) };
            for left in &mut self.left[..self.kernel.lanes] {
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

    /// Notes the lane's code and gives it the next message.
    fn finish(&mut self, lane: usize, macs: &mut [Mac]) {
        let mut hash = [0; MAX_LEN];
        self.write_hash(lane, &mut hash);
        macs[self.current[lane]] = Mac::of_array(hash, self.keys.mac_len);
        self.take(lane);
    }

    /// Gives the lane the next message. Its body may have no block.
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

    /// Writes as much of the lane's hash as the code has: whole words.
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
