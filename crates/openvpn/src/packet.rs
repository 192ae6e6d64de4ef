//! The control packets, without the wrap. They share the first byte with data packets: [`Head`].
//!
//! ```text
//! opcode<<3 | key_id : u8
//! own session id     : [u8; 8]
//! n                  : u8          acknowledgements
//! acknowledged id    : [u32; n]
//! peer session id    : [u8; 8]     only if n > 0
//! message id         : u32         not in ACK_V1
//! payload            : rest
//! ```
//! The bytes of the wrap between the session id and the rest are in [`crate::wrap`]. Numbers are big-endian.

#[cfg(test)]
mod tests;

use std::fmt;

use thiserror::Error;

pub use crate::data::wire::{Head, MAX_KEY_ID, Opcode};

/// Bytes before the wrap: the first byte and the sender's session id.
pub const CONTROL_HEAD_LEN: usize = 1 + SessionId::LEN;

/// Bytes of the longest control packet that is looked at, wrap and all. Stock's buffers have 2048 of payload.
pub const MAX_CONTROL_LEN: usize = 4096;

/// The clear part in front of every control packet, with any wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlHead {
    /// The kind of packet; never data.
    pub opcode: Opcode,
    /// Key id, 0..=7: the key of the session that the packet belongs to.
    pub key_id: u8,
    /// The sender's session id.
    pub session: SessionId,
}

impl ControlHead {
    /// Reads the head of a control packet. It is not authentic until the wrap has been opened.
    ///
    /// # Errors
    /// If the packet is cut off, has an unknown opcode or the session id zero, or is a data packet.
    pub fn peek(packet: &[u8]) -> Result<Self, PacketError> {
        let first = *packet.first().ok_or(PacketError::TooShort)?;
        let head = Head::peek(packet).ok_or(PacketError::Opcode(first >> 3))?;
        if head.opcode.is_data() {
            return Err(PacketError::Opcode(first >> 3));
        }
        let session = packet
            .get(1..CONTROL_HEAD_LEN)
            .ok_or(PacketError::TooShort)?;
        let (session, _) = SessionId::split_from(session).ok_or(PacketError::NoSession)?;
        Ok(Self {
            opcode: head.opcode,
            key_id: head.key_id,
            session,
        })
    }

    /// The bytes on the wire.
    #[must_use]
    pub fn emit(&self) -> [u8; CONTROL_HEAD_LEN] {
        let mut bytes = [0; CONTROL_HEAD_LEN];
        bytes[0] = Head {
            opcode: self.opcode,
            key_id: self.key_id,
        }
        .emit();
        bytes[1..].copy_from_slice(self.session.as_bytes());
        bytes
    }
}

/// Ids of messages that the sender acknowledges: up to eight.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct AckList {
    ids: [u32; Self::MAX],
    len: u8,
}

impl AckList {
    /// Maximum number of ids in a packet. This end sends so many only without a message.
    pub const MAX: usize = 8;
    /// Maximum number of ids in a packet with a message: more take room from the message.
    pub const MAX_WITH_MESSAGE: usize = 4;

    /// An empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            ids: [0; Self::MAX],
            len: 0,
        }
    }

    /// Appends an id; `false` if eight are there already.
    pub fn push(&mut self, id: u32) -> bool {
        let Some(slot) = self.ids.get_mut(usize::from(self.len)) else {
            return false;
        };
        *slot = id;
        self.len += 1;
        true
    }

    /// Packet ids in the order they were added.
    #[must_use]
    pub fn as_slice(&self) -> &[u32] {
        &self.ids[..usize::from(self.len)]
    }

    /// Whether the list is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that the list takes in a packet, with the session id that follows it.
    #[must_use]
    pub fn wire_len(&self) -> usize {
        match self.as_slice().len() {
            0 => 1,
            n => 1 + 4 * n + SessionId::LEN,
        }
    }
}

impl fmt::Debug for AckList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

impl FromIterator<u32> for AckList {
    /// Keeps the first eight ids and leaves out the rest.
    fn from_iter<T: IntoIterator<Item = u32>>(ids: T) -> Self {
        let mut list = Self::new();
        for id in ids.into_iter().take(Self::MAX) {
            list.push(id);
        }
        list
    }
}

/// A packet of the control channel, unwrapped.
#[derive(Clone, PartialEq, Eq)]
pub struct ControlPacket {
    /// The kind of packet; never data.
    pub opcode: Opcode,
    /// Key id, 0..=7: the key of the session that the packet belongs to.
    pub key_id: u8,
    /// The sender's session id.
    pub session: SessionId,
    /// Acknowledged packet ids.
    pub acks: AckList,
    /// The session id of the receiver, whose messages are acknowledged. On the wire exactly if `acks` is not empty:
    /// without it no acknowledgement is sent.
    pub peer_session: Option<SessionId>,
    /// The number of the message in the payload; `None` in ACK_V1 and only there. If it is missing elsewhere, 0 is
    /// sent.
    pub message_id: Option<u32>,
    /// The message: bytes of the TLS stream in CONTROL_V1 and CONTROL_WKC_V1, early negotiation in
    /// HARD_RESET_SERVER_V2, otherwise nothing.
    pub payload: Vec<u8>,
}

impl ControlPacket {
    /// Reads a packet that has no wrap.
    ///
    /// # Errors
    /// See [`PacketError`].
    pub fn parse(packet: &[u8]) -> Result<Self, PacketError> {
        let head = ControlHead::peek(packet)?;
        Self::parse_body(head, &packet[CONTROL_HEAD_LEN..])
    }

    /// Reads what follows the head once the wrap is off.
    ///
    /// # Errors
    /// If it is cut off, acknowledges more than eight messages, or names the receiver's session zero.
    pub fn parse_body(head: ControlHead, body: &[u8]) -> Result<Self, PacketError> {
        let (&count, mut rest) = body.split_first().ok_or(PacketError::TooShort)?;
        if usize::from(count) > AckList::MAX {
            return Err(PacketError::TooManyAcks(count));
        }
        let mut acks = AckList::new();
        for _ in 0..count {
            acks.push(take_u32(&mut rest)?);
        }
        let peer_session = if acks.is_empty() {
            None
        } else {
            if rest.len() < SessionId::LEN {
                return Err(PacketError::TooShort);
            }
            let (session, after) = SessionId::split_from(rest).ok_or(PacketError::NoSession)?;
            rest = after;
            Some(session)
        };
        let message_id = match head.opcode {
            Opcode::AckV1 => None,
            _ => Some(take_u32(&mut rest)?),
        };
        Ok(Self {
            opcode: head.opcode,
            key_id: head.key_id,
            session: head.session,
            acks,
            peer_session,
            message_id,
            payload: rest.to_vec(),
        })
    }

    /// Whether it is a client's reset that begins a session: message 0 of key 0. Resets with other numbers are forged
    /// or mistaken: drop them.
    #[must_use]
    pub const fn begins_session(&self) -> bool {
        matches!(
            self.opcode,
            Opcode::HardResetClientV2 | Opcode::HardResetClientV3
        ) && self.key_id == 0
            && matches!(self.message_id, Some(0))
    }

    /// The unencrypted head of the packet.
    #[must_use]
    pub const fn head(&self) -> ControlHead {
        ControlHead {
            opcode: self.opcode,
            key_id: self.key_id,
            session: self.session,
        }
    }

    /// The packet without any wrap.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let mut packet = self.head().emit().to_vec();
        let (acks, peer) = self.acknowledged();
        // Eight at most.
        packet.push(acks.len() as u8);
        for id in acks {
            packet.extend_from_slice(&id.to_be_bytes());
        }
        packet.extend_from_slice(peer);
        if self.opcode != Opcode::AckV1 {
            packet.extend_from_slice(&self.message_id.unwrap_or(0).to_be_bytes());
        }
        packet.extend_from_slice(&self.payload);
        packet
    }

    fn acknowledged(&self) -> (&[u32], &[u8]) {
        match &self.peer_session {
            Some(peer) if !self.acks.is_empty() => (self.acks.as_slice(), peer.as_bytes()),
            _ => (&[], &[]),
        }
    }
}

/// The payload is TLS, so it is not secret; it is only long.
impl fmt::Debug for ControlPacket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlPacket")
            .field("opcode", &self.opcode)
            .field("key_id", &self.key_id)
            .field("session", &self.session)
            .field("acks", &self.acks)
            .field("peer_session", &self.peer_session)
            .field("message_id", &self.message_id)
            .field("payload_len", &self.payload.len())
            .finish()
    }
}

/// Why bytes are not a control packet. All of these errors are the sender's fault, or a stranger's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PacketError {
    /// The packet ends too early.
    #[error("control packet is cut off")]
    TooShort,
    /// An opcode that does not exist, is no longer used, or belongs to the data channel.
    #[error("opcode {0} is not that of a control packet")]
    Opcode(u8),
    /// A session id of zero, which no end may choose.
    #[error("control packet has the session id zero")]
    NoSession,
    /// The packet has more acknowledgements than any end sends.
    #[error("control packet acknowledges {0} messages, more than 8")]
    TooManyAcks(u8),
}

fn take_u32(bytes: &mut &[u8]) -> Result<u32, PacketError> {
    let (number, rest) = bytes.split_first_chunk().ok_or(PacketError::TooShort)?;
    *bytes = rest;
    Ok(u32::from_be_bytes(*number))
}

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

    /// Reads a session id from the start of `bytes`; also returns the rest. `None` if it is cut off or all zero.
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

/// Early negotiation: what a server's reset can tell a client before there is any session.
///
/// The content of a server's HARD_RESET_SERVER_V2: type, length and value of 16 bits, any number of times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EarlyNegotiation {
    /// The client shall append its wrapped key to its next packet, since the server has kept nothing.
    pub resend_client_key: bool,
}

const FLAGS: u16 = 1;
const RESEND_CLIENT_KEY: u16 = 1;

impl EarlyNegotiation {
    /// Reads the payload of a server's reset. Unknown types are skipped.
    ///
    /// # Errors
    /// If it is cut off, or its flags are not of 16 bits.
    pub fn parse(mut payload: &[u8]) -> Result<Self, PacketError> {
        let mut found = Self::default();
        while !payload.is_empty() {
            let (head, rest) = payload
                .split_first_chunk::<4>()
                .ok_or(PacketError::TooShort)?;
            let kind = u16::from_be_bytes([head[0], head[1]]);
            let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
            let (value, rest) = rest.split_at_checked(length).ok_or(PacketError::TooShort)?;
            if kind == FLAGS {
                let flags = value.try_into().map_err(|_| PacketError::TooShort)?;
                if u16::from_be_bytes(flags) & RESEND_CLIENT_KEY != 0 {
                    found.resend_client_key = true;
                }
            }
            payload = rest;
        }
        Ok(found)
    }

    /// The payload; empty if there is nothing to say, which clients before 2.6 require.
    #[must_use]
    pub fn emit(self) -> Vec<u8> {
        if !self.resend_client_key {
            return Vec::new();
        }
        [FLAGS, 2, RESEND_CLIENT_KEY]
            .into_iter()
            .flat_map(u16::to_be_bytes)
            .collect()
    }
}
