//! The limits of a key.

use std::time::Instant;

/// How long a key may be used.
#[derive(Clone, Copy, Debug)]
pub struct KeyLimits {
    /// From this moment on the key is not used for newly read packets. Packets that were read before are still sealed,
    /// opened and sent.
    pub expires: Instant,
    /// Packets with this number or a higher one are not sent. They are not accepted either, if the number can be read
    /// without opening the packet ([`Class::Data`](crate::Class::Data)).
    pub messages_max: u64,
    /// Any use of the key from this moment on asks for a new key; `None` if the peer is to renew it.
    pub refresh_at: Option<Instant>,
    /// The data plane asks for a new key after sending this many packets.
    pub refresh_messages: u64,
}

impl KeyLimits {
    /// Limits that only expire: any number of packets, and no notice before the end.
    #[must_use]
    pub const fn until(expires: Instant) -> Self {
        Self {
            expires,
            messages_max: u64::MAX,
            refresh_at: None,
            refresh_messages: u64::MAX,
        }
    }
}
