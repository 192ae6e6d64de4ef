//! Names the AmneziaWG value in which a peer that is not heard differs: has the protocol try rejected datagrams, keeps the
//! finding for the status, and logs it.

use super::machine::{Cx, Machine, Plane};
use super::peers::PeerEntry;
use host::strangers;
use plane::{PeerId, Times};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};
use wireguard::Dropped;
use wireguard::amnezia::{Finding, Mismatch};

/// Time without a packet after which a peer may have other settings.
const UNHEARD: Duration = Duration::from_secs(10);

/// How often at most the data plane is asked for rejected datagrams, while a peer is unheard.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Minimum time between two log lines about peers.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// The state of a peer that answers handshakes only.
const MUTE: &str = "answers handshakes but no packets: S4 or H4 may differ, or a firewall may drop data; \
    compare both files";

/// Addition to the news that a peer never answered.
const HINT: &str = "; AmneziaWG's values may differ: compare both files";

/// State of an interface's diagnosis.
#[derive(Debug)]
pub(super) struct Diagnosis {
    /// When the data plane is asked for rejected datagrams again; none while it still has to deliver some.
    pub(super) due: Option<Instant>,
    /// A peer was unheard at the last look.
    is_wanted: bool,
    /// When a finding was logged last.
    logged: Option<Instant>,
    /// The last sender that is no peer, and whose datagrams fit nothing.
    stranger: Option<IpAddr>,
    /// Keepalives without `S4` were logged.
    is_bare_told: bool,
}

impl Default for Diagnosis {
    fn default() -> Self {
        Self {
            due: None,
            is_wanted: true,
            logged: None,
            stranger: None,
            is_bare_told: false,
        }
    }
}

/// A difference between a peer's settings and ours.
#[derive(Debug)]
pub(super) struct Difference {
    mismatch: Mismatch,
    /// When a datagram showed it last.
    at: Instant,
    is_logged: bool,
}

impl PeerEntry {
    /// How the peer's settings differ, with the remedy, unless the peer was heard since. `received` is when anything came
    /// from it.
    pub(super) fn difference(&self, received: Option<Instant>) -> Option<String> {
        let is_current = |it: &&Difference| self.silence.heard(received) <= Some(it.at);
        let current = self.difference.as_ref().filter(is_current);
        let is_mute = self.is_mute(received);
        current
            .map(|it| words(&it.mismatch))
            .or_else(|| is_mute.then(|| MUTE.to_owned()))
    }

    /// Whether the peer answers handshakes, and sent nothing else since our packets went unanswered. `received` is when
    /// anything came from it.
    pub(super) fn is_mute(&self, received: Option<Instant>) -> bool {
        self.mute.is_some_and(|at| received <= Some(at))
    }

    /// Whether nothing came from the peer for a while.
    fn is_unheard(&self, received: Option<Instant>, now: Instant) -> bool {
        let heard = self.silence.heard(received);
        heard.is_none_or(|at| now >= at + UNHEARD)
    }
}

fn words(mismatch: &Mismatch) -> String {
    format!("{mismatch}; give both ends the same values")
}

impl Machine {
    /// Words to add to the news that this peer does not answer.
    pub(super) fn hint(&self, id: PeerId) -> &'static str {
        let never = self
            .peers
            .get(&id)
            .is_some_and(|it| it.last_handshake.is_none());
        match never && !self.device.settings().is_plain() {
            true => HINT,
            false => "",
        }
    }

    /// Looks for the reason why a handshake message, or another datagram that the data plane was asked for, was dropped.
    pub(super) fn diagnose(
        &mut self,
        bytes: &[u8],
        from: SocketAddr,
        why: Dropped,
        cx: &mut Cx<'_>,
    ) {
        if !matches!(
            why,
            Dropped::Malformed | Dropped::Mac1 | Dropped::Unexpected
        ) {
            return;
        }
        let (now, is_wanted) = (cx.now.monotonic, self.diagnosis.is_wanted);
        let pause = if is_wanted { ASK_EVERY } else { UNHEARD };
        self.diagnosis.due.get_or_insert(now + pause);
        if is_wanted && let Some(finding) = self.device.diagnose(bytes, from, now) {
            self.found(&finding, from, cx);
        }
    }

    /// Asks the data plane for rejected datagrams, if it is time: for one if all peers are heard, to look again when it
    /// comes.
    pub(super) fn ask_for_rejected(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now.monotonic;
        if self.diagnosis.due.take_if(|at| *at <= now).is_some() {
            let mut peers = self.peers.iter();
            let is_wanted = peers.any(|(id, it)| it.is_unheard(received(*id, cx.plane), now));
            self.diagnosis.is_wanted = is_wanted;
            let count = if is_wanted {
                self.device.trials_left(now)
            } else {
                1
            };
            cx.host.sample(count.max(1));
        }
    }

    /// Handles the beginning of a handshake by a peer: it refutes earlier findings, and a peer that hears no answer may
    /// lack trailers.
    pub(super) fn begun(&mut self, id: PeerId, from: SocketAddr, cx: &mut Cx<'_>) {
        let (received, now) = (received(id, cx.plane), cx.now.monotonic);
        if let Some(entry) = self.peers.get_mut(&id) {
            let is_refuted = |it: &mut Difference| it.mismatch.is_refuted_by_a_beginning();
            entry.difference.take_if(is_refuted);
        }
        let is_deaf = |it: &PeerEntry| it.silence.is_deaf(received, now);
        if self.device.lacks_trailers(id) && self.peers.get(&id).is_some_and(is_deaf) {
            let mismatch = Mismatch::Trailers { there: false };
            let peer = Some(id);
            self.found(&Finding { peer, mismatch }, from, cx);
        }
    }

    /// Handles a peer's answer to a handshake. If our packets had no answer in the session before, its data packets may
    /// have another form. `before` has the times before this answer.
    pub(super) fn answered(&mut self, id: PeerId, before: &Times, cx: &mut Cx<'_>) {
        let now = cx.now.monotonic;
        let is_plain = self.device.settings().is_plain();
        let Some(entry) = self.peers.get_mut(&id).filter(|_| !is_plain) else {
            return;
        };
        let was_mute = entry.is_mute(before.last_received);
        let since = before.unanswered_since;
        entry.mute = since.and_then(|at| (now >= at + UNHEARD).then_some(now));
        if entry.mute.is_some() && !was_mute {
            self.log_peer(id, MUTE, cx);
        }
    }

    fn found(&mut self, finding: &Finding, from: SocketAddr, cx: &mut Cx<'_>) {
        let (now, mismatch) = (cx.now.monotonic, finding.mismatch);
        let Some(id) = finding.peer else {
            let from = from.ip();
            if self.diagnosis.stranger.replace(from) != Some(from) {
                strangers::log(log::Level::Info, format_args!("{from}: {mismatch}"));
            }
            return;
        };
        let received = received(id, cx.plane);
        let entry = self.peers.get_mut(&id);
        let Some(entry) = entry.filter(|it| it.is_unheard(received, now)) else {
            return;
        };
        let heard = entry.silence.heard(received);
        // A peer with another `S4` is heard again and again, as it answers handshakes.
        let is_same = |it: &Difference| {
            it.mismatch.is_like(&mismatch) && heard.is_none_or(|at| at < it.at + UNHEARD)
        };
        let known = entry.difference.as_ref().filter(|it| is_same(it));
        let is_logged = known.is_some_and(|it| it.is_logged);
        let logged = self.diagnosis.logged;
        let logs = !is_logged && logged.is_none_or(|at| now >= at + LOG_EVERY);
        entry.difference = Some(Difference {
            mismatch,
            at: now,
            is_logged: is_logged || logs,
        });
        if logs {
            self.diagnosis.logged = Some(now);
            let words = format!("has other AmneziaWG settings: {}", words(&mismatch));
            self.log_peer(id, &words, cx);
        }
    }

    /// Logs once that a peer sends keepalives that other programs may reject.
    pub(super) fn look_for_bare_keepalives(&mut self, cx: &mut Cx<'_>) {
        if self.diagnosis.is_bare_told {
            return;
        }
        let index = cx.host.take_bare_keepalive();
        if let Some(id) = index.and_then(|index| self.device.peer_by_index(index)) {
            self.diagnosis.is_bare_told = true;
            let words = "sends keepalives without S4, as amneziawg-go 0.2.13 and 0.2.16 do: Millrace takes them, other \
                         programs may not; update the program there";
            self.log_peer(id, words, cx);
        }
    }
}

/// When anything came from a peer last.
fn received(id: PeerId, plane: &Plane) -> Option<Instant> {
    plane.peer(id)?.times.last_received
}

#[cfg(test)]
mod tests;
