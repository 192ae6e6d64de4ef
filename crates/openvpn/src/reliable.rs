//! The reliability layer: TLS needs its bytes in order and all of them, and datagrams promise neither.
//!
//! Each direction of each key numbers its messages from 0, without gaps. [`SendWindow`] keeps what was sent until it is
//! acknowledged and says when to send it again. [`ReceiveWindow`] puts what comes in order and [`Acks`] says what to
//! acknowledge. All three are of fixed size; a peer cannot make them grow.

mod acks;
mod receive;
mod send;

pub use acks::Acks;
pub use receive::{Message, Receipt, ReceiveWindow};
pub use send::{Outgoing, SendWindow, WindowFull};

/// Most messages in flight, as in stock: every peer has room for them.
pub const SEND_WINDOW: usize = 6;
/// Most messages that wait for an earlier one, as in stock.
pub const RECEIVE_WINDOW: usize = 12;

/// How far `id` is after `base`. Ids before `base` are very far: numbers wrap, though no session lives to see it.
const fn distance(id: u32, base: u32) -> u32 {
    id.wrapping_sub(base)
}

/// Whether `id` is before `base`.
const fn is_before(id: u32, base: u32) -> bool {
    distance(id, base) >= 1 << 31
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::*;
    use crate::packet::{AckList, Opcode};

    struct Packet {
        message: Option<(u32, Vec<u8>)>,
        acks: AckList,
    }

    proptest! {
        /// A wire that loses, doubles and reorders in both directions; time that moves only when nothing else does.
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
}
