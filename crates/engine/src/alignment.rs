//! Chooses the position within a word for received datagrams and super-packets, on machines whose kernel copies fast
//! only between equal positions.
//!
//! On 32-bit ARM and MIPS the kernel copies eight words in a few instructions if source and destination have the same
//! position within a word. Otherwise it shifts every word: on ARM 1,400 bytes take 1,050 instructions instead of 250. A
//! datagram's position in the kernel depends on the card and its driver. With most ARM drivers, the IP header and thus
//! UDP's payload begin on a word. Drivers that hand over pages with the whole frame (`virtio_net`) begin it in the
//! middle of one. The kernel does not report which, so this module tries both from time to time and keeps the faster.

use std::ops::Range;
use std::time::Duration;

/// Architectures whose kernel copies like that. In test builds always true, so that tests run this code.
pub(crate) const MATTERS: bool = cfg!(any(
    target_arch = "arm",
    target_arch = "mips",
    debug_assertions
));

/// Bytes of a word.
const WORD: usize = 4;

/// Offsets from the beginning of a word: Ethernet's header is three and a half words long.
const OFFSETS: [usize; 2] = [0, WORD / 2];

/// Length of the packet's header, extended so that the rest begins on a word. It never exceeds the packet's length,
/// which the kernel would refuse.
pub(crate) fn up(packet: Range<usize>, header: u16) -> u16 {
    let end = packet.start + usize::from(header);
    header + (end.next_multiple_of(WORD).min(packet.end) - end) as u16
}

/// Bytes from which a receive counts: in shorter ones, copying is not the main cost.
const BULK: u64 = 8192;

/// Number of bulk receives before the first trial, and between later trials.
const FIRST: u32 = 32;
const AGAIN: u32 = 4096;

/// Receives at each offset in a trial.
const TRIAL: u32 = 8;

/// The offset in use, and measurements of both.
#[derive(Debug)]
pub(crate) struct Alignment {
    chosen: usize,
    /// Receives until the next trial, and receives left in the current one.
    until: u32,
    left: u32,
    /// The fastest receive at each offset in the current trial, in nanoseconds for 64 KiB.
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
    /// Where to receive next: at `from`, or a little after it.
    pub(crate) const fn place(&self, from: usize) -> usize {
        if !MATTERS {
            return from;
        }
        from.next_multiple_of(WORD) + OFFSETS[self.tried()]
    }

    /// Bytes in front of `start` where the read must begin.
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

    /// Whether the next receive must be timed.
    pub(crate) const fn tries(&self) -> bool {
        MATTERS && self.left > 0
    }

    /// Records a receive of `bytes`, and its duration if it was timed.
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
        // The shortest time counts, because it excludes other work of the processor.
        let fastest = &mut self.fastest[self.left as usize % 2];
        let nanos = u64::from(took.subsec_nanos()) + (took.as_secs() << 30);
        *fastest = (*fastest).min((nanos << 16) / bytes);
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            let [words, halves] = std::mem::replace(&mut self.fastest, [u64::MAX; 2]);
            // The change must gain at least a sixteenth, to exclude noise.
            self.chosen = usize::from(halves < words - words / 16);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes `count` receives; `nanos` gives the duration for a place and number.
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
