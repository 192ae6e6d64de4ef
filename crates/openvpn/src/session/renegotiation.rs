//! Renews keys that are worn out.

use std::time::{Duration, Instant};

use super::machine::{Agreed, Phase, Session};
use super::output::Output;
use crate::data::wire::Layout;
use crate::negotiate::Cipher;
use crate::role::Role;

/// Packet ids have 32 bits and must not repeat: renewal begins when 1/256 of them are left.
const PACKET_ID_RENEW: u64 = 0xff00_0000;
/// Epochs have 16 bits.
const EPOCH_RENEW: u16 = 0xf000;
/// Messages and blocks of 16 bytes that a key of AES-GCM may seal.
const GCM_LIMIT: u64 = (1 << 36) - 1;
/// Forgeries after which a key of an AEAD is to be replaced.
const FAILED_RENEW: u64 = 1 << 35;
/// Bytes after which a cipher with blocks of 64 bits needs a new key (SWEET32).
const SMALL_BLOCK_BYTES: u64 = 64 * 1024 * 1024;

/// The data plane's use of one set of keys, reported by [`Session::traffic`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyUsage {
    /// Key id of these keys.
    pub key_id: u8,
    /// Bytes of payload, of both directions.
    pub bytes: u64,
    /// Packets sealed.
    pub sealed: u64,
    /// The greatest packet id opened, without its epoch.
    pub opened: u64,
    /// Blocks of 16 bytes sealed, each packet's rounded up.
    pub blocks_sealed: u64,
    /// Blocks of 16 bytes opened, each packet's rounded up.
    pub blocks_opened: u64,
    /// Packets that were not authentic.
    pub failed: u64,
    /// The epoch that seals, in the epoch format.
    pub epoch: u16,
}

impl KeyUsage {
    /// Twice this usage.
    const fn doubled(&self) -> Self {
        Self {
            key_id: self.key_id,
            bytes: self.bytes.saturating_mul(2),
            sealed: self.sealed.saturating_mul(2),
            opened: self.opened.saturating_mul(2),
            blocks_sealed: self.blocks_sealed.saturating_mul(2),
            blocks_opened: self.blocks_opened.saturating_mul(2),
            failed: self.failed.saturating_mul(2),
            epoch: self.epoch.saturating_mul(2),
        }
    }
}

impl Session {
    /// Reports how much the newest keys were used. A report may be late by some megabytes.
    pub fn traffic(&mut self, usage: &KeyUsage, now: Instant, out: &mut Vec<Output>) {
        if self.slots.newest() != Some(usage.key_id) {
            return;
        }
        self.half_worn = self.worn_out(&usage.doubled()).is_some();
        if !self.may_renegotiate() {
            return;
        }
        if let Some(why) = self.worn_out(usage) {
            log::info!("new keys are negotiated: {why}");
            self.renegotiate(now, out);
            self.run(now, out);
        }
    }

    fn worn_out(&self, usage: &KeyUsage) -> Option<&'static str> {
        let agreed = self.agreed?;
        let limits = self.settings().renegotiate;
        let small = agreed
            .cipher
            .has_small_blocks()
            .then_some(SMALL_BLOCK_BYTES);
        if limits.bytes.or(small).is_some_and(|it| usage.bytes >= it) {
            return Some("reneg-bytes");
        }
        let packets = usage.sealed.saturating_add(usage.opened);
        if limits.packets.is_some_and(|it| packets >= it) {
            return Some("reneg-pkts");
        }
        if agreed.cipher.is_aead() && usage.failed >= FAILED_RENEW {
            return Some("too many forgeries");
        }
        if matches!(agreed.layout, Layout::Epoch { .. }) {
            // Each epoch has keys of its own, so only the epochs run out.
            return (usage.epoch >= EPOCH_RENEW).then_some("the epochs run out");
        }
        if usage.sealed >= PACKET_ID_RENEW {
            return Some("the packet ids run out");
        }
        let gcm = matches!(
            agreed.cipher,
            Cipher::Aes128Gcm | Cipher::Aes192Gcm | Cipher::Aes256Gcm
        );
        let limit = GCM_LIMIT / 8 * 7;
        // The peer may not know of the limit, so its direction is watched too.
        let sealed = usage.sealed.saturating_add(usage.blocks_sealed);
        let opened = usage.opened.saturating_add(usage.blocks_opened);
        (gcm && (sealed >= limit || opened >= limit))
            .then_some("the usage limit of AES-GCM is near")
    }

    /// Whether ten seconds of traffic at any speed cannot wear out the newest keys. By the last report, half of the
    /// packet ids (2^31) and of AES-GCM's limit are left, and no limit in bytes or packets is set.
    #[must_use]
    pub fn wears_slowly(&self) -> bool {
        let limits = self.settings().renegotiate;
        let limited = limits.bytes.is_some() || limits.packets.is_some();
        let large_blocks = |it: &Agreed| !it.cipher.has_small_blocks();
        !limited && !self.half_worn && self.agreed.as_ref().is_some_and(large_blocks)
    }

    /// The key id of the newest installed keys, whose use to report by [`traffic`](Self::traffic). If a renewal fails
    /// its keys are removed, and the previous keys are the newest again.
    #[must_use]
    pub fn newest_keys(&self) -> Option<u8> {
        self.slots.newest()
    }

    /// Negotiates new keys, if nothing else is being negotiated.
    pub fn renegotiate(&mut self, now: Instant, out: &mut Vec<Output>) {
        if self.may_renegotiate() {
            self.begin_renegotiation(now, out);
        }
    }

    /// Schedules the next renewal by time.
    pub(super) fn schedule_renegotiation(&mut self) {
        let established = self.primary.established;
        let times = self.settings().renegotiate.time;
        self.renegotiate_at = match (established, times) {
            (Some(at), Some((least, most))) => Some(match self.role() {
                // Spreads the renewals of clients that connected at the same time.
                Role::Server => at + between(least, most),
                Role::Client => at + most,
            }),
            _ => None,
        };
    }

    /// Whether packets may flow.
    #[must_use]
    pub fn is_up(&self) -> bool {
        matches!(self.phase, Phase::Up)
    }
}

fn between(least: Duration, most: Duration) -> Duration {
    let span = most.saturating_sub(least);
    let mut random = [0; 4];
    crypto::random(&mut random);
    // Less than 2^32.
    least + span.mul_f64(f64::from(u32::from_be_bytes(random)) / f64::from(u32::MAX))
}
