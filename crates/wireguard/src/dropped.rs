//! Why a datagram led to no keys.

/// Why a datagram was dropped. To be counted, not logged: any sender that can reach the port can cause each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Dropped {
    /// The datagram is not a handshake message: noise of the network, a later version, or an attack.
    #[error("not a handshake message of this protocol version")]
    Malformed,
    /// Not the sender's fault: the interface has no private key yet.
    #[error("this interface has no private key: set one")]
    NoPrivateKey,
    /// The sender does not know our public key: it has an old one of ours, or scans.
    #[error("mac1 is not for our public key: the sender must be given the present one")]
    Mac1,
    /// The device is under load; the sender was sent a cookie and will come back with it.
    #[error("under load: a cookie was sent instead of an answer")]
    Cookie,
    /// The device is under load, and this source is the reason.
    #[error("under load: too many handshakes from this source")]
    RateLimited,
    /// The sender has a private key and our public key, and we do not have it as a peer.
    #[error("no such peer: its public key is not configured here")]
    UnknownPeer,
    /// The sender is not the peer that it claims to be, or the two sides have different preshared keys.
    #[error("the handshake is not authentic: forged, or the preshared keys differ")]
    Unauthentic,
    /// An initiation that was seen before, or from a peer whose clock was set back.
    #[error("the initiation is not newer than the last: replayed, or the peer's clock went back")]
    Replayed,
    /// One peer begins handshakes faster than the protocol lets it.
    #[error("this peer begins too many handshakes")]
    Flood,
    /// The initiation crossed one of ours, which the peer is about to answer.
    #[error("both sides began a handshake at once: ours goes on")]
    Crossed,
    /// An answer to no pending handshake: late, or a guess.
    #[error("answers no handshake that is going on")]
    Unexpected,
}

impl Dropped {
    /// All reasons.
    pub const ALL: [Self; 11] = [
        Self::Malformed,
        Self::NoPrivateKey,
        Self::Mac1,
        Self::Cookie,
        Self::RateLimited,
        Self::UnknownPeer,
        Self::Unauthentic,
        Self::Replayed,
        Self::Flood,
        Self::Crossed,
        Self::Unexpected,
    ];

    /// The name of its counter.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::NoPrivateKey => "no_private_key",
            Self::Mac1 => "mac1",
            Self::Cookie => "cookie",
            Self::RateLimited => "rate_limited",
            Self::UnknownPeer => "unknown_peer",
            Self::Unauthentic => "not_authentic",
            Self::Replayed => "replayed",
            Self::Flood => "flood",
            Self::Crossed => "crossed",
            Self::Unexpected => "unexpected",
        }
    }
}
