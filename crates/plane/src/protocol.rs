//! Key material, and the trait that makes formats of it.

use crate::{Format, KeyLimits, Wire};
use std::sync::Arc;
use zeroize::ZeroizeOnDrop;

/// A tunnel protocol whose keys a data plane takes as material.
///
/// Control hands over material. A user-space data plane makes formats of it with this trait; a kernel data plane passes
/// the bytes on. So control is the same for both.
pub trait Protocol: Wire {
    /// The material of one session: the keys of both directions, and everything else that its packet format depends on
    /// (cipher, peer-id, framing). Erased when dropped.
    type Keys: ZeroizeOnDrop + Send;

    /// Why material is refused: a cipher that is not allowed, or that the format cannot carry.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Makes the formats of a session. Control's thread calls it once a session; it schedules keys, so it may take some
    /// ten microseconds.
    ///
    /// # Errors
    /// The protocol refuses the material.
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
    /// Our name for the session: the peer writes it into its packets, or
    /// [`SessionName::OfSender`](crate::SessionName::OfSender) counts from it. Unique in the data plane.
    pub session: u32,
    /// The peer's name for the session, by which [`Wire::loops`] recognises the tunnel's own datagrams. The format does
    /// not read this field: if packets carry the name, the material contains it too.
    pub remote: u32,
    /// The material.
    pub material: K,
    /// Limits of the receiving direction.
    pub receive: KeyLimits,
    /// Limits of the sending direction.
    pub send: KeyLimits,
    /// Whether the peer must first show that it has the keys. If so, its first authentic packet is reported
    /// ([`Notice::Confirmed`](crate::Notice::Confirmed)), and these keys seal from then on, unless keys that expire
    /// later seal already. If not, they seal from [`DataPlane::send_with`](crate::DataPlane::send_with) on.
    pub confirm: bool,
}

/// The use of a session's keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyUsage {
    /// Packets sealed.
    pub sealed: u64,
    /// The greatest number of an authentic packet; 0 before the first.
    pub opened: u64,
    /// Packets for these keys that were not authentic.
    pub forged: u64,
    /// The epoch of the sealing key; 0 if packets have no epochs.
    pub epoch: u16,
}
