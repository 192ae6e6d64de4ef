//! Packets that go out before an initiation and mean nothing: the initiator's only.

use std::time::{Duration, Instant};

use super::template::fill;
use super::{COMMON_PATH, Range, Settings, Template};

/// A peer's record of the packets that were sent to it.
#[derive(Debug, Default)]
pub(crate) struct Junk {
    /// When `I1` to `I5` were last sent.
    special: Option<Instant>,
}

impl Junk {
    /// The packets to send before the next initiation; `unix` is the time of day in seconds since 1970.
    pub(crate) fn next(&mut self, settings: &Settings, now: Instant, unix: u64) -> Vec<Box<[u8]>> {
        let every = Duration::from_secs(settings.special_every.into());
        let stamp = settings.stamp();
        // Version 1.5 sends I packets again only after `Itime`, and J packets until then. Later versions always send I
        // packets.
        let due = stamp == 4
            || self
                .special
                .is_none_or(|sent| !every.is_zero() && now >= sent + every);
        let packets: &[Option<Template>] = match due {
            true => &settings.special,
            false => &settings.between,
        };
        if due {
            self.special = Some(now);
        }
        let first = Range {
            lo: 0,
            hi: u32::MAX,
        }
        .draw();
        let special = packets
            .iter()
            .flatten()
            .zip(0..)
            .map(|(packet, number)| packet.emit(unix, first.wrapping_add(number), stamp));
        let [lo, hi] = settings.junk_len.map(|len| len.min(COMMON_PATH));
        let random = (0..settings.junk).map(|_| {
            let mut bytes = vec![0; Range { lo, hi }.draw() as usize];
            fill(&mut bytes);
            bytes.into()
        });
        special.chain(random).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_come_in_their_order_and_lengths() {
        let mut settings = Settings::default();
        let lines = [
            ("I1", "<b 01><c>"),
            ("I4", "<b 04><c>"),
            ("Jc", "40"),
            ("Jmin", "50"),
            ("Jmax", "52"),
        ];
        for (name, value) in lines {
            settings.set(name, value).unwrap();
        }
        let (mut junk, now) = (Junk::default(), Instant::now());
        for _ in 0..2 {
            let packets = junk.next(&settings, now, 1);
            assert_eq!(packets.len(), 42);
            let count = |packet: &[u8]| u32::from_be_bytes(*packet[1..].first_chunk().unwrap());
            assert_eq!((packets[0][0], packets[1][0]), (1, 4));
            assert_eq!(count(&packets[1]), count(&packets[0]).wrapping_add(1));
            for len in 50..=52 {
                assert!(packets[2..].iter().any(|packet| packet.len() == len));
            }
            assert!(
                packets[2..]
                    .iter()
                    .all(|packet| (50..=52).contains(&packet.len()))
            );
        }
    }

    #[test]
    fn random_packets_are_no_longer_than_a_path_carries() {
        let mut settings = Settings::default();
        for (name, value) in [("Jc", "128"), ("Jmin", "1400"), ("Jmax", "65507")] {
            settings.set(name, value).unwrap();
        }
        let packets = Junk::default().next(&settings, Instant::now(), 1);
        assert_eq!(packets.len(), 128);
        let mut lengths = packets.iter().map(|packet| packet.len());
        assert!(lengths.all(|len| (1400..=1472).contains(&len)));
        assert!(
            settings
                .hints(None)
                .contains(&crate::amnezia::Hint::Cut(65_507))
        );
    }

    #[test]
    fn generation_1_5_sends_other_packets_until_its_time_has_passed() {
        let mut settings = Settings::default();
        for (name, value) in [
            ("I1", "<b 01>"),
            ("J1", "<b 02>"),
            ("J2", "<t>"),
            ("Itime", "60"),
        ] {
            settings.set(name, value).unwrap();
        }
        let (mut junk, now) = (Junk::default(), Instant::now());
        let mut lengths = |secs| {
            let packets = junk.next(&settings, now + Duration::from_secs(secs), 9);
            packets
                .iter()
                .map(|packet| packet.len())
                .collect::<Vec<_>>()
        };
        for (secs, expected) in [
            (0, &[1][..]),
            (5, &[1, 8]),
            (59, &[1, 8]),
            (60, &[1]),
            (61, &[1, 8]),
        ] {
            assert_eq!(lengths(secs), expected, "after {secs} s");
        }
    }
}
