//! Why packets of a session were dropped.

use crate::packet::{Opcode, PacketError};
use crate::wrap::WrapError;

/// Why a packet changed nothing. It costs a counter and, at most, a line in a detailed log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Dropped {
    /// The packet belongs to the data channel.
    #[error("packet of the data channel")]
    Data,
    /// The datagram is not a control packet.
    #[error(transparent)]
    Packet(PacketError),
    /// The wrap refuses the packet.
    #[error(transparent)]
    Wrap(WrapError),
    /// The packet comes from, or is meant for, another session.
    #[error("control packet of another session")]
    OtherSession,
    /// No negotiation with this key id goes on, nor may one begin.
    #[error("control packet with key id {0}, which is not in use")]
    KeyId(u8),
    /// This kind of packet has no place here.
    #[error("control packet of opcode {0:?}, which has no place here")]
    Unexpected(Opcode),
    /// The message is too far ahead of those that have come.
    #[error("control packet from too far ahead")]
    TooFarAhead,
    /// The client begins a renewal of the keys too soon after the one before. It sends the packet again.
    #[error("renewal of the keys too soon after the one before")]
    TooSoon,
    /// The session is over.
    #[error("the session is over")]
    Closed,
}

impl Dropped {
    /// The names of the counters.
    pub const REASONS: [&'static str; 4] =
        ["malformed", "not_authentic", "other_session", "replayed"];

    /// The name of the counter, one of [`REASONS`](Self::REASONS).
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Packet(_) | Self::Wrap(WrapError::TooLong(_) | WrapError::Packet(_)) => {
                "malformed"
            }
            Self::Wrap(WrapError::NotAuthentic | WrapError::ClientKey(_)) => "not_authentic",
            Self::Wrap(WrapError::Replay) => "replayed",
            _ => "other_session",
        }
    }
}
