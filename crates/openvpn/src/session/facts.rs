//! Queries about a session and its peer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Output;
use super::machine::{Phase, Session, Side};
use super::settings::Settings;
use crate::data::inband;
use crate::data::wire::Layout;
use crate::negotiate::Cipher;
use crate::packet::SessionId;
use crate::role::Role;
use crate::session::output::ControlTraffic;
use crate::verify::PeerCertificate;

impl Session {
    pub(super) fn settings(&self) -> &Settings {
        match &self.side {
            Side::Client(client) => &client.settings.common,
            Side::Server(server, _) => &server.settings.common,
        }
    }

    /// Our role: client or server.
    #[must_use]
    pub fn role(&self) -> Role {
        match &self.side {
            Side::Client(_) => Role::Client,
            Side::Server(..) => Role::Server,
        }
    }

    /// Whether the session has emitted [`Closed`](crate::session::Output::Closed).
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed)
    }

    /// The byte counts of the session's control packets.
    #[must_use]
    pub fn control_traffic(&self) -> &Arc<ControlTraffic> {
        &self.traffic
    }

    /// Our name for the session.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.own
    }

    /// The peer's session id, once it was received.
    #[must_use]
    pub fn peer_id(&self) -> Option<SessionId> {
        self.peer
    }

    /// When the last control packet of the peer came, if one did.
    #[must_use]
    pub fn control_received(&self) -> Option<Instant> {
        self.peer.map(|_| self.liveness.control_received_at())
    }

    /// The peer's verified certificate, if it showed one, once the handshake is done.
    #[must_use]
    pub fn certificate(&self) -> Option<&Arc<PeerCertificate>> {
        self.certificate.as_ref()
    }

    /// The group of the last TLS key exchange: its name in OpenVPN files, such as `X25519MLKEM768`, and whether it is
    /// post-quantum.
    #[cfg(feature = "postquantum")]
    #[must_use]
    pub fn key_exchange(&self) -> Option<(&'static str, bool)> {
        let name = self.key_exchange?;
        Some((name, name.contains("MLKEM")))
    }

    /// Client: whether the server has answered, but sent nothing inside TLS.
    #[must_use]
    pub fn is_tls_unanswered(&self) -> bool {
        self.peer.is_some() && !self.primary.heard_tls
    }

    /// The peer's option string, once it has come.
    #[must_use]
    pub fn peer_options(&self) -> Option<&str> {
        self.options.as_deref()
    }

    /// How long the peer may be silent before the session ends (`ping-restart`), if that is limited, once the session
    /// is up.
    #[must_use]
    pub fn ping_restart(&self) -> Option<Duration> {
        self.liveness.ping_restart()
    }

    /// Our silence after which the peer is pinged, and the peer's silence after which the session ends, once the
    /// session is up.
    #[must_use]
    pub fn keep_alive(&self) -> (Option<Duration>, Option<Duration>) {
        self.liveness.keep_alive()
    }

    /// Answers the peer's `OCC_REQUEST` with a data packet that has our option string, the same as in the control
    /// channel.
    pub fn options_asked(&self, out: &mut Vec<Output>) {
        let options = self.settings().occ.local(self.role());
        out.push(Output::SendData(inband::options(&options)));
    }

    /// The cipher and the layout of data packets, once they are agreed on.
    #[must_use]
    pub fn data_channel(&self) -> Option<(Cipher, Layout)> {
        self.agreed.map(|it| (it.cipher, it.layout))
    }
}
