//! One world: two ends, a wire, faults until a moment, and then none.

use crate::end::{Cipher, End, Inside, Packet, Slot};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Milliseconds of faults, and how long both ends have to recover.
const FAULTS: u64 = 240_000;
const RECOVERY: u64 = 30_000;
/// Milliseconds in which recovered ends are watched.
const WATCHED: u64 = 20_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Loss, no restarts; both require protection.
    Loss,
    /// Restarts and power cuts; both require protection.
    Restarts,
    /// One end has a single slot in a kernel, which sends over any session.
    SingleSlot,
    /// One end does not know the protocol.
    Plain,
}

/// SplitMix64.
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % most
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

pub(crate) struct World {
    kind: Kind,
    seed: u64,
    random: Random,
    start: Instant,
    now: u64,
    ends: [End; 2],
    /// Packets and their receivers, by arrival.
    wire: BTreeMap<(u64, u64), (usize, Packet)>,
    sent: u64,
    /// Percent of lost packets, and milliseconds of delay at most.
    loss: u64,
    delay: u64,
    failed: u64,
    pub(crate) failed_in_a_row: u64,
    /// When each end last received a user's packet.
    heard: [u64; 2],
    offers: u64,
    cipher: Cipher,
}

impl World {
    pub(crate) fn new(kind: Kind, seed: u64) -> Self {
        let mut random = Random(seed);
        let slot = |end: usize| match kind {
            Kind::SingleSlot if end == 1 => Slot::Single,
            Kind::Plain if end == 1 => Slot::Plain,
            _ => Slot::Native,
        };
        let require = |end: usize| match kind {
            Kind::Loss | Kind::Restarts => true,
            Kind::SingleSlot => end == 0,
            Kind::Plain => false,
        };
        // Either end may have the greater key.
        let swap = random.chance(50);
        let keys = [[1; 32], [2; 32]];
        let key = |end: usize| keys[usize::from((end == 1) ^ swap)];
        let ends = [0, 1].map(|it| End::new((key(it), key(1 - it)), slot(it), require(it)));
        Self {
            kind,
            seed,
            start: Instant::now(),
            now: 0,
            ends,
            wire: BTreeMap::new(),
            sent: 0,
            loss: [0, 5, 20, 50][random.below(4) as usize],
            delay: [1, 50, 400, 3000][random.below(4) as usize],
            failed: 0,
            failed_in_a_row: 0,
            heard: [0; 2],
            offers: 0,
            random,
            cipher: Cipher::default(),
        }
    }

    fn instant(&self) -> Instant {
        self.start + Duration::from_millis(self.now)
    }

    fn say(&self, words: &str) -> String {
        format!(
            "{:?}, seed {}, delay {}, at {} ms: {words}",
            self.kind, self.seed, self.delay, self.now
        )
    }

    /// Runs to the end, in steps of 50 ms.
    pub(crate) fn run(mut self) -> Self {
        let restarts = matches!(self.kind, Kind::Restarts | Kind::SingleSlot);
        let end = FAULTS + RECOVERY * 2 + WATCHED;
        while self.now < end {
            let faulty = self.now < FAULTS;
            if self.now == FAULTS {
                (self.loss, self.delay) = (0, 50);
                self.failed = 0;
            }
            for end in 0..2 {
                // Some twice in a world.
                if restarts && faulty && self.random.below(4000) == 0 {
                    let power_cut = self.random.chance(50);
                    self.ends[end].restart(power_cut);
                }
                // Packets of users, once a second each.
                if self.now % 1000 == 500 * end as u64 {
                    let now = self.instant();
                    self.ends[end].user_packet(now);
                }
            }
            // The machine sleeps.
            if faulty && self.random.below(5000) == 0 {
                self.now += 50 * self.random.below(4000);
                self.now = self.now.min(FAULTS - 50);
            }
            self.deliver();
            for end in 0..2 {
                let now = self.instant();
                let slow = self.random.chance(30);
                self.ends[end].step(now, slow, &mut self.cipher);
                self.collect(end);
            }
            self.watch();
            self.now += 50;
        }
        self
    }

    /// Puts the packets of an end on the wire.
    fn collect(&mut self, end: usize) {
        for packet in std::mem::take(&mut self.ends[end].out) {
            if let Packet::Data { inside, base, .. } = &packet {
                let user = matches!(inside, Inside::User);
                assert!(
                    !(user && *base && self.ends[end].require),
                    "{}",
                    self.say("user packet under base")
                );
                self.offers += u64::from(matches!(inside, Inside::Exchange(_)));
            }
            // A tunnel has no copies: WireGuard drops them. Handshakes have.
            let copies =
                1 + u64::from(!matches!(packet, Packet::Data { .. }) && self.random.chance(5));
            for _ in 0..copies {
                if self.random.chance(self.loss) {
                    continue;
                }
                let at = self.now + self.random.below(self.delay);
                self.sent += 1;
                self.wire.insert((at, self.sent), (1 - end, packet.clone()));
            }
        }
    }

    fn deliver(&mut self) {
        while let Some(entry) = self.wire.first_entry()
            && entry.key().0 <= self.now
        {
            let (end, packet) = entry.remove();
            let now = self.instant();
            let user = matches!(
                packet,
                Packet::Data {
                    inside: Inside::User,
                    ..
                }
            );
            let base = matches!(packet, Packet::Data { base: true, .. });
            let heard = self.ends[end].receive(packet, now);
            match heard {
                Some(true) if user => {
                    assert!(
                        !(base && self.ends[end].require),
                        "{}",
                        self.say("took a user packet under base")
                    );
                    self.heard[end] = self.now;
                }
                Some(false) => {
                    // Message 2 that none of the keys opens.
                    self.failed += 1;
                    self.failed_in_a_row = self.failed_in_a_row.max(self.failed);
                    // After two lost answers a third is under the base key: who opens it drops its keys, and the other
                    // end keeps them if the first packet of that session is lost, too.
                    assert!(
                        self.kind != Kind::Loss || self.failed <= 2,
                        "{}",
                        self.say("a handshake failed")
                    );
                }
                _ => {}
            }
            if self.ends[end].began {
                (self.ends[end].began, self.failed) = (false, 0);
            }
        }
    }

    fn watch(&self) {
        // A kernel tries each key for 10 s.
        let slow = if self.kind == Kind::SingleSlot { 2 } else { 1 };
        if self.now > FAULTS + RECOVERY * slow {
            for end in 0..2 {
                let silent = self.now - self.heard[end];
                assert!(
                    silent < 2500,
                    "{}",
                    self.say(&format!(
                        "end {end} heard nothing for {silent} ms: {:?}",
                        self.ends
                    ))
                );
            }
        }
    }

    pub(crate) fn check(&self) {
        let protected = self.kind != Kind::Plain;
        for end in &self.ends {
            if end.slot == Slot::Native {
                assert_eq!(
                    end.is_protected(),
                    protected,
                    "{}",
                    self.say(&format!("{:?}", self.ends))
                );
            }
        }
        // Without an answer, six in the first 30 seconds, and then less and less.
        assert!(
            protected || self.offers < 40,
            "{}",
            self.say(&format!("{} offers", self.offers))
        );
        assert!(
            self.failed_in_a_row <= if self.kind == Kind::SingleSlot { 10 } else { 7 },
            "{}",
            self.say(&format!("{} failed in a row", self.failed_in_a_row))
        );
    }
}
