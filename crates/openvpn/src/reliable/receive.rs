//! Messages that came, put in order.

use super::{RECEIVE_WINDOW, distance, is_before};
use crate::packet::Opcode;

/// A window of twelve messages, which begins with the one to hand on next.
#[derive(Debug)]
pub struct ReceiveWindow {
    /// The number of the message to hand on next.
    next_id: u32,
    /// Slot `n % 12` is for message n. Invariant: what is there is less than 12 after `next_id`.
    slots: [Option<Message>; RECEIVE_WINDOW],
}

/// A message from the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The kind of packet that it came in.
    pub opcode: Opcode,
    /// The message.
    pub payload: Vec<u8>,
}

/// The verdict on a message that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receipt {
    /// It is new. Acknowledge it.
    New,
    /// Received before: our acknowledgement was lost. Acknowledge it again.
    Duplicate,
    /// Further ahead than any message may be. Do not acknowledge it: it is not kept.
    TooFarAhead,
}

impl Receipt {
    /// Whether the message is to be acknowledged.
    #[must_use]
    pub const fn is_acknowledged(self) -> bool {
        matches!(self, Self::New | Self::Duplicate)
    }
}

impl ReceiveWindow {
    /// A window whose first message has number 0.
    #[must_use]
    pub fn new() -> Self {
        Self::starting_at(0)
    }

    /// A window whose first message has this number: 1 where the client's reset came before there was a session.
    #[must_use]
    pub fn starting_at(next_id: u32) -> Self {
        Self {
            next_id,
            slots: Default::default(),
        }
    }

    /// The number of the message to hand on next.
    #[must_use]
    pub const fn next_id(&self) -> u32 {
        self.next_id
    }

    /// Takes a message that came.
    pub fn insert(&mut self, id: u32, message: Message) -> Receipt {
        if is_before(id, self.next_id) {
            return Receipt::Duplicate;
        }
        if distance(id, self.next_id) as usize >= RECEIVE_WINDOW {
            return Receipt::TooFarAhead;
        }
        let slot = self.slot(id);
        if slot.is_some() {
            return Receipt::Duplicate;
        }
        *slot = Some(message);
        Receipt::New
    }

    /// Hands on the next message, if it has come.
    pub fn pop(&mut self) -> Option<Message> {
        let message = self.slot(self.next_id).take()?;
        self.next_id = self.next_id.wrapping_add(1);
        Some(message)
    }

    /// Twelve numbers in a row have twelve slots, but for where the numbers wrap: 12 does not divide 2^32, and a
    /// session that sends four thousand million messages may lose its order.
    const fn slot(&mut self, id: u32) -> &mut Option<Message> {
        &mut self.slots[id as usize % RECEIVE_WINDOW]
    }
}

impl Default for ReceiveWindow {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(byte: u8) -> Message {
        Message {
            opcode: Opcode::ControlV1,
            payload: vec![byte],
        }
    }

    #[test]
    fn in_order_whatever_comes_first() {
        let mut window = ReceiveWindow::new();
        for id in (0..12).rev() {
            assert_eq!(window.pop(), None);
            assert_eq!(window.insert(id, message(id as u8)), Receipt::New);
            assert_eq!(window.insert(id, message(0xff)), Receipt::Duplicate);
        }
        assert_eq!(window.insert(12, message(12)), Receipt::TooFarAhead);
        for id in 0..12 {
            assert_eq!(window.pop(), Some(message(id)));
            assert_eq!(window.insert(id.into(), message(0xff)), Receipt::Duplicate);
        }
        assert_eq!(window.pop(), None);
        assert_eq!(window.next_id(), 12);
        assert_eq!(window.insert(12, message(12)), Receipt::New);
    }

    #[test]
    fn numbers_that_no_peer_sends() {
        let mut window = ReceiveWindow::starting_at(1);
        assert_eq!(window.insert(0, message(0)), Receipt::Duplicate);
        assert_eq!(window.insert(13, message(0)), Receipt::TooFarAhead);
        assert_eq!(window.insert(1 << 31, message(0)), Receipt::TooFarAhead);
        assert_eq!(window.insert(u32::MAX, message(0)), Receipt::Duplicate);
        assert!(Receipt::Duplicate.is_acknowledged());
        assert!(!Receipt::TooFarAhead.is_acknowledged());
        assert_eq!(window.pop(), None);
    }
}
