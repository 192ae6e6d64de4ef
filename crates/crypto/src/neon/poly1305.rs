//! Poly1305 (RFC 8439) of many packets: two in parallel, of any lengths. When one ends, the next takes its lane.
//!
//! A step takes two blocks of each packet. A packet with an odd number of blocks begins with a block that counts as
//! zero.
//!
//! ```text
//! head    associated data, and a block of text if that makes it even    from a buffer
//! body    the text, where it lies
//! tail    what is left of it, filled up with zeros, and the lengths      from a buffer
//! ```

use crate::implementations::Place;

/// Bytes of a block.
const BLOCK: usize = 16;

/// Bytes in a step.
const STEP: usize = 2 * BLOCK;

/// Messages in parallel.
const LANES: usize = 2;

/// A mask of 26 bits.
#[cfg(not(target_arch = "arm"))]
const LIMB: u32 = 0x3ff_ffff;

/// Bytes of a lane's buffer for the head, or for the whole of a short packet.
const HEAD: usize = 4 * STEP;

/// The longest associated data: the room of a head besides a block of zeros and one of text. Protocols use at most 24
/// bytes.
pub(super) const MAX_AAD: usize = HEAD - 2 * BLOCK;

/// ChaCha20's first block, of which the first half is the key: r and s.
pub(super) type KeyBlock = [u32; 16];

/// A tag as four little-endian words.
pub(super) type Tag = [u32; 4];

/// The state for assembly and C. Erased on drop.
#[repr(C, align(16))]
struct State {
    /// r0 r1 5r1 r2 5r2 r3 5r3 r4 5r4; in each row r^2 of both lanes, then r of both.
    powers: [[u32; 2 * LANES]; 9],
    /// Limbs of slightly more than 26 bits.
    h: [[u32; LANES]; 5],
}

impl Drop for State {
    /// Writes all words at once: `zeroize` writes word by word, which would be noticeable for a single small packet.
    fn drop(&mut self) {
        self.powers = Default::default();
        self.h = Default::default();
        zeroize::optimization_barrier(self);
    }
}

unsafe extern "C" {
    fn millrace_poly1305_x2(state: *mut State, first: *const u8, second: *const u8, steps: usize);
}

/// Computes the tags of packets with encrypted texts.
///
/// # Safety
/// The CPU has NEON.
///
/// # Panics
/// If a packet's parts do not lie within `memory`, or its associated data is longer than [`MAX_AAD`].
pub(super) unsafe fn tags(memory: &[u8], places: &[Place], keys: &[KeyBlock], tags: &mut [Tag]) {
    let mut state = State {
        powers: [[0; 2 * LANES]; 9],
        h: [[0; LANES]; 5],
    };
    let mut lanes = [Lane::new(), Lane::new()];
    let Some(any) = keys.first() else { return };
    let mut next = 0;
    loop {
        // Both lanes' tags at once if both end, as with packets of one length.
        let ended = [0, 1].map(|number: usize| {
            let lane = &mut lanes[number];
            lane.left == 0 && !lane.advance()
        });
        if ended != [false; LANES] {
            let of = lanes
                .each_ref()
                .map(|lane| lane.packet.map_or(any, |packet| &keys[packet]));
            if ended
                .iter()
                .zip(&lanes)
                .any(|(&ended, lane)| ended && lane.packet.is_some())
            {
                // SAFETY: the caller has found NEON.
                let sums = unsafe { state.tags(ended, of) };
                for ((lane, ended), sum) in lanes.iter_mut().zip(ended).zip(sums) {
                    if let Some(packet) = lane.packet.take_if(|_| ended) {
                        tags[packet] = sum;
                    }
                }
            }
            let mut begun = [None; LANES];
            for (lane, begun) in lanes.iter_mut().zip(&mut begun) {
                if lane.packet.is_none()
                    && let Some(place) = places.get(next)
                {
                    *begun = Some(lane.take(memory, place));
                    lane.packet = Some(next);
                    next += 1;
                }
            }
            if begun != [None; LANES] {
                let of = lanes
                    .each_ref()
                    .map(|lane| lane.packet.map_or(any, |packet| &keys[packet]));
                // SAFETY: the caller has found NEON.
                unsafe { state.begin(begun, of) };
            }
        }
        let [first, second] = &mut lanes;
        // A lane without a packet reads the other lane's bytes.
        let (steps, at) = match (first.left, second.left) {
            (0, 0) => break,
            (left, 0) => (left, [first.at, first.at]),
            (0, left) => (left, [second.at, second.at]),
            (left, other) => (left.min(other), [first.at, second.at]),
        };
        // SAFETY: the caller has found NEON, and each lane has at least so many steps before it.
        unsafe { millrace_poly1305_x2(&raw mut state, at[0], at[1], steps) };
        for lane in &mut lanes {
            if lane.left > 0 {
                lane.left -= steps;
                lane.at = lane.at.wrapping_add(steps * STEP);
            }
        }
    }
}

/// The position of a lane in its packet.
struct Lane {
    packet: Option<usize>,
    /// The next bytes, and the number of steps with them.
    at: *const u8,
    left: usize,
    /// The parts after that: body and tail, if present. The last element comes next.
    behind: [(*const u8, usize); 2],
    head: [u8; HEAD],
    tail: [u8; STEP],
}

impl Lane {
    fn new() -> Self {
        Self {
            packet: None,
            at: core::ptr::null(),
            left: 0,
            behind: [(core::ptr::null(), 0); 2],
            head: [0; HEAD],
            tail: [0; STEP],
        }
    }

    /// Advances to the packet's next part; returns `false` at the packet's end.
    fn advance(&mut self) -> bool {
        for part in self.behind.iter_mut().rev() {
            if part.1 > 0 {
                (self.at, self.left) = *part;
                part.1 = 0;
                return true;
            }
        }
        false
    }

    /// Begins a packet, and returns whether it begins with a block of zeros.
    fn take(&mut self, memory: &[u8], place: &Place) -> bool {
        let aad = &memory[place.aad.clone()];
        let mut text = &memory[place.text.clone()];
        assert!(aad.len() <= MAX_AAD);
        let mut lengths = [0; BLOCK];
        lengths[..8].copy_from_slice(&(aad.len() as u64).to_le_bytes());
        lengths[8..].copy_from_slice(&(text.len() as u64).to_le_bytes());

        let blocks = aad.len().div_ceil(BLOCK) + text.len().div_ceil(BLOCK) + 1;
        let lead = !blocks.is_multiple_of(2);
        let mut filled = if lead { BLOCK } else { 0 };
        self.head[..BLOCK].fill(0);
        filled += pad(&mut self.head[filled..], aad);
        self.at = self.head.as_ptr();
        if blocks <= HEAD / BLOCK {
            filled += pad(&mut self.head[filled..], text);
            self.head[filled..][..BLOCK].copy_from_slice(&lengths);
            self.left = (filled + BLOCK) / STEP;
            return lead;
        }
        if !filled.is_multiple_of(STEP) {
            // The text has a whole block: a text that fits into the head was handled above, and the head has room for
            // the longest associated data and more than a block.
            let (block, others) = text.split_at(BLOCK);
            self.head[filled..][..BLOCK].copy_from_slice(block);
            filled += BLOCK;
            text = others;
        }
        self.left = filled / STEP;
        let (body, rest) = text.split_at(text.len() / STEP * STEP);
        // The number of blocks is even, so one, whole or not, is left for the block of lengths.
        pad(&mut self.tail, rest);
        self.tail[BLOCK..].copy_from_slice(&lengths);
        self.behind = [(self.tail.as_ptr(), 1), (body.as_ptr(), body.len() / STEP)];
        if self.left == 0 {
            self.advance();
        }
        lead
    }
}

/// Copies `bytes` and pads the last block with zeros. Returns the bytes of all blocks.
fn pad(buffer: &mut [u8], bytes: &[u8]) -> usize {
    let end = bytes.len().next_multiple_of(BLOCK);
    // Clears the whole last block: a fixed length needs no call.
    if let Some(last) = buffer[..end].last_chunk_mut() {
        *last = [0; BLOCK];
    }
    buffer[..bytes.len()].copy_from_slice(bytes);
    end
}

impl State {
    /// Begins messages in these lanes; `Some(true)` begins with a block that counts as zero. `keys` are both lanes'.
    ///
    /// # Safety
    /// The CPU has NEON.
    unsafe fn begin(&mut self, begun: [Option<bool>; LANES], keys: [&KeyBlock; LANES]) {
        // SAFETY: the caller promises NEON.
        unsafe { powers::set(&mut self.powers, begun, keys) };
        for (lane, lead) in begun.into_iter().enumerate() {
            let Some(lead) = lead else { continue };
            for limbs in &mut self.h {
                limbs[lane] = 0;
            }
            if lead {
                // Adding a block sets a bit above its 16 bytes. This cancels the bit for the block of zeros.
                self.h[4][lane] = (1_u32 << 24).wrapping_neg();
            }
        }
    }

    /// Computes the tags of messages that have ended in these lanes. `keys` are both lanes'.
    ///
    /// # Safety
    /// The CPU has NEON.
    unsafe fn tags(&self, ended: [bool; LANES], keys: [&KeyBlock; LANES]) -> [Tag; LANES] {
        // SAFETY: the caller promises NEON.
        unsafe { powers::tags(&self.h, ended, keys) }
    }
}

/// The work before and after a message: both lanes at once, which takes as long as one.
#[cfg(target_arch = "arm")]
mod powers {
    use super::{KeyBlock, LANES, Tag};

    unsafe extern "C" {
        fn millrace_poly1305_powers(
            powers: *mut [u32; 2 * LANES],
            first: *const KeyBlock,
            second: *const KeyBlock,
        );
        fn millrace_poly1305_tags(
            h: *const [u32; LANES],
            first: *const KeyBlock,
            second: *const KeyBlock,
            tags: *mut Tag,
        );
    }

    pub(super) unsafe fn set(
        powers: &mut [[u32; 2 * LANES]; 9],
        _: [Option<bool>; LANES],
        [first, second]: [&KeyBlock; LANES],
    ) {
        // SAFETY: the caller has found NEON. What is written and read has the lengths that the types say.
        unsafe { millrace_poly1305_powers(powers.as_mut_ptr(), first, second) };
    }

    pub(super) unsafe fn tags(
        h: &[[u32; LANES]; 5],
        _: [bool; LANES],
        [first, second]: [&KeyBlock; LANES],
    ) -> [Tag; LANES] {
        let mut tags = [[0; 4]; LANES];
        // SAFETY: as above.
        unsafe { millrace_poly1305_tags(h.as_ptr(), first, second, tags.as_mut_ptr()) };
        tags
    }
}

/// The work before and after a message, one lane after the other: there is no assembly for this.
#[cfg(not(target_arch = "arm"))]
mod powers {
    use super::{KeyBlock, LANES, Tag, finish, limbs, square};

    pub(super) unsafe fn set(
        powers: &mut [[u32; 2 * LANES]; 9],
        begun: [Option<bool>; LANES],
        keys: [&KeyBlock; LANES],
    ) {
        let lanes = begun.into_iter().zip(keys).enumerate();
        for (lane, (_, key)) in lanes.filter(|(_, (begun, _))| begun.is_some()) {
            // RFC 8439, section 2.5: clears some bits of r.
            let [r0, r1, r2, r3, r4] = limbs([key[0], key[1], key[2], key[3]]);
            let r = [
                r0,
                r1 & 0x3ff_ff03,
                r2 & 0x3ff_c0ff,
                r3 & 0x3f0_3fff,
                r4 & 0x00f_ffff,
            ];
            for (power, at) in [(square(r), lane), (r, LANES + lane)] {
                powers[0][at] = power[0];
                for limb in 1..5 {
                    powers[2 * limb - 1][at] = power[limb];
                    powers[2 * limb][at] = 5 * power[limb];
                }
            }
        }
    }

    pub(super) unsafe fn tags(
        [h0, h1, h2, h3, h4]: &[[u32; LANES]; 5],
        ended: [bool; LANES],
        keys: [&KeyBlock; LANES],
    ) -> [Tag; LANES] {
        core::array::from_fn(|lane| match ended[lane] {
            true => finish(
                [h0[lane], h1[lane], h2[lane], h3[lane], h4[lane]],
                keys[lane],
            ),
            false => Tag::default(),
        })
    }
}

/// Splits 128 bits into limbs of 26.
#[cfg(not(target_arch = "arm"))]
fn limbs([a, b, c, d]: [u32; 4]) -> [u32; 5] {
    [
        a & LIMB,
        (a >> 26 | b << 6) & LIMB,
        (b >> 20 | c << 12) & LIMB,
        (c >> 14 | d << 18) & LIMB,
        d >> 8,
    ]
}

/// The square modulo 2^130 - 5; its second limb is a little longer than the others.
#[cfg(not(target_arch = "arm"))]
fn square([r0, r1, r2, r3, r4]: [u32; 5]) -> [u32; 5] {
    let product = |x: u32, y: u32| u64::from(x) * u64::from(y);
    let (s3, s4) = (5 * r3, 5 * r4);
    let d0 = product(r0, r0) + product(2 * r1, s4) + product(2 * r2, s3);
    let mut d1 = product(2 * r0, r1) + product(2 * r2, s4) + product(r3, s3);
    let mut d2 = product(2 * r0, r2) + product(r1, r1) + product(2 * r3, s4);
    let mut d3 = product(2 * r0, r3) + product(2 * r1, r2) + product(r4, s4);
    let mut d4 = product(2 * r0, r4) + product(2 * r1, r3) + product(r2, r2);
    let limb = |x: u64| x as u32 & LIMB;
    d1 += d0 >> 26;
    d2 += d1 >> 26;
    d3 += d2 >> 26;
    d4 += d3 >> 26;
    let h0 = u64::from(limb(d0)) + (d4 >> 26) * 5;
    let h1 = limb(d1) + (h0 >> 26) as u32;
    [limb(h0), h1, limb(d2), limb(d3), limb(d4)]
}

/// The tag: h modulo 2^130 - 5, plus s, modulo 2^128.
#[cfg(not(target_arch = "arm"))]
fn finish([mut h0, mut h1, mut h2, mut h3, mut h4]: [u32; 5], key: &KeyBlock) -> Tag {
    h1 += h0 >> 26;
    h2 += h1 >> 26;
    h3 += h2 >> 26;
    h4 += h3 >> 26;
    h0 = (h0 & LIMB) + (h4 >> 26) * 5;
    h1 = (h1 & LIMB) + (h0 >> 26);
    (h0, h2, h3, h4) = (h0 & LIMB, h2 & LIMB, h3 & LIMB, h4 & LIMB);
    h2 += h1 >> 26;
    h1 &= LIMB;

    // If h + 5 reaches 2^130, its low 130 bits are the remainder.
    let mut carry = (h0 + 5) >> 26;
    for limb in [h1, h2, h3, h4] {
        carry = (limb + carry) >> 26;
    }
    h0 += carry * 5;

    // The sum of limbs also handles limbs that are longer than 26 bits now.
    let mut tag = [0; 4];
    let mut sum = u64::from(h0) + (u64::from(h1) << 26) + u64::from(key[4]);
    tag[0] = sum as u32;
    sum = (sum >> 32) + (u64::from(h2) << 20) + u64::from(key[5]);
    tag[1] = sum as u32;
    sum = (sum >> 32) + (u64::from(h3) << 14) + u64::from(key[6]);
    tag[2] = sum as u32;
    sum = (sum >> 32) + (u64::from(h4) << 8) + u64::from(key[7]);
    tag[3] = sum as u32;
    tag
}
