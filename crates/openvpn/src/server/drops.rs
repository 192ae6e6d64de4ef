//! Why packets were dropped, and how many.

use crate::cookie::CookieError;
use crate::session::{CloseReason, Dropped};
use crate::wrap::WrapError;

/// Why a packet changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The packet's session dropped it.
    #[error(transparent)]
    Session(Dropped),
    /// A stranger's packet that the wrap refused.
    #[error(transparent)]
    Wrap(WrapError),
    /// A stranger's packet that begins no session.
    #[error(transparent)]
    Cookie(CookieError),
    /// A reset over the limit of `connect-freq-initial`. Pass it in again when
    /// [`Listener::answers_resets`](super::Listener::answers_resets).
    #[error("too many new connections; see connect-freq-initial")]
    Limited,
    /// A session over the limit of `connect-freq`.
    #[error("too many new sessions; see connect-freq")]
    TooSoon,
    /// Too many clients are waiting to be let in. Pass the packet in again when
    /// [`Listener::answers_resets`](super::Listener::answers_resets).
    #[error("too many clients are logging in at once")]
    Crowded,
    /// The server has as many clients as it may (`max-clients`).
    #[error("the server is full; see max-clients")]
    Full,
    /// The server ends, and lets no client in any more.
    #[error("the server is ending or restarting")]
    Closing,
    /// `force-cookie` is set, and the client is too old to prove its address.
    #[error("the client cannot prove its address, and force-cookie is set")]
    NoCookie,
    /// A client's reset whose message id or key id is not 0.
    #[error("the reset does not have message id 0 and key id 0")]
    NotFirst,
    /// The session could not begin.
    #[error("the session could not begin: {0}")]
    Begin(CloseReason),
}

/// How many packets were dropped, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// Packets that sessions dropped: wrong session, key id or state.
    pub session: u64,
    /// Packets that are cut off, too long or of an unknown kind.
    pub malformed: u64,
    /// Packets sealed with another key, or not at all.
    pub not_authentic: u64,
    /// Packets that were received before.
    pub replay: u64,
    /// Packets that belong to no session and begin none.
    pub unknown: u64,
    /// Resets not answered at once, because of `connect-freq-initial` or too many waiting clients, and sessions that
    /// did not begin, because of `connect-freq`.
    pub limited: u64,
    /// Clients that were not let in, because of `max-clients`.
    pub full: u64,
}

impl Drops {
    /// Every reason with its count.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        [
            ("other_session", self.session),
            ("malformed", self.malformed),
            ("not_authentic", self.not_authentic),
            ("replayed", self.replay),
            ("no_session", self.unknown),
            ("rate_limited", self.limited),
            ("server_full", self.full),
        ]
        .into_iter()
    }

    pub(super) fn count(&mut self, why: &Refused) {
        let counter = match why {
            Refused::Session(Dropped::Wrap(it)) | Refused::Wrap(it) => match it {
                WrapError::NotAuthentic | WrapError::ClientKey(_) => &mut self.not_authentic,
                WrapError::Replay => &mut self.replay,
                WrapError::TooLong(_) | WrapError::Packet(_) => &mut self.malformed,
            },
            Refused::Session(Dropped::Packet(_)) | Refused::NotFirst => &mut self.malformed,
            Refused::Session(_) => &mut self.session,
            Refused::Cookie(_) | Refused::NoCookie | Refused::Begin(_) | Refused::Closing => {
                &mut self.unknown
            }
            Refused::Limited | Refused::TooSoon | Refused::Crowded => &mut self.limited,
            Refused::Full => &mut self.full,
        };
        *counter += 1;
    }
}
