//! Messages that were sent and not yet acknowledged.

use std::time::{Duration, Instant};

use thiserror::Error;

use super::{SEND_WINDOW, distance, is_before};
use crate::packet::{AckList, Opcode};

/// A message is sent again at once when this many later ones were acknowledged and it was not.
const EARLY_RETRANSMIT: u8 = 3;
/// The longest time between two transmissions of a message. Without this limit, doubling would leave five tries in a
/// `hand-window` of a minute: too few on a line that loses one packet in ten.
const LONGEST: Duration = Duration::from_secs(8);

/// Window of up to six unacknowledged messages.
#[derive(Debug)]
pub struct SendWindow {
    /// The number of the next message.
    next_id: u32,
    first_timeout: Duration,
    /// Unacknowledged messages, in the order of their numbers.
    messages: Vec<Pending>,
}

#[derive(Debug)]
struct Pending {
    id: u32,
    opcode: Opcode,
    payload: Vec<u8>,
    due: Instant,
    timeout: Duration,
    /// Later messages that were acknowledged since this message was last sent.
    overtaken: u8,
}

/// A message to put into a packet and send now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing<'a> {
    /// Opcode of the packet that carries the message.
    pub opcode: Opcode,
    /// Packet id of the message.
    pub message_id: u32,
    /// Payload of the message.
    pub payload: &'a [u8],
}

/// Six messages are unacknowledged; try again when one is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the peer has not acknowledged the messages sent to it")]
pub struct WindowFull;

impl SendWindow {
    /// A window whose first message has number 0. `first_timeout` is `tls-timeout`, 2 s by default: how long to wait
    /// before sending a message the second time. It doubles each time after.
    #[must_use]
    pub const fn new(first_timeout: Duration) -> Self {
        Self::starting_at(0, first_timeout)
    }

    /// A window whose first message has this number: 1 where a server's reset was sent before there was a session.
    #[must_use]
    pub const fn starting_at(next_id: u32, first_timeout: Duration) -> Self {
        Self {
            next_id,
            first_timeout,
            messages: Vec::new(),
        }
    }

    /// The number of the next message.
    #[must_use]
    pub const fn next_id(&self) -> u32 {
        self.next_id
    }

    /// How many messages can be added: none beyond the sixth from the oldest unacknowledged message.
    #[must_use]
    pub fn room(&self) -> usize {
        let in_use = self
            .messages
            .first()
            .map_or(0, |oldest| distance(self.next_id, oldest.id));
        // At most six, see `push`.
        SEND_WINDOW.saturating_sub(in_use as usize)
    }

    /// Whether everything was acknowledged.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Adds a message, which is due now. Returns its number.
    ///
    /// # Errors
    /// If there is no [`room`](Self::room).
    pub fn push(
        &mut self,
        opcode: Opcode,
        payload: Vec<u8>,
        now: Instant,
    ) -> Result<u32, WindowFull> {
        if self.room() == 0 {
            return Err(WindowFull);
        }
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        self.messages.push(Pending {
            id,
            opcode,
            payload,
            due: now,
            timeout: self.first_timeout,
            overtaken: 0,
        });
        Ok(id)
    }

    /// The oldest message that is due. It counts as sent: the next call gives another, until there is none.
    pub fn pop_due(&mut self, now: Instant) -> Option<Outgoing<'_>> {
        let message = self
            .messages
            .iter_mut()
            .find(|message| message.due <= now)?;
        message.due = now + message.timeout;
        message.timeout = (message.timeout * 2).min(LONGEST.max(self.first_timeout));
        message.overtaken = 0;
        Some(Outgoing {
            opcode: message.opcode,
            message_id: message.id,
            payload: &message.payload,
        })
    }

    /// Forgets acknowledged messages and ignores unknown numbers. A message that three later ones have overtaken is due
    /// now.
    pub fn acknowledge(&mut self, acks: &AckList, now: Instant) {
        for &ack in acks.as_slice() {
            // Only messages in the window count as overtaking: a peer may acknowledge any number.
            let Some(at) = self.messages.iter().position(|message| message.id == ack) else {
                continue;
            };
            self.messages.remove(at);
            for earlier in &mut self.messages[..at] {
                earlier.overtaken = earlier.overtaken.saturating_add(1);
                if earlier.overtaken == EARLY_RETRANSMIT {
                    earlier.due = earlier.due.min(now);
                }
            }
        }
    }

    /// Forgets everything: the peer has it for certain.
    pub fn clear(&mut self) {
        self.messages.clear();
    }

    /// When [`pop_due`](Self::pop_due) will have something, which may be in the past; `None` if nothing waits.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.messages.iter().map(|message| message.due).min()
    }

    /// Whether `id` was acknowledged, or sent and forgotten with its key.
    #[must_use]
    pub fn is_acknowledged(&self, id: u32) -> bool {
        is_before(id, self.next_id) && !self.messages.iter().any(|message| message.id == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(2);

    fn sent(window: &mut SendWindow, now: Instant) -> Vec<u32> {
        std::iter::from_fn(|| window.pop_due(now).map(|message| message.message_id)).collect()
    }

    fn filled(count: u8, now: Instant) -> SendWindow {
        let mut window = SendWindow::new(TIMEOUT);
        for n in 0..count {
            window.push(Opcode::ControlV1, vec![n], now).unwrap();
        }
        window
    }

    #[test]
    fn six_at_most_and_the_oldest_holds_up_the_rest() {
        let now = Instant::now();
        let mut window = filled(6, now);
        assert_eq!(window.room(), 0);
        assert_eq!(window.push(Opcode::ControlV1, vec![], now), Err(WindowFull));
        assert_eq!(sent(&mut window, now), [0, 1, 2, 3, 4, 5]);
        assert_eq!(sent(&mut window, now), []);
        window.acknowledge(&[1, 2].into_iter().collect(), now);
        assert_eq!(window.room(), 0, "0 is still out");
        window.acknowledge(&[0].into_iter().collect(), now);
        assert_eq!(window.room(), 3);
        assert_eq!(window.push(Opcode::ControlV1, vec![], now), Ok(6));
        assert!(window.is_acknowledged(0) && !window.is_acknowledged(3));
        assert!(!window.is_acknowledged(7));
    }

    #[test]
    fn again_after_two_four_eight_seconds() {
        let start = Instant::now();
        let mut window = filled(1, start);
        let mut at = start;
        for wait in [2, 4, 8, 8, 8] {
            assert_eq!(window.next_deadline(), Some(at));
            assert_eq!(sent(&mut window, at), [0]);
            at += Duration::from_secs(wait);
            assert_eq!(sent(&mut window, at - Duration::from_millis(1)), []);
        }
        window.acknowledge(&[0].into_iter().collect(), at);
        assert_eq!(window.next_deadline(), None);
        assert!(window.is_empty());
    }

    #[test]
    fn at_once_when_three_later_ones_have_arrived() {
        let now = Instant::now();
        let mut window = filled(6, now);
        sent(&mut window, now);
        window.acknowledge(&[1, 2].into_iter().collect(), now);
        // A repeated acknowledgement, and numbers that were never sent, do not count.
        window.acknowledge(&[1, 2, 77, u32::MAX].into_iter().collect(), now);
        assert_eq!(sent(&mut window, now), []);
        window.acknowledge(&[4].into_iter().collect(), now);
        assert_eq!(window.next_deadline(), Some(now));
        assert_eq!(sent(&mut window, now), [0]);
        assert_eq!(sent(&mut window, now), []);
    }

    #[test]
    fn starts_where_the_reset_ended() {
        let now = Instant::now();
        let mut window = SendWindow::starting_at(1, TIMEOUT);
        assert_eq!(window.push(Opcode::ControlV1, vec![5], now), Ok(1));
        assert_eq!(
            window.pop_due(now),
            Some(Outgoing {
                opcode: Opcode::ControlV1,
                message_id: 1,
                payload: &[5]
            })
        );
    }
}
