//! The reliability layer: TLS needs its bytes in order and all of them, and datagrams promise neither.
//!
//! Each direction of each key numbers its messages from 0, without gaps. [`SendWindow`] keeps what was sent until it is
//! acknowledged and says when to send it again. [`ReceiveWindow`] puts what comes in order and [`Acks`] says what to
//! acknowledge. All three are of fixed size; a peer cannot make them grow.

mod send;

use crate::packet::{AckList, Opcode};
pub use send::{Outgoing, SendWindow, WindowFull};

/// Maximum number of messages in flight, as in stock: every peer has room for them.
pub const SEND_WINDOW: usize = 6;
/// Maximum number of messages that wait for an earlier one, as in stock.
pub const RECEIVE_WINDOW: usize = 12;

/// How far `id` is after `base`. Ids before `base` are very far: numbers wrap, though no session lives to see it.
const fn distance(id: u32, base: u32) -> u32 {
    id.wrapping_sub(base)
}

/// Whether `id` is before `base`.
const fn is_before(id: u32, base: u32) -> bool {
    distance(id, base) >= 1 << 31
}

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
    /// Opcode of the packet that carried the message.
    pub opcode: Opcode,
    /// Payload of the message.
    pub payload: Vec<u8>,
}

/// The verdict on a message that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receipt {
    /// The message is new: acknowledge it.
    New,
    /// The message was received before, and our acknowledgement was lost: acknowledge it again.
    Duplicate,
    /// The message is too far ahead of the others, and not kept: do not acknowledge it.
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

/// Acknowledgements that are due, and the latest ones sent, which are repeated as long as there is room: an
/// acknowledgement that is lost costs the peer a timeout, and repeating it costs four bytes.
#[derive(Clone, Debug, Default)]
pub struct Acks {
    /// The acknowledgements that are due, the oldest first.
    due: AckList,
    /// The ids sent last, in the order of the latest packet.
    recent: AckList,
}

impl Acks {
    /// Nothing to acknowledge.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Queues `id` for acknowledgement. If eight are queued already it is left out: the peer will send its message
    /// again.
    pub fn push(&mut self, id: u32) {
        if !self.due.as_slice().contains(&id) {
            self.due.push(id);
        }
    }

    /// Whether any are due.
    #[must_use]
    pub fn is_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// The ids for the next packet: those that are due, oldest first, then others sent lately, at most `most` in all.
    /// [`AckList::MAX_WITH_MESSAGE`] for a packet with a message, [`AckList::MAX`] for one without; to a peer without a
    /// wrap and without the exporter, never more than the former (SoftEther drops such packets).
    ///
    /// Ids that do not fit stay due.
    pub fn take(&mut self, most: usize) -> AckList {
        let due = self.due.as_slice();
        let (now, later) = due.split_at(most.min(due.len()));
        let repeated = self.recent.as_slice().iter().filter(|id| !now.contains(id));
        let recent: AckList = now.iter().chain(repeated).copied().collect();
        let later = later.iter().copied().collect();
        self.recent = recent;
        self.due = later;
        self.recent.as_slice().iter().take(most).copied().collect()
    }

    /// Bytes that acknowledgements take in a packet with a message, if it is sent now.
    #[must_use]
    pub fn wire_len(&self) -> usize {
        let count = self.due.as_slice().len() + self.recent.as_slice().len();
        (0..count.min(AckList::MAX_WITH_MESSAGE) as u32)
            .collect::<AckList>()
            .wire_len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{AckList, Opcode};
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::time::{Duration, Instant};

    struct Packet {
        message: Option<(u32, Vec<u8>)>,
        acks: AckList,
    }

    proptest! {
        /// A simulated network that loses, duplicates and reorders packets in both directions. Time advances only when
        /// nothing else can happen.
        #[test]
        fn everything_arrives_once_and_in_order(count in 1..60_u32, fates in prop::collection::vec(any::<u8>(), 1..400)) {
            let mut now = Instant::now();
            let mut fates = fates.into_iter().cycle();
            let mut fate = || fates.next().unwrap_or(0);
            let mut sender = SendWindow::new(Duration::from_secs(2));
            let mut receiver = ReceiveWindow::new();
            let mut acks = Acks::new();
            let (mut forth, mut back) = (VecDeque::new(), VecDeque::new());
            let mut pushed = 0;
            let mut got = Vec::new();
            // A wire that loses everything would never come to an end.
            let mut rounds = 0;
            while (got.len() as u32) < count {
                rounds += 1;
                let lossy = rounds < 2000;
                while pushed < count && sender.room() > 0 {
                    let id = sender.push(Opcode::ControlV1, pushed.to_be_bytes().to_vec(), now).unwrap();
                    prop_assert_eq!(id, pushed);
                    pushed += 1;
                }
                while let Some(out) = sender.pop_due(now) {
                    let packet = || Packet {
                        message: Some((out.message_id, out.payload.to_vec())),
                        acks: AckList::new(),
                    };
                    match fate() % 8 {
                        0 | 1 if lossy => {}
                        2 => forth.push_front(packet()),
                        3 => {
                            forth.push_back(packet());
                            forth.push_front(packet());
                        }
                        _ => forth.push_back(packet()),
                    }
                }
                while let Some(packet) = forth.pop_front() {
                    let (id, payload) = packet.message.unwrap();
                    let message = Message { opcode: Opcode::ControlV1, payload };
                    if receiver.insert(id, message).is_acknowledged() {
                        acks.push(id);
                    }
                    while let Some(message) = receiver.pop() {
                        got.push(u32::from_be_bytes(message.payload.try_into().unwrap()));
                    }
                    if fate() % 3 == 0 {
                        let packet = Packet { message: None, acks: acks.take(4) };
                        if fate() % 4 != 0 || !lossy {
                            back.push_back(packet);
                        }
                    }
                }
                if acks.is_due() {
                    back.push_back(Packet { message: None, acks: acks.take(8) });
                }
                while let Some(packet) = back.pop_front() {
                    sender.acknowledge(&packet.acks, now);
                }
                if let Some(deadline) = sender.next_deadline() {
                    now = now.max(deadline);
                }
            }
            prop_assert_eq!(got, (0..count).collect::<Vec<_>>());
        }
    }

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

    #[test]
    fn latest_are_repeated() {
        let mut acks = Acks::new();
        assert!(acks.take(4).is_empty());
        for (id, expected) in [
            (0, &[0][..]),
            (1, &[1, 0]),
            (2, &[2, 1, 0]),
            (3, &[3, 2, 1, 0]),
            (4, &[4, 3, 2, 1]),
        ] {
            acks.push(id);
            assert!(acks.is_due());
            assert_eq!(acks.take(4).as_slice(), expected);
            assert!(!acks.is_due());
        }
        assert_eq!(acks.take(8).as_slice(), [4, 3, 2, 1, 0]);
    }

    #[test]
    fn one_that_comes_again_comes_to_the_front() {
        let mut acks = Acks::new();
        (0..3).for_each(|id| acks.push(id));
        assert_eq!(acks.take(4).as_slice(), [0, 1, 2]);
        acks.push(2);
        acks.push(2);
        assert_eq!(acks.take(4).as_slice(), [2, 0, 1]);
    }

    #[test]
    fn what_does_not_fit_stays_due() {
        let mut acks = Acks::new();
        (0..20).for_each(|id| acks.push(id));
        assert_eq!(acks.take(4).as_slice(), [0, 1, 2, 3]);
        assert!(acks.is_due());
        assert_eq!(acks.take(4).as_slice(), [4, 5, 6, 7]);
        assert!(!acks.is_due());
        assert_eq!(acks.take(8).as_slice(), [4, 5, 6, 7, 0, 1, 2, 3]);
        assert_eq!(acks.wire_len(), 1 + 4 * 4 + 8);
        assert_eq!(Acks::new().wire_len(), 1);
    }
}
