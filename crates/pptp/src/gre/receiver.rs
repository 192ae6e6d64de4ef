//! Tracks numbers of received packets, and when to acknowledge them (RFC 2637, sections 4.2 and 4.3).

use std::time::{Duration, Instant};

use plane::{ReplayCheck, ReplayWindow};

/// Longest time that a packet stays unacknowledged. The RFC requires less than the peer's time-out but gives no minimum
/// for it; deployed peers use half a second.
pub const ACK_DELAY: Duration = Duration::from_millis(500);

/// Largest accepted jump ahead of the expected number. A larger jump counts only once the following number arrives too.
/// Otherwise one forged packet could make all genuine ones look old.
pub const MAX_JUMP: u32 = 4096;

/// The 64-bit number for number 0 on the wire; leaves room for lower numbers.
const ORIGIN: u64 = 1 << 32;

/// Why a packet was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The packet was received before.
    #[error("a duplicate")]
    Duplicate,
    /// The packet is too old to tell whether it was received before.
    #[error("the packet is older than the window")]
    TooOld,
    /// The packet is too far ahead to be accepted without its successor.
    #[error("the packet is too far ahead of the others")]
    Jump,
}

/// The receiving state of one call.
#[derive(Debug)]
pub struct Receiver {
    /// The number after the highest one.
    next: u64,
    window: ReplayWindow,
    /// Whether any packet was accepted.
    begun: bool,
    /// The number that would confirm a jump.
    jump: Option<u32>,
    /// Packets since the last acknowledgement; the count that triggers one at once; the latest time for the next one.
    unacknowledged: u32,
    acknowledge_after: u32,
    due: Option<Instant>,
}

impl Receiver {
    /// A receiver before the first packet. `window` is our receive window. A peer that observes it begins with half
    /// (RFC 2637, section 4.2.2), so a quarter is acknowledged without delay.
    #[must_use]
    pub fn new(window: u16) -> Self {
        Self {
            next: ORIGIN,
            window: ReplayWindow::new(),
            begun: false,
            jump: None,
            unacknowledged: 0,
            acknowledge_after: u32::from(window / 4).max(1),
            due: None,
        }
    }

    /// Records a number from the wire. Returns it as a 64-bit number that never wraps, and whether a higher number
    /// arrived earlier.
    ///
    /// The first number may be 0 (RFC 2637, section 4.3), 1 as many peers send, or any number whose successor follows.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn receive(&mut self, sequence: u32, now: Instant) -> Result<(u64, bool), Refusal> {
        let number = self.extend(sequence)?;
        match self.window.check(number) {
            ReplayCheck::New => {}
            ReplayCheck::Duplicate => return Err(Refusal::Duplicate),
            ReplayCheck::TooOld => return Err(Refusal::TooOld),
        }
        self.begun = true;
        if number < self.next {
            return Ok((number, true));
        }
        self.next = number + 1;
        self.unacknowledged += 1;
        if self.unacknowledged >= self.acknowledge_after {
            self.due = Some(now);
        } else if self.due.is_none() {
            self.due = Some(now + ACK_DELAY);
        }
        Ok((number, false))
    }

    fn extend(&mut self, sequence: u32) -> Result<u64, Refusal> {
        // The low half of the number.
        let ahead = sequence.wrapping_sub(self.next as u32);
        let behind = ahead.wrapping_neg();
        if ahead <= MAX_JUMP {
            self.jump = None;
            return Ok(self.next + u64::from(ahead));
        }
        if self.begun && behind <= ahead {
            return match self.next.checked_sub(u64::from(behind)) {
                Some(number) if number >= ORIGIN => Ok(number),
                _ => Err(Refusal::TooOld),
            };
        }
        if self.jump == Some(sequence) {
            self.jump = None;
            return Ok(self.next + u64::from(ahead));
        }
        self.jump = Some(sequence.wrapping_add(1));
        Err(Refusal::Jump)
    }

    /// The number to acknowledge, if any; the caller must send it.
    pub fn acknowledgement(&mut self) -> Option<u32> {
        if self.unacknowledged == 0 {
            return None;
        }
        self.unacknowledged = 0;
        self.due = None;
        // The low half of the number.
        Some((self.next - 1) as u32)
    }

    /// When an acknowledgement must be sent, alone or with a packet.
    #[must_use]
    pub const fn deadline(&self) -> Option<Instant> {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a packet was late, or why it was refused.
    fn receive(receiver: &mut Receiver, sequence: u32) -> Result<bool, Refusal> {
        receiver
            .receive(sequence, Instant::now())
            .map(|(_, late)| late)
    }

    #[test]
    fn late_and_duplicate_packets_are_told_apart() {
        let mut receiver = Receiver::new(64);
        assert_eq!(receive(&mut receiver, 0), Ok(false));
        assert_eq!(receive(&mut receiver, 3), Ok(false));
        assert_eq!(receive(&mut receiver, 1), Ok(true));
        assert_eq!(receive(&mut receiver, 1), Err(Refusal::Duplicate));
        assert_eq!(receive(&mut receiver, 3), Err(Refusal::Duplicate));
        assert_eq!(receive(&mut receiver, 4), Ok(false));
    }

    #[test]
    fn numbers_begin_at_nought_or_one_or_anywhere() {
        assert_eq!(receive(&mut Receiver::new(64), 1), Ok(false));
        for first in [1_000_000, u32::MAX - 1, 1 << 31] {
            let mut receiver = Receiver::new(64);
            let found = [0, 1, 2, 3].map(|at| receive(&mut receiver, first.wrapping_add(at)));
            assert_eq!(found[0], Err(Refusal::Jump), "{first}");
            assert_eq!(found[1], Ok(false), "{first}");
            assert_eq!(found[2..], [Ok(false); 2], "{first}");
        }
    }

    #[test]
    fn numbers_go_on_when_those_of_the_wire_begin_again() {
        let mut receiver = Receiver::new(64);
        let _ = receive(&mut receiver, u32::MAX - 2);
        let (before, _) = receiver.receive(u32::MAX - 1, Instant::now()).unwrap();
        for (at, sequence) in [u32::MAX, 0, 1].into_iter().enumerate() {
            let (number, late) = receiver.receive(sequence, Instant::now()).unwrap();
            assert_eq!(number, before + 1 + at as u64);
            assert!(!late);
        }
        assert_eq!(receive(&mut receiver, u32::MAX), Err(Refusal::Duplicate));
    }

    #[test]
    fn one_forged_packet_far_ahead_does_not_move_the_window() {
        let mut receiver = Receiver::new(64);
        assert_eq!(receive(&mut receiver, 0), Ok(false));
        assert_eq!(receive(&mut receiver, 1 << 30), Err(Refusal::Jump));
        assert_eq!(receive(&mut receiver, 1 << 29), Err(Refusal::Jump));
        assert_eq!(receive(&mut receiver, 1), Ok(false));
        assert_eq!(receive(&mut receiver, u32::MAX), Err(Refusal::TooOld));
    }

    #[test]
    fn acknowledgements_wait_half_a_second_or_for_a_quarter_of_the_window() {
        let now = Instant::now();
        let mut receiver = Receiver::new(16);
        assert_eq!(receiver.deadline(), None);
        assert_eq!(receiver.acknowledgement(), None);
        receiver.receive(0, now).unwrap();
        receiver.receive(1, now + ACK_DELAY / 2).unwrap();
        assert_eq!(receiver.deadline(), Some(now + ACK_DELAY));
        receiver.receive(2, now).unwrap();
        receiver.receive(3, now).unwrap();
        assert_eq!(receiver.deadline(), Some(now));
        assert_eq!(receiver.acknowledgement(), Some(3));
        assert_eq!(receiver.deadline(), None);
        assert_eq!(
            receiver.acknowledgement(),
            None,
            "nothing new to acknowledge"
        );
    }
}
