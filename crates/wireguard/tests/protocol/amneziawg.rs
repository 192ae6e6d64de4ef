//! Handshakes in AmneziaWG's form, between devices that have the same settings or differ in one.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::sim::{Event, Sim, secs};
use crypto::x25519::PrivateKey;
use plane::PeerId;
use wireguard::amnezia::{Profile, Settings};
use wireguard::{Activity, Datagram, Device, Dropped, Output};

pub(crate) const V10: &str =
    "Jc=3 Jmin=50 Jmax=100 S1=30 S2=40 H1=111111 H2=222222 H3=333333 H4=444444";
pub(crate) const V20: &str = "Jc=3 Jmin=50 Jmax=100 S1=30 S2=40 S3=25 S4=17 H1=100000-200000 H2=300000-400000 \
                   H3=500000-600000 H4=700000-800000 I1=<r_16>";
pub(crate) const V31: &str = "S1=30 S2=40 S3=25 S4=17 RandomTrailers=on DisableCookies=on RekeyTimeout=3-7 \
                   RekeyAfterTime=100-110 HeaderProtectionKey=4041424344454647484950515253545556575859606162636465666768697071";
pub(crate) const WIDE: &str = "S1=30 S2=30 S3=30 S4=30 H1=5-1500000000 H2=1500000001-2500000000 \
                    H3=2500000001-3000000000 H4=3000000001-4294967295 RandomTrailers=on";

pub(crate) fn profile(text: &str) -> Option<Arc<Profile>> {
    let mut settings = Settings::default();
    for word in text.split_whitespace() {
        let (name, value) = word.split_once('=').unwrap();
        settings.set(name, &value.replace('_', " ")).unwrap();
    }
    Profile::new(settings).unwrap()
}

/// Two devices that know each other.
pub(crate) struct Pair {
    pub(crate) now: Instant,
    pub(crate) ends: [Device; 2],
    pub(crate) peers: [PeerId; 2],
}

pub(crate) fn address(end: usize) -> SocketAddr {
    ([192, 0, 2, end as u8], 51820).into()
}

impl Pair {
    pub(crate) fn new(settings: [&str; 2]) -> Self {
        let (now, mut out) = (Instant::now(), Vec::new());
        let mut ends = [1, 2].map(|seed| Device::new(now, SystemTime::now(), seed));
        for (end, text) in ends.iter_mut().zip(settings) {
            end.set_private_key(Some(PrivateKey::generate()), now, &mut out);
            end.set_profile(profile(text), now, &mut out);
        }
        let keys = [0, 1].map(|at: usize| ends[at].public_key().unwrap());
        let peers = [0, 1].map(|at: usize| {
            let peer = ends[at].add_peer(keys[1 - at]).unwrap();
            ends[at].set_endpoint(peer, Some(address(1 - at)), now, &mut out);
            peer
        });
        assert!(out.is_empty());
        Self { now, ends, peers }
    }

    /// The datagram of an initiation of end 0.
    pub(crate) fn initiation(&mut self) -> Datagram {
        let mut out = Vec::new();
        self.ends[0].need_session(self.peers[0], self.now, &mut out);
        sent(&out).expect("an initiation")
    }

    pub(crate) fn receive(
        &mut self,
        end: usize,
        bytes: &[u8],
        under_load: bool,
    ) -> (Result<(), Dropped>, Vec<Output>) {
        let mut out = Vec::new();
        let from = address(1 - end);
        let result = self.ends[end].receive(bytes, from, self.now, under_load, &mut out);
        (result, out)
    }

    /// Whether a handshake of end 0 makes keys at both ends.
    pub(crate) fn connects(&mut self) -> bool {
        let first = self.initiation();
        for junk in first.before() {
            assert!(self.receive(1, junk, false).0.is_err());
        }
        let (_, out) = self.receive(1, first.as_bytes(), false);
        let Some(second) = sent(&out) else {
            return false;
        };
        let (result, out) = self.receive(0, second.as_bytes(), false);
        result.is_ok() && out.iter().any(|it| matches!(it, Output::AddKeys { .. }))
    }
}

pub(crate) fn sent(out: &[Output]) -> Option<Datagram> {
    out.iter().find_map(|output| match output {
        Output::Send { datagram, .. } => Some(datagram.clone()),
        _ => None,
    })
}

#[test]
fn ends_with_the_same_settings_connect() {
    for text in ["", V10, V20, V31, WIDE] {
        for _ in 0..20 {
            assert!(Pair::new([text, text]).connects(), "{text}");
        }
    }
}

#[test]
fn lengths_types_and_junk_are_those_of_the_settings() {
    let first = Pair::new(["", ""]).initiation();
    assert_eq!(first.as_bytes().len(), 148);
    assert_eq!(first.as_bytes()[..4], [1, 0, 0, 0]);
    assert!(first.before().is_empty());
    let first = Pair::new([V20, ""]).initiation();
    assert_eq!(first.as_bytes().len(), 178);
    let kind = u32::from_le_bytes(first.as_bytes()[30..34].try_into().unwrap());
    assert!((100_000..=200_000).contains(&kind), "{kind}");
    let lengths: Vec<_> = first.before().iter().map(|junk| junk.len()).collect();
    assert_eq!((lengths.len(), lengths[0]), (4, 16));
    assert!(lengths[1..].iter().all(|len| (50..=100).contains(len)));
    let lengths = (0..50).map(|_| Pair::new([V31, ""]).initiation().as_bytes().len());
    let lengths: Vec<_> = lengths.collect();
    assert!(
        lengths.iter().all(|len| (178..500).contains(len)),
        "{lengths:?}"
    );
    assert!(lengths.iter().any(|len| *len != lengths[0]));
}

#[test]
fn one_value_that_differs_is_silence() {
    for (here, there) in [
        ("", V10),
        (V10, ""),
        (
            V10,
            "Jc=1 S1=31 S2=40 H1=111111 H2=222222 H3=333333 H4=444444",
        ),
        (
            V10,
            "Jc=1 S1=30 S2=41 H1=111111 H2=222222 H3=333333 H4=444444",
        ),
        (
            V10,
            "Jc=1 S1=30 S2=40 H1=111112 H2=222222 H3=333333 H4=444444",
        ),
        (
            V10,
            "Jc=1 S1=30 S2=40 H1=111111 H2=222223 H3=333333 H4=444444",
        ),
        (V31, "S1=30 S2=40 S3=25 S4=17 RandomTrailers=on"),
        (V31, &V31.replace("4041", "4042")),
    ] {
        assert!(!Pair::new([here, there]).connects(), "{here} and {there}");
    }
    let local = "Jc=9 Jmax=9 S1=30 S2=40 H1=111111 H2=222222 H3=333333 H4=444444 I1=<r_5>";
    assert!(Pair::new([V10, local]).connects());
}

#[test]
fn under_load_a_cookie_comes_in_the_same_form_or_none_at_all() {
    for (text, cookies) in [(V10, true), (V20, true), (WIDE, true), (V31, false)] {
        let mut pair = Pair::new([text, text]);
        let first = pair.initiation();
        let (result, out) = pair.receive(1, first.as_bytes(), true);
        assert_eq!(result.is_err(), cookies, "{text}");
        if !cookies {
            assert!(out.iter().any(|it| matches!(it, Output::AddKeys { .. })));
            continue;
        }
        assert_eq!(result, Err(Dropped::Cookie));
        let cookie = sent(&out).unwrap();
        assert_eq!(pair.receive(0, cookie.as_bytes(), false).0, Ok(()));
        pair.now += Duration::from_secs(6);
        let again = pair.initiation();
        assert_eq!(pair.receive(1, again.as_bytes(), true).0, Ok(()), "{text}");
    }
}

#[test]
fn sessions_end_with_a_change_that_the_other_end_sees() {
    let mut pair = Pair::new([V20, V20]);
    assert!(pair.connects());
    let mut out = Vec::new();
    pair.now += Duration::from_secs(1);
    let local = profile(&V20.replace("Jc=3", "Jc=4"));
    pair.ends[0].set_profile(local, pair.now, &mut out);
    assert!(out.is_empty(), "{out:?}");
    let shared = profile(&V20.replace("S4=17", "S4=18"));
    pair.ends[0].set_profile(shared, pair.now, &mut out);
    assert!(
        out.iter()
            .any(|it| matches!(it, Output::StopSending { .. }))
    );
    assert!(out.iter().any(|it| matches!(it, Output::RemoveKeys { .. })));
    assert!(sent(&out).is_some_and(|datagram| datagram.is_initiation()));
}

#[test]
fn the_handshakes_after_a_change_do_not_begin_all_at_once() {
    let mut pair = Pair::new([V20, V20]);
    let (end, mut out) = (&mut pair.ends[0], Vec::new());
    for number in 0..100 {
        let peer = end.add_peer(PrivateKey::generate().public()).unwrap();
        let to = ([198, 51, 100, number], 1).into();
        end.set_endpoint(peer, Some(to), pair.now, &mut out);
        end.need_session(peer, pair.now, &mut out);
    }
    out.clear();
    end.set_profile(profile(V10), pair.now, &mut out);
    let sends = |out: &[Output]| {
        let sends = out.iter().filter(|it| matches!(it, Output::Send { .. }));
        sends.count()
    };
    assert_eq!(sends(&out), 1);
    let mut all = 1;
    while all < 100 {
        let (next, mut out) = (end.next_deadline().unwrap(), Vec::new());
        assert!(next < pair.now + Duration::from_millis(100));
        end.expired(next, |_| Activity::default(), &mut out);
        assert_eq!(sends(&out), 1);
        all += 1;
    }
}

#[test]
fn times_are_drawn_from_their_ranges() {
    for _ in 0..20 {
        let mut pair = Pair::new([V31, V31]);
        let first = pair.initiation();
        let due = pair.ends[0].next_deadline().unwrap() - pair.now;
        assert!((3.0..=7.4).contains(&due.as_secs_f64()), "{due:?}");
        let (_, out) = pair.receive(1, first.as_bytes(), false);
        let second = sent(&out).unwrap();
        let (_, out) = pair.receive(0, second.as_bytes(), false);
        let refresh = out.iter().find_map(|output| match output {
            Output::AddKeys { keys, .. } => keys.send.refresh_at,
            _ => None,
        });
        let age = (refresh.unwrap() - pair.now).as_secs();
        assert!((100..=110).contains(&age), "{age}");
    }
}

/// Ten minutes without data, with keepalives in one direction or both: a keepalive that counted as data would be
/// answered, and a missing answer would begin a handshake.
#[test]
fn padded_keepalives_are_no_data() {
    for padding in [0, 4, 60, 1400] {
        for ends in [1, 2] {
            let (mut sim, at_a, at_b) = Sim::pair_in(V20);
            sim.padding = padding;
            for (end, peer) in [at_a, at_b].into_iter().enumerate().take(ends) {
                let now = sim.now;
                sim.with(end, |device, out| {
                    device.set_persistent_keepalive(peer, 25, now, out);
                });
                // The first end begins the handshake alone.
                sim.run_for(secs(1));
            }
            sim.run_for(secs(600));
            let count = |event| {
                sim.hosts
                    .iter()
                    .map(|host| host.count(&event))
                    .sum::<usize>()
            };
            let initiations = count(Event::Initiation);
            assert!((4..=6).contains(&initiations), "{initiations}");
            let heard = count(Event::KeepaliveReceived);
            assert!(
                (23..=35).contains(&heard),
                "{heard} from {ends} at {padding}"
            );
            let answers = sim.hosts[0].count(&Event::KeepaliveReceived);
            assert!(ends == 2 || answers == 0, "{answers}");
        }
    }
}

/// How often an initiation goes out before it is given up, and for how long.
fn attempt(settings: &str) -> (usize, Duration) {
    let mut pair = Pair::new([settings, ""]);
    let (began, mut sends) = (pair.now, 1);
    pair.initiation();
    loop {
        let mut out = Vec::new();
        pair.now = pair.ends[0].next_deadline().unwrap();
        pair.ends[0].expired(pair.now, |_| Activity::default(), &mut out);
        sends += usize::from(sent(&out).is_some());
        if out.iter().any(|it| matches!(it, Output::DropStaged { .. })) {
            return (sends, pair.now - began);
        }
    }
}

#[test]
fn a_handshake_is_given_up_after_a_number_of_sends_if_settings_say_so() {
    for settings in ["", "Jc=1"] {
        let (sends, time) = attempt(settings);
        assert!((17..=18).contains(&sends), "{sends}");
        assert_eq!(time, Duration::from_secs(90));
    }
    let mut seen = HashSet::new();
    for _ in 0..30 {
        let (sends, _) = attempt("MaxHandshakeAttempts=15-20 RekeyTimeout=3-7");
        assert!((17..=22).contains(&sends), "{sends}");
        seen.insert(sends);
    }
    assert!(seen.len() > 1, "{seen:?}");
    assert_eq!(attempt("MaxHandshakeAttempts=1").0, 3);
    let (sends, time) = attempt("RekeyTimeout=60");
    assert_eq!(sends, 20);
    assert!((1200..1210).contains(&time.as_secs()), "{time:?}");
}

#[test]
fn a_keepalive_comes_at_the_time_that_was_drawn_for_it() {
    let mut seen = HashSet::new();
    for _ in 0..20 {
        let mut pair = Pair::new(["KeepaliveTimeout=5-60", ""]);
        let began = pair.now;
        let activity = Activity {
            unacknowledged_since: Some(began),
            ..Activity::default()
        };
        loop {
            let look = |_| {
                let (end, mut out) = (&mut pair.ends[0], Vec::new());
                end.activity(pair.peers[0], &activity, pair.now, &mut out);
                assert!(out.is_empty());
                end.next_deadline().unwrap()
            };
            let looks: HashSet<_> = (0..5).map(look).collect();
            let next = *looks.iter().next().unwrap();
            assert_eq!(looks.len(), 1, "a time was drawn twice");
            assert!(
                next <= pair.now + Duration::from_secs(5),
                "too late for a packet that comes now"
            );
            let mut out = Vec::new();
            pair.now = next;
            pair.ends[0].expired(next, |_| activity, &mut out);
            // Without keys, a handshake stands for the keepalive.
            if sent(&out).is_some() {
                seen.insert((next - began).as_secs());
                break;
            }
        }
    }
    assert!(seen.len() > 3, "{seen:?}");
    assert!(seen.iter().all(|secs| (5..=60).contains(secs)), "{seen:?}");
}
