//! Where in a word datagrams are received, and super-packets read, on machines whose kernel copies fast only what lies alike.
//!
//! On 32-bit ARM and MIPS the kernel copies eight words in a few instructions where source and destination lie alike in their
//! words, and shifts every word where they do not: on ARM 1,400 bytes take 250 instructions, or 1,050. How a datagram lies in
//! the kernel depends on the card and its driver: most ARM drivers have IP's header begin with a word, as does the payload of
//! UDP then; those that give the kernel pages with the whole frame in them (`virtio_net`) have it begin in the middle of
//! one. Nothing tells which, so both are tried, now and then, and the faster one is kept.

use std::ops::Range;
use std::time::Duration;

/// Where the kernel copies so; and everywhere in programs for tests, so that they pass here.
pub(crate) const MATTERS: bool = cfg!(any(
    target_arch = "arm",
    target_arch = "mips",
    debug_assertions
));

/// Bytes of a word.
const WORD: usize = 4;

/// Offsets from a word's beginning: Ethernet's header is three words and a half.
const OFFSETS: [usize; 2] = [0, WORD / 2];

/// The length of the header of a packet that lies there, made longer so that the rest begins with a word; but no longer than the
/// packet, for the kernel refuses that.
pub(crate) fn up(packet: Range<usize>, header: u16) -> u16 {
    let end = packet.start + usize::from(header);
    header + (end.next_multiple_of(WORD).min(packet.end) - end) as u16
}

/// Bytes of a receive that is worth a look: in shorter ones the copy is not what takes the time.
const BULK: u64 = 8192;

/// Such receives until it is tried: at first, and afterwards.
const FIRST: u32 = 32;
const AGAIN: u32 = 4096;

/// Receives of each kind in a trial.
const TRIAL: u32 = 8;

/// Which of the two places is used, and what is known of both.
#[derive(Debug)]
pub(crate) struct Alignment {
    chosen: usize,
    /// Receives until the next trial, and of the present one.
    until: u32,
    left: u32,
    /// The fastest of each in the present trial: nanoseconds for 64 KiB.
    fastest: [u64; 2],
}

impl Default for Alignment {
    fn default() -> Self {
        Self {
            chosen: 0,
            until: FIRST,
            left: 0,
            fastest: [u64::MAX; 2],
        }
    }
}

impl Alignment {
    /// Where to receive next: there, or a little behind.
    pub(crate) const fn place(&self, from: usize) -> usize {
        if !MATTERS {
            return from;
        }
        from.next_multiple_of(WORD) + OFFSETS[self.tried()]
    }

    /// How many bytes in front of `start` to read to instead.
    pub(crate) const fn shift(&self, start: usize) -> usize {
        if !MATTERS {
            return 0;
        }
        (start + WORD - OFFSETS[self.tried()]) % WORD
    }

    const fn tried(&self) -> usize {
        match self.left {
            0 => self.chosen,
            left => left as usize % 2,
        }
    }

    /// Whether it is wanted how long the next receive takes.
    pub(crate) const fn tries(&self) -> bool {
        MATTERS && self.left > 0
    }

    /// So many bytes were received, in this time if that was wanted.
    pub(crate) fn note(&mut self, bytes: u64, took: Option<Duration>) {
        if bytes < BULK {
            return;
        }
        let Some(took) = took else {
            self.until = self.until.saturating_sub(1);
            if self.until == 0 {
                (self.left, self.until) = (2 * TRIAL, AGAIN);
            }
            return;
        };
        // The shortest: what else the processor did meanwhile tells nothing.
        let fastest = &mut self.fastest[self.left as usize % 2];
        let nanos = u64::from(took.subsec_nanos()) + (took.as_secs() << 30);
        *fastest = (*fastest).min((nanos << 16) / bytes);
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            let [words, halves] = std::mem::replace(&mut self.fastest, [u64::MAX; 2]);
            // By a sixteenth at least, lest it be noise.
            self.chosen = usize::from(halves < words - words / 16);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Receives so many times, of which each takes what `nanos` says of its place and number.
    fn receive(
        alignment: &mut Alignment,
        count: u32,
        bytes: u64,
        nanos: impl Fn(usize, u32) -> u64,
    ) {
        for number in 0..count {
            let place = alignment.tried();
            let took = (alignment.left > 0).then(|| Duration::from_nanos(nanos(place, number)));
            alignment.note(bytes, took);
        }
    }

    #[test]
    fn the_faster_place_is_found_although_some_receives_are_interrupted() {
        for faster in [0, 1] {
            let mut alignment = Alignment::default();
            let nanos = |place, number: u32| {
                let interrupted = if number.is_multiple_of(3) { 100_000 } else { 0 };
                20_000 + 5_000 * u64::from(place != faster) + interrupted
            };
            receive(&mut alignment, FIRST + 2 * TRIAL, 20_000, nanos);
            assert_eq!((alignment.chosen, alignment.left), (faster, 0));
        }
    }

    #[test]
    fn what_is_noise_changes_nothing_and_what_changes_is_seen_later() {
        let mut alignment = Alignment::default();
        let nearly = |place, _| 20_000 - 1_000 * place as u64;
        receive(&mut alignment, FIRST + 2 * TRIAL, 20_000, nearly);
        assert_eq!(alignment.chosen, 0);
        let clearly = |place, _| 20_000 - 5_000 * place as u64;
        receive(&mut alignment, AGAIN, 20_000, clearly);
        assert_eq!((alignment.chosen, alignment.left), (0, 2 * TRIAL));
        receive(&mut alignment, 2 * TRIAL, 20_000, clearly);
        assert_eq!(alignment.chosen, 1);
    }

    #[test]
    fn short_receives_are_not_tried_with() {
        let mut alignment = Alignment::default();
        receive(&mut alignment, 10 * AGAIN, BULK - 1, |_, _| 1);
        assert_eq!((alignment.until, alignment.left), (FIRST, 0));
    }

    #[test]
    fn a_place_is_in_front_of_nothing_that_is_used() {
        let alignment = Alignment::default();
        for from in 0..9 {
            assert!((from..from + 6).contains(&alignment.place(from)));
        }
    }
}
