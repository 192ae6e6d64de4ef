//! tls-auth: an HMAC over each control packet, which stays readable.
//!
//! ```text
//! opcode<<3 | key_id, session id | HMAC | counter, time | rest
//! ```
//! The HMAC is over counter, time, head and rest, in that order.

use super::replay::ReplayId;
use crate::digest::{Digest, Hmac};
use crate::keyfile::{KeyDirection, StaticKey};
use crate::packet::CONTROL_HEAD_LEN;

/// The keys of both directions.
#[derive(Debug)]
pub(super) struct TlsAuth {
    send: Hmac,
    receive: Hmac,
}

impl TlsAuth {
    /// `None` for [`Digest::None`].
    pub(super) fn new(key: &StaticKey, direction: KeyDirection, digest: Digest) -> Option<Self> {
        let (send, receive) = direction.halves();
        let hmac = |half| Hmac::new(digest, &key.hmac(half)[..digest.len()]);
        Some(Self {
            send: hmac(send)?,
            receive: hmac(receive)?,
        })
    }

    /// Bytes that the wrap adds.
    pub(super) const fn overhead(&self) -> usize {
        self.send.digest().len() + ReplayId::LEN
    }

    /// Wraps the plain packet `packet`, head and all.
    pub(super) fn seal(&self, packet: &[u8], number: ReplayId) -> Vec<u8> {
        // Only packets are sealed, which have a head.
        let (head, rest) = packet.split_at(CONTROL_HEAD_LEN.min(packet.len()));
        let number = number.to_wire();
        let tag = self.send.sign(&[&number, head, rest]);
        [head, tag.as_ref(), &number, rest].concat()
    }

    /// The number and the body of a wrapped packet; `None` if it is too short or not authentic.
    pub(super) fn open(&self, packet: &[u8]) -> Option<(ReplayId, Vec<u8>)> {
        let (head, rest) = packet.split_at_checked(CONTROL_HEAD_LEN)?;
        let (tag, rest) = rest.split_at_checked(self.receive.digest().len())?;
        let (number, body) = rest.split_first_chunk()?;
        self.receive
            .verify(&[number, head, body], tag)
            .then(|| (ReplayId::from_wire(*number), body.to_vec()))
    }
}
