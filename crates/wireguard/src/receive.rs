//! Reacts to messages: initiations, responses and cookie replies, in the order in which they become expensive, and
//! says why a datagram led to no keys.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crypto::x25519::{PrivateKey, PublicKey};
use plane::PeerId;
use plane::tai64n::Tai64n;

use crate::data::DataKeys;
use crate::device::{Device, peer_of, random_index, retire};
use crate::keys::{Keypair, session_keys};
use crate::message::{
    CookieReply, IDENTIFIER, INITIATIONS_PER_SECOND, Initiation, Response, TAG_LEN,
    TYPE_COOKIE_REPLY, TYPE_INITIATION, TYPE_RESPONSE, UNDER_LOAD_FOR, kind,
};
use crate::noise::Responder;
use crate::output::Output;
use crate::peer::Peer;

impl Device {
    /// Takes a datagram that is not a data packet. Costs at most a drop, whatever it holds.
    ///
    /// `under_load` says that handshakes arrive faster than they are served, as seen by the caller's backlog; the
    /// device stays cautious for a second after it was last true.
    ///
    /// # Errors
    /// [`Dropped`] tells why the datagram led to no keys. `out` may have a cookie reply, or that the peer was heard,
    /// nevertheless.
    pub fn receive(
        &mut self,
        datagram: &[u8],
        from: SocketAddr,
        now: Instant,
        under_load: bool,
        out: &mut Vec<Output>,
    ) -> Result<(), Dropped> {
        if under_load {
            self.last_load = Some(now);
        }
        #[cfg(feature = "amnezia")]
        if !self.disguise.is_plain() {
            let found = self.disguise.message(datagram, self.checker.as_ref());
            let found = found.ok_or(Dropped::Malformed)?;
            let (message, signed) = (found.message.as_bytes(), found.signed.as_bytes());
            let (signed, before) = ((signed, Some(found.mac1_valid)), out.len());
            let result = self.receive_message(message, signed, from, now, out);
            if found.mac1_valid {
                self.trials.understood(from.ip());
            }
            if let Some(&Output::Heard { peer, begins, .. }) = out.get(before)
                && begins
            {
                self.note_trailer(peer, found.is_exact);
            }
            return result;
        }
        self.receive_message(datagram, (datagram, None), from, now, out)
    }

    /// Takes a message, and the bytes that its MACs cover, which differ in the type only, with the verdict on mac1 if it
    /// is known.
    fn receive_message(
        &mut self,
        message: &[u8],
        signed: (&[u8], Option<bool>),
        from: SocketAddr,
        now: Instant,
        out: &mut Vec<Output>,
    ) -> Result<(), Dropped> {
        match kind(message) {
            Some(TYPE_INITIATION) => {
                let message = Initiation::parse(message).ok_or(Dropped::Malformed)?;
                self.admit(signed, message.sender, from, now, out)?;
                self.receive_initiation(&message, from, now, out)
            }
            Some(TYPE_RESPONSE) => {
                let message = Response::parse(message).ok_or(Dropped::Malformed)?;
                self.admit(signed, message.sender, from, now, out)?;
                self.receive_response(&message, from, now, out)
            }
            Some(TYPE_COOKIE_REPLY) => {
                let message = CookieReply::parse(message).ok_or(Dropped::Malformed)?;
                self.receive_cookie(&message, now)
            }
            _ => Err(Dropped::Malformed),
        }
    }

    /// Decides by the MACs alone whether the message may cost more work.
    fn admit(
        &mut self,
        (datagram, mac1_valid): (&[u8], Option<bool>),
        sender: u32,
        from: SocketAddr,
        now: Instant,
        out: &mut Vec<Output>,
    ) -> Result<(), Dropped> {
        let Self {
            checker,
            limiter,
            last_load,
            by_key,
            peers,
            disguise,
            ..
        } = self;
        let checker = checker.as_mut().ok_or(Dropped::NoPrivateKey)?;
        if !mac1_valid.unwrap_or_else(|| checker.mac1_valid(datagram)) {
            return Err(Dropped::Mac1);
        }
        if !last_load.is_some_and(|last| now.saturating_duration_since(last) < UNDER_LOAD_FOR) {
            limiter.forget();
            return Ok(());
        }
        if !disguise.sends_cookies() {
            let endpoints = || peers.iter().flatten().filter_map(|peer| peer.endpoint);
            return match limiter.allow_unproven(from, endpoints, now) {
                true => Ok(()),
                false => Err(Dropped::RateLimited),
            };
        }
        if !checker.mac2_valid(datagram, from, now) {
            if let Some(reply) = checker.reply(datagram, sender, from, now) {
                out.push(Output::Send {
                    peer: None,
                    to: from,
                    datagram: disguise.unsigned(reply.emit()),
                });
            }
            return Err(Dropped::Cookie);
        }
        if !limiter.allow(from, by_key.len(), now) {
            return Err(Dropped::RateLimited);
        }
        Ok(())
    }

    fn receive_initiation(
        &mut self,
        message: &Initiation,
        from: SocketAddr,
        now: Instant,
        out: &mut Vec<Output>,
    ) -> Result<(), Dropped> {
        let Self {
            peers,
            private,
            by_key,
            indices,
            disguise,
            ..
        } = self;
        let own = private.as_ref().ok_or(Dropped::NoPrivateKey)?;
        let known = authenticate(message, own, by_key, peers)?;
        let (id, peer, responder, timestamp) =
            (known.id, known.peer, known.responder, known.timestamp);
        if timestamp <= peer.latest_timestamp {
            return Err(Dropped::Replayed);
        }
        let spacing = Duration::from_secs(1) / INITIATIONS_PER_SECOND;
        if peer
            .last_initiation
            .is_some_and(|last| now.saturating_duration_since(last) < spacing)
        {
            return Err(Dropped::Flood);
        }

        if peer.crossed(&own.public(), from, now) {
            peer.left_waiting = true;
            peer.latest_timestamp = timestamp;
            peer.last_initiation = Some(now);
            out.push(Output::Heard {
                peer: id,
                from,
                begins: true,
            });
            return Err(Dropped::Crossed);
        }

        // Made before any state changes: an ephemeral key of low order must not cost the peer its state.
        let answer = PrivateKey::generate();
        let mut sealed_nothing = [0; TAG_LEN];
        #[cfg(feature = "postquantum")]
        let (under, preshared) = peer.answer_under();
        #[cfg(not(feature = "postquantum"))]
        let preshared = &peer.preshared;
        #[cfg(feature = "postquantum")]
        let preshared = &preshared;
        let keys = responder
            .respond(&answer, preshared, &[], &mut sealed_nothing)
            .map_err(|_| Dropped::Unauthentic)?;
        peer.latest_timestamp = timestamp;
        peer.last_initiation = Some(now);
        peer.left_waiting = false;
        peer.endpoint = Some(from);
        out.push(Output::Heard {
            peer: id,
            from,
            begins: true,
        });

        let local_index = indices.assign(id, random_index);
        #[cfg(feature = "postquantum")]
        let exchange = peer.carriage(under);
        #[cfg(feature = "postquantum")]
        peer.answered_under(local_index, under);
        let new = Keypair {
            local_index,
            created: now,
            lasts: disguise.timings.reject_after(),
            sending: true,
            #[cfg(feature = "postquantum")]
            only_exchange: exchange.is_some_and(|it| it.only),
        };
        retire(indices, id, peer.keys.install_responded(new), out);
        let material = DataKeys {
            remote_index: message.sender,
            seal: keys.from_responder,
            open: keys.from_initiator,
            #[cfg(feature = "postquantum")]
            exchange,
        };
        out.push(Output::AddKeys {
            peer: id,
            keys: session_keys(local_index, material, now, false, &disguise.timings),
        });

        let response = Response {
            sender: local_index,
            receiver: message.sender,
            ephemeral: *answer.public().as_bytes(),
            sealed_nothing,
        };
        let datagram = disguise.signed(response.emit(), &mut peer.jar, now);
        peer.timers.session_derived(now, &disguise.timings);
        peer.timers.handshake_sent(now);
        out.push(Output::Send {
            peer: Some(id),
            to: from,
            datagram,
        });
        self.requeue(id);
        Ok(())
    }

    fn receive_response(
        &mut self,
        message: &Response,
        from: SocketAddr,
        now: Instant,
        out: &mut Vec<Output>,
    ) -> Result<(), Dropped> {
        let at = self.wall(now);
        let Self {
            peers,
            private,
            indices,
            disguise,
            ..
        } = self;
        let own = private.as_ref().ok_or(Dropped::NoPrivateKey)?;
        let id = indices.owner(message.receiver).ok_or(Dropped::Unexpected)?;
        let peer = peer_of(peers, id).ok_or(Dropped::Unexpected)?;
        let waits = |local_index| local_index == message.receiver;
        let pending = peer
            .pending
            .as_ref()
            .filter(|pending| waits(pending.local_index))
            .ok_or(Dropped::Unexpected)?;
        let ephemeral = PublicKey::from(message.ephemeral);
        let agreed = pending
            .initiator
            .agree(own, &ephemeral)
            .map_err(|_| Dropped::Unauthentic)?;
        #[cfg(feature = "postquantum")]
        let (under, keys) = peer
            .finish_under(&agreed, &message.sealed_nothing)
            .ok_or(Dropped::Unauthentic)?;
        #[cfg(not(feature = "postquantum"))]
        let keys = agreed
            .finish(&peer.preshared, &message.sealed_nothing, &mut [0; TAG_LEN])
            .map_err(|_| Dropped::Unauthentic)?;
        let asks = pending.asks;
        #[cfg(feature = "postquantum")]
        let began = pending.sent;
        peer.pending = None;
        peer.endpoint = Some(from);
        out.push(Output::Heard {
            peer: id,
            from,
            begins: false,
        });

        let local_index = message.receiver;
        let usable = peer.keys.current().is_some_and(|keys| keys.usable(now));
        if asks && usable && peer.timers.attempt_since.is_none() {
            indices.release(local_index);
            #[cfg(feature = "postquantum")]
            if let Some(current) = peer.only_exchange() {
                out.push(Output::empty(id, current));
                return Ok(());
            }
            out.push(Output::SendKeepalive { peer: id });
            return Ok(());
        }
        #[cfg(feature = "postquantum")]
        let exchange = peer.carriage(under);
        let new = Keypair {
            local_index,
            created: now,
            lasts: disguise.timings.reject_after(),
            sending: true,
            #[cfg(feature = "postquantum")]
            only_exchange: exchange.is_some_and(|it| it.only),
        };
        retire(indices, id, peer.keys.install_initiated(new), out);
        let material = DataKeys {
            remote_index: message.sender,
            seal: keys.from_initiator,
            open: keys.from_responder,
            #[cfg(feature = "postquantum")]
            exchange,
        };
        out.push(Output::AddKeys {
            peer: id,
            keys: session_keys(local_index, material, now, true, &disguise.timings),
        });
        #[cfg(feature = "postquantum")]
        let only_exchange = exchange.is_some_and(|it| it.only);
        #[cfg(not(feature = "postquantum"))]
        let only_exchange = false;
        if !only_exchange {
            out.push(Output::SendWith {
                peer: id,
                local_index,
                confirm: true,
            });
        }
        out.push(Output::HandshakeComplete { peer: id, at });
        peer.timers.session_derived(now, &disguise.timings);
        peer.timers.handshake_complete();
        #[cfg(feature = "postquantum")]
        self.session_began(id, (true, under, began), now, out);
        self.requeue(id);
        Ok(())
    }

    fn receive_cookie(&mut self, message: &CookieReply, now: Instant) -> Result<(), Dropped> {
        let id = self
            .indices
            .owner(message.receiver)
            .ok_or(Dropped::Unexpected)?;
        let peer = self.peer_mut(id).ok_or(Dropped::Unexpected)?;
        if peer.jar.consume(message, now) {
            Ok(())
        } else {
            Err(Dropped::Unauthentic)
        }
    }

    /// Reports the first authentic packet under keys that were added with `confirm`. The other side has these keys, so
    /// we seal with them from now on. Reports about other keys do nothing.
    pub fn confirmed(&mut self, id: PeerId, local_index: u32, now: Instant, out: &mut Vec<Output>) {
        let at = self.wall(now);
        let Self { peers, indices, .. } = self;
        let Some(peer) = peer_of(peers, id) else {
            return;
        };
        let Some(replaced) = peer.keys.confirm(local_index) else {
            return;
        };
        retire(indices, id, replaced, out);
        #[cfg(feature = "postquantum")]
        let only_exchange = peer.only_exchange().is_some();
        #[cfg(not(feature = "postquantum"))]
        let only_exchange = false;
        if !only_exchange {
            out.push(Output::SendWith {
                peer: id,
                local_index,
                confirm: false,
            });
        }
        out.push(Output::HandshakeComplete { peer: id, at });
        peer.timers.handshake_complete();
        #[cfg(feature = "postquantum")]
        self.session_confirmed(id, local_index, now, out);
        self.requeue(id);
    }
}

/// The sender of an initiation.
pub(crate) struct Authentic<'p> {
    pub(crate) id: PeerId,
    pub(crate) peer: &'p mut Peer,
    pub(crate) responder: Responder,
    /// Not compared with earlier ones yet.
    pub(crate) timestamp: Tai64n,
}

/// Finds the peer that has made an initiation.
pub(crate) fn authenticate<'p>(
    message: &Initiation,
    own: &PrivateKey,
    by_key: &HashMap<PublicKey, PeerId>,
    peers: &'p mut [Option<Box<Peer>>],
) -> Result<Authentic<'p>, Dropped> {
    let ephemeral = PublicKey::from(message.ephemeral);
    let mut responder = Responder::identify(IDENTIFIER, own, &ephemeral, &message.sealed_static)
        .map_err(|_| Dropped::Unauthentic)?;
    let id = *by_key.get(&responder.claimed).ok_or(Dropped::UnknownPeer)?;
    let peer = peer_of(peers, id).ok_or(Dropped::UnknownPeer)?;

    let static_static = peer.static_static(own).ok_or(Dropped::Unauthentic)?;
    let mut payload = [0; 12 + TAG_LEN];
    responder
        .verify(&static_static, &message.sealed_timestamp, &mut payload)
        .map_err(|_| Dropped::Unauthentic)?;
    let mut timestamp = Tai64n::default();
    timestamp.0.copy_from_slice(&payload[..12]);
    Ok(Authentic {
        id,
        peer,
        responder,
        timestamp,
    })
}

/// Why a datagram was dropped. Count drops, do not log them: any sender that can reach the port can cause each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Dropped {
    /// The datagram is not a handshake message: noise of the network, a later version, or an attack.
    #[error("it is not a handshake message of this protocol version")]
    Malformed,
    /// The interface has no private key yet, which is not the sender's fault.
    #[error("this interface has no private key: set one")]
    NoPrivateKey,
    /// The sender does not know our public key: it has an old one of ours, or scans.
    #[error("mac1 is not for our public key; give the sender the current key")]
    Mac1,
    /// The device is under load; the sender was sent a cookie and will come back with it.
    #[error("under load: a cookie was sent instead of an answer")]
    Cookie,
    /// The device is under load, and this source is the reason.
    #[error("under load: too many handshakes from this source")]
    RateLimited,
    /// The sender has a private key and our public key, and we do not have it as a peer.
    #[error("unknown peer: its public key is not configured here")]
    UnknownPeer,
    /// The sender is not the peer that it claims to be, or the two sides have different preshared keys.
    #[error("the handshake is not authentic: forged, or the preshared keys differ")]
    Unauthentic,
    /// An initiation that was seen before, or from a peer whose clock was set back.
    #[error("the initiation is not newer than the last: replayed, or the peer's clock went back")]
    Replayed,
    /// One peer begins handshakes faster than the protocol allows.
    #[error("the peer begins too many handshakes")]
    Flood,
    /// The initiation crossed one of ours, which the peer is about to answer.
    #[error("both ends began a handshake at once; ours continues")]
    Crossed,
    /// An answer to no pending handshake: late, or a guess.
    #[error("it answers no handshake in progress")]
    Unexpected,
}

impl Dropped {
    /// All reasons.
    pub const ALL: [Self; 11] = [
        Self::Malformed,
        Self::NoPrivateKey,
        Self::Mac1,
        Self::Cookie,
        Self::RateLimited,
        Self::UnknownPeer,
        Self::Unauthentic,
        Self::Replayed,
        Self::Flood,
        Self::Crossed,
        Self::Unexpected,
    ];

    /// The name of its counter.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::NoPrivateKey => "no_private_key",
            Self::Mac1 => "mac1",
            Self::Cookie => "cookie",
            Self::RateLimited => "rate_limited",
            Self::UnknownPeer => "unknown_peer",
            Self::Unauthentic => "not_authentic",
            Self::Replayed => "replayed",
            Self::Flood => "flood",
            Self::Crossed => "crossed",
            Self::Unexpected => "unexpected",
        }
    }
}
