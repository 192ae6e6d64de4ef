//! What was sent lately with one key, so that it can be sent once more: the same datagrams, with the same numbers.

use std::collections::VecDeque;

/// Bytes that are kept at most: what 150 Mbit/s carry in 200 ms.
const BYTES_MAX: usize = 4 << 20;

/// How often a datagram is sent once more.
const AGAIN_MAX: u8 = 3;

#[derive(Debug)]
struct Datagram {
    number: u64,
    bytes: Vec<u8>,
    again: u8,
}

/// Datagrams in the order of their numbers.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    datagrams: VecDeque<Datagram>,
    bytes: usize,
}

impl Sent {
    /// Keeps a datagram, in place of older ones if need be. Numbers ascend.
    pub(crate) fn keep(&mut self, number: u64, datagram: &[u8]) {
        let mut memory = Vec::new();
        while self.bytes + datagram.len() > BYTES_MAX {
            let Some(oldest) = self.datagrams.pop_front() else {
                break;
            };
            self.bytes -= oldest.bytes.len();
            memory = oldest.bytes;
        }
        memory.clear();
        memory.extend_from_slice(datagram);
        self.bytes += memory.len();
        self.datagrams.push_back(Datagram {
            number,
            bytes: memory,
            again: 0,
        });
    }

    /// The datagram with this number, to be sent once more; `None` if it is kept no longer, or was sent often enough.
    pub(crate) fn again(&mut self, number: u64) -> Option<&[u8]> {
        let at = self.datagrams.binary_search_by_key(&number, |it| it.number);
        let datagram = self.datagrams.get_mut(at.ok()?)?;
        if datagram.again >= AGAIN_MAX {
            return None;
        }
        datagram.again += 1;
        Some(&datagram.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_is_found_by_its_number_and_sent_three_times_more() {
        let mut sent = Sent::default();
        for number in [3, 4, 7_u64] {
            sent.keep(number, &number.to_be_bytes());
        }
        for _ in 0..AGAIN_MAX {
            assert_eq!(sent.again(4), Some(&4_u64.to_be_bytes()[..]));
        }
        assert_eq!(sent.again(4), None);
        assert_eq!(sent.again(5), None);
        assert!(sent.again(7).is_some());
    }

    #[test]
    fn only_so_much_is_kept() {
        let mut sent = Sent::default();
        for number in 0..10_000 {
            sent.keep(number, &[0; 1500]);
            assert!(sent.bytes <= BYTES_MAX);
        }
        assert!(sent.again(7000).is_none());
        assert!(sent.again(9999).is_some());
        assert_eq!(sent.datagrams.len(), BYTES_MAX / 1500);
    }
}
