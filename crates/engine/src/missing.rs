//! Requests from one end to the other for lost packets, if both ends share packets out among lines.
//!
//! A request is sealed like data, and asks for packets of its own session. Its payload is not an IP packet, so an end
//! that does not know requests drops it:
//!
//! | bytes | |
//! |---|---|
//! | 4 | 0, "MR", 1 |
//! | 10, up to [`RUNS_MAX`] times | the first number that is missing, and how many are: 8 and 2 bytes, big endian |
//!
//! Bytes after the last run are padding, whose counts are 0.

/// The mark of a request. An IP packet never begins with version 0.
const MAGIC: [u8; 4] = [0, b'M', b'R', 1];

/// Most runs of numbers in one request.
const RUNS_MAX: usize = 32;

/// Most numbers that a request may ask for.
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
    use super::*;
    use proptest::prelude::*;

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
