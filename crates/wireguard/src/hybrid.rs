//! The exchange of post-quantum keys with a peer: which preshared key each handshake uses, which sessions carry
//! packets, and everything that the exchange wants from the device.

use std::time::Instant;

use crypto::Key;
use crypto::x25519::PublicKey;
use plane::PeerId;
use postquantum::{Effect, Exchange, KeyId, Outcome, Session, Settings, Status};

use crate::data::Carriage;
use crate::device::{Device, peer_of};
use crate::message::TAG_LEN;
use crate::noise::{Agreed, TransportKeys};
use crate::output::Output;
use crate::peer::Peer;

/// The exchange of post-quantum keys with one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PostQuantum {
    /// Sessions that are not protected carry only the exchange. Otherwise they carry packets, too.
    pub require: bool,
    /// UDP port of the exchange inside the tunnel.
    pub port: u16,
    /// Bytes of the longest UDP payload that the tunnel carries in one packet.
    pub room: usize,
    /// Make all datagrams of the exchange equally long.
    pub pad: bool,
}

/// The state of an exchange, for reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PostQuantumStatus {
    /// The settings.
    pub settings: PostQuantum,
    /// The exchange.
    pub exchange: Status,
}

/// A peer's exchange.
pub(crate) struct Hybrid {
    pub(crate) exchange: Exchange,
    settings: PostQuantum,
    /// Our name of the session that this end has answered last, and the key of that answer.
    answered: Option<(u32, KeyId)>,
}

impl Hybrid {
    fn new(settings: PostQuantum, own: Option<&PublicKey>, peer: &Peer) -> Self {
        let exchange = Exchange::new(Settings {
            own: own.map_or([0; 32], |own| *own.as_bytes()),
            peer: *peer.public.as_bytes(),
            base: peer.preshared.clone(),
            single_slot: false,
            room: settings.room,
            pad: settings.pad,
        });
        Self {
            exchange,
            settings,
            answered: None,
        }
    }
}

impl Peer {
    /// The key of the answer to an initiation, and its name if there is an exchange with the peer.
    pub(crate) fn answer_under(&mut self) -> (Option<KeyId>, Key) {
        match &mut self.hybrid {
            Some(hybrid) => {
                let (under, key) = hybrid.exchange.answer();
                (Some(under), key.clone())
            }
            None => (None, self.preshared.clone()),
        }
    }

    /// Records under which key the session was answered.
    pub(crate) fn answered_under(&mut self, local_index: u32, under: Option<KeyId>) {
        if let Some(hybrid) = &mut self.hybrid {
            hybrid.answered = under.map(|under| (local_index, under));
        }
    }

    /// Finishes a handshake of ours with the first key that opens its answer.
    pub(crate) fn finish_under(
        &self,
        agreed: &Agreed,
        sealed: &[u8],
    ) -> Option<(Option<KeyId>, TransportKeys)> {
        let finish = |key| agreed.clone().finish(key, sealed, &mut [0; TAG_LEN]).ok();
        match &self.hybrid {
            Some(hybrid) => {
                let mut candidates = hybrid.exchange.candidates();
                candidates.find_map(|(id, key)| Some((Some(id), finish(key)?)))
            }
            None => Some((None, finish(&self.preshared)?)),
        }
    }

    /// How a session under this key carries the exchange.
    pub(crate) fn carriage(&self, under: Option<KeyId>) -> Option<Carriage> {
        let hybrid = self.hybrid.as_ref()?;
        Some(Carriage {
            port: hybrid.settings.port,
            only: hybrid.settings.require && under == Some(hybrid.exchange.base()),
        })
    }

    /// Our name of the current session, if it carries nothing but the exchange.
    pub(crate) fn only_exchange(&self) -> Option<u32> {
        let current = self.keys.current()?;
        current.only_exchange.then_some(current.local_index)
    }

    /// When the exchange has something to do.
    pub(crate) fn exchange_due(&self) -> Option<Instant> {
        self.hybrid.as_ref()?.exchange.next_deadline()
    }

    /// Drops the keys of exchanges: this end's own key has changed.
    pub(crate) fn begin_exchange_anew(&mut self, own: Option<&PublicKey>) {
        if let Some(settings) = self.hybrid.as_ref().map(|it| it.settings) {
            self.hybrid = Some(Box::new(Hybrid::new(settings, own, self)));
        }
    }
}

impl Device {
    /// Begins, changes or ends the exchange of post-quantum keys with a peer. All sessions end where protection is required
    /// from now on, or where the current session carries no packets though they may pass from now on.
    pub fn set_post_quantum(
        &mut self,
        id: PeerId,
        settings: Option<PostQuantum>,
        out: &mut Vec<Output>,
    ) {
        let own = self.public_key();
        let Some(peer) = self.peer_mut(id) else {
            return;
        };
        let before = peer.hybrid.as_ref().map(|it| it.settings);
        if before == settings {
            return;
        }
        match (settings, &mut peer.hybrid) {
            (Some(settings), Some(hybrid)) => {
                hybrid.exchange.set_room(settings.room, settings.pad);
                hybrid.settings = settings;
            }
            (Some(settings), None) => {
                let new = Hybrid::new(settings, own.as_ref(), peer);
                peer.hybrid = Some(Box::new(new));
            }
            (None, hybrid) => *hybrid = None,
        }
        let requires = |it: Option<PostQuantum>| it.is_some_and(|it| it.require);
        // A session keeps the policy with which it began, and older ones than the current may still be open.
        let closes = requires(settings) && !requires(before);
        let opens = !requires(settings) && peer.only_exchange().is_some();
        if closes || opens {
            self.forget_keys(id, out);
        }
        self.requeue(id);
    }

    /// A datagram of the exchange has come from the peer.
    pub fn exchange_received(
        &mut self,
        id: PeerId,
        payload: &[u8],
        now: Instant,
        out: &mut Vec<Output>,
    ) {
        self.with_exchange(id, now, out, |exchange, effects| {
            exchange.received(payload, now, effects);
        });
    }

    /// A job of the exchange has ended. A peer that was replaced meanwhile ignores it.
    pub fn computed(&mut self, id: PeerId, outcome: Outcome, now: Instant, out: &mut Vec<Output>) {
        self.with_exchange(id, now, out, |exchange, effects| {
            exchange.computed(outcome, now, effects);
        });
    }

    /// The peer has used its session since it began the handshake before this one: an answer that led to no session was
    /// a probe's.
    pub fn heard_between_handshakes(&mut self, id: PeerId) {
        if let Some(hybrid) = self.peer_mut(id).and_then(|peer| peer.hybrid.as_mut()) {
            hybrid.exchange.heard();
        }
    }

    /// The state of the exchange with a peer; `None` without one.
    #[must_use]
    pub fn post_quantum(&self, id: PeerId) -> Option<PostQuantumStatus> {
        let hybrid = self.peer(id)?.hybrid.as_ref()?;
        Some(PostQuantumStatus {
            settings: hybrid.settings,
            exchange: hybrid.exchange.status(),
        })
    }

    /// Packets wait for a session. Returns whether the current one carries nothing but the exchange, which then goes on.
    pub(crate) fn wants_exchange(
        &mut self,
        id: PeerId,
        now: Instant,
        out: &mut Vec<Output>,
    ) -> bool {
        let only = |peer: &mut Peer| {
            let usable = peer.keys.current().is_some_and(|keys| keys.usable(now));
            usable && peer.only_exchange().is_some()
        };
        let waits = self.peer_mut(id).is_some_and(only);
        if waits {
            self.with_exchange(id, now, out, |exchange, effects| {
                exchange.wanted(now, effects);
            });
        }
        waits
    }

    /// A session has begun that this end initiated, or the other end has used for the first time.
    pub(crate) fn session_began(
        &mut self,
        id: PeerId,
        (initiator, under, began): (bool, Option<KeyId>, Instant),
        now: Instant,
        out: &mut Vec<Output>,
    ) {
        let Some(peer) = peer_of(&mut self.peers, id) else {
            return;
        };
        if let Some(current) = peer.only_exchange().filter(|_| initiator) {
            out.push(Output::empty(id, current));
        }
        if let Some(under) = under {
            self.with_exchange(id, now, out, |exchange, effects| {
                let session = Session {
                    initiator,
                    under,
                    began,
                };
                exchange.session(session, now, effects);
            });
        }
    }

    /// The other end has used a session of which this end is the responder.
    pub(crate) fn session_confirmed(
        &mut self,
        id: PeerId,
        local_index: u32,
        now: Instant,
        out: &mut Vec<Output>,
    ) {
        let Some(peer) = self.peer_mut(id) else {
            return;
        };
        let began = peer.keys.current().map_or(now, |keys| keys.created);
        let hybrid = peer.hybrid.as_mut();
        let answered = hybrid.and_then(|it| it.answered.take_if(|it| it.0 == local_index));
        if let Some((_, under)) = answered {
            self.session_began(id, (false, Some(under), began), now, out);
        }
    }

    /// Runs the timers of the exchange that are due.
    pub(crate) fn exchange_expired(&mut self, id: PeerId, now: Instant, out: &mut Vec<Output>) {
        let due = self.peer(id).and_then(Peer::exchange_due);
        if due.is_some_and(|at| at <= now) {
            self.with_exchange(id, now, out, |exchange, effects| {
                exchange.expired(now, effects);
            });
        }
    }

    fn with_exchange(
        &mut self,
        id: PeerId,
        now: Instant,
        out: &mut Vec<Output>,
        call: impl FnOnce(&mut Exchange, &mut Vec<Effect>),
    ) {
        let Some(hybrid) = self.peer_mut(id).and_then(|peer| peer.hybrid.as_mut()) else {
            return;
        };
        let mut effects = Vec::new();
        call(&mut hybrid.exchange, &mut effects);
        for effect in effects {
            self.carry_out(id, effect, now, out);
        }
        self.requeue(id);
    }

    fn carry_out(&mut self, id: PeerId, effect: Effect, now: Instant, out: &mut Vec<Output>) {
        let Some(peer) = self.peer_mut(id) else {
            return;
        };
        match effect {
            Effect::Send(payload) => {
                let current = peer.keys.current().filter(|keys| keys.usable(now));
                if let Some(local_index) = current.map(|keys| keys.local_index) {
                    out.push(Output::SendInside {
                        peer: id,
                        local_index,
                        payload,
                    });
                }
            }
            Effect::Compute(job) => out.push(Output::Compute { peer: id, job }),
            Effect::Handshake => {
                // At once: the exchange is rarer than handshakes may be.
                peer.timers.handshake_sent = None;
                self.initiate(id, true, now, out);
            }
            // Single slots only, which no peer of a device is.
            Effect::Use(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use crypto::x25519::PrivateKey;
    use postquantum::Session;

    use super::*;
    use crate::message::{IDENTIFIER, TAG_LEN};
    use crate::noise::{Initiator, Responder};

    fn exchange(own: &PrivateKey, peer: &PrivateKey) -> Exchange {
        Exchange::new(Settings {
            own: *own.public().as_bytes(),
            peer: *peer.public().as_bytes(),
            base: Key::ZERO,
            single_slot: false,
            room: 1372,
            pad: false,
        })
    }

    /// Delivers everything between two ends, and returns the datagrams.
    fn deliver(
        ends: &mut [Exchange; 2],
        from: usize,
        effects: Vec<Effect>,
        seen: &mut Vec<Vec<u8>>,
    ) {
        let now = Instant::now();
        for effect in effects {
            let mut out = Vec::new();
            match effect {
                Effect::Send(datagram) => {
                    ends[1 - from].received(&datagram, now, &mut out);
                    seen.push(datagram);
                    deliver(ends, 1 - from, out, seen);
                }
                Effect::Compute(job) => {
                    ends[from].computed(job.run(), now, &mut out);
                    deliver(ends, from, out, seen);
                }
                _ => {}
            }
        }
    }

    /// A quantum computer finds every private key of X25519. With all of these, and all datagrams of the exchange, a
    /// recording of the next session stays closed; with the secret of ML-KEM it opens.
    #[test]
    fn keys_of_a_session_depend_on_the_exchange() {
        let [own, other] = [(); 2].map(|()| PrivateKey::generate());
        let mut ends = [exchange(&own, &other), exchange(&other, &own)];
        let (mut out, now) = (Vec::new(), Instant::now());
        let session = Session {
            initiator: true,
            under: ends[0].base(),
            began: now,
        };
        ends[0].session(session, now, &mut out);
        let mut seen = Vec::new();
        deliver(&mut ends, 0, out, &mut seen);
        assert_eq!(seen.len(), 4, "Offer, Answer, Confirm, Done");

        let [ephemeral, other_ephemeral] = [(); 2].map(|()| PrivateKey::generate());
        let static_static = own.agree(&other.public()).unwrap();
        let (mut sealed_static, mut sealed, mut answer) =
            ([0; 32 + TAG_LEN], [0; TAG_LEN], [0; TAG_LEN]);
        let initiator = Initiator::start(
            IDENTIFIER,
            (&own, ephemeral),
            (&other.public(), &static_static),
            &[],
            &mut sealed_static,
            &mut sealed,
        );
        let initiator = initiator.unwrap();
        let responder =
            Responder::identify(IDENTIFIER, &other, &initiator.ephemeral(), &sealed_static);
        let mut responder = responder.unwrap();
        responder
            .verify(&static_static, &sealed, &mut [0; TAG_LEN])
            .unwrap();
        let base = ends[0].base();
        let (under, key) = ends[1].answer();
        assert_ne!(under, base);
        let theirs = responder
            .respond(&other_ephemeral, key, &[], &mut answer)
            .unwrap();

        // The initiator's private keys are all that a decryptor needs of X25519.
        let agreed = initiator.agree(&own, &other_ephemeral.public()).unwrap();
        let open = |key: &Key| agreed.clone().finish(key, &answer, &mut [0; TAG_LEN]).ok();
        assert!(open(&Key::ZERO).is_none());
        let next = ends[0].candidates().find(|(id, _)| *id == under);
        let ours = open(next.unwrap().1).unwrap();
        assert_eq!(ours.from_initiator, theirs.from_initiator);
        assert_eq!(ours.from_responder, theirs.from_responder);
    }
}
