//! Key material, and what makes formats of it.

use crate::{Format, KeyLimits, Wire};
use std::sync::Arc;
use zeroize::ZeroizeOnDrop;

/// A tunnel protocol whose keys a data plane takes as material.
///
/// Control hands over material; a data plane in user space makes formats of it by this, one in a kernel passes the
/// bytes on. So control is the same for both.
pub trait Protocol: Wire {
    /// The material of one session: both directions' keys, and what else the format of its packets depends on (cipher,
    /// peer-id, framing). Erased when dropped.
    type Keys: ZeroizeOnDrop + Send;

    /// Why material is refused: a cipher that is not allowed, or that the format cannot carry.
    type Error: std::error::Error + Send + Sync + 'static;

    /// The formats of a session. Called once a session, by control's thread; schedules keys, so it may take some ten
    /// microseconds.
    ///
    /// # Errors
    /// Material that is not to be used.
    fn formats(&self, keys: &Self::Keys) -> Result<Formats, Self::Error>;
}

/// Both directions of one session.
pub struct Formats {
    /// Seals what is sent.
    pub seal: Arc<dyn Format>,
    /// Opens what is received.
    pub open: Arc<dyn Format>,
    /// The cipher that seals and opens.
    pub cipher: CipherName,
}

/// A cipher and the code that computes it, by the names that status shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CipherName {
    /// The cipher, as the protocol names it.
    pub cipher: &'static str,
    /// The implementation that was chosen.
    pub backend: &'static str,
}

/// The keys of a session, for [`DataPlane::add_keys`](crate::DataPlane::add_keys).
#[derive(Debug)]
pub struct SessionKeys<K> {
    /// Our name for the session: what the peer writes into its packets, or what
    /// [`SessionName::OfSender`](crate::SessionName::OfSender) counts from. Unique in the data plane.
    pub session: u32,
    /// The peer's name for the session, by which [`Wire::loops`] knows the tunnel's own datagrams. The format does not
    /// learn it from here: where packets carry it, it is in the material too.
    pub remote: u32,
    /// The material.
    pub material: K,
    /// Limits of the receiving direction.
    pub receive: KeyLimits,
    /// Limits of the sending direction.
    pub send: KeyLimits,
    /// The peer must show first that it has the keys: its first authentic packet is reported
    /// ([`Notice::Confirmed`](crate::Notice::Confirmed)), and what is sent after it is sealed with these keys, unless
    /// keys that expire later seal already. Without this they seal from [`DataPlane::send_with`](crate::DataPlane::send_with) on.
    pub confirm: bool,
}

/// The use of a session's keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyUsage {
    /// Packets sealed.
    pub sealed: u64,
    /// The greatest number of an authentic packet; 0 while there was none.
    pub opened: u64,
    /// Packets for these keys that were not authentic.
    pub forged: u64,
    /// The epoch that seals; 0 where packets have none.
    pub epoch: u16,
}
