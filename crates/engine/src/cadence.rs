//! Whether packets come one at a time, so that one read takes all that there is.

use std::time::{Duration, Instant};

/// Reads that trust that one packet is all, before one of them makes sure again.
const TRUSTED: u8 = 7;

/// Packets that follow each other after less than this are a stream or a burst.
const APART: Duration = Duration::from_micros(50);

/// How the packets of a descriptor come.
///
/// A descriptor is read until the kernel says that nothing waits, which is one call more than there are packets. Where each
/// packet comes by itself that call is half of all calls. It is left out after a reading that found exactly one, but where the
/// next follows at once, and for every eighth time: what waits nevertheless is reported by the next wait, one call later.
#[derive(Debug, Default)]
pub(crate) struct Cadence {
    trusted: u8,
    one: bool,
    last: Option<Instant>,
}

impl Cadence {
    /// Reading begins. Returns whether one packet is likely to be all.
    pub(crate) fn one(&mut self, now: Instant) -> bool {
        let last = self.last.replace(now);
        if last.is_some_and(|last| now.saturating_duration_since(last) < APART) {
            self.trusted = 0;
        }
        self.one = self.trusted > 0;
        self.trusted = self.trusted.saturating_sub(1);
        self.one
    }

    /// Whether the last reading took one packet and looked for no more.
    pub(crate) const fn took_one(&self) -> bool {
        self.one
    }

    /// Reading has gone on until nothing waited, or until there was no more room, and has found so many packets.
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
