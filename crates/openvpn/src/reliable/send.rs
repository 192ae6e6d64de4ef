//! Messages that were sent and not yet acknowledged.

use std::time::{Duration, Instant};

use thiserror::Error;

use super::{SEND_WINDOW, distance, is_before};
use crate::packet::{AckList, Opcode};

/// A message is sent again at once when this many later ones were acknowledged and it was not.
const EARLY_RETRANSMIT: u8 = 3;
/// The longest time between two transmissions of a message: the default of `hand-window`.
const LONGEST: Duration = Duration::from_secs(60);

/// Up to six messages on their way.
#[derive(Debug)]
pub struct SendWindow {
    /// The number of the next message.
    next_id: u32,
    first_timeout: Duration,
    /// In the order of their numbers.
    messages: Vec<Pending>,
}

#[derive(Debug)]
struct Pending {
    id: u32,
    opcode: Opcode,
    payload: Vec<u8>,
    due: Instant,
    timeout: Duration,
    /// Later messages that were acknowledged since it was last sent.
    overtaken: u8,
}

/// A message to put into a packet and send now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing<'a> {
    /// The kind of packet that it goes into.
    pub opcode: Opcode,
    /// Its number.
    pub message_id: u32,
    /// What it says.
    pub payload: &'a [u8],
}

/// Six messages are on their way; try again when one is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the peer has not acknowledged what was sent")]
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

    /// How many messages can be added. A message that is not acknowledged holds up those six after it.
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

    /// Forgets what was acknowledged. Numbers of messages that are long gone, or never were, do nothing. A message that
    /// three later ones have overtaken is due now.
    pub fn acknowledge(&mut self, acks: &AckList, now: Instant) {
        for &ack in acks.as_slice() {
            // Only what was sent lately counts as overtaking: a peer may acknowledge what it likes.
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

    /// Makes everything due now, with the first timeout: for when the peer is heard of for the first time.
    pub fn schedule_now(&mut self, now: Instant) {
        for message in &mut self.messages {
            message.due = now;
            message.timeout = self.first_timeout;
        }
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
