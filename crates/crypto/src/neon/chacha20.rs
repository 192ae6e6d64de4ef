//! ChaCha20 (RFC 8439) over many texts: each pass computes four blocks, which may be of different texts.
//!
//! ```text
//! long texts    | four blocks | four blocks | four blocks |  passes of their own
//! what is left                                            | block | block | end |  with other texts' in a pass
//! ```

use core::marker::PhantomData;

use zeroize::Zeroizing;

/// "expand 32-byte k".
const CONSTANTS: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];

/// Bytes of a block.
const BLOCK: usize = 64;

/// Blocks in a pass.
const LANES: usize = 4;

unsafe extern "C" {
    /// XORs blocks of keystream into 64 bytes at each of four places. `rows` has 12 elements, `lanes` and `at` have 4.
    /// For each further pass the counters advance by 4 and the places by 256 bytes.
    fn millrace_chacha20_x4(
        rows: *const [u32; 4],
        lanes: *const [u32; 4],
        at: *const *mut u8,
        passes: usize,
    );
}

/// A key, on a machine with NEON.
pub(super) struct ChaCha20 {
    /// The first twelve words of the state, each four times.
    rows: Zeroizing<[[u32; 4]; 12]>,
}

impl ChaCha20 {
    /// # Safety
    /// The CPU has NEON.
    pub(super) unsafe fn new(key: &[u8; 32]) -> Self {
        let mut rows = Zeroizing::new([[0; 4]; 12]);
        for (row, word) in rows.iter_mut().zip(CONSTANTS) {
            *row = [word; 4];
        }
        for (row, bytes) in rows[4..].iter_mut().zip(key.as_chunks::<4>().0) {
            *row = [u32::from_le_bytes(*bytes); 4];
        }
        Self { rows }
    }
}

/// Computes the beginning of the first block of each nonce.
///
/// # Panics
/// On a CPU without NEON.
pub(crate) fn first_blocks(key: &[u8; 32], nonces: &[[u8; 12]], beginnings: &mut [[u8; 16]]) {
    assert!(crate::cpu::has_neon());
    // SAFETY: the line above found NEON.
    let key = unsafe { ChaCha20::new(key) };
    for (nonces, beginnings) in nonces.chunks(LANES).zip(beginnings.chunks_mut(LANES)) {
        let mut blocks = [[0; BLOCK / 4]; LANES];
        let mut keystream = Keystream::new(&key, &mut []);
        for (bytes, block) in nonces.iter().zip(&mut blocks) {
            keystream.first_block(nonce(bytes), block);
        }
        keystream.flush();
        for (beginning, block) in beginnings.iter_mut().zip(&blocks) {
            for (bytes, word) in beginning.as_chunks_mut::<4>().0.iter_mut().zip(block) {
                *bytes = word.to_le_bytes();
            }
        }
    }
}

/// A packet's nonce as words.
pub(super) type Nonce = [u32; 3];

/// The words of a nonce.
pub(super) fn nonce(bytes: &[u8; 12]) -> Nonce {
    let words = bytes.as_chunks::<4>().0;
    core::array::from_fn(|word| u32::from_le_bytes(words[word]))
}

/// Keystream that is being XORed into texts and keys.
///
/// Blocks that do not fill a pass wait for others; [`flush`](Self::flush) processes the last ones.
pub(super) struct Keystream<'a> {
    key: &'a ChaCha20,
    /// The memory of the texts and its length.
    memory: *mut u8,
    len: usize,
    /// The next pass: counter and nonce of each lane, and its destination. The destination is null for a lane's buffer,
    /// whose address may change until then.
    lanes: [[u32; 4]; LANES],
    at: [*mut u8; LANES],
    filled: usize,
    /// The destination and length of a text's end that is shorter than a block; no bytes for a lane with a whole block.
    ends: [(*mut u8, usize); LANES],
    /// The buffers for such ends, and the memory for lanes without work.
    buffers: Buffers,
    borrowed: PhantomData<&'a mut [u8]>,
}

/// A block for each lane, erased on drop: texts, and keystream where there was no text.
struct Buffers([[u8; BLOCK]; LANES]);

impl Drop for Buffers {
    /// Writes all bytes at once: `zeroize` writes byte by byte, which would be noticeable for a single small packet.
    fn drop(&mut self) {
        self.0 = [[0; BLOCK]; LANES];
        zeroize::optimization_barrier(&self.0);
    }
}

impl<'a> Keystream<'a> {
    pub(super) fn new(key: &'a ChaCha20, memory: &'a mut [u8]) -> Self {
        Self {
            key,
            memory: memory.as_mut_ptr(),
            len: memory.len(),
            lanes: [[0; 4]; LANES],
            at: [core::ptr::null_mut(); LANES],
            filled: 0,
            ends: [(core::ptr::null_mut(), 0); LANES],
            buffers: Buffers([[0; BLOCK]; LANES]),
            borrowed: PhantomData,
        }
    }

    /// XORs the packet's first block of keystream into `block`: Poly1305's key.
    pub(super) fn first_block(&mut self, nonce: Nonce, block: &'a mut [u32; BLOCK / 4]) {
        self.push(nonce, 0, block.as_mut_ptr().cast());
    }

    /// XORs the blocks of keystream after the first into the text.
    ///
    /// # Panics
    /// If the text does not lie within the memory.
    pub(super) fn text(&mut self, nonce: Nonce, text: &core::ops::Range<usize>) {
        assert!(text.start <= text.end && text.end <= self.len);
        // SAFETY: within the memory, as the line above says, and at its end at most.
        let mut at = unsafe { self.memory.add(text.start) };
        let mut left = text.len();
        let mut counter = 1;
        let passes = left / (LANES * BLOCK);
        if passes > 0 {
            let [n0, n1, n2] = nonce;
            let lanes: [_; LANES] = core::array::from_fn(|lane| [1 + lane as u32, n0, n1, n2]);
            // SAFETY: NEON was found when the key was made. All passes together go over whole blocks of the text.
            at = unsafe {
                let places: [_; LANES] = core::array::from_fn(|lane| at.add(lane * BLOCK));
                let rows = self.key.rows.as_ptr();
                millrace_chacha20_x4(rows, lanes.as_ptr(), places.as_ptr(), passes);
                at.add(passes * LANES * BLOCK)
            };
            left -= passes * LANES * BLOCK;
            // Past ChaCha20's 256 GiB the keystream would repeat. No packet is so long.
            counter += (passes * LANES) as u32;
        }
        while left >= BLOCK {
            self.push(nonce, counter, at);
            // SAFETY: there are so many bytes left.
            at = unsafe { at.add(BLOCK) };
            left -= BLOCK;
            counter += 1;
        }
        if left > 0 {
            self.push_end(nonce, counter, at, left);
        }
    }

    /// Adds a text's end, shorter than a block, through a buffer.
    fn push_end(&mut self, nonce: Nonce, counter: u32, at: *mut u8, len: usize) {
        let lane = self.filled;
        let buffer = self.buffers.0[lane].as_mut_ptr();
        // SAFETY: the caller has so many bytes, and they are fewer than the buffer has.
        unsafe { core::ptr::copy_nonoverlapping(at, buffer, len) };
        self.ends[lane] = (at, len);
        self.push(nonce, counter, core::ptr::null_mut());
    }

    /// Adds a block to the next pass.
    fn push(&mut self, [n0, n1, n2]: Nonce, counter: u32, at: *mut u8) {
        self.lanes[self.filled] = [counter, n0, n1, n2];
        self.at[self.filled] = at;
        self.filled += 1;
        if self.filled == LANES {
            self.pass();
        }
    }

    /// Processes the blocks that still wait.
    pub(super) fn flush(mut self) {
        if self.filled > 0 {
            self.at[self.filled..].fill(core::ptr::null_mut());
            self.pass();
        }
    }

    fn pass(&mut self) {
        for (at, buffer) in self.at.iter_mut().zip(&mut self.buffers.0) {
            if at.is_null() {
                *at = buffer.as_mut_ptr();
            }
        }
        // SAFETY: NEON was found when the key was made. Each place has a block: of a text, of a key, or a buffer of
        // ours.
        unsafe {
            let rows = self.key.rows.as_ptr();
            millrace_chacha20_x4(rows, self.lanes.as_ptr(), self.at.as_ptr(), 1);
        }
        for lane in 0..self.filled {
            let (at, len) = self.ends[lane];
            if len > 0 {
                // SAFETY: the bytes that `push_end` took.
                unsafe { core::ptr::copy_nonoverlapping(self.buffers.0[lane].as_ptr(), at, len) };
                self.ends[lane].1 = 0;
            }
        }
        self.filled = 0;
    }
}
