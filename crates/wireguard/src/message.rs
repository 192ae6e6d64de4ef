//! The wire format of the messages of handshakes, and every constant of the protocol. The fourth message, which carries
//! data, is in [`DataHeader`](crate::DataHeader).
//!
//! All integers are little-endian. The first four bytes are the message's type and three "reserved" zeros. All four are
//! compared, so that a message of a later version is not mistaken for one of this version.

use core::time::Duration;

/// Prefix of every hash: names the handshake.
pub(crate) const CONSTRUCTION: &[u8] = b"Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s";
/// The handshake's prologue: names the protocol that uses it.
pub(crate) const IDENTIFIER: &[u8] = b"WireGuard v1 zx2c4 Jason@zx2c4.com";
/// Prefix of a receiver's public key, whose hash is the key of mac1.
pub(crate) const LABEL_MAC1: &[u8; 8] = b"mac1----";
/// Prefix of a receiver's public key, whose hash is the key that cookies are sealed with.
pub(crate) const LABEL_COOKIE: &[u8; 8] = b"cookie--";

/// An initiator whose send key is older than this starts a new handshake when it sends.
pub const REKEY_AFTER_TIME: Duration = Duration::from_secs(120);
/// A key older than this neither seals nor opens.
pub const REJECT_AFTER_TIME: Duration = Duration::from_secs(180);
/// How long new handshakes are attempted without an answer.
pub const REKEY_ATTEMPT_TIME: Duration = Duration::from_secs(90);
/// Minimum time between two initiations to one peer, and the time after which one is repeated.
pub const REKEY_TIMEOUT: Duration = Duration::from_secs(5);
/// Repetitions come up to this much later, so that two sides that collided do not collide again.
pub const REKEY_TIMEOUT_JITTER: Duration = Duration::from_millis(333);
/// Time after a data packet at which an empty packet answers it, if nothing else was sent meanwhile.
pub const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// After this number of packets under one key a new handshake is due.
pub const REKEY_AFTER_MESSAGES: u64 = 1 << 60;
/// Counters from this value on are neither sealed nor accepted: 2^64 - 2^13 - 1.
pub const REJECT_AFTER_MESSAGES: u64 = plane::ReplayWindow::LIMIT;
/// Initiations that one peer may have processed in a second.
pub const INITIATIONS_PER_SECOND: u32 = 50;
/// How long a responder makes cookies from the same secret.
pub const COOKIE_SECRET_MAX_AGE: Duration = Duration::from_secs(120);
/// An initiator stops using a cookie this long before the secret expires, because replies take time to arrive.
pub const COOKIE_SECRET_LATENCY: Duration = Duration::from_secs(5);
/// How long the device counts as under load after load was last seen.
pub const UNDER_LOAD_FOR: Duration = Duration::from_secs(1);
/// Two initiations that meet within this time have crossed: longer than nearly every round trip, shorter than the time
/// to the next try.
pub(crate) const CROSSING: Duration = Duration::from_secs(1);
/// Maximum number of peers of one interface.
pub const MAX_PEERS: usize = 1 << 20;

/// Type of a handshake initiation.
pub const TYPE_INITIATION: u32 = 1;
/// Type of a handshake response.
pub const TYPE_RESPONSE: u32 = 2;
/// Type of a cookie reply.
pub const TYPE_COOKIE_REPLY: u32 = 3;
/// Type of a data packet.
pub const TYPE_DATA: u32 = 4;

/// Bytes of a handshake initiation.
pub const INITIATION_LEN: usize = 148;
/// Bytes of a handshake response.
pub const RESPONSE_LEN: usize = 92;
/// Bytes of a cookie reply.
pub const COOKIE_REPLY_LEN: usize = 64;
/// Bytes of an authentication tag.
pub const TAG_LEN: usize = 16;
/// Inner packets are padded with zeros to a multiple of this, as far as the device's MTU allows.
pub const PADDING: usize = 16;
/// Bytes of each of the two MACs at the end of an initiation and of a response.
pub(crate) const MAC_LEN: usize = 16;

/// The type of a datagram, or `None` if it is too short to have one.
#[must_use]
pub fn kind(datagram: &[u8]) -> Option<u32> {
    datagram.first_chunk().map(|kind| u32::from_le_bytes(*kind))
}

/// Takes `N` bytes off the front of `rest`.
///
/// Panics if `rest` is too short. The length of every caller's rest is fixed by its type, hence no `Option`.
fn take<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    let (front, back) = rest.split_at(N);
    bytes.copy_from_slice(front);
    *rest = back;
    bytes
}

/// First message: from the initiator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Initiation {
    /// Index by which the initiator wants to be addressed.
    pub(crate) sender: u32,
    pub(crate) ephemeral: [u8; 32],
    pub(crate) sealed_static: [u8; 32 + TAG_LEN],
    pub(crate) sealed_timestamp: [u8; 12 + TAG_LEN],
}

impl Initiation {
    pub(crate) fn parse(datagram: &[u8]) -> Option<Self> {
        let datagram: &[u8; INITIATION_LEN] = datagram.try_into().ok()?;
        let mut rest = &datagram[..];
        (u32::from_le_bytes(take(&mut rest)) == TYPE_INITIATION).then(|| Self {
            sender: u32::from_le_bytes(take(&mut rest)),
            ephemeral: take(&mut rest),
            sealed_static: take(&mut rest),
            sealed_timestamp: take(&mut rest),
        })
    }

    /// The message with both MACs zero.
    pub(crate) fn emit(&self) -> [u8; INITIATION_LEN] {
        let mut bytes = [0; INITIATION_LEN];
        bytes[..4].copy_from_slice(&TYPE_INITIATION.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.sender.to_le_bytes());
        bytes[8..40].copy_from_slice(&self.ephemeral);
        bytes[40..88].copy_from_slice(&self.sealed_static);
        bytes[88..116].copy_from_slice(&self.sealed_timestamp);
        bytes
    }
}

/// Second message: from the responder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Response {
    /// Index by which the responder wants to be addressed.
    pub(crate) sender: u32,
    /// Index the initiator chose.
    pub(crate) receiver: u32,
    pub(crate) ephemeral: [u8; 32],
    pub(crate) sealed_nothing: [u8; TAG_LEN],
}

impl Response {
    pub(crate) fn parse(datagram: &[u8]) -> Option<Self> {
        let datagram: &[u8; RESPONSE_LEN] = datagram.try_into().ok()?;
        let mut rest = &datagram[..];
        (u32::from_le_bytes(take(&mut rest)) == TYPE_RESPONSE).then(|| Self {
            sender: u32::from_le_bytes(take(&mut rest)),
            receiver: u32::from_le_bytes(take(&mut rest)),
            ephemeral: take(&mut rest),
            sealed_nothing: take(&mut rest),
        })
    }

    /// The message with both MACs zero.
    pub(crate) fn emit(&self) -> [u8; RESPONSE_LEN] {
        let mut bytes = [0; RESPONSE_LEN];
        bytes[..4].copy_from_slice(&TYPE_RESPONSE.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.sender.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.receiver.to_le_bytes());
        bytes[12..44].copy_from_slice(&self.ephemeral);
        bytes[44..60].copy_from_slice(&self.sealed_nothing);
        bytes
    }
}

/// The answer of a responder under load in the place of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CookieReply {
    /// The sender's index of the message that is answered.
    pub(crate) receiver: u32,
    pub(crate) nonce: [u8; 24],
    pub(crate) sealed_cookie: [u8; 16 + TAG_LEN],
}

impl CookieReply {
    pub(crate) fn parse(datagram: &[u8]) -> Option<Self> {
        let datagram: &[u8; COOKIE_REPLY_LEN] = datagram.try_into().ok()?;
        let mut rest = &datagram[..];
        (u32::from_le_bytes(take(&mut rest)) == TYPE_COOKIE_REPLY).then(|| Self {
            receiver: u32::from_le_bytes(take(&mut rest)),
            nonce: take(&mut rest),
            sealed_cookie: take(&mut rest),
        })
    }

    pub(crate) fn emit(&self) -> [u8; COOKIE_REPLY_LEN] {
        let mut bytes = [0; COOKIE_REPLY_LEN];
        bytes[..4].copy_from_slice(&TYPE_COOKIE_REPLY.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.receiver.to_le_bytes());
        bytes[8..32].copy_from_slice(&self.nonce);
        bytes[32..].copy_from_slice(&self.sealed_cookie);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn fields_lie_where_the_paper_puts_them() {
        let bytes: Vec<u8> = (0..148).collect();
        let mut initiation = bytes.clone();
        initiation[..4].copy_from_slice(&[1, 0, 0, 0]);
        let parsed = Initiation::parse(&initiation).unwrap();
        assert_eq!(parsed.sender, 0x0706_0504);
        assert_eq!(parsed.ephemeral[..], bytes[8..40]);
        assert_eq!(parsed.sealed_static[..], bytes[40..88]);
        assert_eq!(parsed.sealed_timestamp[..], bytes[88..116]);

        let mut response = bytes[..92].to_vec();
        response[..4].copy_from_slice(&[2, 0, 0, 0]);
        let parsed = Response::parse(&response).unwrap();
        assert_eq!((parsed.sender, parsed.receiver), (0x0706_0504, 0x0b0a_0908));
        assert_eq!(parsed.ephemeral[..], bytes[12..44]);
        assert_eq!(parsed.sealed_nothing[..], bytes[44..60]);
    }

    #[test]
    fn reserved_bytes_and_other_lengths_are_refused() {
        let mut bytes = [0; INITIATION_LEN];
        bytes[0] = 1;
        assert!(Initiation::parse(&bytes).is_some());
        bytes[2] = 1;
        assert!(Initiation::parse(&bytes).is_none());
        bytes[2] = 0;
        assert!(Initiation::parse(&bytes[..147]).is_none());
        assert!(Initiation::parse(&[&bytes[..], &[0]].concat()).is_none());
    }

    #[test]
    fn the_last_counter_is_that_of_the_paper() {
        assert_eq!(u128::from(REJECT_AFTER_MESSAGES), (1 << 64) - (1 << 13) - 1);
    }

    proptest! {
        #[test]
        fn what_parses_emits_itself(kind in 0_u32..6, mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(front) = bytes.first_chunk_mut::<4>() {
                *front = kind.to_le_bytes();
            }
            for len in [bytes.len(), INITIATION_LEN, RESPONSE_LEN, COOKIE_REPLY_LEN] {
                let Some(bytes) = bytes.get(..len) else { continue };
                if let Some(message) = Initiation::parse(bytes) {
                    prop_assert_eq!(&message.emit()[..116], &bytes[..116]);
                }
                if let Some(message) = Response::parse(bytes) {
                    prop_assert_eq!(&message.emit()[..60], &bytes[..60]);
                }
                if let Some(message) = CookieReply::parse(bytes) {
                    prop_assert_eq!(&message.emit()[..], bytes);
                }
            }
        }
    }
}
