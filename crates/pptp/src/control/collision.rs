//! Resolves two hosts calling each other at the same time.

use std::net::Ipv4Addr;

/// Which of two control connections between the same hosts stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Our connection stays: the peer's is closed without an answer.
    Ours,
    /// The peer's connection stays: ours is closed without another message, and the peer's request is answered.
    Theirs,
}

/// Decides a collision like the other end: the connection of the host with the higher address stays (RFC 2637, section
/// 3.1.3). `None` if both addresses are equal, because the host called itself.
#[must_use]
pub fn keep(ours: Ipv4Addr, theirs: Ipv4Addr) -> Option<Keep> {
    match u32::from(ours).cmp(&u32::from(theirs)) {
        core::cmp::Ordering::Greater => Some(Keep::Ours),
        core::cmp::Ordering::Less => Some(Keep::Theirs),
        core::cmp::Ordering::Equal => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_keep_the_same_connection() {
        let (low, high) = (Ipv4Addr::new(9, 255, 255, 255), Ipv4Addr::new(10, 0, 0, 1));
        assert_eq!(keep(high, low), Some(Keep::Ours));
        assert_eq!(keep(low, high), Some(Keep::Theirs));
        assert_eq!(keep(low, low), None);
    }
}
