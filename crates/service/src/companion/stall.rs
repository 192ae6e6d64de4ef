//! Handshakes that lead to no session, told from the counters of a peer.
//!
//! WireGuard counts messages of handshakes with the data, and does not count messages that fail. So the end that answers
//! in vain sees initiations received and answers sent; the end that asks in vain sees initiations sent, and nothing
//! received. Data packets sent have a multiple of 16 bytes unless they fill the MTU.

use std::time::{Duration, Instant};

/// Bytes of message 1.
const INITIATION: u64 = 148;

/// Bytes of message 2.
const ANSWER: u64 = 92;

/// Data packets have a multiple of this many bytes.
const BLOCK: u64 = 16;

/// Initiations between two looks: WireGuard sends one in 5 seconds.
const INITIATIONS: u64 = 2;

/// Time without a packet from a peer, after which WireGuard begins a handshake.
const SILENCE: Duration = Duration::from_secs(15);

/// The handshakes of one peer, as far as its counters tell.
#[derive(Debug)]
pub(super) struct Stall {
    /// Bytes received and sent, as of the last look.
    bytes: [u64; 2],
    /// When the peer's last data packet was seen.
    heard: Instant,
    /// The first handshake since then that led to no session.
    since: Option<Instant>,
    /// The last look could not tell whether a handshake has failed.
    is_unclear: bool,
}

/// The traffic between two looks.
#[derive(Debug, Eq, PartialEq)]
enum Seen {
    Nothing,
    Data,
    Handshake,
    Unclear,
}

impl Stall {
    pub(super) const fn new(bytes: [u64; 2], now: Instant) -> Self {
        Self {
            bytes,
            heard: now,
            since: None,
            is_unclear: false,
        }
    }

    /// Whether the next look should come soon.
    pub(super) const fn is_likely(&self) -> bool {
        self.since.is_some() || self.is_unclear
    }

    /// A session has begun.
    pub(super) const fn ended(&mut self, bytes: [u64; 2], now: Instant) {
        *self = Self::new(bytes, now);
    }

    /// Takes the counters of a look at which no new session was seen; `is_over`: the last session is too old for data.
    /// Returns whether handshakes have failed for `patience`, and then begins anew.
    pub(super) fn look(
        &mut self,
        bytes: [u64; 2],
        is_over: bool,
        patience: Duration,
        now: Instant,
    ) -> bool {
        let before = std::mem::replace(&mut self.bytes, bytes);
        let grown = |at: usize| bytes[at].checked_sub(before[at]);
        // Counters that begin anew say nothing.
        let Some(grown) = grown(0).zip(grown(1)) else {
            return false;
        };
        let is_silent = now >= self.heard + SILENCE;
        let seen = seen(grown, is_over, is_silent);
        self.is_unclear = seen == Seen::Unclear;
        match seen {
            Seen::Data => (self.heard, self.since) = (now, None),
            Seen::Handshake => match self.since {
                Some(since) if now >= since + patience => {
                    self.since = None;
                    return true;
                }
                since => self.since = since.or(Some(now)),
            },
            Seen::Nothing | Seen::Unclear => {}
        }
        false
    }
}

/// Judges by how many bytes the counters have grown.
fn seen((received, sent): (u64, u64), is_over: bool, is_silent: bool) -> Seen {
    let has_answers = |count: u64| {
        let rest = sent.checked_sub(count * ANSWER);
        rest.is_some_and(|rest| rest.is_multiple_of(BLOCK))
    };
    match (received, sent) {
        (0, 0) => Seen::Nothing,
        _ if is_over => Seen::Handshake,
        (0, sent) if sent.is_multiple_of(BLOCK) => Seen::Nothing,
        // Nothing but initiations, or data as well, which may fill the MTU.
        (0, sent) if is_silent || initiations(sent).is_some() => Seen::Handshake,
        (0, _) => Seen::Unclear,
        (received, _) => match initiations(received) {
            Some(count) if has_answers(count) => Seen::Handshake,
            // Data of just this length, or an initiation of this end as well.
            Some(_) => Seen::Unclear,
            None => Seen::Data,
        },
    }
}

/// How many initiations these bytes are, if they may be nothing else.
fn initiations(bytes: u64) -> Option<u64> {
    let count = bytes / INITIATION;
    (bytes.is_multiple_of(INITIATION) && count <= INITIATIONS).then_some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of a data packet that fills an MTU of 1,420 bytes.
    const FULL: u64 = 1452;

    /// Takes looks a second apart, at which the counters grow like this, until one says that handshakes fail.
    fn until_stalled(stall: &mut Stall, start: Instant, grown: &[[u64; 2]]) -> Option<u64> {
        let patience = Duration::from_secs(10);
        let mut bytes = stall.bytes;
        (1..60).find(|second| {
            let more = grown[*second as usize % grown.len()];
            bytes = [bytes[0] + more[0], bytes[1] + more[1]];
            stall.look(bytes, false, patience, start + Duration::from_secs(*second))
        })
    }

    #[test]
    fn vain_handshakes_are_seen_at_both_ends() {
        let start = Instant::now();
        let answers = [[0; 2], [INITIATION, ANSWER], [0; 2], [0, 96], [0; 2]];
        let mut stall = Stall::new([7000, 3000], start);
        assert_eq!(until_stalled(&mut stall, start, &answers), Some(11));
        assert!(!stall.is_likely());
        let asks = [[0; 2], [0, INITIATION], [0; 2], [0; 2], [0; 2]];
        let mut stall = Stall::new([7000, 3000], start);
        assert_eq!(until_stalled(&mut stall, start, &asks), Some(11));
        // With an upload, an end that asks waits until the peer has been silent long enough.
        let uploads = [[0; 2], [0, INITIATION + 2 * FULL], [0; 2], [0; 2], [0; 2]];
        let mut stall = Stall::new([7000, 3000], start);
        assert_eq!(until_stalled(&mut stall, start, &uploads), Some(26));
        // Both ask: some looks see both handshakes, and others one.
        let both = [
            [INITIATION, ANSWER + INITIATION],
            [0; 2],
            [INITIATION, ANSWER],
        ];
        let mut stall = Stall::new([7000, 3000], start);
        assert_eq!(until_stalled(&mut stall, start, &both), Some(14));
    }

    #[test]
    fn data_of_any_length_is_no_vain_handshake() {
        let start = Instant::now();
        let flows: [&[[u64; 2]]; 6] = [
            // A download, an upload with an acknowledgement, and one with a keepalive only.
            &[[90 * FULL, 5 * 96], [FULL, 96]],
            &[[96, 91 * FULL], [128, 3 * FULL]],
            &[[32, FULL], [0, FULL], [0, FULL], [0, FULL], [0, FULL]],
            // Packets that count as many bytes as an initiation in wireguard-go, and their answers.
            &[[INITIATION, 160]],
            &[[INITIATION, 256], [2 * INITIATION, 512], [0; 2]],
            &[[0; 2]],
        ];
        for flow in flows {
            let mut stall = Stall::new([0; 2], start);
            assert_eq!(until_stalled(&mut stall, start, flow), None, "{flow:?}");
        }
    }

    #[test]
    fn without_a_session_all_packets_are_handshakes() {
        let start = Instant::now();
        let mut stall = Stall::new([9; 2], start);
        let patience = Duration::from_secs(10);
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(!stall.look([9, 157], true, patience, at(1)));
        assert!(!stall.look([9, 157], true, patience, at(12)));
        assert!(stall.is_likely());
        assert!(stall.look([9, 305], true, patience, at(13)));
        // The interface was made anew.
        assert!(!stall.look([0; 2], true, patience, at(14)));
    }
}
