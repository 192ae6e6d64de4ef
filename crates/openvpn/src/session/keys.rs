//! Derives, installs and replaces keys.

use std::time::Instant;

use crypto::Digest;

use super::key_state::Step;
use super::machine::{Phase, Session};
use super::output::{CloseReason, DataKeys, Output};
use crate::keys::{self, KeyBlock};
use crate::role::Role;
use crate::tls::TlsError;
use crate::wrap::DynamicWrap;

impl Session {
    /// Derives the keys of the negotiation that has ended, and has them installed.
    pub(super) fn install_keys(
        &mut self,
        now: Instant,
        out: &mut Vec<Output>,
    ) -> Result<(), CloseReason> {
        let (Some(agreed), Some(peer)) = (self.agreed, self.peer) else {
            return Ok(());
        };
        let role = self.role();
        let failed = |it: TlsError| CloseReason::Tls(it.to_string());
        let secrets = (self.primary.source.take(), self.primary.peer.take());
        let (Some(tls), (Some(own), Some(record))) = (&mut self.primary.tls, secrets) else {
            return Ok(());
        };
        let block = if agreed.exporter {
            KeyBlock::from_exporter(tls).map_err(failed)?
        } else {
            let theirs = &record.source;
            match role {
                Role::Client => KeyBlock::from_prf(&own, &self.own, theirs, &peer),
                Role::Server => KeyBlock::from_prf(theirs, &peer, &own, &self.own),
            }
        };
        if agreed.dynamic_wrap && self.dynamic.is_none() {
            let exported = keys::dynamic_tls_crypt(tls).map_err(failed)?;
            self.dynamic = Some(Box::new(DynamicWrap::new(exported)));
        }
        let (send, receive) = block.split(role);
        let key_id = self.primary.key_id;
        let auth = match agreed.cipher.is_aead() {
            true => Digest::None,
            false => self.settings().auth,
        };
        self.slots.make_room(now, out);
        out.push(Output::InstallKeys(Box::new(DataKeys {
            key_id,
            cipher: agreed.cipher,
            auth,
            layout: agreed.layout,
            send,
            receive,
        })));
        // Having the peer's record, a client knows that the server has its own; a server must be told.
        let certain = role == Role::Client || self.primary.step == Step::Active;
        let seals_from = certain.then(|| self.seals_from());
        let older_die = now + self.settings().keys.tran_window;
        self.slots.install(key_id, seals_from, older_die, now, out);
        self.primary.installed = true;
        if matches!(self.phase, Phase::Up) {
            out.push(Output::Renegotiated { key_id });
        }
        Ok(())
    }

    /// When the newest keys begin to seal: late enough for a peer that is slow to accept them, and before others
    /// follow.
    pub(super) fn seals_from(&self) -> Instant {
        let defer = self.settings().defer();
        self.primary.started + self.interval.map_or(defer, |it| defer.min(it / 2))
    }
}
