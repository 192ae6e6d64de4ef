//! Drives the automaton with timers and packets; shared by all layers (RFC 1661, section 4).

use std::time::{Duration, Instant};

use crate::ppp::automaton::{Actions, Event, State, step};
use crate::ppp::packet::{Option as ConfigOption, Options, Packet, code};

/// Configure-Naks after which further unacceptable options are rejected (RFC 1661, section 4.6, Max-Failure).
const MAX_FAILURE: u8 = 5;
/// Naks and rejects after which negotiation fails: of the peer's, and of ours beyond `MAX_FAILURE`.
const MAX_ROUNDS: u8 = 12;
/// Copies of an acknowledged request that are acknowledged again without restarting negotiation. Fewer than common
/// peers' tries, so that a peer that really restarted gets through.
const MAX_COPIES: u8 = 8;
/// Longest stored reason of a Terminate-Request, in bytes.
const MAX_REASON: usize = 128;

/// A layer's verdict on one of the peer's options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The option is accepted.
    Ack,
    /// The option needs another value, which the layer appended to the Nak.
    Nak,
    /// The option is rejected.
    Reject,
}

/// The options of a layer: those that we request, and those that we accept.
pub trait Layer {
    /// Protocol number of the layer's frames.
    const PROTOCOL: u16;
    /// The layer's codes beyond 7; their packets are handed up while the layer is open.
    const CODES: core::ops::RangeInclusive<u8>;

    /// Appends the options that we request.
    fn request(&self, out: &mut Vec<u8>);
    /// Whether our acknowledged options suffice to open the layer.
    fn usable(&self) -> bool {
        true
    }
    /// Handles a Nak: the peer proposes another value for one of our options, or an option that we did not request.
    /// `false` if we cannot agree.
    fn naked(&mut self, option: ConfigOption<'_>) -> bool;
    /// Handles a Reject: the peer lacks this option. `false` if we need the option.
    fn rejected(&mut self, option: ConfigOption<'_>) -> bool;
    /// Begins a request of the peer, and forgets values from earlier requests.
    fn begin(&mut self);
    /// Judges an option of the peer's request and notes its value. If `last`, the peer has had its Naks, and an
    /// unacceptable option should be rejected.
    fn judge(&mut self, option: ConfigOption<'_>, last: bool, nak: &mut Vec<u8>) -> Verdict;
    /// Ends the peer's request: appends options that the peer should have included.
    fn missing(&mut self, last: bool, nak: &mut Vec<u8>);
}

/// Timers and retry counts (RFC 1661, section 4.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Time between tries: 3 s in the RFC.
    pub restart: Duration,
    /// Tries of Configure-Request: 10 in the RFC.
    pub max_configure: u8,
    /// Tries of Terminate-Request: 2 in the RFC.
    pub max_terminate: u8,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            restart: Duration::from_secs(3),
            max_configure: 10,
            max_terminate: 2,
        }
    }
}

/// Why a layer did not open, or has closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The peer does not answer.
    #[error("the peer does not answer")]
    NoAnswer,
    /// The ends could not agree on options.
    #[error("no agreement with the peer")]
    NoAgreement,
    /// The peer refuses an option that we cannot do without.
    #[error("the peer refuses option {0}")]
    Option(u8),
    /// The peer lacks the protocol, or an essential part of it.
    #[error("the peer does not have this protocol")]
    Rejected,
    /// The peer has closed the layer; with its reason, if it gave one.
    #[error("closed by the peer{}", because(.0))]
    Peer(String),
    /// We have closed the layer.
    #[error("closed by us")]
    Local,
}

/// An action for the layer's owner, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Send this as the information field of a frame of the layer's protocol.
    Send(Vec<u8>),
    /// The layer is open.
    Up,
    /// The layer is no longer open.
    Down,
    /// The layer has ended for good.
    Finished(Failure),
}

/// Negotiation of one layer, LCP or a network protocol.
#[derive(Debug)]
pub struct Negotiation<L> {
    layer: L,
    state: State,
    timing: Timing,
    tries: u8,
    deadline: Option<Instant>,
    /// Identifier of the last packet that we originated.
    id: u8,
    request_id: u8,
    /// The options of our last request; an Ack must repeat them.
    request: Vec<u8>,
    /// Whether the last request was answered; further answers are copies.
    answered: bool,
    /// Consecutive Naks and Rejects that we sent, and that the peer sent.
    our_refusals: u8,
    peer_refusals: u8,
    /// The peer's request that we last refused.
    refused: Option<(u8, Vec<u8>)>,
    /// The peer's request that we last acknowledged, and how often we acknowledged copies of it.
    acknowledged: Option<(u8, Vec<u8>)>,
    copies: u8,
    failure: Option<Failure>,
}

impl<L: Layer> Negotiation<L> {
    /// A negotiation that is neither up nor requested.
    #[must_use]
    pub const fn new(layer: L, timing: Timing) -> Self {
        Self {
            layer,
            state: State::Initial,
            timing,
            tries: 0,
            deadline: None,
            id: 0,
            request_id: 0,
            request: Vec::new(),
            answered: false,
            our_refusals: 0,
            peer_refusals: 0,
            refused: None,
            acknowledged: None,
            copies: 0,
            failure: None,
        }
    }

    /// Options of the layer.
    #[must_use]
    pub const fn layer(&self) -> &L {
        &self.layer
    }

    /// State of the automaton.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// Whether the layer is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.state == State::Opened
    }

    /// Why the layer is closing or has closed; `None` otherwise.
    #[must_use]
    pub const fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// When [`expire`](Self::expire) must be called next.
    #[must_use]
    pub const fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Opens the layer; the layer below must be up.
    pub fn open(&mut self, now: Instant, out: &mut Vec<Signal>) {
        self.run(Event::Open, None, now, out);
        self.run(Event::Up, None, now, out);
    }

    /// Closes the layer and tells the peer; [`Signal::Finished`] follows.
    pub fn close(&mut self, reason: &str, now: Instant, out: &mut Vec<Signal>) {
        self.close_for(Failure::Local, reason, now, out);
    }

    /// Records that the layer below is down.
    pub fn lower_down(&mut self, now: Instant, out: &mut Vec<Signal>) {
        self.run(Event::Down, None, now, out);
        self.run(Event::Close, None, now, &mut Vec::new());
    }

    /// Records that the peer rejects the whole protocol (RFC 1661, section 5.7).
    pub fn protocol_rejected(&mut self, now: Instant, out: &mut Vec<Signal>) {
        self.failure.get_or_insert(Failure::Rejected);
        self.run(Event::FatalReject, None, now, out);
    }

    /// Handles timers that are due. An early call does nothing.
    pub fn expire(&mut self, now: Instant, out: &mut Vec<Signal>) {
        if self.deadline.is_none_or(|deadline| deadline > now) {
            return;
        }
        self.deadline = None;
        if self.tries > 0 {
            self.run(Event::Timeout, None, now, out);
        } else {
            self.failure.get_or_insert(Failure::NoAnswer);
            self.run(Event::GiveUp, None, now, out);
        }
    }

    /// Takes the information field of a frame. Returns a packet with a code of [`Layer::CODES`] if the layer is open.
    pub fn receive<'a>(
        &mut self,
        information: &'a [u8],
        now: Instant,
        out: &mut Vec<Signal>,
    ) -> Option<Packet<'a>> {
        let packet = Packet::parse(information)?;
        match packet.code {
            code::CONFIGURE_REQUEST => self.requested(packet, now, out),
            code::CONFIGURE_ACK => self.acked(packet, now, out),
            code::CONFIGURE_NAK | code::CONFIGURE_REJECT => self.refused(packet, now, out),
            code::TERMINATE_REQUEST => {
                self.failure
                    .get_or_insert_with(|| Failure::Peer(printable(packet.data)));
                let answer = reply(code::TERMINATE_ACK, packet.id, &[]);
                self.run(Event::TerminateRequest, Some(answer), now, out);
            }
            code::TERMINATE_ACK => self.run(Event::TerminateAck, None, now, out),
            code::CODE_REJECT => match packet.data.first() {
                Some(1..=code::CODE_REJECT) => self.protocol_rejected(now, out),
                _ => self.run(Event::HarmlessReject, None, now, out),
            },
            other if L::CODES.contains(&other) => return self.is_open().then_some(packet),
            _ => {
                self.id = self.id.wrapping_add(1);
                // A Code-Reject returns the packet, cut to fit any MRU.
                let whole = &information[..information.len().min(128)];
                let answer = reply(code::CODE_REJECT, self.id, whole);
                self.run(Event::UnknownCode, Some(answer), now, out);
            }
        }
        None
    }

    fn requested(&mut self, packet: Packet<'_>, now: Instant, out: &mut Vec<Signal>) {
        let Some(options) = Options::parse(packet.data) else {
            return;
        };
        let answer = reply(code::CONFIGURE_ACK, packet.id, packet.data);
        if self.is_open() {
            let copy = |(id, data): &(u8, Vec<u8>)| *id == packet.id && data == packet.data;
            if self.acknowledged.as_ref().is_some_and(copy) && self.copies < MAX_COPIES {
                // Our Ack was lost. Restarting, as the automaton would, makes common peers restart as well.
                self.copies += 1;
                out.push(Signal::Send(answer));
                return;
            }
        }
        let last = self.our_refusals >= MAX_FAILURE;
        let (mut naks, mut rejects) = (Vec::new(), Vec::new());
        self.layer.begin();
        for option in options {
            match self.layer.judge(option, last, &mut naks) {
                Verdict::Ack | Verdict::Nak => {}
                Verdict::Reject => option.write(&mut rejects),
            }
        }
        self.layer.missing(last, &mut naks);
        if naks.is_empty() && rejects.is_empty() {
            self.our_refusals = 0;
            self.acknowledged = Some((packet.id, packet.data.to_vec()));
            self.copies = 0;
            self.run(Event::GoodRequest, Some(answer), now, out);
            return;
        }
        let this = (packet.id, packet.data.to_vec());
        if self.refused.as_ref() != Some(&this) {
            // A copy shows only that our answer was lost, so it does not count.
            self.our_refusals = self.our_refusals.saturating_add(1);
            self.refused = Some(this);
        }
        if self.our_refusals > MAX_ROUNDS {
            self.close_for(Failure::NoAgreement, "no agreement", now, out);
            return;
        }
        // Rejects come first: only the remaining options can get other values (RFC 1661, section 5.4).
        let answer = if rejects.is_empty() {
            reply(code::CONFIGURE_NAK, packet.id, &naks)
        } else {
            reply(code::CONFIGURE_REJECT, packet.id, &rejects)
        };
        self.run(Event::BadRequest, Some(answer), now, out);
    }

    fn acked(&mut self, packet: Packet<'_>, now: Instant, out: &mut Vec<Signal>) {
        if !self.is_answer(packet) || packet.data != self.request {
            return;
        }
        if !self.layer.usable() {
            self.close_for(Failure::NoAgreement, "nothing agreed on", now, out);
            return;
        }
        self.answered = true;
        self.peer_refusals = 0;
        self.run(Event::Ack, None, now, out);
    }

    fn refused(&mut self, packet: Packet<'_>, now: Instant, out: &mut Vec<Signal>) {
        let Some(options) = Options::parse(packet.data).filter(|_| self.is_answer(packet)) else {
            return;
        };
        self.answered = true;
        self.peer_refusals = self.peer_refusals.saturating_add(1);
        for option in options {
            let possible = if packet.code == code::CONFIGURE_NAK {
                self.layer.naked(option)
            } else {
                self.layer.rejected(option)
            };
            if !possible {
                let failure = Failure::Option(option.kind);
                self.close_for(failure, "an option is required", now, out);
                return;
            }
        }
        if self.peer_refusals > MAX_ROUNDS {
            self.close_for(Failure::NoAgreement, "no agreement", now, out);
        } else {
            self.run(Event::Nak, None, now, out);
        }
    }

    /// Whether a packet is the first answer to our last request.
    fn is_answer(&self, packet: Packet<'_>) -> bool {
        let asking = matches!(self.state, State::ReqSent | State::AckSent);
        asking && !self.answered && packet.id == self.request_id
    }

    /// Closes the layer for the given reason.
    pub fn close_for(
        &mut self,
        failure: Failure,
        reason: &str,
        now: Instant,
        out: &mut Vec<Signal>,
    ) {
        self.failure.get_or_insert(failure);
        self.id = self.id.wrapping_add(1);
        let request = reply(code::TERMINATE_REQUEST, self.id, reason.as_bytes());
        self.run(Event::Close, Some(request), now, out);
    }

    fn run(
        &mut self,
        event: Event,
        prepared: Option<Vec<u8>>,
        now: Instant,
        out: &mut Vec<Signal>,
    ) {
        let Some((actions, next)) = step(self.state, event) else {
            return;
        };
        let before = core::mem::replace(&mut self.state, next);
        let answers = Actions::SEND_ACK;
        if actions.has(Actions::DOWN) {
            out.push(Signal::Down);
        }
        if actions.has(Actions::INIT_COUNTER) {
            self.tries = if matches!(next, State::Closing | State::Stopping) {
                self.timing.max_terminate
            } else {
                self.timing.max_configure
            };
        }
        if actions.has(Actions::ZERO_COUNTER) {
            self.tries = 0;
            self.deadline = Some(now + self.timing.restart);
        }
        if actions.has(Actions::SEND_REQUEST) {
            if before == State::Opened {
                self.tries = self.timing.max_configure;
            }
            let fresh = event != Event::Timeout;
            self.send_request(fresh, now, out);
        }
        if actions.has(Actions::SEND_TERMINATE) {
            self.tries = self.tries.saturating_sub(1);
            self.deadline = Some(now + self.timing.restart);
            let request = prepared
                .clone()
                .unwrap_or_else(|| reply(code::TERMINATE_REQUEST, self.id, &[]));
            out.push(Signal::Send(request));
        }
        if actions.has(answers)
            || actions.has(Actions::SEND_NAK)
            || actions.has(Actions::SEND_CODE_REJECT)
        {
            out.extend(prepared.map(Signal::Send));
        } else if actions.has(Actions::SEND_TERMINATE_ACK) {
            // A Terminate-Ack answers a Terminate-Request, or a packet intended for an open layer.
            let answer = match event {
                Event::TerminateRequest => prepared,
                _ => Some(reply(code::TERMINATE_ACK, self.id, &[])),
            };
            out.extend(answer.map(Signal::Send));
        }
        if actions.has(Actions::UP) {
            self.failure = None;
            out.push(Signal::Up);
        }
        if actions.has(Actions::FINISHED) {
            let failure = self.failure.take().unwrap_or(Failure::NoAnswer);
            out.push(Signal::Finished(failure));
        }
        if matches!(
            next,
            State::Initial | State::Starting | State::Closed | State::Stopped | State::Opened
        ) {
            self.deadline = None;
        }
    }

    fn send_request(&mut self, fresh: bool, now: Instant, out: &mut Vec<Signal>) {
        // A repetition keeps the identifier, so that an answer to either copy counts. An open peer also recognises it
        // as a copy.
        if fresh {
            self.id = self.id.wrapping_add(1);
            self.request_id = self.id;
            self.request.clear();
            self.layer.request(&mut self.request);
        }
        self.answered = false;
        self.tries = self.tries.saturating_sub(1);
        self.deadline = Some(now + self.timing.restart);
        let request = reply(code::CONFIGURE_REQUEST, self.request_id, &self.request);
        out.push(Signal::Send(request));
    }
}

fn reply(code: u8, id: u8, data: &[u8]) -> Vec<u8> {
    Packet { code, id, data }.to_vec()
}

/// Formats a reason to follow a sentence; empty if there is none.
fn because(reason: &str) -> String {
    if reason.is_empty() {
        String::new()
    } else {
        format!(": {reason}")
    }
}

/// A peer's reason, cleaned for a log.
pub(crate) fn printable(text: &[u8]) -> String {
    String::from_utf8_lossy(&text[..text.len().min(MAX_REASON)])
        .chars()
        .filter(|character| !character.is_control())
        .collect()
}
