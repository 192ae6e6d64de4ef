//! TLS handshakes away from their sessions.
//!
//! The cost of a handshake is signatures and key agreements, which need nothing of the session but its TLS. So a server
//! that has several processors takes the TLS of a session, with the bytes that have come for it, to another thread
//! ([`Output::Handshake`]), and brings it back ([`Session::handshaken`]). Meanwhile the session goes on: packets are
//! acknowledged and sent again, time passes, it may end. Messages for TLS wait in the receive window, so that one piece
//! of work of a session is away at most, and the order is that of the messages.

use std::time::Instant;

use super::machine::{Phase, Session};
use super::output::Output;
use crate::tls::{TlsError, TlsSession};
use crate::verify::PeerCertificate;

/// TLS of a session in the midst of its handshake, and the messages that have come for it.
pub struct Handshake {
    /// Counted by the session.
    number: u64,
    tls: Box<TlsSession>,
    messages: Vec<Vec<u8>>,
}

impl Handshake {
    const fn new(number: u64, tls: Box<TlsSession>, messages: Vec<Vec<u8>>) -> Self {
        Self {
            number,
            tls,
            messages,
        }
    }

    /// Does the work. It takes a millisecond or several of a processor.
    #[must_use]
    pub fn run(self) -> Handshaken {
        let Self {
            number,
            mut tls,
            messages,
        } = self;
        let mut messages = messages.iter();
        let outcome = messages.try_for_each(|message| tls.read_tls(message));
        Handshaken {
            number,
            tls,
            outcome,
        }
    }
}

impl core::fmt::Debug for Handshake {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Handshake")
            .field("number", &self.number)
            .field("messages", &self.messages.len())
            .finish_non_exhaustive()
    }
}

/// The result of a [`Handshake`]. It goes back to the session that it is of.
#[derive(Debug)]
pub struct Handshaken {
    pub(super) number: u64,
    pub(super) tls: Box<TlsSession>,
    pub(super) outcome: Result<(), TlsError>,
}

impl Session {
    /// Hands out the TLS of the negotiation that goes on, with what has come for it.
    pub(super) fn hand_out(&mut self, messages: Vec<Vec<u8>>, now: Instant, out: &mut Vec<Output>) {
        self.handshakes += 1;
        let number = self.handshakes;
        let tls = self.primary.give_away(number, now);
        let work = tls.map(|tls| Handshake::new(number, tls, messages));
        out.extend(work.map(|it| Output::Handshake(Box::new(it))));
    }

    /// Takes back the TLS of its handshake. That of a negotiation that has failed meanwhile is forgotten.
    pub fn handshaken(&mut self, done: Handshaken, now: Instant, out: &mut Vec<Output>) {
        if matches!(self.phase, Phase::Closed) {
            return;
        }
        match self.primary.take_back(done, now) {
            Some(Ok(())) => {}
            Some(Err(reason)) => self.fail(reason, now, out),
            None => return,
        }
        self.run(now, out);
    }
}

/// Whether a renewal comes from the client that began: a thief of a token must not go on with another certificate.
pub(super) fn same_peer(before: Option<&PeerCertificate>, now: Option<&PeerCertificate>) -> bool {
    let own = |it: Option<&PeerCertificate>| it.and_then(|it| it.chain.first()).map(|it| it.sha256);
    let name = |it: Option<&PeerCertificate>| it.map(|it| it.common_name.clone());
    own(before) == own(now) && name(before) == name(now)
}
