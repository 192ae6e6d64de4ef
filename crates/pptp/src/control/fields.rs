//! Reads messages out of a TCP byte stream, and writes them: the fields of each message, in their order on the wire
//! (RFC 2637, section 2).

use crate::bytes::Reader;
use crate::control::message::{
    COOKIE, Disconnect, HEADER_LEN, Host, MAX_LEN, Message, MessageError, OutgoingReply, Text,
    length,
};

/// Both kinds of framing, or both kinds of bearer (RFC 2637, section 2.1).
const BOTH: u32 = 3;
/// The speed that calls are said to have, in bits per second.
const HIGHEST_SPEED: u32 = 1_000_000_000;

/// Reassembles messages from TCP segments. Holds at most one message, in place.
#[derive(Debug)]
pub struct Stream {
    bytes: [u8; MAX_LEN],
    /// Invariant: at most `MAX_LEN`.
    len: usize,
}

impl Default for Stream {
    fn default() -> Self {
        Self::new()
    }
}

impl Stream {
    /// A stream that has read no bytes.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            bytes: [0; MAX_LEN],
            len: 0,
        }
    }

    /// Takes bytes from the front of `input` until a message is complete; `None` when `input` ends before that.
    ///
    /// # Errors
    /// If [`MessageError::in_step`], the stream skipped that message and the next call continues. Otherwise the
    /// connection must be closed, and each further call returns the same error.
    pub fn next(&mut self, input: &mut &[u8]) -> Option<Result<Message, MessageError>> {
        self.fill(HEADER_LEN, input);
        let header = self
            .bytes
            .first_chunk()
            .filter(|_| self.len >= HEADER_LEN)?;
        let whole = match length(header) {
            Ok(whole) => whole,
            Err(error) => return Some(Err(error)),
        };
        self.fill(whole, input);
        if self.len < whole {
            return None;
        }
        self.len = 0;
        Some(Message::parse(&self.bytes[..whole]))
    }

    /// Moves bytes from `input` until the buffer has `wanted`, which is at most `MAX_LEN`.
    fn fill(&mut self, wanted: usize, input: &mut &[u8]) {
        let missing = wanted.saturating_sub(self.len).min(input.len());
        let (taken, rest) = input.split_at(missing);
        self.bytes[self.len..][..missing].copy_from_slice(taken);
        self.len += missing;
        *input = rest;
    }
}

impl Message {
    /// Reads exactly one message.
    ///
    /// # Errors
    /// The errors of [`MessageError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, MessageError> {
        let (header, _) = bytes.split_first_chunk().ok_or(MessageError::Incomplete)?;
        let len = length(header)?;
        if len != bytes.len() {
            return Err(MessageError::Incomplete);
        }
        let mut reader = Reader::new(bytes);
        parse(&mut reader).ok_or(MessageError::Incomplete)?
    }

    /// Appends the message's bytes to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        let end = out.len() + Self::len_of(self.kind()).unwrap_or(HEADER_LEN);
        write(self, out);
        debug_assert!(out.len() <= end);
        out.resize(end, 0);
    }
}

/// Reads a message whose cookie and length were checked; `None` if the slice is too short.
fn parse(reader: &mut Reader<'_>) -> Option<Result<Message, MessageError>> {
    let len = reader.u16()?;
    let message_type = reader.u16()?;
    let _cookie = reader.u32()?;
    let kind = reader.u16()?;
    let _reserved = reader.u16()?;
    if message_type != 1 {
        return Some(Err(MessageError::Type(message_type)));
    }
    match Message::len_of(kind) {
        None => return Some(Err(MessageError::Kind(kind))),
        Some(expected) if expected != usize::from(len) => {
            return Some(Err(MessageError::KindLength { kind, len }));
        }
        Some(_) => {}
    }
    Some(Ok(match kind {
        1 => {
            let version = reader.u16()?;
            let _reserved = reader.u16()?;
            Message::StartRequest(host(version, reader)?)
        }
        2 => {
            let version = reader.u16()?;
            let result = reader.u8()?.into();
            let error = reader.u8()?.into();
            let host = host(version, reader)?;
            Message::StartReply {
                host,
                result,
                error,
            }
        }
        3 => Message::StopRequest(reader.u8()?.into()),
        4 => Message::StopReply {
            result: reader.u8()?.into(),
            error: reader.u8()?.into(),
        },
        5 => Message::EchoRequest {
            identifier: reader.u32()?,
        },
        6 => Message::EchoReply {
            identifier: reader.u32()?,
            result: reader.u8()?.into(),
            error: reader.u8()?.into(),
        },
        7 => {
            let (call_id, serial) = (reader.u16()?, reader.u16()?);
            let _speeds_bearer_framing = reader.take(16)?;
            Message::OutgoingCallRequest {
                call_id,
                serial,
                window: reader.u16()?,
            }
        }
        8 => {
            let (call_id, peer_call_id) = (reader.u16()?, reader.u16()?);
            let (result, error) = (reader.u8()?.into(), reader.u8()?.into());
            let _cause_speed = reader.take(6)?;
            Message::OutgoingCallReply(OutgoingReply {
                call_id,
                peer_call_id,
                result,
                error,
                window: reader.u16()?,
            })
        }
        9 => Message::IncomingCallRequest {
            call_id: reader.u16()?,
        },
        12 => Message::CallClearRequest {
            call_id: reader.u16()?,
        },
        13 => Message::CallDisconnectNotify(Disconnect {
            call_id: reader.u16()?,
            result: reader.u8()?.into(),
            error: reader.u8()?.into(),
        }),
        _ => Message::Ignored(kind),
    }))
}

fn host(version: u16, reader: &mut Reader<'_>) -> Option<Host> {
    let _framing_bearer = reader.take(8)?;
    let max_channels = reader.u16()?;
    let _firmware = reader.u16()?;
    Some(Host {
        version,
        max_channels,
        name: Text(reader.array()?),
        vendor: Text(reader.array()?),
    })
}

/// Appends numbers in network byte order.
trait Put {
    fn put16(&mut self, value: u16) -> &mut Self;
    fn put32(&mut self, value: u32) -> &mut Self;
    fn put(&mut self, bytes: &[u8]) -> &mut Self;
}

impl Put for Vec<u8> {
    fn put16(&mut self, value: u16) -> &mut Self {
        self.put(&value.to_be_bytes())
    }

    fn put32(&mut self, value: u32) -> &mut Self {
        self.put(&value.to_be_bytes())
    }

    fn put(&mut self, bytes: &[u8]) -> &mut Self {
        self.extend_from_slice(bytes);
        self
    }
}

/// Appends the bytes of a message, without zeros at its end.
fn write(message: &Message, out: &mut Vec<u8>) {
    let kind = message.kind();
    let len = Message::len_of(kind).unwrap_or(HEADER_LEN);
    // The length is at most 220.
    out.put16(len as u16).put16(1).put32(COOKIE);
    out.put16(kind).put16(0);
    match message {
        Message::StartRequest(host) => {
            out.put16(host.version).put16(0);
            put_host(host, out);
        }
        Message::StartReply {
            host,
            result,
            error,
        } => {
            out.put16(host.version).put(&[result.code(), error.code()]);
            put_host(host, out);
        }
        Message::StopRequest(reason) => {
            out.put(&[reason.code()]);
        }
        Message::StopReply { result, error } => {
            out.put(&[result.code(), error.code()]);
        }
        Message::EchoRequest { identifier } => {
            out.put32(*identifier);
        }
        Message::EchoReply {
            identifier,
            result,
            error,
        } => {
            out.put32(*identifier);
            out.put(&[result.code(), error.code()]);
        }
        Message::OutgoingCallRequest {
            call_id,
            serial,
            window,
        } => {
            out.put16(*call_id).put16(*serial);
            // The lowest and the highest speed, in bits per second.
            out.put32(2_400).put32(HIGHEST_SPEED);
            out.put32(BOTH).put32(BOTH).put16(*window);
        }
        Message::OutgoingCallReply(reply) => {
            out.put16(reply.call_id).put16(reply.peer_call_id);
            out.put(&[reply.result.code(), reply.error.code()]);
            out.put16(0).put32(HIGHEST_SPEED).put16(reply.window);
        }
        Message::IncomingCallReply { peer_call_id } => {
            // Our call ID, the request's, and the result "not accepted".
            out.put16(0).put16(*peer_call_id).put(&[3]);
        }
        Message::IncomingCallRequest { call_id } | Message::CallClearRequest { call_id } => {
            out.put16(*call_id);
        }
        Message::CallDisconnectNotify(notify) => {
            out.put16(notify.call_id);
            out.put(&[notify.result.code(), notify.error.code()]);
        }
        Message::SetLinkInfo { peer_call_id } => {
            out.put16(*peer_call_id).put16(0);
            out.put32(u32::MAX).put32(u32::MAX);
        }
        Message::Ignored(_) => {}
    }
}

fn put_host(host: &Host, out: &mut Vec<u8>) {
    // The firmware's version is 1.
    out.put32(BOTH)
        .put32(BOTH)
        .put16(host.max_channels)
        .put16(1);
    out.put(&host.name.0).put(&host.vendor.0);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn echo(identifier: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        Message::EchoRequest { identifier }.write(&mut bytes);
        bytes
    }

    #[test]
    fn messages_are_the_same_however_they_are_cut() {
        let bytes = [echo(1), echo(2), echo(3)].concat();
        for size in 1..bytes.len() {
            let mut stream = Stream::new();
            let mut found = Vec::new();
            for mut part in bytes.chunks(size) {
                while let Some(message) = stream.next(&mut part) {
                    found.push(message.unwrap());
                }
            }
            let expected = [1, 2, 3].map(|identifier| Message::EchoRequest { identifier });
            assert_eq!(found, expected, "parts of {size} bytes");
            assert_eq!(stream.len, 0);
        }
    }

    #[test]
    fn an_unknown_kind_is_skipped_and_a_wrong_cookie_is_for_good() {
        let mut bytes = echo(1);
        bytes[9] = 99;
        bytes.extend(echo(2));
        bytes.extend([0, 16, 0, 1, 0x2a, 0x2b, 0x3c, 0x4d, 0, 5, 0, 0]);
        bytes.extend([0; 4]);
        let mut stream = Stream::new();
        let mut input = bytes.as_slice();
        assert_eq!(stream.next(&mut input), Some(Err(MessageError::Kind(99))));
        assert!(matches!(
            stream.next(&mut input),
            Some(Ok(Message::EchoRequest { identifier: 2 }))
        ));
        for _ in 0..2 {
            let found = stream.next(&mut input);
            assert_eq!(found, Some(Err(MessageError::Cookie(0x2a2b_3c4d))));
        }
    }

    #[test]
    fn a_length_that_no_message_has_is_refused_before_anything_is_stored() {
        for len in [0_u16, 11, 221, u16::MAX] {
            let mut bytes = echo(1);
            bytes[..2].copy_from_slice(&len.to_be_bytes());
            let mut stream = Stream::new();
            assert_eq!(
                stream.next(&mut bytes.as_slice()),
                Some(Err(MessageError::Length(len)))
            );
        }
    }
}
