//! Talk inside TLS once the keys are exchanged, and how sessions end.

use std::time::{Duration, Instant};

use super::key_state::Step;
use super::machine::{Phase, Session, Side};
use super::output::{CloseReason, Output};
use crate::message::{self, Message};
use crate::role::Role;

/// Maximum number of messages that wait for a negotiation to end.
const MAX_QUEUED: usize = 16;

/// How long a session that ends waits for the peer to acknowledge why.
const LINGER: Duration = Duration::from_secs(5);

impl Session {
    pub(super) fn text(
        &mut self,
        text: &[u8],
        now: Instant,
        out: &mut Vec<Output>,
    ) -> Result<(), CloseReason> {
        for part in message::split(text) {
            match Message::parse(part) {
                Ok(message) => match &self.side {
                    Side::Client(_) => self.message_for_client(message, now, out)?,
                    Side::Server(..) => self.message_for_server(message, now, out)?,
                },
                // A peer can send any number of these.
                Err(error) => log::debug!("dropped {error}"),
            }
            if !matches!(self.phase, Phase::Starting | Phase::Up) {
                break;
            }
        }
        Ok(())
    }

    /// Sends a message now, or after the running negotiation: meanwhile stock peers ignore the previous one.
    pub(super) fn say(&mut self, message: &Message) -> Result<(), CloseReason> {
        if self.primary.step == Step::Active {
            return self.primary.say(&message.emit());
        }
        if self.queued.len() < MAX_QUEUED {
            self.queued.push_back(message.clone());
        }
        Ok(())
    }

    pub(super) fn say_queued(&mut self) -> Result<(), CloseReason> {
        for message in core::mem::take(&mut self.queued) {
            self.say(&message)?;
        }
        Ok(())
    }

    /// Sends a message to the peer, for example `INFO_PRE` of a server or `CR_RESPONSE` of a client.
    pub fn send_message(&mut self, message: &Message, now: Instant, out: &mut Vec<Output>) {
        if let Err(reason) = self.say(message) {
            self.fail(reason, now, out);
        }
        self.run(now, out);
    }

    /// Handles a failed negotiation.
    pub(super) fn fail(&mut self, reason: CloseReason, now: Instant, out: &mut Vec<Output>) {
        if let Phase::Closing { reason, .. } = &self.phase {
            let reason = reason.clone();
            return self.close_now(reason, out);
        }
        let renewal = matches!(self.phase, Phase::Up) && self.primary.step < Step::Active;
        if renewal
            && self.role() == Role::Server
            && !self.slots.is_empty()
            && let Some(previous) = self.previous.take()
        {
            // The client will begin a new session, in which it proves its identity; until then the keys are good.
            log::warn!("keys were not renewed: {reason}");
            self.slots.withdraw(self.primary.key_id, out);
            self.primary = *previous;
            // Renewal is tried again. A client that is no longer allowed is out when the old keys die.
            let (window, tran) = (self.settings().hand_window, self.settings().tran_window);
            self.renegotiate_at = Some(now + window);
            self.slots.die_by(now + tran);
            if self.say_queued().is_ok() {
                return;
            }
        }
        // The last packet may be an alert that says why.
        self.flush(now, out);
        self.close_now(reason, out);
    }

    /// Ends the session once the peer has acknowledged all messages, or after a while.
    pub(super) fn linger(&mut self, reason: CloseReason, early: bool, now: Instant) {
        let until = now + LINGER;
        self.phase = Phase::Closing {
            until,
            early,
            reason,
        };
    }

    pub(super) fn close_now(&mut self, reason: CloseReason, out: &mut Vec<Output>) {
        if matches!(self.phase, Phase::Closed) {
            return;
        }
        self.phase = Phase::Closed;
        self.slots.clear(out);
        out.push(Output::Closed(reason));
    }

    /// Ends the session without a word, for this reason.
    pub fn close(&mut self, reason: CloseReason, out: &mut Vec<Output>) {
        self.close_now(reason, out);
    }

    /// The data plane has heard nothing from the peer for too long: ends a session that is up, without a word.
    pub fn fell_silent(&mut self, out: &mut Vec<Output>) {
        if matches!(self.phase, Phase::Up) {
            self.close_now(self.liveness.silence(), out);
        }
    }
}
