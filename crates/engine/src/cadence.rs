//! Detects packets that arrive one at a time, so that one read takes them all.

use std::time::{Duration, Instant};

/// Reads that trust a single packet to be all, before one checks again.
const TRUSTED: u8 = 7;

/// Packets closer together than this belong to a stream or a burst.
const APART: Duration = Duration::from_micros(50);

/// How packets arrive at a descriptor.
///
/// A worker reads a descriptor until the kernel says that nothing waits, which is one call more than there are packets.
/// If packets arrive one by one, that is half of all calls. The extra call is skipped after a read that found exactly
/// one packet. It is not skipped if the next packet follows at once, nor every eighth time. The next wait reports a
/// packet missed that way, one call later.
#[derive(Debug, Default)]
pub(crate) struct Cadence {
    trusted: u8,
    one: bool,
    last: Option<Instant>,
}

impl Cadence {
    /// Begins reading. Returns whether a single packet is likely to be all.
    pub(crate) fn one(&mut self, now: Instant) -> bool {
        let last = self.last.replace(now);
        if last.is_some_and(|last| now.saturating_duration_since(last) < APART) {
            self.trusted = 0;
        }
        self.one = self.trusted > 0;
        self.trusted = self.trusted.saturating_sub(1);
        self.one
    }

    /// Whether the last read took one packet and did not look for more.
    pub(crate) const fn took_one(&self) -> bool {
        self.one
    }

    /// Notes that a read which emptied the descriptor, or ran out of room, found this many packets.
    pub(crate) fn found(&mut self, packets: u64) {
        self.trusted = if packets == 1 { TRUSTED } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_packet_is_taken_for_all_after_one_that_was_and_not_for_ever() {
        let mut now = Instant::now();
        let mut one = |cadence: &mut Cadence, apart: Duration| {
            now += apart;
            cadence.one(now)
        };
        let mut cadence = Cadence::default();
        assert!(!one(&mut cadence, APART), "nothing is known yet");
        cadence.found(1);
        for _ in 0..TRUSTED {
            assert!(one(&mut cadence, APART));
        }
        assert!(!one(&mut cadence, APART), "looked at once more");
        cadence.found(1);
        assert!(one(&mut cadence, APART));
        assert!(!one(&mut cadence, APART / 2), "a burst");
        cadence.found(2);
        assert!(!one(&mut cadence, APART));
        cadence.found(1);
        assert!(one(&mut cadence, APART));
        cadence.found(0);
        assert!(!one(&mut cadence, APART));
    }
}
