//! Sends messages that answer none of the peer's: initiations and keepalives.

use std::time::{Duration, Instant};

use crypto::x25519::PrivateKey;
use plane::PeerId;

use crate::device::{Device, peer_of, random_index};
use crate::message::{IDENTIFIER, Initiation, TAG_LEN};
use crate::noise::Initiator;
use crate::output::Output;
use crate::peer::Pending;

/// How long to wait for the answer to a probe before the protocol begins a handshake of its own.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

impl Device {
    /// Asks for a handshake: the data plane has packets for this peer and no key to seal them with.
    ///
    /// May be called for every such packet. Initiations go out at most every 5 s, and none if keys came meanwhile.
    pub fn need_session(&mut self, id: PeerId, now: Instant, out: &mut Vec<Output>) {
        let spacing = self.disguise.timings.spacing();
        #[cfg(feature = "postquantum")]
        if self.wants_exchange(id, now, out) {
            return;
        }
        let current = self.peer_mut(id).and_then(|peer| peer.keys.current());
        // The keys came while the report was queued.
        if current.is_some_and(|keys| keys.usable(now) && now < keys.created + spacing) {
            return;
        }
        self.initiate(id, true, now, out);
        self.requeue(id);
    }

    /// The key whose receiving half has `local_index` was used after its `refresh_after`, or for
    /// [`REKEY_AFTER_MESSAGES`](crate::message::REKEY_AFTER_MESSAGES) packets: a new handshake is due.
    ///
    /// To report this once for each key is enough; reports about keys that are not in use any more do nothing.
    pub fn refresh(&mut self, id: PeerId, local_index: u32, now: Instant, out: &mut Vec<Output>) {
        let current = self.peer_mut(id).and_then(|peer| peer.keys.current());
        if current.is_some_and(|keys| keys.local_index == local_index) {
            self.initiate(id, true, now, out);
            self.requeue(id);
        }
    }

    /// Begins a handshake to find out whether the peer answers, now, whatever else is in progress. It is not repeated,
    /// and handshakes that the protocol wants come at their usual times.
    ///
    /// Without `renew`, keys that are in use stay: new ones would begin a session whose packets overtake those of the
    /// last. The peer drops the new keys when it never sees them used. With `renew` they are replaced, for a peer that
    /// may have lost them.
    ///
    /// The initiation replaces one that is in progress. Leave time between two probes: an answer to the earlier
    /// one is no longer understood.
    pub fn probe(&mut self, id: PeerId, renew: bool, now: Instant, out: &mut Vec<Output>) {
        let Some(timers) = self.peer_mut(id).map(|peer| &mut peer.timers) else {
            return;
        };
        timers.probe_sent = None;
        let sent = timers.handshake_sent.take();
        let kept = (
            timers.retransmit,
            timers.attempt_since,
            timers.wanted,
            timers.draws,
        );
        self.initiate(id, false, now, out);
        if let Some(peer) = self.peer_mut(id) {
            if let Some(pending) = &mut peer.pending {
                pending.asks = !renew;
            }
            let timers = &mut peer.timers;
            timers.handshake_sent = sent;
            timers.probe_sent = Some(now);
            (
                timers.retransmit,
                timers.attempt_since,
                timers.wanted,
                timers.draws,
            ) = kept;
        }
        self.requeue(id);
    }

    /// Sends an empty packet under the current keys, or begins a handshake if there are none.
    pub(crate) fn keepalive(&mut self, id: PeerId, now: Instant, out: &mut Vec<Output>) {
        let Some(peer) = self.peer_mut(id) else {
            return;
        };
        if peer.keys.current().is_some_and(|keys| keys.usable(now)) {
            #[cfg(feature = "postquantum")]
            if let Some(current) = peer.only_exchange() {
                out.push(Output::empty(id, current));
                return;
            }
            out.push(Output::SendKeepalive { peer: id });
        } else {
            self.initiate(id, true, now, out);
        }
    }

    /// Begins a handshake, or schedules one for when it may begin.
    ///
    /// `asked` is true when data or a timer of the data asks, and false for a repetition: only the former extends the
    /// time for which we try. The caller requeues the peer.
    pub(crate) fn initiate(
        &mut self,
        id: PeerId,
        asked: bool,
        now: Instant,
        out: &mut Vec<Output>,
    ) {
        let jitter = self.jitter();
        let wall = self.wall(now);
        let Self {
            peers,
            private,
            indices,
            latest,
            disguise,
            ..
        } = self;
        let timings = &disguise.timings;
        let Some(peer) = peer_of(peers, id) else {
            return;
        };
        if asked || peer.timers.attempt_since.is_none() {
            peer.timers.begin_attempt(now, timings);
        }
        let (Some(own), Some(to)) = (private, peer.endpoint) else {
            peer.timers.wanted = true;
            return;
        };
        let timers = &peer.timers;
        let soonest = [
            timers.handshake_sent.map(|sent| sent + timings.spacing()),
            // The answer to a probe may be in transit, which serves as well.
            timers.probe_sent.map(|sent| sent + PROBE_TIMEOUT),
        ];
        if let Some(soonest) = soonest.into_iter().flatten().max().filter(|&at| at > now) {
            peer.timers.retransmit.get_or_insert(soonest);
            return;
        }
        let Some(static_static) = peer.static_static(own) else {
            return;
        };

        let stamp = peer.clock.stamp(wall);
        *latest = (*latest).max(peer.clock);
        let (mut sealed_static, mut sealed_timestamp) = ([0; 32 + TAG_LEN], [0; 12 + TAG_LEN]);
        let started = Initiator::start(
            IDENTIFIER,
            (own, PrivateKey::generate()),
            (&peer.public, &static_static),
            &stamp.0,
            &mut sealed_static,
            &mut sealed_timestamp,
        );
        let Ok(initiator) = started else { return };
        // Under a new index each time: an answer to an earlier initiation cannot be mistaken for one to this.
        if let Some(pending) = peer.pending.take() {
            indices.release(pending.local_index);
        }
        let local_index = indices.assign(id, random_index);
        let message = Initiation {
            sender: local_index,
            ephemeral: *initiator.ephemeral().as_bytes(),
            sealed_static,
            sealed_timestamp,
        };
        let datagram = disguise.signed(message.emit(), &mut peer.jar, now);
        let datagram = disguise.precede(datagram, &mut peer.junk, now, wall);
        peer.pending = Some(Box::new(Pending {
            local_index,
            initiator,
            sent: now,
            asks: false,
        }));
        peer.timers.wanted = false;
        peer.timers.draws.initiated();
        peer.timers.handshake_sent(now);
        peer.timers.retransmit = Some(peer.timers.retransmit_after(now, jitter, timings));
        out.push(Output::Send {
            peer: Some(id),
            to,
            datagram,
        });
    }
}
