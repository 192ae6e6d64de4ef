//! Which end of a session this is.

/// Client or server. It decides which half of every key pair is for sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The end that sends the first packet.
    Client,
    /// The end that answers the first packet.
    Server,
}

impl Role {
    /// The role of the other end.
    #[must_use]
    pub const fn peer(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}
