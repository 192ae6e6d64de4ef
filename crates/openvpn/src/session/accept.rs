//! How a server's session begins.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use super::key_state::KeyState;
use super::machine::{Session, Side};
use super::output::{CloseReason, Output};
use super::server::ServerSide;
use super::settings::ServerSettings;
use crate::packet::{ControlPacket, Opcode};
use crate::role::Role;
use crate::session_id::SessionId;
use crate::wrap::Wrap;

/// How a client's session begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// With its reset, which the session answers.
    Reset,
    /// With the packet that follows the resets; the listener has answered the reset.
    AfterResets(SessionId),
}

impl Session {
    /// Begins a session with a client's reset: over TCP, where the address needs no proof, and with clients of
    /// tls-crypt-v2 that cannot be asked to prove theirs.
    ///
    /// `packet` and `wrap` are what [`open_first`](crate::wrap::WrapSettings::open_first) made of the datagram. `wall`
    /// is the time of day at `now`.
    ///
    /// # Errors
    /// [`CloseReason`] if it is no reset, or the system has no random numbers.
    pub fn server(
        settings: Arc<ServerSettings>,
        packet: ControlPacket,
        wrap: Wrap,
        now: Instant,
        wall: SystemTime,
        out: &mut Vec<Output>,
    ) -> Result<Self, CloseReason> {
        Self::accept(settings, Start::Reset, packet, wrap, now, wall, out)
    }

    pub(crate) fn accept(
        settings: Arc<ServerSettings>,
        start: Start,
        packet: ControlPacket,
        wrap: Wrap,
        now: Instant,
        wall: SystemTime,
        out: &mut Vec<Output>,
    ) -> Result<Self, CloseReason> {
        let timeout = settings.common.tls_timeout;
        let (own, primary) = match start {
            Start::AfterResets(own) => (Some(own), KeyState::resume(timeout, now)?),
            Start::Reset => {
                let reset = Opcode::HardResetServerV2;
                let primary = KeyState::begin(Role::Server, 0, reset, timeout, now)?;
                (SessionId::random(), primary)
            }
        };
        let own =
            own.ok_or_else(|| CloseReason::Protocol("no random numbers from the system".into()))?;
        let side = Side::from((ServerSide::new(settings), ()));
        let peer = Some(packet.session);
        let mut session = Self::new(side, own, peer, wrap, primary, now, wall);
        session
            .take(packet, now, out)
            .map_err(|it| CloseReason::Protocol(it.to_string()))?;
        session.run(now, out);
        Ok(session)
    }
}
