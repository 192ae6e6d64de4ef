//! Sessions of clients that are still strangers: their memory, and how long they wait.

use std::time::{Duration, Instant};

use super::key_state::Authorisation;
use super::machine::Session;

/// Memory of a session with its TLS, and what the daemon and the data plane keep for it, in bytes. Measured on x86-64.
const SESSION: u64 = 12 << 10;

/// Bytes that a short handshake keeps beside that.
const HANDSHAKE: u64 = 6 << 10;

/// How long a session that is not up waits for its client before it gives way to others: longer than the client waits
/// before it sends what was lost again (`tls-timeout`, 2 seconds).
const PATIENCE: Duration = Duration::from_secs(3);

impl Session {
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
