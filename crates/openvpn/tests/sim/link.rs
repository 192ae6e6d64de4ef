//! Links that lose, duplicate and delay.

use std::time::Duration;

use crate::world::millis;

/// The fate of a datagram: the delay of each copy that arrives.
pub(crate) type Link = Box<dyn FnMut(&mut Random, &[u8]) -> Vec<Duration>>;

/// Loses, duplicates, delays and so reorders control packets; only delays data packets.
pub(crate) fn bad_link(loss_percent: u64) -> Link {
    Box::new(move |random, datagram| {
        let delay = |random: &mut Random| millis(5 + random.below(60));
        let is_data = datagram[0] >> 3 == 9;
        if is_data {
            return vec![delay(random)];
        }
        if random.below(100) < loss_percent {
            return Vec::new();
        }
        let mut copies = vec![delay(random)];
        if random.below(100) < 10 {
            copies.push(delay(random));
        }
        copies
    })
}

/// xorshift64*: the same numbers for the same seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }
}
