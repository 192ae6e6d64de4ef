//! tls-crypt: each control packet encrypted and authenticated, but for its head.
//!
//! ```text
//! opcode<<3 | key_id, session id | counter, time | tag: [u8; 32] | AES-256-CTR(rest)
//! ```
//! The tag is the HMAC-SHA256 of the 17 bytes before it and of the rest before encryption.

use super::ctr::{SyntheticIv, TAG_LEN};
use super::replay::ReplayId;
use crate::keyfile::StaticKey;
use crate::packet::CONTROL_HEAD_LEN;
use crate::role::Role;

/// Bytes before the tag, which it covers.
const ASSOCIATED_LEN: usize = CONTROL_HEAD_LEN + ReplayId::LEN;

/// The keys of both directions.
#[derive(Debug)]
pub(super) struct TlsCrypt {
    send: SyntheticIv,
    receive: SyntheticIv,
}

impl TlsCrypt {
    /// Bytes that the wrap adds.
    pub(super) const OVERHEAD: usize = ReplayId::LEN + TAG_LEN;

    /// The server sends with the first half of the key, the client with the second.
    pub(super) fn new(key: &StaticKey, role: Role) -> Self {
        let (send, receive) = match role {
            Role::Server => (0, 1),
            Role::Client => (1, 0),
        };
        let keys = |half| SyntheticIv::new(key.cipher(half), key.hmac(half));
        Self {
            send: keys(send),
            receive: keys(receive),
        }
    }

    /// Wraps the plain packet `packet`, head and all, with capacity for `room` bytes behind it.
    pub(super) fn seal(&self, packet: &[u8], number: ReplayId, room: usize) -> Vec<u8> {
        // Only packets are sealed, which have a head.
        let (head, rest) = packet.split_at(CONTROL_HEAD_LEN.min(packet.len()));
        let mut sealed = Vec::with_capacity(packet.len() + Self::OVERHEAD + room);
        sealed.extend_from_slice(head);
        sealed.extend_from_slice(&number.to_wire());
        sealed.extend_from_slice(&[0; TAG_LEN]);
        sealed.extend_from_slice(rest);
        let (associated, after) = sealed.split_at_mut(head.len() + ReplayId::LEN);
        let (tag, text) = after.split_at_mut(TAG_LEN);
        tag.copy_from_slice(&self.send.seal(associated, text));
        sealed
    }

    /// The number and the body of a wrapped packet; `None` if it is too short or not authentic.
    pub(super) fn open(&self, packet: &[u8]) -> Option<(ReplayId, Vec<u8>)> {
        let (associated, rest) = packet.split_at_checked(ASSOCIATED_LEN)?;
        let (tag, text) = rest.split_first_chunk()?;
        let mut body = text.to_vec();
        let number = associated.last_chunk()?;
        self.receive
            .open(associated, tag, &mut body)
            .then(|| (ReplayId::from_wire(*number), body))
    }
}
