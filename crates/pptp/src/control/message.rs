//! The messages of the control connection (RFC 2637, section 2), and their text fields of a fixed size.
//!
//! Each kind of message has a fixed length, stated in its header. A magic cookie shows that the stream is still in
//! step. Reserved fields are written as zero and ignored when read: deployed peers do not always zero them. Fields that
//! matter to telephone networks only are ignored too, and written as constants.

use crate::control::codes::{
    DisconnectResult, ErrorCode, OutgoingResult, PlainResult, StartResult, StopReason,
};
use core::fmt;

/// The TCP port of a server (RFC 2637, section 3).
pub const PORT: u16 = 1723;
/// The magic cookie in each header (RFC 2637, section 2).
pub const COOKIE: u32 = 0x1a2b_3c4d;
/// Protocol version 1, revision 0 (RFC 2637, section 2.1).
pub const VERSION: u16 = 0x0100;
/// Bytes of a header.
pub const HEADER_LEN: usize = 12;
/// Bytes of the longest message, Incoming-Call-Request.
pub const MAX_LEN: usize = 220;

/// A host's description of itself (RFC 2637, sections 2.1 and 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    /// Protocol version of the sender.
    pub version: u16,
    /// Maximum number of calls of an access concentrator; 0 for a client.
    pub max_channels: u16,
    /// Host name of the sender.
    pub name: Text<64>,
    /// Vendor string of the sender.
    pub vendor: Text<64>,
}

/// Outgoing-Call-Reply (RFC 2637, section 2.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutgoingReply {
    /// The answering side's call ID.
    pub call_id: u16,
    /// The call ID of the request.
    pub peer_call_id: u16,
    /// Whether the call was established.
    pub result: OutgoingResult,
    /// The general error, if `result` says so.
    pub error: ErrorCode,
    /// The answering side's receive window, in packets.
    pub window: u16,
}

/// Call-Disconnect-Notify (RFC 2637, section 2.13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disconnect {
    /// The sender's call ID.
    pub call_id: u16,
    /// Why the call ended.
    pub result: DisconnectResult,
    /// The general error, if `result` says so.
    pub error: ErrorCode,
}

/// A message of the control connection (RFC 2637, section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// A message lives for one call, so boxing the long variants would cost more than it saves.
#[allow(clippy::large_enum_variant)]
pub enum Message {
    /// Start-Control-Connection-Request, section 2.1.
    StartRequest(Host),
    /// Start-Control-Connection-Reply, section 2.2.
    StartReply {
        /// Host name and vendor of the server.
        host: Host,
        /// Whether the connection was established.
        result: StartResult,
        /// The general error, if `result` says so.
        error: ErrorCode,
    },
    /// Stop-Control-Connection-Request, section 2.3.
    StopRequest(StopReason),
    /// Stop-Control-Connection-Reply, section 2.4.
    StopReply {
        /// Whether the connection was closed.
        result: PlainResult,
        /// The general error, if `result` says so.
        error: ErrorCode,
    },
    /// Echo-Request, section 2.5.
    EchoRequest {
        /// A number that the reply repeats.
        identifier: u32,
    },
    /// Echo-Reply, section 2.6.
    EchoReply {
        /// Identifier of the request.
        identifier: u32,
        /// Whether the request was valid.
        result: PlainResult,
        /// The general error, if `result` says so.
        error: ErrorCode,
    },
    /// Outgoing-Call-Request, section 2.7.
    OutgoingCallRequest {
        /// The caller's call ID, which the peer writes into each GRE packet. 0 is valid.
        call_id: u16,
        /// A number for logs.
        serial: u16,
        /// The caller's receive window, in packets.
        window: u16,
    },
    /// Outgoing-Call-Reply, section 2.8.
    OutgoingCallReply(OutgoingReply),
    /// Incoming-Call-Request, section 2.9.
    IncomingCallRequest {
        /// The access concentrator's call ID.
        call_id: u16,
    },
    /// Incoming-Call-Reply that refuses the call, section 2.10.
    IncomingCallReply {
        /// The call ID of the request.
        peer_call_id: u16,
    },
    /// Call-Clear-Request, section 2.12.
    CallClearRequest {
        /// The sender's call ID.
        call_id: u16,
    },
    /// Call-Disconnect-Notify, section 2.13.
    CallDisconnectNotify(Disconnect),
    /// Set-Link-Info that escapes no characters, section 2.15.
    SetLinkInfo {
        /// The receiver's call ID.
        peer_call_id: u16,
    },
    /// A received message of this kind that needs no action: Incoming-Call-Reply, Incoming-Call-Connected,
    /// WAN-Error-Notify, or Set-Link-Info.
    Ignored(u16),
}

/// Why bytes are not a valid control message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The stream is out of step and cannot recover: the connection must be closed (RFC 2637, section 2).
    #[error(
        "the magic cookie is {0:#010x}, not {COOKIE:#010x}: what talks at this port is not PPTP"
    )]
    Cookie(u32),
    /// The length in the header fits no message.
    #[error("a message of {0} bytes: PPTP has messages of {HEADER_LEN} to {MAX_LEN}")]
    Length(u16),
    /// The length is wrong for this kind of message.
    #[error("a message of kind {kind} has {len} bytes")]
    KindLength {
        /// The control message type.
        kind: u16,
        /// The length in the header.
        len: u16,
    },
    /// A management message, which the RFC reserves for later use.
    #[error("a message of type {0}, which is no control message")]
    Type(u16),
    /// A kind that the RFC does not define.
    #[error("a control message of the unknown kind {0}")]
    Kind(u16),
    /// The slice has fewer or more bytes than the header says.
    #[error("the bytes are not one whole message")]
    Incomplete,
}

impl MessageError {
    /// Whether the message's length is still known, so that the next message can be read.
    #[must_use]
    pub const fn in_step(self) -> bool {
        matches!(
            self,
            Self::KindLength { .. } | Self::Type(_) | Self::Kind(_)
        )
    }
}

/// The length in a header, with the checks that need only the header.
///
/// # Errors
/// [`MessageError::Cookie`] and [`MessageError::Length`].
pub fn length(header: &[u8; HEADER_LEN]) -> Result<usize, MessageError> {
    let [l0, l1, _, _, c0, c1, c2, c3, ..] = *header;
    let cookie = u32::from_be_bytes([c0, c1, c2, c3]);
    if cookie != COOKIE {
        return Err(MessageError::Cookie(cookie));
    }
    let len = u16::from_be_bytes([l0, l1]);
    if (HEADER_LEN..=MAX_LEN).contains(&usize::from(len)) {
        Ok(usize::from(len))
    } else {
        Err(MessageError::Length(len))
    }
}

impl Message {
    /// The control message type (RFC 2637, section 1.4).
    #[must_use]
    pub const fn kind(&self) -> u16 {
        match self {
            Self::StartRequest(_) => 1,
            Self::StartReply { .. } => 2,
            Self::StopRequest(_) => 3,
            Self::StopReply { .. } => 4,
            Self::EchoRequest { .. } => 5,
            Self::EchoReply { .. } => 6,
            Self::OutgoingCallRequest { .. } => 7,
            Self::OutgoingCallReply(_) => 8,
            Self::IncomingCallRequest { .. } => 9,
            Self::IncomingCallReply { .. } => 10,
            Self::CallClearRequest { .. } => 12,
            Self::CallDisconnectNotify(_) => 13,
            Self::SetLinkInfo { .. } => 15,
            Self::Ignored(kind) => *kind,
        }
    }

    /// Length of a message of this kind in bytes; `None` if the RFC does not define the kind.
    #[must_use]
    pub const fn len_of(kind: u16) -> Option<usize> {
        Some(match kind {
            1 | 2 => 156,
            3 | 4 | 5 | 12 => 16,
            6 => 20,
            7 => 168,
            8 => 32,
            9 => 220,
            10 | 15 => 24,
            11 => 28,
            13 => 148,
            14 => 40,
            _ => return None,
        })
    }
}

/// `N` bytes of text, padded with zeros (RFC 2637, section 2.1: "Host Name", "Vendor String" and others).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Text<const N: usize>(pub [u8; N]);

impl<const N: usize> Text<N> {
    /// The first bytes of `text` that leave room for a closing zero, which readers in C expect.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let mut bytes = [0; N];
        let len = text.len().min(N.saturating_sub(1));
        bytes[..len].copy_from_slice(&text.as_bytes()[..len]);
        Self(bytes)
    }

    /// The text before the first zero, without characters that could upset a terminal or a log.
    #[must_use]
    pub fn printable(&self) -> String {
        let end = self.0.iter().position(|&byte| byte == 0).unwrap_or(N);
        String::from_utf8_lossy(&self.0[..end])
            .chars()
            .filter(|character| !character.is_control())
            .collect()
    }
}

impl<const N: usize> Default for Text<N> {
    fn default() -> Self {
        Self([0; N])
    }
}

impl<const N: usize> fmt::Debug for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.printable())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_and_ends_with_zero() {
        let text = Text::<4>::new("abcdef");
        assert_eq!(text.0, *b"abc\0");
        assert_eq!(text.printable(), "abc");
    }

    #[test]
    fn what_is_no_text_prints_without_control_characters() {
        assert_eq!(Text(*b"a\x1b[2J\xff").printable(), "a[2J\u{fffd}");
    }
}
