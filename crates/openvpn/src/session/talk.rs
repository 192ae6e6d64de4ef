//! Talk inside TLS once the keys are exchanged.

use std::time::Instant;

use super::key_state::Step;
use super::machine::{Phase, Session, Side};
use super::output::{CloseReason, Output};
use crate::message::{self, Message};

/// Most messages that wait for a negotiation to end.
const MAX_QUEUED: usize = 16;

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

    /// Says something to the peer, for example `INFO_PRE` of a server or `CR_RESPONSE` of a client.
    pub fn send_message(&mut self, message: &Message, now: Instant, out: &mut Vec<Output>) {
        if let Err(reason) = self.say(message) {
            self.fail(reason, now, out);
        }
        self.run(now, out);
    }
}
