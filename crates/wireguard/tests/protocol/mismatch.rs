//! Ends whose settings differ in one value: what they find out by each other's datagrams within 30 seconds.

use std::net::SocketAddr;
use std::time::Duration;

use plane::{Batch, Class, Packet, Protocol, SessionKeys, SessionName, Wire};
use wireguard::amnezia::{Finding, Mismatch, TRIALS_MAX};
use wireguard::{DataKeys, Device, Dropped, Output, Reader, WireGuard};

use crate::amneziawg::{Pair, V10, V20, V31, WIDE, address, profile, sent};

/// [`V20`] with trailers, and with a key that hides headers.
const TRAILERS: &str = "S1=30 S2=40 S3=25 S4=17 H1=100000-200000 H2=300000-400000 H3=500000-600000 \
                        H4=700000-800000 RandomTrailers=on";
const KEY: &str = "S1=30 S2=40 S3=25 S4=17 H1=100000-200000 H2=300000-400000 H3=500000-600000 \
                   H4=700000-800000 HeaderProtectionKey=4041424344454647484950515253545556575859606162636465666768697071";

/// Two ends with their data planes, reduced to the classification of datagrams.
struct Ends {
    pair: Pair,
    wires: [WireGuard; 2],
    keys: [Vec<SessionKeys<DataKeys>>; 2],
    found: [Vec<Finding>; 2],
}

impl Ends {
    fn new(settings: [&str; 2]) -> Self {
        let wires = settings.map(|text| {
            let wire = WireGuard::new();
            wire.set_profile(profile(text));
            wire.sample(TRIALS_MAX);
            wire
        });
        Self {
            pair: Pair::new(settings),
            wires,
            keys: [Vec::new(), Vec::new()],
            found: [Vec::new(), Vec::new()],
        }
    }

    /// Delivers a datagram of the other end. Returns the message that answers it.
    fn deliver(&mut self, to: usize, bytes: &[u8], under_load: bool) -> Option<Vec<u8>> {
        let (wire, mut reader) = (&self.wires[to], Reader::default());
        wire.prepare(&mut reader);
        let class = wire.classify(&reader, bytes);
        if let Class::Data { session, .. } = class {
            let is_known = |keys: &SessionKeys<_>| SessionName::Index(keys.session) == session;
            if self.keys[to].iter().any(is_known) {
                return None;
            }
        }
        let is_short = bytes.len() < 32;
        assert!(
            class != Class::Malformed || is_short,
            "{class:?} is not tried"
        );
        let (result, out) = self.pair.receive(to, bytes, under_load);
        if let Err(Dropped::Malformed | Dropped::Mac1 | Dropped::Unexpected) = result {
            let (now, from) = (self.pair.now, address(1 - to));
            let found = self.pair.ends[to].diagnose(bytes, from, now);
            self.found[to].extend(found);
        }
        let answer = sent(&out).map(|it| it.as_bytes().to_vec());
        for output in out {
            if let Output::AddKeys { keys, .. } = output {
                self.keys[to].push(keys);
            }
        }
        answer
    }

    /// A data packet of this end.
    fn data(&self, from: usize, inner: usize) -> Vec<u8> {
        let Ok(formats) = self.wires[from].formats(&self.keys[from].last().unwrap().material);
        let (head, tail) = (formats.seal.head(), formats.seal.tail(inner));
        let mut memory = vec![0x45; head + inner + tail];
        let packet = Packet {
            start: head as u32,
            len: inner as u32,
            ..Packet::default()
        };
        let packets = &mut [packet];
        formats.seal.seal(&mut Batch {
            memory: &mut memory,
            packets,
        });
        memory
    }

    /// Begins a handshake of end 0, and delivers everything that follows from it.
    fn handshake(&mut self, under_load: bool) {
        let first = self.pair.initiation();
        for junk in first.before() {
            self.deliver(1, junk, under_load);
        }
        let second = self.deliver(1, first.as_bytes(), under_load);
        if let Some(second) = second {
            self.deliver(0, &second, false);
        }
    }

    /// Sends as both ends do in 30 seconds, and returns the words of each.
    fn talk(settings: [&str; 2], under_load: bool) -> [Vec<String>; 2] {
        let mut ends = Self::new(settings);
        for _ in 0..4 {
            ends.handshake(under_load);
            if ends.keys.iter().all(|keys| !keys.is_empty()) {
                for (from, inner) in [(0, 0), (0, 100), (1, 0), (1, 1300)] {
                    let bytes = ends.data(from, inner);
                    ends.deliver(1 - from, &bytes, false);
                }
                break;
            }
            ends.pair.now += Duration::from_secs(7);
        }
        ends.found.map(|found| {
            let mut words: Vec<_> = found.iter().map(|it| it.mismatch.to_string()).collect();
            words.dedup();
            words
        })
    }
}

#[track_caller]
fn finds(settings: [&str; 2], under_load: bool, at: usize, expected: &str) {
    let words = Ends::talk(settings, under_load);
    let is_it = |it: &String| it.starts_with(expected);
    assert!(
        !words[at].is_empty(),
        "nothing instead of {expected}: {settings:?}"
    );
    assert!(
        words[at].iter().all(is_it),
        "{words:?} instead of {expected}: {settings:?}"
    );
}

/// Every value that both ends share, in each generation that has it. The end that receives the message names the value.
#[test]
fn one_value_that_differs_is_named() {
    let table = [
        ("S1=30", "S1=44", 1, "S1 is 44 at the other end, 30 here"),
        ("S2=40", "S2=71", 0, "S2 is 40 at the other end, 71 here"),
        ("S4=17", "S4=20", 1, "S4 is 20 at the other end, 17 here"),
        (
            "H1=100000-200000",
            "H1=7",
            1,
            "H1 includes 7 at the other end, is 100000-200000 here",
        ),
        ("H2=300000-400000", "H2=7", 0, "H2 includes 3"),
        (
            "H4=700000-800000",
            "H4=7",
            1,
            "H4 includes 7 at the other end, is 700000-800000 here",
        ),
    ];
    for base in [V10, V20, V31, TRAILERS, KEY] {
        for (value, other, at, words) in table {
            if base.contains(value) {
                finds([&base.replace(value, other), base], false, at, words);
            }
        }
    }
    for base in [V20, TRAILERS, KEY] {
        for (value, other, words) in [
            ("S3=25", "S3=12", "S3 is 25 at the other end, 12 here"),
            ("H3=500000-600000", "H3=7", "H3 includes 5"),
        ] {
            finds([&base.replace(value, other), base], true, 0, words);
        }
    }
}

#[test]
fn a_wrong_s4_is_named_at_either_end() {
    let other = V20.replace("S4=17", "S4=200");
    let words = Ends::talk([V20, &other], false);
    assert_eq!(words[0], ["S4 is 200 at the other end, 17 here"]);
    assert_eq!(words[1], ["S4 is 17 at the other end, 200 here"]);
}

#[test]
fn trailers_at_one_end_are_named() {
    let words = "RandomTrailers is on at the other end, off here";
    finds([TRAILERS, V20], false, 1, words);
    finds([V20, TRAILERS], false, 0, words);
    // The end that has them sees initiations without any.
    let mut ends = Ends::new([V20, TRAILERS]);
    let peer = ends.pair.peers[1];
    let calls = [false, true].map(|_| {
        ends.handshake(false);
        ends.pair.now += Duration::from_secs(7);
        ends.pair.ends[1].lacks_trailers(peer)
    });
    assert_eq!(calls, [false, true]);
}

#[test]
fn a_header_protection_key_at_one_end_or_another_one_is_named() {
    let other = KEY.replace("=4041", "=5051");
    let unreadable = "its datagrams fit no value here: HeaderProtectionKey differs";
    finds([&other, KEY], false, 1, unreadable);
    finds(
        [V20, KEY],
        false,
        1,
        "HeaderProtectionKey is set here, not at the other end",
    );
    let unreadable = "its datagrams fit no value here: HeaderProtectionKey is set at the other end";
    finds([KEY, V20], false, 1, unreadable);
}

#[test]
fn plain_wireguard_at_one_end_is_named() {
    for settings in [V10, V20, V31, TRAILERS, KEY] {
        let words = "the other end speaks plain WireGuard";
        finds(["", settings], false, 1, words);
    }
    for settings in [V10, V20] {
        finds(
            [settings, ""],
            false,
            1,
            "the other end speaks AmneziaWG (S1 is 30, H1 includes 1",
        );
        let local = "Jc=4 Jmax=60";
        finds(
            [settings, local],
            false,
            1,
            "the other end speaks AmneziaWG",
        );
    }
    for (settings, at, words) in [
        (
            "S1=9",
            1,
            "the other end speaks AmneziaWG (S1 is 9, H1 includes 1)",
        ),
        (
            "H1=9",
            1,
            "the other end speaks AmneziaWG (S1 is 0, H1 includes 9)",
        ),
        (
            "S4=9",
            1,
            "the other end speaks AmneziaWG (S4 is 9, H4 includes 4)",
        ),
        (
            "H4=9",
            1,
            "the other end speaks AmneziaWG (S4 is 0, H4 includes 9)",
        ),
    ] {
        finds([settings, ""], false, at, words);
    }
    for (settings, words) in [
        (
            "S2=9",
            "the other end speaks AmneziaWG (S2 is 9, H2 includes 2)",
        ),
        (
            "H2=9",
            "the other end speaks AmneziaWG (S2 is 0, H2 includes 9)",
        ),
    ] {
        finds(["", settings], false, 0, words);
    }
}

#[test]
fn ends_that_agree_find_nothing() {
    for settings in ["", V10, V20, V31, WIDE, TRAILERS, KEY] {
        for under_load in [false, true] {
            for _ in 0..10 {
                let words = Ends::talk([settings, settings], under_load);
                assert_eq!(words, [const { Vec::<String>::new() }; 2], "{settings}");
            }
        }
    }
}

/// A recording tells of settings that the peer has changed since.
#[test]
fn a_replayed_initiation_is_no_diagnosis() {
    let other = V20.replace("S1=30", "S1=31");
    let mut pair = Pair::new([&other, V20]);
    let recorded = pair.initiation();
    let (now, from) = (pair.now, address(0));
    let diagnose = |end: &mut Device| end.diagnose(recorded.as_bytes(), from, now);
    assert!(diagnose(&mut pair.ends[1]).is_some());
    pair.ends[0].set_profile(profile(V20), now, &mut Vec::new());
    pair.now += Duration::from_secs(7);
    assert!(pair.connects());
    assert_eq!(diagnose(&mut pair.ends[1]), None);
}

/// Messages that come late, or were recorded, have our index where a data packet of another form may have it.
#[test]
fn late_messages_of_the_own_form_are_no_diagnosis() {
    for settings in ["", V20, TRAILERS, KEY] {
        let mut pair = Pair::new([settings, settings]);
        let [cookie, response] = [true, false].map(|under_load| {
            pair.now += Duration::from_secs(6);
            let first = pair.initiation();
            let (_, out) = pair.receive(1, first.as_bytes(), under_load);
            let answer = sent(&out).expect("an answer");
            let (result, _) = pair.receive(0, answer.as_bytes(), false);
            assert_eq!(result, Ok(()), "{settings}, {under_load}");
            answer
        });
        pair.now += Duration::from_secs(20);
        for late in [&cookie, &response] {
            assert!(pair.receive(0, late.as_bytes(), false).0.is_err());
            let (from, now) = (address(1), pair.now);
            assert_eq!(pair.ends[0].diagnose(late.as_bytes(), from, now), None);
        }
    }
}

fn noise(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    crypto::random(&mut bytes);
    bytes
}

#[test]
fn strangers_cost_a_bounded_number_of_trials() {
    let mut pair = Pair::new([V20, V20]);
    let (end, mut now) = (&mut pair.ends[0], pair.now);
    let from = |number: u8| SocketAddr::from(([198, 51, 100, number], 1));
    assert_eq!(end.trials_left(now), TRIALS_MAX);
    for _ in 0..1000 {
        assert_eq!(end.diagnose(&noise(178), from(7), now), None);
    }
    assert_eq!(end.trials_left(now), 0);
    now += Duration::from_secs(1);
    assert_eq!(end.trials_left(now), 16);
    // The finding about one source comes at most every ten seconds, and names its address.
    let mut found = Vec::new();
    for _ in 0..60 {
        now += Duration::from_secs(1);
        for number in 7..17 {
            found.extend(end.diagnose(&noise(178), from(number), now));
        }
        // Too short or too long to be tried.
        assert_eq!(end.diagnose(&noise(31), from(7), now), None);
        assert_eq!(end.diagnose(&noise(1781), from(7), now), None);
    }
    assert!((4..=6).contains(&found.len()), "{found:?}");
    let unreadable = |it: &Finding| {
        *it == Finding {
            peer: None,
            mismatch: Mismatch::Unreadable { key: false },
        }
    };
    assert!(found.iter().all(unreadable), "{found:?}");
}

#[test]
fn noise_at_a_plain_server_tells_nothing() {
    let mut pair = Pair::new(["", ""]);
    let (end, mut now) = (&mut pair.ends[0], pair.now);
    for _ in 0..60 {
        now += Duration::from_secs(1);
        let from = ([198, 51, 100, 7], 1).into();
        assert_eq!(end.diagnose(&noise(1200), from, now), None);
    }
}
