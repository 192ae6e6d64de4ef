//! The states of uplinks over five minutes, a letter for each second, for the strips on the page.

use std::collections::{BTreeMap, VecDeque};

use service::status::{LineStatus, Status};

use crate::events::called;
use crate::overview::MINUTES;

/// Maximum number of uplinks whose states are kept.
const LINES: usize = 64;

/// Longest pause between two samples, in seconds, that the later one fills.
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
        let peers = tunnels
            .iter()
            .flat_map(|status| status.peers.iter().map(move |peer| (status, peer)));
        let lines = peers.flat_map(|(status, peer)| {
            peer.lines.iter().map(move |line| {
                let key = (status.interface.clone(), called(peer), line.name.clone());
                (key, letter(line))
            })
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
    use service::status::PeerStatus;

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
        assert_eq!(strips.of.len(), LINES);
        assert!(strips.of.values().all(|it| it.len() == 300));
        strips.observe(&tunnels, u64::MAX);
        assert!(strips.of.values().all(|it| it.len() == 300));
    }
}
