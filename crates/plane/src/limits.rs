//! The limits of a key.

use std::time::Instant;

/// How long a key may be used.
#[derive(Clone, Copy, Debug)]
pub struct KeyLimits {
    /// Not used from this moment on for packets that are read then. What was read before is sealed, opened and sent on.
    pub expires: Instant,
    /// Packets numbered this or higher are not sent; nor accepted, where a packet's number can be read without opening it
    /// ([`Class::Data`](crate::Class::Data)).
    pub messages_max: u64,
    /// Ask for a new key when used from this moment on; `None`: that is the peer's affair.
    pub refresh_at: Option<Instant>,
    /// Ask for a new key when this many packets have been sent.
    pub refresh_messages: u64,
}

impl KeyLimits {
    /// Until a moment, for any number of packets, without a notice before the end.
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
