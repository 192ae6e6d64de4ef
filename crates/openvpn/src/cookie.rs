//! How a server answers a stranger without keeping anything: its session id is a cookie.
//!
//! The client's reset is answered with a session id that the server can compute again: a MAC of the client's address
//! and session id and of the time. Only the third packet, which gives that id back, begins a session. So a stranger
//! that fills the server with sessions has to receive what is sent to the address that it claims.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use crypto::hmac::Hmac;
use thiserror::Error;

use crate::packet::{ControlPacket, Opcode, SessionId};

/// Time slots before the current one whose cookies are still good.
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
    /// A keeper with the process's random secret. `hand_window` is 60 s by default; a cookie is valid for one to one
    /// and a half of it.
    #[must_use]
    pub fn new(secret: &[u8; 32], hand_window: Duration, now: Instant) -> Self {
        Self {
            key: Hmac::sha256(secret),
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
    /// Why the packet begins no session. The address could be forged, so send no answer.
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
            // Every wrong id takes the same time, whichever slot it fits.
            good |= self.fits(slot, packet.session, from, given);
        }
        good.then_some(given).ok_or(CookieError::Wrong)
    }

    fn slot_at(&self, now: Instant) -> u64 {
        let elapsed = now.saturating_duration_since(self.started);
        // Starts at 2, so that the first two slots have others before them.
        PREVIOUS_SLOTS + elapsed.as_secs() / self.slot.as_secs().max(1)
    }

    fn fits(&self, slot: u64, client: SessionId, from: SocketAddr, given: SessionId) -> bool {
        use subtle::ConstantTimeEq;
        let made = self.of_slot(slot, client, from);
        made.as_bytes().ct_eq(given.as_bytes()).into()
    }

    fn of_slot(&self, slot: u64, client: SessionId, from: SocketAddr) -> SessionId {
        // A socket for both families shows IPv4 addresses mapped into IPv6; both forms are one client.
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
            // All bytes are zero once in 2^64; any fixed id will do.
            bytes[0] = 1;
            SessionId::new(bytes).unwrap_or(client)
        })
    }
}

/// Why a packet of an unknown client begins no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CookieError {
    /// The packet does not follow the resets: it belongs to a session that has ended, or comes from a stranger.
    #[error("control packet belongs to an unknown session")]
    NotThirdPacket,
    /// The packet names a session id that was never offered to its sender, or too long ago.
    #[error("control packet answers no recent offer of a session to this address")]
    Wrong,
}

/// Limits how many resets a server answers in a while: `connect-freq-initial`, 100 in 10 s by default. Answers go to an
/// address that is not proven, so all clients share one limit.
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
    /// Makes a limiter that permits `most` answers in a `period`.
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

    /// Frees one answer of the budget: its client has proven its address.
    pub const fn proven(&mut self) {
        self.answered = self.answered.saturating_sub(1);
    }

    /// Whether [`allow`](Self::allow) would return `true`.
    #[must_use]
    pub fn is_open(&self, now: Instant) -> bool {
        self.answered < self.most || self.ends.is_none_or(|ends| now >= ends)
    }

    /// When the current period ends.
    #[must_use]
    pub const fn ends(&self) -> Option<Instant> {
        self.ends
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

#[cfg(test)]
mod tests {
    use super::*;

    const HAND_WINDOW: Duration = Duration::from_secs(60);

    fn client() -> SessionId {
        SessionId::new([7; 8]).unwrap()
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn third(given: SessionId) -> ControlPacket {
        ControlPacket {
            opcode: Opcode::ControlV1,
            key_id: 0,
            session: client(),
            acks: [0].into_iter().collect(),
            peer_session: Some(given),
            message_id: Some(1),
            payload: vec![22],
        }
    }

    #[test]
    fn a_cookie_is_good_for_its_client_and_for_a_while() {
        let start = Instant::now();
        let from = address("192.0.2.1:1194");
        let keeper = CookieKeeper::new(&[1; 32], HAND_WINDOW, start);
        for offset in [0, 29, 30, 1000] {
            let made = start + Duration::from_secs(offset);
            let given = keeper.session_id(client(), from, made);
            let check =
                |from, after| keeper.check(&third(given), from, made + Duration::from_secs(after));
            assert_eq!(check(from, 0), Ok(given));
            assert_eq!(check(from, 60), Ok(given));
            assert_eq!(check(from, 90), Err(CookieError::Wrong));
            assert_eq!(check(address("192.0.2.1:1195"), 0), Err(CookieError::Wrong));
            assert_eq!(check(address("192.0.2.2:1194"), 0), Err(CookieError::Wrong));
            // The same client, as a socket for both families shows it.
            assert_eq!(check(address("[::ffff:192.0.2.1]:1194"), 0), Ok(given));
            let mut other = third(given);
            other.session = SessionId::new([8; 8]).unwrap();
            assert_eq!(keeper.check(&other, from, made), Err(CookieError::Wrong));
        }
        let other = CookieKeeper::new(&[2; 32], HAND_WINDOW, start);
        let given = other.session_id(client(), from, start);
        assert_eq!(
            keeper.check(&third(given), from, start),
            Err(CookieError::Wrong)
        );
    }

    #[test]
    fn only_the_third_packet() {
        let now = Instant::now();
        let from = address("[2001:db8::1]:1194");
        let keeper = CookieKeeper::new(&[1; 32], HAND_WINDOW, now);
        let given = keeper.session_id(client(), from, now);
        let good = third(given);
        let check = |change: fn(&mut ControlPacket)| {
            let mut packet = good.clone();
            change(&mut packet);
            keeper.check(&packet, from, now)
        };
        assert_eq!(check(|_| ()), Ok(given));
        assert_eq!(check(|it| it.opcode = Opcode::ControlWkcV1), Ok(given));
        assert_eq!(check(|it| it.message_id = Some(0)), Ok(given));
        assert_eq!(
            check(|it| {
                it.opcode = Opcode::AckV1;
                it.message_id = None;
            }),
            Ok(given)
        );
        let refused: [fn(&mut ControlPacket); 6] = [
            |it| it.opcode = Opcode::HardResetClientV2,
            |it| it.opcode = Opcode::SoftResetV1,
            |it| it.key_id = 1,
            |it| it.message_id = Some(2),
            |it| it.acks = [0, 2].into_iter().collect(),
            |it| it.peer_session = None,
        ];
        for change in refused {
            assert_eq!(check(change), Err(CookieError::NotThirdPacket));
        }
    }

    #[test]
    fn answers_are_rationed() {
        let start = Instant::now();
        let mut limiter = ResetLimiter::default();
        assert_eq!((0..150).filter(|_| limiter.allow(start)).count(), 100);
        assert_eq!(limiter.refused(), 50);
        assert!(!limiter.is_open(start));
        limiter.proven();
        assert!(limiter.is_open(start));
        assert!(limiter.allow(start) && !limiter.allow(start));
        let later = start + Duration::from_secs(10);
        assert_eq!(limiter.ends(), Some(later));
        assert!(limiter.is_open(later) && limiter.allow(later));
        assert_eq!(limiter.refused(), 0);
    }
}
