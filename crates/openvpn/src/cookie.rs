//! How a server answers a stranger without keeping anything: its session id is a cookie.
//!
//! The client's reset is answered with a session id that the server can compute again: a MAC of the client's address
//! and session id and of the time. Only the third packet, which gives that id back, begins a session. So whoever fills
//! the server with sessions has to receive what is sent to the address that it claims.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::digest::{Digest, Hmac};
use crate::packet::{ControlPacket, Opcode};
use crate::session_id::SessionId;

/// Slots before the current one whose cookies are still good.
const PREVIOUS_SLOTS: u64 = 2;

/// Makes and checks the session ids of a server.
#[derive(Debug)]
pub struct CookieKeeper {
    key: Hmac,
    /// Half a `hand-window`.
    slot: Duration,
    started: Instant,
}

impl CookieKeeper {
    /// A keeper with a random key, that the process keeps to itself. `hand_window` is 60 s by default; a cookie is good
    /// for one to one and a half of it.
    #[must_use]
    pub fn new(secret: &[u8; 32], hand_window: Duration, now: Instant) -> Self {
        Self {
            key: Hmac::new(Digest::Sha256, secret),
            slot: (hand_window / 2).max(Duration::from_secs(1)),
            started: now,
        }
    }

    /// The server's session id in the answer to a client's reset.
    #[must_use]
    pub fn session_id(&self, client: SessionId, from: SocketAddr, now: Instant) -> SessionId {
        self.of_slot(self.slot_at(now), client, from)
    }

    /// Whether a client's packet may begin a session: it is the first one after the resets, and gives back a session id
    /// that was made for this client at this address.
    ///
    /// # Errors
    /// Why it may not. The address could be forged, so nothing is answered.
    pub fn check(
        &self,
        packet: &ControlPacket,
        from: SocketAddr,
        now: Instant,
    ) -> Result<SessionId, CookieError> {
        let may_begin = matches!(
            packet.opcode,
            Opcode::ControlV1 | Opcode::AckV1 | Opcode::ControlWkcV1
        );
        // Message 0 was the reset and 1 is the first of TLS; the reset may come again, with its acknowledgement.
        let early = packet.key_id == 0
            && packet.message_id.is_none_or(|id| id <= 1)
            && packet.acks.as_slice().iter().all(|&id| id <= 1);
        if !may_begin || !early {
            return Err(CookieError::NotThirdPacket);
        }
        let given = packet.peer_session.ok_or(CookieError::NotThirdPacket)?;
        let current = self.slot_at(now);
        let mut good = false;
        for slot in current.saturating_sub(PREVIOUS_SLOTS)..=current {
            // Whether a slot fits takes the same time for every wrong id.
            good |= self.fits(slot, packet.session, from, given);
        }
        good.then_some(given).ok_or(CookieError::Wrong)
    }

    fn slot_at(&self, now: Instant) -> u64 {
        let elapsed = now.saturating_duration_since(self.started);
        // The keeper's first two slots have others before them.
        PREVIOUS_SLOTS + elapsed.as_secs() / self.slot.as_secs().max(1)
    }

    fn fits(&self, slot: u64, client: SessionId, from: SocketAddr, given: SessionId) -> bool {
        use subtle::ConstantTimeEq;
        let made = self.of_slot(slot, client, from);
        made.as_bytes().ct_eq(given.as_bytes()).into()
    }

    fn of_slot(&self, slot: u64, client: SessionId, from: SocketAddr) -> SessionId {
        // A socket for both families shows IPv4 addresses mapped; one client is one client.
        let ip = match from.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let tag = self.key.sign(&[
            &slot.to_be_bytes(),
            &ip.octets(),
            &from.port().to_be_bytes(),
            client.as_bytes(),
        ]);
        let mut bytes = [0; SessionId::LEN];
        bytes.copy_from_slice(&tag.as_ref()[..SessionId::LEN]);
        SessionId::new(bytes).unwrap_or_else(|| {
            // Once in 2^64; any fixed id will do.
            bytes[0] = 1;
            SessionId::new(bytes).unwrap_or(client)
        })
    }
}

/// Why a packet of an unknown client begins no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CookieError {
    /// It is not the one that follows the resets: a session that has ended, or a stranger.
    #[error("control packet of an unknown session")]
    NotThirdPacket,
    /// It names a session that was not offered to it, or too long ago.
    #[error("control packet of a session that was not offered to this address, or too long ago")]
    Wrong,
}

/// How many resets a server answers in a while: `connect-freq-initial`, 100 in 10 s by default. Answers go to an
/// address that nobody has proven, so they are rationed for all clients together.
#[derive(Debug)]
pub struct ResetLimiter {
    most: u32,
    period: Duration,
    /// When the current period ends; `None` before the first answer.
    ends: Option<Instant>,
    answered: u32,
    refused: u32,
}

impl ResetLimiter {
    /// At most `most` answers in a `period`.
    #[must_use]
    pub const fn new(most: u32, period: Duration) -> Self {
        Self {
            most,
            period,
            ends: None,
            answered: 0,
            refused: 0,
        }
    }

    /// Whether one more reset may be answered now; it counts as answered then.
    pub fn allow(&mut self, now: Instant) -> bool {
        if self.ends.is_none_or(|ends| now >= ends) {
            self.ends = Some(now + self.period);
            self.answered = 0;
            self.refused = 0;
        }
        if self.answered >= self.most {
            self.refused = self.refused.saturating_add(1);
            return false;
        }
        self.answered += 1;
        true
    }

    /// Gives one answer back: its client has proven its address.
    pub const fn proven(&mut self) {
        self.answered = self.answered.saturating_sub(1);
    }

    /// Resets that were refused in the current period, for one line in the log.
    #[must_use]
    pub const fn refused(&self) -> u32 {
        self.refused
    }
}

impl Default for ResetLimiter {
    fn default() -> Self {
        Self::new(100, Duration::from_secs(10))
    }
}
