//! Protects the control channel before TLS does: nothing, tls-auth, tls-crypt or tls-crypt-v2.
//!
//! [`WrapSettings`] is what the configuration says. From it comes one [`Wrap`] for each session, which numbers what it
//! seals and takes each number once from what it opens. A server that has no session yet opens a stranger's first
//! packet with [`WrapSettings::open_first`], which remembers nothing.
//!
//! A wrap is a filter: it keeps out senders without the key. TLS finds out who the peer is.

pub(crate) mod client_key;
mod replay;
mod settings;
#[cfg(test)]
mod tests;
mod tls_crypt;

use std::sync::Arc;

use crypto::Digest;
use crypto::hmac::Hmac;
use replay::{Counter, ReplayWindow};
use thiserror::Error;
use tls_crypt::TlsCrypt;
use zeroize::Zeroizing;

use crate::keyfile::v2::ClientKey;
use crate::keyfile::{KeyDirection, StaticKey};
use crate::packet::{CONTROL_HEAD_LEN, ControlHead, ControlPacket, MAX_CONTROL_LEN, PacketError};
use crate::role::Role;

pub use client_key::ClientKeyError;
pub use replay::ReplayId;
pub use settings::{FirstPacket, WrapSettings};

/// The wrap of one session, or, with [`Wrap::dynamic`], of its renegotiations.
#[derive(Debug)]
pub struct Wrap {
    keys: Keys,
    counter: Counter,
    window: ReplayWindow,
}

/// The constant part of a wrap, shared by all sessions with the same keys.
#[derive(Clone, Debug)]
struct Keys {
    method: Method,
    client_key: WrappedClientKey,
    /// The key file, for [`Wrap::dynamic`].
    material: Option<Arc<StaticKey>>,
}

#[derive(Clone, Debug)]
enum Method {
    None,
    TlsAuth(Arc<TlsAuth>),
    TlsCrypt(Arc<TlsCrypt>),
}

/// The treatment of the wrapped client key at the end of the opcodes that have one.
#[derive(Clone, Debug)]
enum WrappedClientKey {
    /// No tls-crypt-v2: packets with a wrapped key are refused.
    Refused,
    /// Client: appends the wrapped key, and refuses packets that carry one.
    Appended(Arc<[u8]>),
    /// Server: has unwrapped the client's key before, and skips it when it comes again.
    Skipped,
}

impl Wrap {
    fn with(keys: Keys) -> Self {
        let first = match keys.client_key {
            WrappedClientKey::Appended(_) => ReplayId::EARLY_NEGOTIATION,
            WrappedClientKey::Refused | WrappedClientKey::Skipped => 0,
        };
        Self {
            keys,
            counter: Counter::after(first),
            window: ReplayWindow::default(),
        }
    }

    /// Dynamic tls-crypt: the wrap of the renegotiations of a session that began under this wrap, if both ends offered
    /// it.
    ///
    /// `exported` is from TLS (label `EXPORTER-OpenVPN-dynamic-tls-crypt`). The key file of this wrap, where it has
    /// one, is mixed in. The new wrap has its own counter and replay window.
    #[must_use]
    pub fn dynamic(&self, exported: &[u8; StaticKey::LEN], role: Role) -> Self {
        let key = match &self.keys.material {
            Some(material) => material.xor(exported),
            None => StaticKey::new(exported),
        };
        Self::with(Keys {
            method: Method::TlsCrypt(Arc::new(TlsCrypt::new(&key, role))),
            client_key: WrappedClientKey::Refused,
            material: None,
        })
    }

    /// Bytes that the wrap adds to a packet, without the wrapped client key.
    #[must_use]
    pub fn overhead(&self) -> usize {
        match &self.keys.method {
            Method::None => 0,
            Method::TlsAuth(keys) => keys.overhead(),
            Method::TlsCrypt(_) => TlsCrypt::OVERHEAD,
        }
    }

    /// Bytes of the wrapped client key that the wrap appends to opcodes which carry one; 0 except for a client with
    /// tls-crypt-v2.
    #[must_use]
    pub fn client_key_len(&self) -> usize {
        match &self.keys.client_key {
            WrappedClientKey::Appended(wrapped) => wrapped.len(),
            WrappedClientKey::Refused | WrappedClientKey::Skipped => 0,
        }
    }

    /// Whether packets have no wrap.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        matches!(self.keys.method, Method::None)
    }

    /// Continues after a reset that another [`Wrap`] sealed as the first packet, as a server does that answered without
    /// keeping state.
    pub fn skip_reset(&mut self) {
        self.counter = Counter::after(1);
    }

    /// Wraps a packet under the next number. `now` is in seconds since 1970; every packet carries the time of the first
    /// call.
    ///
    /// A packet that is sent again is wrapped again, under a new number.
    #[must_use]
    pub fn seal(&mut self, packet: &ControlPacket, now: u32) -> Vec<u8> {
        let plain = packet.emit();
        let mut sealed = match &self.keys.method {
            Method::None => plain,
            Method::TlsAuth(keys) => keys.seal(&plain, self.counter.next(now)),
            Method::TlsCrypt(keys) => {
                let room = self.client_key_len();
                keys.seal(&plain, self.counter.next(now), room)
            }
        };
        if let WrappedClientKey::Appended(wrapped) = &self.keys.client_key
            && packet.opcode.carries_client_key()
        {
            sealed.extend_from_slice(wrapped);
        }
        sealed
    }

    /// Unwraps a packet: authentic first, then new, then parsed.
    ///
    /// # Errors
    /// See [`WrapError`]. A refused packet changes nothing, but one that is authentic and malformed uses up its number.
    pub fn open(&mut self, packet: &[u8]) -> Result<ControlPacket, WrapError> {
        let head = control_head(packet)?;
        let wrapped = if head.opcode.carries_client_key() {
            match self.keys.client_key {
                WrappedClientKey::Skipped => client_key::split(packet, CONTROL_HEAD_LEN)?.0,
                _ => return Err(ClientKeyError::NotConfigured.into()),
            }
        } else {
            packet
        };
        let (number, body) = self.keys.open(wrapped)?;
        if number.is_some_and(|number| !self.window.accept(number)) {
            return Err(WrapError::Replay);
        }
        Ok(ControlPacket::parse_body(head, &body)?)
    }
}

impl Keys {
    const fn none() -> Self {
        Self {
            method: Method::None,
            client_key: WrappedClientKey::Refused,
            material: None,
        }
    }

    fn tls_auth(key: &StaticKey, direction: KeyDirection, digest: Digest) -> Option<Self> {
        Some(Self {
            method: Method::TlsAuth(Arc::new(TlsAuth::new(key, direction, digest)?)),
            client_key: WrappedClientKey::Refused,
            material: Some(Arc::new(key.clone())),
        })
    }

    fn tls_crypt(key: &StaticKey, role: Role) -> Self {
        Self {
            method: Method::TlsCrypt(Arc::new(TlsCrypt::new(key, role))),
            client_key: WrappedClientKey::Refused,
            material: Some(Arc::new(key.clone())),
        }
    }

    fn tls_crypt_v2_client(key: &ClientKey) -> Self {
        Self {
            client_key: WrappedClientKey::Appended(key.wrapped().into()),
            ..Self::tls_crypt(key.key(), Role::Client)
        }
    }

    fn tls_crypt_v2_server(key: &StaticKey) -> Self {
        Self {
            client_key: WrappedClientKey::Skipped,
            ..Self::tls_crypt(key, Role::Server)
        }
    }

    /// The number, where the method has one, and the body of a packet that is authentic.
    fn open(&self, packet: &[u8]) -> Result<(Option<ReplayId>, Vec<u8>), WrapError> {
        let opened = match &self.method {
            Method::None => {
                let body = packet
                    .get(CONTROL_HEAD_LEN..)
                    .ok_or(PacketError::TooShort)?;
                return Ok((None, body.to_vec()));
            }
            Method::TlsAuth(keys) => keys.open(packet),
            Method::TlsCrypt(keys) => keys.open(packet),
        };
        let (number, body) = opened.ok_or(WrapError::NotAuthentic)?;
        Ok((Some(number), body))
    }
}

/// Reads the head of a packet, unless the packet is too long.
fn control_head(packet: &[u8]) -> Result<ControlHead, WrapError> {
    if packet.len() > MAX_CONTROL_LEN {
        return Err(WrapError::TooLong(packet.len()));
    }
    Ok(ControlHead::peek(packet)?)
}

/// Why a control packet was refused. It costs a counter and, at most, a line in a detailed log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WrapError {
    /// The datagram is longer than any control packet.
    #[error("control packet is too long: {0} bytes")]
    TooLong(usize),
    /// The packet was not sealed with our key, or it is too short: it is a stranger's, or the peer has another key, key
    /// direction or digest.
    #[error(
        "control packet is not authentic; do both ends have the same tls-auth or tls-crypt key?"
    )]
    NotAuthentic,
    /// The packet was received before, or is too old to tell.
    #[error("control packet is a replay")]
    Replay,
    /// The wrapped client key of tls-crypt-v2 was refused.
    #[error(transparent)]
    ClientKey(#[from] ClientKeyError),
    /// The content of the wrap is not a control packet.
    #[error(transparent)]
    Packet(#[from] PacketError),
}

/// tls-auth: an HMAC over each control packet, which stays readable. The keys of both directions.
///
/// ```text
/// opcode<<3 | key_id, session id | HMAC | counter, time | rest
/// ```
/// The HMAC is over counter, time, head and rest, in that order.
#[derive(Debug)]
struct TlsAuth {
    send: Hmac,
    receive: Hmac,
}

impl TlsAuth {
    /// `None` for [`Digest::None`].
    fn new(key: &StaticKey, direction: KeyDirection, digest: Digest) -> Option<Self> {
        let (send, receive) = direction.halves();
        let hmac = |half| Hmac::new(digest, &key.hmac(half)[..digest.len()]);
        Some(Self {
            send: hmac(send)?,
            receive: hmac(receive)?,
        })
    }

    /// Bytes that the wrap adds.
    const fn overhead(&self) -> usize {
        self.send.digest().len() + ReplayId::LEN
    }

    /// Wraps the plain packet `packet`, head and all.
    fn seal(&self, packet: &[u8], number: ReplayId) -> Vec<u8> {
        // Only packets with a head are sealed.
        let (head, rest) = packet.split_at(CONTROL_HEAD_LEN.min(packet.len()));
        let number = number.to_wire();
        let tag = self.send.sign(&[&number, head, rest]);
        [head, tag.as_ref(), &number, rest].concat()
    }

    /// The number and the body of a wrapped packet; `None` if it is too short or not authentic.
    fn open(&self, packet: &[u8]) -> Option<(ReplayId, Vec<u8>)> {
        let (head, rest) = packet.split_at_checked(CONTROL_HEAD_LEN)?;
        let (tag, rest) = rest.split_at_checked(self.receive.digest().len())?;
        let (number, body) = rest.split_first_chunk()?;
        self.receive
            .verify(&[number, head, body], tag)
            .then(|| (ReplayId::from_wire(*number), body.to_vec()))
    }
}

/// The wrap of a session's renegotiations, where it has one of its own.
///
/// Built from its key when the first packet needs it. The expanded key takes seven times the memory, and most sessions
/// of a server wait an hour for their renegotiation.
pub(crate) struct DynamicWrap {
    exported: Zeroizing<[u8; StaticKey::LEN]>,
    made: Option<Wrap>,
}

impl DynamicWrap {
    pub(crate) const fn new(exported: Zeroizing<[u8; StaticKey::LEN]>) -> Self {
        Self {
            exported,
            made: None,
        }
    }

    /// The wrap. `first` is that of the first negotiation.
    pub(crate) fn wrap(&mut self, first: &Wrap, role: Role) -> &mut Wrap {
        let exported = &self.exported;
        self.made
            .get_or_insert_with(|| first.dynamic(exported, role))
    }
}
