//! Keeps datagrams recently sent to one peer with one key, to send them again unchanged, with the same numbers.
//!
//! Requests ([`Missing`]) from one end to the other for lost packets, if both ends share packets out among lines.
//!
//! A request is sealed like data, and names packets of its own session. Its payload is not an IP packet, so an end
//! that does not know requests drops it:
//!
//! | bytes | |
//! |---|---|
//! | 4 | 0, "MR", 1 |
//! | 10, up to [`RUNS_MAX`] times | the first number that is missing, and how many are: 8 and 2 bytes, big endian |
//!
//! Bytes after the last run are padding, whose counts are 0.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use crate::key::SendKey;

/// Maximum number of bytes kept for one peer: 200 ms at 150 Mbit/s.
const BYTES_MAX: usize = 4 << 20;

/// Maximum number of bytes kept for all peers of a tunnel together.
const ALL_MAX: usize = 16 << 20;

/// Memory of a kept datagram beyond its bytes.
const OVERHEAD: usize = 64;

/// Maximum number of times that a datagram is sent again.
const AGAIN_MAX: u8 = 3;

#[derive(Debug)]
struct Datagram {
    number: u64,
    bytes: Box<[u8]>,
    again: u8,
}

/// Datagrams in the order of their numbers.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    /// The key of all kept datagrams.
    key: Weak<SendKey>,
    datagrams: VecDeque<Datagram>,
    bytes: usize,
    /// Bytes kept for all peers.
    all: Arc<AtomicUsize>,
}

impl Sent {
    /// Keeps datagrams of this key from now on, counted together with other peers'. Forgets datagrams of another key.
    pub(crate) fn begin(&mut self, key: &Arc<SendKey>, all: &Arc<AtomicUsize>) {
        if !std::ptr::eq(self.key.as_ptr(), Arc::as_ptr(key)) {
            self.clear();
            self.key = Arc::downgrade(key);
            self.all = Arc::clone(all);
        }
    }

    /// Keeps a datagram, and drops older ones if space is short. Numbers ascend.
    pub(crate) fn keep(&mut self, number: u64, datagram: &[u8]) {
        let bytes = datagram.len() + OVERHEAD;
        let full = |it: &Self| {
            it.bytes + bytes > BYTES_MAX || it.all.load(Ordering::Relaxed) + bytes > ALL_MAX
        };
        while full(self) {
            if !self.forget_oldest() {
                return;
            }
        }
        self.bytes += bytes;
        self.all.fetch_add(bytes, Ordering::Relaxed);
        self.datagrams.push_back(Datagram {
            number,
            bytes: datagram.into(),
            again: 0,
        });
    }

    /// Drops the oldest datagram. Returns whether there was one.
    fn forget_oldest(&mut self) -> bool {
        let Some(oldest) = self.datagrams.pop_front() else {
            return false;
        };
        let bytes = oldest.bytes.len() + OVERHEAD;
        self.bytes -= bytes;
        self.all.fetch_sub(bytes, Ordering::Relaxed);
        true
    }

    /// Drops all kept datagrams.
    pub(crate) fn clear(&mut self) {
        while self.forget_oldest() {}
        self.datagrams = VecDeque::new();
        self.key = Weak::new();
    }

    /// Whether datagrams of this key are kept.
    pub(crate) fn is_of(&self, key: &Arc<SendKey>) -> bool {
        std::ptr::eq(self.key.as_ptr(), Arc::as_ptr(key))
    }

    /// The datagram with this number, to be sent again, and how often it was sent again before. `None` if it is not
    /// kept or was resent often enough.
    pub(crate) fn again(&mut self, number: u64) -> Option<(&[u8], u8)> {
        let at = self.datagrams.binary_search_by_key(&number, |it| it.number);
        let datagram = self.datagrams.get_mut(at.ok()?)?;
        let before = datagram.again;
        if before >= AGAIN_MAX {
            return None;
        }
        datagram.again += 1;
        Some((&datagram.bytes, before))
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        self.clear();
    }
}

/// The mark of a request. An IP packet never begins with version 0.
const MAGIC: [u8; 4] = [0, b'M', b'R', 1];

/// Maximum number of runs of numbers in one request.
const RUNS_MAX: usize = 32;

/// Maximum number of packet numbers in a request.
const NUMBERS_MAX: usize = 128;

const RUN: usize = 10;

/// A request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Missing {
    /// First number and count of each run.
    runs: Vec<(u64, u16)>,
}

impl Missing {
    /// Whether there is room for another number.
    pub(crate) fn has_room(&self) -> bool {
        let counts = self.runs.iter().map(|(_, count)| usize::from(*count));
        self.runs.len() < RUNS_MAX && counts.sum::<usize>() < NUMBERS_MAX
    }

    /// Adds a number if there is room.
    pub(crate) fn add(&mut self, number: u64) {
        if !self.has_room() {
            return;
        }
        match self.runs.last_mut() {
            Some((first, count)) if first.checked_add(u64::from(*count)) == Some(number) => {
                *count += 1;
            }
            _ => self.runs.push((number, 1)),
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The payload that carries this request.
    pub(crate) fn payload(&self) -> Vec<u8> {
        let mut payload = Vec::with_capacity(MAGIC.len() + self.runs.len() * RUN);
        payload.extend(MAGIC);
        for (first, count) in &self.runs {
            payload.extend(first.to_be_bytes());
            payload.extend(count.to_be_bytes());
        }
        payload
    }

    /// Parses the request in a payload; `None` if it has none.
    pub(crate) fn parse(payload: &[u8]) -> Option<Self> {
        let runs = payload.strip_prefix(&MAGIC)?;
        let mut missing = Self::default();
        let mut left = NUMBERS_MAX;
        for run in runs.chunks_exact(RUN).take(RUNS_MAX) {
            let (first, count) = run.split_first_chunk::<8>()?;
            let count = u16::from_be_bytes(*count.first_chunk()?);
            let count = usize::from(count).min(left);
            if count == 0 {
                break;
            }
            left -= count;
            // `count` came from 16 bits, so the cast is exact.
            missing
                .runs
                .push((u64::from_be_bytes(*first), count as u16));
        }
        Some(missing)
    }

    /// The missing numbers, at most [`NUMBERS_MAX`].
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        let runs = self.runs.iter();
        runs.flat_map(|(first, count)| (0..u64::from(*count)).map_while(|n| first.checked_add(n)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use plane::KeyLimits;
    use proptest::prelude::*;

    use super::*;
    use crate::key::tests::Plain;

    fn key() -> Arc<SendKey> {
        let limits = KeyLimits::until(Instant::now());
        Arc::new(SendKey::new((1, 2), Arc::new(Plain), limits))
    }

    fn sent(key: &Arc<SendKey>, all: &Arc<AtomicUsize>) -> Sent {
        let mut sent = Sent::default();
        sent.begin(key, all);
        sent
    }

    #[test]
    fn a_datagram_is_found_by_its_number_and_sent_three_times_more() {
        let mut sent = sent(&key(), &Arc::default());
        for number in [3, 4, 7_u64] {
            sent.keep(number, &number.to_be_bytes());
        }
        for before in 0..AGAIN_MAX {
            assert_eq!(sent.again(4), Some((&4_u64.to_be_bytes()[..], before)));
        }
        assert_eq!(sent.again(4), None);
        assert_eq!(sent.again(5), None);
        assert!(sent.again(7).is_some());
    }

    #[test]
    fn only_so_much_is_kept_of_a_peer_and_of_all() {
        let all = Arc::default();
        let key = key();
        let mut peers: Vec<Sent> = (0..6).map(|_| sent(&key, &all)).collect();
        for number in 0..10_000 {
            for sent in &mut peers {
                sent.keep(number, &[0; 1500]);
                assert!(sent.bytes <= BYTES_MAX);
            }
            assert!(all.load(Ordering::Relaxed) <= ALL_MAX);
        }
        assert!(peers[0].again(5000).is_none());
        assert!(peers[0].again(9999).is_some());
        drop(peers);
        assert_eq!(all.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn datagrams_of_another_key_are_forgotten() {
        let (all, first, second) = (Arc::default(), key(), key());
        let mut sent = sent(&first, &all);
        sent.keep(1, &[1; 100]);
        assert!(sent.is_of(&first));
        sent.begin(&second, &all);
        assert!(sent.is_of(&second) && !sent.is_of(&first));
        assert!(sent.again(1).is_none());
        assert_eq!(all.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_request_says_which_numbers_are_missing() {
        let mut missing = Missing::default();
        for number in [1, 2, 3, 9, 1 << 50] {
            missing.add(number);
        }
        let mut payload = missing.payload();
        assert_eq!(payload.len(), 4 + 3 * RUN);
        payload.extend([0; 15]);
        let parsed = Missing::parse(&payload).unwrap();
        assert_eq!(parsed, missing);
        let numbers: Vec<u64> = parsed.numbers().collect();
        assert_eq!(numbers, [1, 2, 3, 9, 1 << 50]);
        assert_eq!(Missing::parse(&[0x45; 40]), None);
    }

    #[test]
    fn a_request_is_bounded() {
        let mut missing = Missing::default();
        for number in 0..1000 {
            missing.add(number * 2);
        }
        assert_eq!(missing.numbers().count(), RUNS_MAX);
        let mut payload = Missing::default().payload();
        for _ in 0..100 {
            payload.extend(u64::MAX.to_be_bytes());
            payload.extend([0xff; 2]);
        }
        let parsed = Missing::parse(&payload).unwrap();
        assert!(parsed.numbers().count() <= NUMBERS_MAX);
    }

    proptest! {
        #[test]
        fn no_payload_asks_for_more_than_may_be(payload: Vec<u8>) {
            let with_magic = [&MAGIC[..], &payload].concat();
            for payload in [payload, with_magic] {
                if let Some(missing) = Missing::parse(&payload) {
                    prop_assert!(missing.numbers().count() <= NUMBERS_MAX);
                }
            }
        }
    }
}
