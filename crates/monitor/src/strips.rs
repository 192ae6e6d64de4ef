//! The states of uplinks over five minutes, a letter for each second, for the strips on the page.

use std::collections::{BTreeMap, VecDeque};

use service::status::{LineStatus, PeerStatus, Status};

use crate::document;
use crate::events::called;
use crate::overview::MINUTES;

/// Maximum number of uplinks whose states are kept, over all tunnels, which have equal shares.
const LINES: usize = 128;

/// Longest gap between two samples, in seconds, that takes the later sample's letter.
const FILLED: u64 = 15;

/// The letter of an unknown state, and of a moment without a sample.
const UNKNOWN: u8 = b'.';

/// Names an uplink: its tunnel, its peer and its own name.
type Key = (String, String, String);

/// The states of all uplinks.
#[derive(Debug, Default)]
pub struct Strips {
    /// The moment of the last letter.
    moment: u64,
    of: BTreeMap<Key, VecDeque<u8>>,
}

/// The letter of a state: `u` in use, `s` standing by, `g` degraded, `d` down.
fn letter(line: &LineStatus) -> u8 {
    match (line.state.as_str(), line.in_use) {
        ("up", true) => b'u',
        ("up", false) => b's',
        ("degraded", _) => b'g',
        ("down", _) => b'd',
        _ => UNKNOWN,
    }
}

impl Strips {
    /// Takes the uplinks of these tunnels at a moment, in seconds.
    pub fn observe(&mut self, tunnels: &[Status], moment: u64) {
        let passed = moment.saturating_sub(self.moment);
        let has_lines = |it: &&Status| it.peers.iter().any(|peer| !peer.lines.is_empty());
        let tunnels = tunnels.iter().filter(has_lines);
        let share = (LINES / tunnels.clone().count().max(1)).clamp(1, document::LINES);
        let lines = tunnels.flat_map(|status| {
            let pairs = |peer: &'_ PeerStatus| {
                let peer_name = called(peer);
                let key =
                    |name: &str| (status.interface.clone(), peer_name.clone(), name.to_owned());
                let lines = peer.lines.iter();
                lines
                    .map(|it| (key(&it.name), letter(it)))
                    .collect::<Vec<_>>()
            };
            status.peers.iter().flat_map(pairs).take(share)
        });
        let now: BTreeMap<Key, u8> = lines.take(LINES).collect();
        // Uplinks of tunnels that have ended.
        self.of.retain(|key, _| now.contains_key(key));
        for (key, letter) in now {
            let strip = self.of.entry(key).or_default();
            for _ in 0..passed.min(MINUTES) {
                strip.push_back(if passed > FILLED { UNKNOWN } else { letter });
            }
            match strip.back_mut() {
                Some(last) => *last = letter,
                None => strip.push_back(letter),
            }
            let most = usize::try_from(MINUTES).unwrap_or(usize::MAX);
            strip.drain(..strip.len().saturating_sub(most));
        }
        self.moment = moment;
    }

    /// The letters of an uplink after a moment.
    #[must_use]
    pub fn since(&self, moment: u64, key: &Key) -> String {
        let Some(strip) = self.of.get(key) else {
            return String::new();
        };
        let wanted = usize::try_from(self.moment.saturating_sub(moment)).unwrap_or(usize::MAX);
        let letters = strip.range(strip.len().saturating_sub(wanted)..);
        letters.map(|it| char::from(*it)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tunnel(name: &str, lines: &[(&str, &str, bool)]) -> Status {
        let line = |&(name, state, in_use): &(&str, &str, bool)| LineStatus {
            name: name.to_owned(),
            state: state.to_owned(),
            in_use,
            ..LineStatus::default()
        };
        Status {
            interface: name.to_owned(),
            peers: vec![PeerStatus {
                public_key: "key".to_owned(),
                lines: lines.iter().map(line).collect(),
                ..PeerStatus::default()
            }],
            ..Status::default()
        }
    }

    fn key(line: &str) -> Key {
        ["wg0", "key", line].map(str::to_owned).into()
    }

    #[test]
    fn each_second_has_a_letter() {
        let mut strips = Strips::default();
        for (moment, state, in_use) in [
            (1, "up", true),
            (2, "up", true),
            // Five seconds between two samples, while no page is open.
            (7, "down", false),
            (8, "degraded", true),
            (9, "up", false),
            // The host slept.
            (29, "up", true),
            // Twice within a second.
            (30, "up", true),
            (30, "down", false),
        ] {
            strips.observe(&[tunnel("wg0", &[("dsl", state, in_use)])], moment);
        }
        let seen = "uudddddgs...................ud";
        assert_eq!(strips.since(0, &key("dsl")), seen);
        assert_eq!(strips.since(28, &key("dsl")), "ud");
        assert_eq!(strips.since(30, &key("dsl")), "");
        assert_eq!(strips.since(0, &key("lte")), "");
        // A later line begins with its first sample.
        let two = [tunnel("wg0", &[("dsl", "up", true), ("lte", "?", true)])];
        strips.observe(&two, 31);
        assert_eq!(strips.since(0, &key("lte")), ".");
        strips.observe(&[], 32);
        assert!(strips.of.is_empty());
    }

    #[test]
    fn there_is_an_end_to_uplinks_and_seconds() {
        let mut strips = Strips::default();
        let names: Vec<String> = (0..100).map(|it| it.to_string()).collect();
        let lines: Vec<_> = names.iter().map(|it| (it.as_str(), "up", true)).collect();
        let tunnels = [tunnel("wg0", &lines), tunnel("wg1", &lines)];
        for moment in 0..1000 {
            strips.observe(&tunnels, moment);
        }
        // Each tunnel has as many as the document shows.
        let of = |name: &str| strips.of.keys().filter(|it| it.0 == name).count();
        assert_eq!([of("wg0"), of("wg1")], [document::LINES; 2]);
        let names: Vec<String> = (0..200).map(|it| format!("wg{it}")).collect();
        let tunnels: Vec<Status> = names.iter().map(|it| tunnel(it, &lines)).collect();
        strips.observe(&tunnels[..8], 1000);
        assert!(
            (0..8).all(|it| strips.of.keys().filter(|key| key.0 == names[it]).count() == LINES / 8)
        );
        strips.observe(&tunnels, 1001);
        assert_eq!(strips.of.len(), LINES);
        strips.observe(&tunnels[..2], 1302);
        assert!(strips.of.values().all(|it| it.len() == 300));
        strips.observe(&tunnels, u64::MAX);
        assert!(strips.of.values().all(|it| it.len() == 300));
    }
}
