//! How a server's session begins, how much memory it takes, and how long it waits while its client is a stranger.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::key_state::{Authorisation, KeyState};
use super::machine::{Session, Side};
use super::output::{CloseReason, Output};
use super::server::ServerSide;
use super::settings::ServerSettings;
use crate::packet::{ControlPacket, Opcode, SessionId};
use crate::role::Role;
use crate::wrap::Wrap;

/// Memory of a session with its TLS, and what the daemon and the data plane keep for it, in bytes. Measured on x86-64.
const SESSION: u64 = 12 << 10;

/// Bytes that a short handshake keeps beside that.
const HANDSHAKE: u64 = 6 << 10;

/// How long a session that is not up waits for its client before it gives way to others: longer than the client waits
/// before it sends what was lost again (`tls-timeout`, 2 seconds).
const PATIENCE: Duration = Duration::from_secs(3);

/// How a client's session begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// The session begins with the client's reset, and answers it.
    Reset,
    /// The session begins with the packet that follows the resets; the listener has answered the reset.
    AfterResets(SessionId),
}

impl Session {
    /// Begins a session. Over TCP, where the address needs no proof, and with clients of tls-crypt-v2 that cannot be
    /// asked to prove theirs, it begins with the reset.
    ///
    /// `packet` and `wrap` are what [`open_first`](crate::wrap::WrapSettings::open_first) made of the datagram. `wall`
    /// is the time of day at `now`.
    ///
    /// # Errors
    /// [`CloseReason`] if the packet has no place there, or the system has no random numbers.
    pub(crate) fn accept(
        settings: Arc<ServerSettings>,
        start: Start,
        packet: ControlPacket,
        wrap: Wrap,
        now: Instant,
        wall: SystemTime,
        out: &mut Vec<Output>,
    ) -> Result<Self, CloseReason> {
        let timeout = settings.common.keys.tls_timeout;
        let (own, primary) = match start {
            Start::AfterResets(own) => (Some(own), KeyState::resume(timeout, now)?),
            Start::Reset => {
                let reset = Opcode::HardResetServerV2;
                let primary = KeyState::begin(Role::Server, 0, reset, timeout, now)?;
                (SessionId::random(), primary)
            }
        };
        let own =
            own.ok_or_else(|| CloseReason::Protocol("the system gave no random numbers".into()))?;
        let side = Side::from((ServerSide::new(settings), ()));
        let peer = Some(packet.session);
        let mut session = Self::new(side, own, peer, wrap, primary, now, wall);
        session
            .take(packet, now, out)
            .map_err(|it| CloseReason::Protocol(it.to_string()))?;
        session.run(now, out);
        Ok(session)
    }

    /// Bytes of memory of a session whose client has shown neither a good certificate nor a good login. All bytes that
    /// passed the control channel count: TLS, or a peer that reads nothing, may keep them.
    pub(crate) fn stranger_bytes(&self) -> u64 {
        let known =
            self.certificate.is_some() || self.primary.authorisation == Authorisation::Granted;
        if known || self.is_up() {
            return 0;
        }
        SESSION + HANDSHAKE.max(self.traffic.received() + self.traffic.sent())
    }

    /// When the session gives way to others, if it is not up: it has waited too long for its client. A session that
    /// waits for us, for its handshake or a script, has more time.
    pub(crate) fn gives_way_at(&self) -> Instant {
        let primary = &self.primary;
        let asked = matches!(primary.authorisation, Authorisation::Asked(_));
        let waits = primary.away.is_some() || asked;
        primary.waits_since + if waits { PATIENCE * 8 } else { PATIENCE }
    }
}
