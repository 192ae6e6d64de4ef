//! Numbers of wrapped control packets, and the window that accepts each number once.
//!
//! A number is a 32-bit counter from 1 under a 32-bit time. The time is that of the session's first packet and stays:
//! peers have broken on a time that moves.

/// The number of a wrapped packet. Later ones compare greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReplayId {
    /// Seconds since 1970, modulo 2^32: when the sender began to count.
    pub time: u32,
    /// Counts from 1.
    pub id: u32,
}

impl ReplayId {
    /// Bytes on the wire: the counter, then the time.
    pub const LEN: usize = 8;

    /// A first id of this or a little more says that its sender understands what a server's reset can request: early
    /// negotiation, of tls-crypt-v2.
    pub(crate) const EARLY_NEGOTIATION: u32 = 0x0f00_0000;

    pub(crate) fn from_wire(bytes: [u8; Self::LEN]) -> Self {
        let [a, b, c, d, e, f, g, h] = bytes;
        Self {
            id: u32::from_be_bytes([a, b, c, d]),
            time: u32::from_be_bytes([e, f, g, h]),
        }
    }

    pub(crate) fn to_wire(self) -> [u8; Self::LEN] {
        (u64::from(self.id) << 32 | u64::from(self.time)).to_be_bytes()
    }

    /// Whether the sender announces early negotiation with its first packet.
    #[must_use]
    pub const fn announces_early_negotiation(self) -> bool {
        self.id & 0xff00_0000 == Self::EARLY_NEGOTIATION
    }
}

/// Assigns packet IDs to outgoing control packets.
#[derive(Clone, Debug, Default)]
pub(super) struct Counter {
    last: u32,
    time: Option<u32>,
}

impl Counter {
    /// A counter whose first number follows `last`.
    pub(super) const fn after(last: u32) -> Self {
        Self { last, time: None }
    }

    /// The next number. `now`, in seconds since 1970, is used once in 2^32 packets.
    pub(super) fn next(&mut self, now: u32) -> ReplayId {
        let mut time = *self.time.get_or_insert(now);
        if self.last == u32::MAX {
            // A greater time begins a new count. It need not be the real time.
            time = time.saturating_add(1).max(now);
            self.time = Some(time);
            self.last = 0;
        }
        self.last += 1;
        ReplayId {
            time,
            id: self.last,
        }
    }
}

/// Takes each number once, in any order within the last 64.
#[derive(Clone, Debug, Default)]
pub(super) struct ReplayWindow {
    greatest: Option<ReplayId>,
    /// Bit n: the greatest id less n was taken.
    taken: u64,
}

impl ReplayWindow {
    /// The greatest number taken.
    #[cfg(test)]
    pub(super) fn greatest(&self) -> Option<ReplayId> {
        self.greatest
    }

    /// Takes a number if it is new. Only for packets that are authentic.
    pub(super) fn accept(&mut self, new: ReplayId) -> bool {
        if new.id == 0 {
            return false;
        }
        let Some(greatest) = self.greatest else {
            self.greatest = Some(new);
            self.taken = 1;
            return true;
        };
        if new.time != greatest.time {
            if new.time > greatest.time {
                self.greatest = Some(new);
                self.taken = 1;
            }
            return new.time > greatest.time;
        }
        if new.id > greatest.id {
            self.taken = self.taken.checked_shl(new.id - greatest.id).unwrap_or(0) | 1;
            self.greatest = Some(new);
            return true;
        }
        let Some(bit) = 1_u64.checked_shl(greatest.id - new.id) else {
            return false;
        };
        let is_new = self.taken & bit == 0;
        self.taken |= bit;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    const fn id(time: u32, id: u32) -> ReplayId {
        ReplayId { time, id }
    }

    #[test]
    fn sixty_four_in_any_order() {
        let mut window = ReplayWindow::default();
        assert!((1..=64).rev().all(|n| window.accept(id(9, n))));
        assert!(!(1..=64).any(|n| window.accept(id(9, n))));
        assert!(!window.accept(id(9, 0)));
        assert!(window.accept(id(9, 100)));
        assert!(!window.accept(id(9, 36)));
        assert!(!window.accept(id(9, 64)));
        assert!(window.accept(id(9, 65)));
    }

    #[test]
    fn a_later_time_begins_anew_and_an_earlier_one_is_refused() {
        let mut window = ReplayWindow::default();
        assert!(window.accept(id(9, 500)));
        assert!(!window.accept(id(8, 501)));
        assert!(window.accept(id(10, 1)));
        assert!(!window.accept(id(10, 1)));
        assert!(!window.accept(id(9, 501)));
    }

    /// A time that changes during a session has broken peers that keep the first.
    #[test]
    fn the_time_is_fixed_once() {
        let mut counter = Counter::default();
        assert_eq!(counter.next(100), id(100, 1));
        assert_eq!(counter.next(200), id(100, 2));
        let mut counter = Counter::after(u32::MAX - 1);
        assert_eq!(counter.next(100), id(100, u32::MAX));
        assert_eq!(counter.next(100), id(101, 1));
        assert_eq!(counter.next(300), id(101, 2));
    }

    #[test]
    fn wire_form() {
        let number = id(0x6554_2100, 0x0f00_0001);
        assert_eq!(number.to_wire(), [0x0f, 0, 0, 1, 0x65, 0x54, 0x21, 0]);
        assert_eq!(ReplayId::from_wire(number.to_wire()), number);
        assert!(number.announces_early_negotiation());
        assert!(!id(0, 1).announces_early_negotiation());
    }

    proptest! {
        #[test]
        fn nothing_is_taken_twice_and_the_recent_is_taken(ids in prop::collection::vec((0..3_u32, 0..200_u32), 1..300)) {
            let mut window = ReplayWindow::default();
            let mut seen = HashSet::new();
            let mut greatest = id(0, 0);
            for (time, number) in ids {
                let new = id(time, number);
                let fits = number != 0
                    && (seen.is_empty()
                        || time > greatest.time
                        || time == greatest.time && (number + 64 > greatest.id))
                    && !seen.contains(&new_key(new));
                prop_assert_eq!(window.accept(new), fits, "{:?} after {:?}", new, greatest);
                if fits {
                    seen.insert(new_key(new));
                    greatest = greatest.max(new);
                }
            }
        }
    }

    const fn new_key(number: ReplayId) -> (u32, u32) {
        (number.time, number.id)
    }
}
