//! The peers of an interface: their configuration and state.

#[cfg(feature = "amnezia")]
use super::diagnosis::Difference;
use super::probing::Path;
use config::types::{AllowedIp, Key32};
use config::uapi::PeerState;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// One peer as configured.
#[derive(Debug)]
pub(super) struct PeerEntry {
    pub(super) public_key: Key32,
    /// The peer's name in the file, for the status and the log.
    pub(super) name: Option<Box<str>>,
    pub(super) preshared_key: Option<Key32>,
    pub(super) persistent_keepalive: u16,
    pub(super) allowed_ips: BTreeSet<AllowedIp>,
    /// The public key of the peer that this one replaces at its first session.
    pub(super) replaces: Option<Box<Key32>>,
    /// Wall-clock time for display, and monotonic time for ages that survive a change of the clock.
    pub(super) last_handshake: Option<(SystemTime, Instant)>,
    pub(super) silence: Silence,
    /// The address in the file, if the peer is called at one.
    pub(super) configured: Option<SocketAddr>,
    /// The address to which the peer had moved when it was called at the configured one.
    moved_to: Option<SocketAddr>,
    /// How long packets to the peer may be, once that is probed.
    pub(super) path: Option<Box<Path>>,
    /// How its AmneziaWG settings differ from ours, by the last datagram that shows it.
    #[cfg(feature = "amnezia")]
    pub(super) difference: Option<Difference>,
    /// When it last answered a handshake after our packets went unanswered.
    #[cfg(feature = "amnezia")]
    pub(super) mute: Option<Instant>,
    /// The exchange of post-quantum keys, unless it is off.
    #[cfg(feature = "postquantum")]
    pub(super) post_quantum: Option<Box<super::postquantum::Carried>>,
}

/// The answers of its peers that an interface has had.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Heard {
    /// The peer that answered first, since peers were last added.
    pub first: Option<Key32>,
    /// All peers leave handshakes unanswered and have sent nothing for a while, or have no address.
    pub silent: bool,
}

/// Unanswered initiations after which a peer counts as gone: the second is sent 5 seconds after the first.
const GONE_AFTER: u32 = 2;

/// Unanswered initiations after which a peer that has moved is called at its configured address, too: the next is sent 15
/// seconds after the first.
pub(super) const LOST_AFTER: u32 = 3;

/// Handshakes that a peer begins in a row, without a packet of a session, after which it counts as hearing nothing: the
/// third is sent 10 seconds after the first.
const DEAF_AFTER: u32 = 3;

/// How long the last of these handshakes tells of the peer.
const LATELY: Duration = Duration::from_secs(180);

/// Tracks whether a peer answers, for the messages in the log.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Silence {
    initiations: u32,
    said: Said,
    /// Handshakes that the peer has begun since it used a session.
    calls: u32,
    /// When the peer last began a handshake, and when it was heard otherwise before.
    called: Option<(Instant, Option<Instant>)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Said {
    #[default]
    Nothing,
    Here,
    Gone,
}

impl Silence {
    /// Counts an initiation. Returns how many before it were unanswered, and a message to log.
    pub(super) fn initiated(&mut self) -> (u32, Option<&'static str>) {
        let unanswered = self.initiations;
        self.initiations = unanswered.saturating_add(1);
        if self.initiations < GONE_AFTER || self.said == Said::Gone {
            return (unanswered, None);
        }
        let words = match self.said {
            Said::Here => "does not answer any more; still trying",
            _ => {
                "has not answered for 5 s: it may be down, the port or a key may be wrong, or a firewall may drop UDP; \
                 still trying"
            }
        };
        self.said = Said::Gone;
        (unanswered, Some(words))
    }

    /// Whether the peer has left an initiation unanswered for 5 seconds, when the next one is sent.
    pub(super) const fn is_unanswered(&self) -> bool {
        self.initiations >= GONE_AFTER
    }

    /// Records that the peer begins a handshake, and when it was heard last before.
    pub(super) fn called(&mut self, now: Instant, received: Option<Instant>) {
        self.calls = match self.is_last(received) {
            true => self.calls.saturating_add(1),
            false => 1,
        };
        self.called = Some((now, self.heard(received)));
    }

    /// Whether nothing came from the peer since it last began a handshake.
    pub(super) fn is_last(&self, received: Option<Instant>) -> bool {
        self.called.is_some_and(|(at, _)| received <= Some(at))
    }

    /// Whether the peer begins handshakes again and again, and does not hear our answers.
    pub(super) fn is_deaf(&self, received: Option<Instant>, now: Instant) -> bool {
        let lately = |(at, _)| now < at + LATELY;
        self.calls >= DEAF_AFTER && self.is_last(received) && self.called.is_some_and(lately)
    }

    /// When the peer was last heard, apart from beginnings of handshakes: a peer that hears nothing goes on to send
    /// those. `received` is when anything came from it.
    pub(super) fn heard(&self, received: Option<Instant>) -> Option<Instant> {
        match self.called {
            Some((_, before)) if self.is_last(received) => before,
            _ => received,
        }
    }

    /// Records a completed handshake. Returns a message to log.
    pub(super) fn answered(&mut self) -> Option<&'static str> {
        (self.initiations, self.calls) = (0, 0);
        match std::mem::replace(&mut self.said, Said::Here) {
            Said::Here => None,
            Said::Nothing => Some("is connected"),
            Said::Gone => Some("answers again"),
        }
    }
}

impl PeerEntry {
    pub(super) fn new(public_key: Key32) -> Self {
        Self {
            public_key,
            name: None,
            preshared_key: None,
            persistent_keepalive: 0,
            allowed_ips: BTreeSet::new(),
            replaces: None,
            last_handshake: None,
            silence: Silence::default(),
            configured: None,
            moved_to: None,
            path: None,
            #[cfg(feature = "amnezia")]
            difference: None,
            #[cfg(feature = "amnezia")]
            mute: None,
            #[cfg(feature = "postquantum")]
            post_quantum: None,
        }
    }

    /// Sets the address in the file.
    pub(super) fn call_at(&mut self, configured: Option<SocketAddr>) {
        (self.configured, self.moved_to) = (configured, None);
    }

    /// The address to call a silent peer at, after `current`: the configured one and the one to which the peer moved
    /// take turns.
    pub(super) fn other_address(&mut self, current: SocketAddr) -> Option<SocketAddr> {
        let configured = self.configured?;
        if current == configured {
            return self.moved_to;
        }
        self.moved_to = Some(current);
        Some(configured)
    }

    /// Records a completed handshake. Returns a message to log.
    pub(super) fn answered(&mut self, at: (SystemTime, Instant)) -> Option<&'static str> {
        self.last_handshake = Some(at);
        self.moved_to = None;
        self.silence.answered()
    }

    /// The peer's state for `wg show`, without address and counters, which the data plane has.
    pub(super) fn state(&self) -> PeerState {
        let since_1970 = |(at, _): (SystemTime, _)| at.duration_since(UNIX_EPOCH).ok();
        let handshake = self.last_handshake.and_then(since_1970).unwrap_or_default();
        PeerState {
            public_key: self.public_key.clone(),
            preshared_key: self.preshared_key.clone(),
            endpoint: None,
            last_handshake: (handshake.as_secs(), handshake.subsec_nanos()),
            rx_bytes: 0,
            tx_bytes: 0,
            persistent_keepalive: self.persistent_keepalive,
            allowed_ips: self.allowed_ips.iter().copied().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginnings_of_handshakes_are_no_life() {
        let start = Instant::now();
        let at = |second| Some(start + Duration::from_secs(second));
        let mut silence = Silence::default();
        assert_eq!(silence.heard(None), None);
        silence.called(at(1).unwrap(), None);
        assert_eq!(silence.heard(at(1)), None);
        // Data, then two calls.
        assert_eq!(silence.heard(at(2)), at(2));
        silence.called(at(3).unwrap(), at(2));
        silence.called(at(8).unwrap(), at(3));
        assert_eq!(silence.heard(at(8)), at(2));
        assert_eq!(silence.heard(at(9)), at(9));
    }

    #[test]
    fn a_peer_that_calls_in_vain_is_deaf_until_it_uses_a_session() {
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        let mut silence = Silence::default();
        let mut received = Some(at(1));
        for (second, is_deaf) in [(2, false), (7, false), (12, true), (17, true)] {
            silence.called(at(second), received);
            received = Some(at(second));
            assert_eq!(silence.is_deaf(received, at(second)), is_deaf, "{second}");
            assert_eq!(silence.heard(received), Some(at(1)));
        }
        assert!(!silence.is_deaf(Some(at(18)), at(18)), "it sends data");
        assert!(
            !silence.is_deaf(received, at(17) + LATELY),
            "it has given up"
        );
        let mut answered = silence;
        answered.answered();
        assert!(!answered.is_deaf(received, at(17)));
        // Probes of a line, each followed by a packet of the session.
        for second in [20, 30, 40, 50] {
            silence.called(at(second), Some(at(second - 1)));
            assert!(!silence.is_deaf(Some(at(second)), at(second)));
        }
    }

    #[test]
    fn a_silent_peer_is_called_at_both_addresses_in_turn() {
        let [file, moved, far]: [SocketAddr; 3] =
            [1, 2, 3].map(|last| ([192, 0, 2, last], 51820).into());
        let mut peer = PeerEntry::new(Key32::new([7; 32]));
        assert_eq!(peer.other_address(moved), None, "the file has no address");
        peer.call_at(Some(file));
        assert_eq!(peer.other_address(file), None, "it has not moved");
        for _ in 0..3 {
            assert_eq!(peer.other_address(moved), Some(file));
            assert_eq!(peer.other_address(file), Some(moved));
        }
        assert_eq!(peer.other_address(far), Some(file));
        peer.answered((UNIX_EPOCH, Instant::now()));
        assert_eq!(peer.other_address(file), None);
    }

    #[test]
    fn a_silence_and_its_end_are_told_once() {
        let mut silence = Silence::default();
        assert_eq!(silence.initiated(), (0, None));
        assert_eq!(silence.answered(), Some("is connected"));
        assert_eq!(silence.answered(), None);
        let told: Vec<_> = (0..5).map(|_| silence.initiated()).collect();
        let counts = told.iter().map(|(unanswered, _)| *unanswered);
        assert!(counts.eq(0..5));
        let said: Vec<bool> = told.iter().map(|(_, words)| words.is_some()).collect();
        assert_eq!(said, [false, true, false, false, false]);
        assert_eq!(silence.answered(), Some("answers again"));
    }
}
