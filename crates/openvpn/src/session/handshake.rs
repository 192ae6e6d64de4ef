//! TLS handshakes on other threads.
//!
//! The cost of a handshake is signatures and key agreements, which need only the TLS of the session. So a server with
//! several processors hands the TLS of a session, with the bytes that came for it, to another thread
//! ([`Output::Handshake`]), and takes it back ([`Session::handshaken`]). Meanwhile the session goes on: packets are
//! acknowledged and sent again, time passes, it may end. Messages for TLS wait in the receive window, so that at most
//! one handshake of a session is away, and messages stay in order.

use std::time::Instant;

use super::machine::{Phase, Session};
use super::output::Output;
use crate::tls::{TlsError, TlsSession};
use crate::verify::PeerCertificate;

/// TLS of a session in the midst of its handshake, and the messages that have come for it.
pub struct Handshake {
    /// The number that the session gave this handshake.
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

    /// Runs the handshake, which takes one or several milliseconds of a processor.
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

/// The result of a [`Handshake`]. Return it to its session.
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

    /// Takes back the TLS of a handshake. TLS of a negotiation that has failed meanwhile is dropped.
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
