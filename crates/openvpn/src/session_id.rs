//! The name that each end gives a session.

use std::fmt;

/// Eight random bytes, never all zero: one end's name for a session.
///
/// Every control packet carries the sender's; packets that acknowledge something carry the receiver's as well.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId([u8; Self::LEN]);

impl SessionId {
    /// Bytes of a session id.
    pub const LEN: usize = 8;

    /// The session id of these bytes; `None` if all are zero, which stands for "no session" and is never sent.
    #[must_use]
    pub fn new(bytes: [u8; Self::LEN]) -> Option<Self> {
        (bytes != [0; Self::LEN]).then_some(Self(bytes))
    }

    /// A random session id, or `None` if the system has no randomness to give.
    #[must_use]
    pub fn random() -> Option<Self> {
        let mut bytes = [0; Self::LEN];
        aws_lc_rs::rand::fill(&mut bytes).ok()?;
        // Zero comes once in 2^64 tries and may well be reported as a fault.
        Self::new(bytes)
    }

    /// The bytes, as they are on the wire.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }

    /// Reads a session id from the start of `bytes`; the rest comes with it. `None` if it is cut off or all zero.
    pub(crate) fn split_from(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (id, rest) = bytes.split_first_chunk()?;
        Some((Self::new(*id)?, rest))
    }
}

/// Sixteen hexadecimal digits, as OpenVPN's own log has it.
impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionId({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_no_session() {
        assert_eq!(SessionId::new([0; 8]), None);
        assert_eq!(SessionId::split_from(&[0; 9]), None);
        assert_eq!(SessionId::split_from(&[1; 7]), None);
    }

    #[test]
    fn prints_as_hexadecimal() {
        let id = SessionId::new([0xa5, 0, 0, 0, 0, 0, 0, 0x0f]).unwrap();
        assert_eq!(id.to_string(), "a50000000000000f");
        assert_eq!(format!("{id:?}"), "SessionId(a50000000000000f)");
        assert_eq!(
            SessionId::split_from(&[&id.as_bytes()[..], b"rest"].concat()),
            Some((id, &b"rest"[..]))
        );
    }

    #[test]
    fn random_ones_differ() {
        assert_ne!(SessionId::random(), SessionId::random());
    }
}
