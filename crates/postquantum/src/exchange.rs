//! The exchange of keys with one peer.
//!
//! There are up to three keys: *base*, the configured preshared key or none; *confirmed*, under which a handshake has
//! succeeded; *next*, which an exchange has made. An initiator of a handshake tries all on message 2
//! ([`Exchange::candidates`]), so lost messages of an exchange never separate the ends. A responder chooses one
//! ([`Exchange::answer`]): next once it knows that the other end has it. Two answers that lead to no session mean that
//! the other end has lost keys, by a restart for example: every second answer uses the base key from then on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crypto::mlkem::CIPHERTEXT_LEN;
use crypto::{Key, random};

use crate::derivation::{Tag, Transcript, derive};
use crate::job::{Computed, Job, Outcome, Task};
use crate::keys::{Agreed, KeyId, Named};
use crate::limit::Limit;
use crate::message::{Assembly, ExchangeId, Header, Kind, emit};
use crate::pending::{Next, PENDING_TIME, Pending, Repetition, Role};

/// Age of the last exchange from which a new session begins another.
const EXCHANGE_AFTER: Duration = Duration::from_secs(600);

/// Time for a companion to put a key into its kernel, before this end begins a handshake.
const SETTLING: Duration = Duration::from_secs(1);

/// Least time between two handshakes that an exchange asks for, as between initiations.
const HANDSHAKE_SPACING: Duration = Duration::from_secs(5);

/// Answers without a session after which the base key takes turns.
const UNCONFIRMED_MAX: u8 = 2;

/// Settings of the exchange with one peer.
#[derive(Debug)]
pub struct Settings {
    /// Our static public key of WireGuard.
    pub own: [u8; 32],
    /// The peer's.
    pub peer: [u8; 32],
    /// The configured preshared key; [`Key::ZERO`] for none.
    pub base: Key,
    /// Keys are set in a kernel or another program, which has one preshared key per peer: [`Effect::Use`] sets it.
    pub single_slot: bool,
    /// Bytes of the longest UDP payload that the tunnel carries in one packet.
    pub room: usize,
    /// Make all datagrams equally long.
    pub pad: bool,
}

/// A session of WireGuard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// This end began the handshake. A companion cannot know, and says true.
    pub initiator: bool,
    /// The preshared key of the handshake.
    pub under: KeyId,
    /// When this end sent message 1, or answered it. A companion cannot know, and says now.
    pub began: Instant,
}

/// An action for the caller, in the order in which the exchange emits them.
#[derive(Debug)]
pub enum Effect {
    /// Send this UDP payload to the peer through the tunnel, over whatever session there is.
    Send(Vec<u8>),
    /// Run the job on another thread, and pass its outcome to [`Exchange::computed`].
    Compute(Job),
    /// Single slot only: set this preshared key for the peer before any later effect. All zeros: no key.
    Use(Key),
    /// Begin a handshake. A single slot never asks for it.
    Handshake,
}

/// The other end's part in exchanges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Peer {
    /// No exchange was tried yet.
    #[default]
    Unknown,
    /// It has not answered an Offer.
    Silent,
    /// It speaks the protocol.
    Capable,
}

/// The state of an exchange, for reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Whether the last session is protected; `None` before the first.
    pub protected: Option<bool>,
    /// When the last exchange ended well.
    pub exchanged: Option<Instant>,
    /// The other end.
    pub peer: Peer,
    /// Exchanges that ended well.
    pub count: u64,
}

/// The exchange of keys with one peer. Some 400 bytes: box it.
#[derive(Debug)]
pub struct Exchange {
    own: [u8; 32],
    peer: [u8; 32],
    single_slot: bool,
    room: usize,
    pad: bool,
    base: Named,
    /// The base key before, under which a handshake may have begun.
    former_base: Option<KeyId>,
    confirmed: Option<Agreed>,
    next: Option<Box<Next>>,
    pending: Option<Box<Pending>>,
    /// A message of which parts have come, and since when.
    assembly: Option<Box<Assembly>>,
    /// The key that a single slot holds.
    slot: KeyId,
    /// The peer has a single slot.
    peer_single: bool,
    /// When the first session under the confirmed key began.
    changed: Option<Instant>,
    /// Answers to handshakes since the last session.
    unconfirmed: u8,
    sent: Limit,
    taken: Limit,
    /// When an Offer may be sent that the limit has put off.
    offer_at: Option<Instant>,
    /// When to begin a handshake, and when that was asked for last.
    handshake_at: Option<Instant>,
    handshake_asked: Option<Instant>,
    /// Offers in a row without an Answer, and when the last was given up.
    failures: u8,
    failed: Option<Instant>,
    status: Status,
}

impl Exchange {
    /// The exchange with a peer, which has the base key only.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let base = Named::from(settings.base);
        Self {
            own: settings.own,
            peer: settings.peer,
            single_slot: settings.single_slot,
            room: settings.room,
            pad: settings.pad,
            slot: base.id,
            base,
            former_base: None,
            confirmed: None,
            next: None,
            pending: None,
            assembly: None,
            peer_single: false,
            changed: None,
            unconfirmed: 0,
            sent: Limit::default(),
            taken: Limit::default(),
            offer_at: None,
            handshake_at: None,
            handshake_asked: None,
            failures: 0,
            failed: None,
            status: Status::default(),
        }
    }

    /// Changes the base key. Keys of exchanges stay.
    pub fn set_base(&mut self, base: Key) {
        let base = Named::from(base);
        if base.id != self.base.id {
            let stale = |it: &mut Box<Pending>| it.previous.id == self.base.id;
            self.pending.take_if(stale);
            self.former_base = Some(std::mem::replace(&mut self.base, base).id);
        }
    }

    /// Changes the carriage: the bytes of the longest UDP payload, and whether all are equally long.
    pub const fn set_room(&mut self, room: usize, pad: bool) {
        (self.room, self.pad) = (room, pad);
    }

    /// Single slot, after a restart: the kernel holds this key.
    pub fn resume(&mut self, held: Key) {
        let named = Named::from(held);
        self.slot = named.id;
        if named.id != self.base.id {
            self.confirmed = Some(Agreed {
                named,
                exchange: ExchangeId::default(),
                tag: Tag::default(),
            });
        }
    }

    /// The state, for reports.
    #[must_use]
    pub const fn status(&self) -> Status {
        self.status
    }

    /// The name of the key that a single slot holds, as far as this end knows.
    #[must_use]
    pub const fn slot(&self) -> KeyId {
        self.slot
    }

    /// The name of the base key, under which sessions are not protected.
    #[must_use]
    pub const fn base(&self) -> KeyId {
        self.base.id
    }

    /// The preshared keys that message 2 of the peer may have, likeliest first, for the initiator of a handshake.
    pub fn candidates(&self) -> impl Iterator<Item = (KeyId, &Key)> {
        let next = self.next.iter().map(|next| &next.agreed.named);
        let confirmed = self.confirmed.iter().map(|it| &it.named);
        let all = next.chain(confirmed).chain([&self.base]);
        all.map(|named| (named.id, &named.key))
    }

    /// The preshared key for message 2 of this end. Counts the answer: call it once for each.
    pub fn answer(&mut self) -> (KeyId, &Key) {
        let count = self.unconfirmed;
        self.unconfirmed = count.wrapping_add(1);
        let next = self.next.as_deref();
        let usable = |next: &&Next| {
            let known = next.is_sure || (next.is_own && !self.peer_single);
            known && !next.is_doubtful
        };
        let confirmed = self.confirmed.as_ref().map(|it| &it.named);
        let sure = next.filter(usable).map(|next| &next.agreed.named);
        let regular = sure.or(confirmed).unwrap_or(&self.base);
        let turn = count.checked_sub(UNCONFIRMED_MAX).map_or(1, |it| it % 4);
        let named = match turn {
            0 | 2 => &self.base,
            // A peer with a single slot may hold the key before the last exchange.
            3 => confirmed.unwrap_or(regular),
            _ => regular,
        };
        (named.id, &named.key)
    }

    /// The peer has used the last session since it began a handshake: an answer without a session was a probe's.
    pub fn heard(&mut self) {
        self.unconfirmed = self.unconfirmed.min(1);
    }

    /// A session has begun: the initiator calls this with message 2, the responder with the first packet.
    pub fn session(&mut self, session: Session, now: Instant, out: &mut Vec<Effect>) {
        self.unconfirmed = 0;
        self.handshake_at = None;
        let under = |named: &Named| named.id == session.under;
        // A session under a key that is not known any more is protected all the same.
        let is_base = under(&self.base) || self.former_base == Some(session.under);
        if self.next.as_ref().is_some_and(|it| under(&it.agreed.named)) {
            self.promote(now);
        } else if is_base {
            self.fall_back(session);
            if self.confirmed.is_some() {
                self.handshake(now, out);
            }
        }
        self.status.protected = Some(!is_base);
        if let Some(next) = self.next.as_mut().filter(|next| next.is_unsettled()) {
            // Does nothing but repeat the message that the last session has lost.
            next.repetition = Repetition::begin(now);
            self.confirm(out);
            return;
        }
        if let Some(pending) = &mut self.pending {
            if let Role::Offering { repetition, .. } = &mut pending.role {
                *repetition = Repetition::begin(now);
                self.send_offer(out);
            }
            return;
        }
        let is_due = is_base || (self.status.exchanged).is_none_or(|at| now >= at + EXCHANGE_AFTER);
        let waits = self.failed.is_some_and(|at| now < at + self.patience());
        if session.initiator && is_due && !waits {
            self.offer(now, out);
        }
    }

    /// Packets wait for a protected session, and there is none.
    pub fn wanted(&mut self, now: Instant, out: &mut Vec<Effect>) {
        if self.status.protected != Some(false) || self.handshake_at.is_some() {
            return;
        }
        match &mut self.next {
            Some(next) if next.is_sure && !next.is_doubtful => {
                self.handshake(now, out);
            }
            Some(next) if next.is_unsettled() => {
                let is_idle = next.repetition.at.is_none();
                if is_idle {
                    next.repetition = Repetition::begin(now);
                    self.confirm(out);
                }
            }
            _ if self.pending.is_none() && self.offer_at.is_none() => self.offer(now, out),
            _ => {}
        }
    }

    /// Single slot: the peer begins handshakes that lead to no session. Call it every 10 s until one does: the other
    /// keys take turns in the slot.
    pub fn stalled(&mut self, out: &mut Vec<Effect>) {
        let keys: Vec<&Named> = self.sure_keys().collect();
        let at = keys.iter().position(|it| it.id == self.slot);
        let next = keys[at.map_or(0, |at| (at + 1) % keys.len())];
        if next.id != self.slot {
            out.push(Effect::Use(next.key.clone()));
            self.slot = next.id;
        }
    }

    /// Keys that the other end may use: base, confirmed, next.
    fn sure_keys(&self) -> impl Iterator<Item = &Named> {
        let confirmed = self.confirmed.iter().map(|it| &it.named);
        let next = self.next.iter().filter(|next| next.is_sure);
        let next = next.map(|next| &next.agreed.named);
        [&self.base].into_iter().chain(confirmed).chain(next)
    }

    /// A handshake succeeded under the next key: older keys are erased.
    fn promote(&mut self, now: Instant) {
        let Some(next) = self.next.take() else { return };
        self.changed = Some(now);
        let id = next.agreed.exchange;
        self.pending.take_if(|it| it.header.exchange == id);
        self.confirmed = Some(next.agreed);
    }

    /// A session under the base key began: the other end has lost the keys of exchanges, or never had any; unless the
    /// handshake is older than what is known of its keys.
    fn fall_back(&mut self, session: Session) {
        if self.single_slot {
            self.slot = session.under;
        }
        if self.changed.is_none_or(|at| at <= session.began) {
            self.confirmed = None;
        }
        let is_older = |next: &mut Box<Next>| next.heard <= session.began;
        self.next.take_if(|next| is_older(next) && !next.from_base);
        if let Some(next) = self
            .next
            .as_mut()
            .filter(|next| next.heard <= session.began)
        {
            next.is_doubtful = true;
            next.is_sure = false;
        }
        if self.confirmed.is_some() {
            return;
        }
        let base = self.base.id;
        self.pending.take_if(|it| it.previous.id != base);
    }

    /// Asks for a handshake, which WireGuard repeats by itself, or plans it for when it may be asked for.
    fn handshake(&mut self, now: Instant, out: &mut Vec<Effect>) {
        if self.single_slot {
            return;
        }
        let soonest = self.handshake_asked.map(|at| at + HANDSHAKE_SPACING);
        self.handshake_at = soonest.filter(|at| *at > now);
        if self.handshake_at.is_none() {
            self.handshake_asked = Some(now);
            out.push(Effect::Handshake);
        }
    }

    /// Time without Offers to a silent peer.
    fn patience(&self) -> Duration {
        (PENDING_TIME * (1 << self.failures.min(5))).min(EXCHANGE_AFTER)
    }

    /// Begins an exchange, or plans it for when the limit allows it.
    fn offer(&mut self, now: Instant, out: &mut Vec<Effect>) {
        self.offer_at = None;
        if let Err(at) = self.sent.take(now) {
            self.offer_at = Some(at);
            return;
        }
        let previous = self.confirmed.as_ref().map_or(&self.base, |it| &it.named);
        self.offer_over(previous.clone(), now, out);
    }

    fn offer_over(&mut self, previous: Named, now: Instant, out: &mut Vec<Effect>) {
        let mut exchange = ExchangeId::default();
        random(&mut exchange);
        out.push(Effect::Compute(Job {
            id: exchange,
            task: Task::Generate,
        }));
        self.pending = Some(Box::new(Pending {
            header: self.header(Kind::Offer, exchange, previous.id),
            previous,
            since: now,
            role: Role::Generating,
        }));
    }

    const fn header(&self, kind: Kind, exchange: ExchangeId, previous: KeyId) -> Header {
        Header {
            kind,
            single_slot: self.single_slot,
            exchange,
            previous,
        }
    }

    fn send(&self, header: &Header, payload: &[u8], out: &mut Vec<Effect>) {
        let datagrams = emit(header, payload, self.room, self.pad);
        out.extend(datagrams.into_iter().map(Effect::Send));
    }

    fn send_offer(&self, out: &mut Vec<Effect>) {
        if let Some(pending) = &self.pending
            && let Role::Offering { public, .. } = &pending.role
        {
            self.send(&pending.header, &**public, out);
        }
    }

    fn reply(&self, kind: Kind, to: &Header, payload: &[u8], out: &mut Vec<Effect>) {
        let header = self.header(kind, to.exchange, to.previous);
        self.send(&header, payload, out);
    }

    /// Sends the Confirm of the next key.
    fn confirm(&self, out: &mut Vec<Effect>) {
        if let Some(next) = &self.next {
            let agreed = &next.agreed;
            let header = self.header(Kind::Confirm, agreed.exchange, agreed.named.id);
            self.send(&header, &agreed.tag, out);
        }
    }

    /// A datagram of the exchange from the peer.
    pub fn received(&mut self, datagram: &[u8], now: Instant, out: &mut Vec<Effect>) {
        let Some((header, payload)) = Assembly::add(&mut self.assembly, datagram) else {
            return;
        };
        self.status.peer = Peer::Capable;
        (self.failures, self.failed) = (0, None);
        self.peer_single = header.single_slot;
        match header.kind {
            Kind::Offer => self.offered(&header, payload, now, out),
            Kind::Answer => self.answered(&header, payload, out),
            Kind::Confirm => self.confirmed(&header, &payload, now, out),
            Kind::Done => self.done(&header, &payload, now, out),
            Kind::Refuse => self.refused(&header, now, out),
        }
    }

    fn offered(
        &mut self,
        header: &Header,
        payload: Box<[u8]>,
        now: Instant,
        out: &mut Vec<Effect>,
    ) {
        let is_known = |it: &Agreed| it.exchange == header.exchange;
        if self.confirmed.as_ref().is_some_and(is_known) {
            return;
        }
        match self.pending.as_deref() {
            Some(pending) if pending.header.exchange == header.exchange => {
                if let Role::Answered { payload } = &pending.role {
                    self.reply(Kind::Answer, header, payload, out);
                }
                return;
            }
            // Offers have crossed: that of the greater key counts.
            Some(pending) if pending.is_own() && self.own > self.peer => return,
            _ => {}
        }
        if let Some(next) = self.next.as_deref() {
            if next.agreed.exchange == header.exchange {
                return;
            }
            if next.agreed.named.id == header.previous {
                // The other end has had a session under it.
                self.promote(now);
            } else if !next.is_doubtful && now < next.heard + PENDING_TIME {
                if next.is_unsettled() {
                    self.confirm(out);
                    return;
                }
                if next.is_sure {
                    // A late copy: the other end has the key, and uses it at once.
                    return;
                }
            }
        }
        let confirmed = self.confirmed.iter().map(|it| &it.named);
        let mut known = confirmed.chain([&self.base]);
        let Some(previous) = known.find(|it| it.id == header.previous).cloned() else {
            self.reply(Kind::Refuse, header, &[], out);
            return;
        };
        if self.taken.take(now).is_err() {
            return;
        }
        let Ok(public) = payload.try_into() else {
            return;
        };
        let task = Task::Encapsulate(Box::clone(&public));
        self.offer_at = None;
        self.pending = Some(Box::new(Pending {
            header: *header,
            previous,
            since: now,
            role: Role::Encapsulating { public },
        }));
        out.push(Effect::Compute(Job {
            id: header.exchange,
            task,
        }));
    }

    fn answered(&mut self, header: &Header, payload: Box<[u8]>, out: &mut Vec<Effect>) {
        let Some(pending) = self.pending.as_deref_mut() else {
            return;
        };
        let id = pending.header.exchange;
        let Role::Offering {
            private, opening, ..
        } = &mut pending.role
        else {
            return;
        };
        let Some(ciphertext) = payload.first_chunk::<CIPHERTEXT_LEN>() else {
            return;
        };
        if id != header.exchange || opening.is_some() {
            return;
        }
        let task = Task::Decapsulate(Arc::clone(private), Box::new(*ciphertext));
        *opening = Some((payload, header.single_slot));
        out.push(Effect::Compute(Job { id, task }));
    }

    /// The outcome of a [`Job`]. An outcome for which nothing waits is ignored.
    pub fn computed(&mut self, outcome: Outcome, now: Instant, out: &mut Vec<Effect>) {
        let waits = |it: &mut Box<Pending>| it.header.exchange == outcome.id;
        let Some(mut pending) = self.pending.take_if(waits) else {
            return;
        };
        // Without a result the exchange ends; an Offer's repetition begins it again.
        let Ok(result) = outcome.result else { return };
        match (result, &mut pending.role) {
            (Computed::Generated(private, public), Role::Generating) => {
                pending.role = Role::Offering {
                    private: Arc::new(private),
                    public,
                    repetition: Repetition::begin(now),
                    opening: None,
                    forged: 0,
                };
                self.pending = Some(pending);
                self.send_offer(out);
            }
            (Computed::Encapsulated(ciphertext, secret), Role::Encapsulating { public }) => {
                let parties = (&self.peer, &self.own);
                let derived = transcript(&pending.header, parties, public, &ciphertext);
                let derived = derive(&pending.previous.key, &secret, &derived);
                let payload: Box<[u8]> = [&ciphertext[..], &derived.responder].concat().into();
                self.store(&pending, (derived.next, derived.initiator), now);
                self.reply(Kind::Answer, &pending.header, &payload, out);
                pending.role = Role::Answered { payload };
                self.pending = Some(pending);
            }
            (
                Computed::Decapsulated(secret),
                Role::Offering {
                    public, opening, ..
                },
            ) => {
                let Some((payload, single)) = opening.take() else {
                    return;
                };
                let Some((ciphertext, tag)) = payload.split_first_chunk::<CIPHERTEXT_LEN>() else {
                    return;
                };
                let parties = (&self.own, &self.peer);
                let derived = transcript(&pending.header, parties, public, ciphertext);
                let derived = derive(&pending.previous.key, &secret, &derived);
                if !is_tag(tag, &derived.responder) {
                    if !pending.forged() {
                        self.pending = Some(pending);
                    }
                    return;
                }
                self.peer_single = single;
                self.store(&pending, (derived.next, derived.initiator), now);
                self.confirm(out);
            }
            _ => self.pending = Some(pending),
        }
    }

    /// Stores the key of an exchange as the next.
    fn store(&mut self, pending: &Pending, (key, tag): (Key, Tag), now: Instant) {
        let is_own = pending.is_own();
        self.next = Some(Box::new(Next {
            agreed: Agreed {
                named: key.into(),
                exchange: pending.header.exchange,
                tag,
            },
            from_base: pending.previous.id == self.base.id,
            is_own,
            is_sure: false,
            is_doubtful: false,
            heard: now,
            repetition: match is_own {
                true => Repetition::begin(now),
                false => Repetition::default(),
            },
        }));
    }

    fn confirmed(&mut self, header: &Header, payload: &[u8], now: Instant, out: &mut Vec<Effect>) {
        let is_it = |it: &Agreed| it.exchange == header.exchange && is_tag(payload, &it.tag);
        if self.confirmed.as_ref().is_some_and(is_it) {
            self.reply(Kind::Done, header, payload, out);
            return;
        }
        let next = self.next.as_deref_mut();
        let Some(next) = next.filter(|next| !next.is_own && is_it(&next.agreed)) else {
            self.reply(Kind::Refuse, header, &[], out);
            return;
        };
        let is_new = !next.is_sure;
        (next.is_sure, next.is_doubtful, next.heard) = (true, false, now);
        if is_new {
            let key = next.agreed.named.clone();
            self.settle(key, now, out);
            if header.single_slot && !self.single_slot {
                self.handshake_at = Some(now + SETTLING);
            }
        }
        self.reply(Kind::Done, header, payload, out);
    }

    fn done(&mut self, header: &Header, payload: &[u8], now: Instant, out: &mut Vec<Effect>) {
        let Some(next) = self.next.as_deref_mut().filter(|next| {
            next.is_unsettled()
                && next.agreed.exchange == header.exchange
                && is_tag(payload, &next.tag())
        }) else {
            return;
        };
        (next.is_sure, next.is_doubtful, next.heard) = (true, false, now);
        next.repetition = Repetition::default();
        let key = next.agreed.named.clone();
        self.settle(key, now, out);
        self.handshake(now, out);
    }

    /// Both ends have the key.
    fn settle(&mut self, key: Named, now: Instant, out: &mut Vec<Effect>) {
        self.pending = None;
        self.offer_at = None;
        self.status.exchanged = Some(now);
        self.status.count += 1;
        if self.single_slot {
            self.slot = key.id;
            out.push(Effect::Use(key.key));
        }
    }

    fn refused(&mut self, header: &Header, now: Instant, out: &mut Vec<Effect>) {
        let refused = |id: &ExchangeId| *id == header.exchange;
        let unsettled = |next: &mut Box<Next>| {
            refused(&next.agreed.exchange) && (next.is_unsettled() || next.is_doubtful)
        };
        if self.next.take_if(unsettled).is_some() {
            if self.pending.is_none() {
                self.offer(now, out);
            }
            return;
        }
        let own = |it: &mut Box<Pending>| it.is_own() && refused(&it.header.exchange);
        let Some(pending) = self.pending.take_if(own) else {
            return;
        };
        if pending.previous.id == self.base.id {
            self.fail(now);
        } else if self.sent.take(now).is_ok() {
            self.offer_over(self.base.clone(), now, out);
        }
    }

    fn fail(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        self.failed = Some(now);
    }

    /// When to call [`Exchange::expired`].
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let pending = self.pending.as_ref().map(|it| it.next_deadline());
        let confirm = self.next.as_ref().and_then(|next| next.repetition.at);
        let all = [pending, confirm, self.offer_at, self.handshake_at];
        all.into_iter().flatten().min()
    }

    /// Repeats messages, and ends exchanges that got no answer.
    pub fn expired(&mut self, now: Instant, out: &mut Vec<Effect>) {
        if self.handshake_at.take_if(|at| *at <= now).is_some() {
            self.handshake(now, out);
        }
        let over = |it: &mut Box<Pending>| it.since + PENDING_TIME <= now;
        if let Some(pending) = self.pending.take_if(over) {
            self.assembly = None;
            if pending.is_own() {
                self.fail(now);
                match self.status.peer {
                    Peer::Unknown => self.status.peer = Peer::Silent,
                    // Its Answers are lost, and the next handshake may be two minutes away.
                    Peer::Capable if self.status.protected == Some(false) => self.offer(now, out),
                    _ => {}
                }
            }
        }
        if let Some(pending) = &mut self.pending
            && let Role::Offering { repetition, .. } = &mut pending.role
            && repetition.is_due(now)
        {
            self.send_offer(out);
        }
        if let Some(next) = &mut self.next
            && next.repetition.is_due(now)
        {
            self.confirm(out);
        }
        if self.offer_at.is_some_and(|at| at <= now) {
            self.offer(now, out);
        }
    }
}

/// Whether a payload is this tag, in constant time.
fn is_tag(payload: &[u8], tag: &Tag) -> bool {
    <&Tag>::try_from(payload).is_ok_and(|it| crypto::equal(it, tag))
}

fn transcript<'a>(
    offer: &Header,
    (initiator, responder): (&'a [u8; 32], &'a [u8; 32]),
    encapsulation_key: &'a [u8; crypto::mlkem::ENCAPSULATION_KEY_LEN],
    ciphertext: &'a [u8; CIPHERTEXT_LEN],
) -> Transcript<'a> {
    Transcript {
        header: offer.emit(),
        initiator,
        responder,
        encapsulation_key,
        ciphertext,
    }
}
