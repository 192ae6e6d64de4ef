//! The fields of each message, in their order on the wire (RFC 2637, section 2).

use crate::bytes::Reader;
use crate::control::message::{
    COOKIE, Disconnect, HEADER_LEN, Host, IncomingCall, IncomingConnected, IncomingReply, LinkInfo,
    Message, MessageError, OutgoingCall, OutgoingReply, WanErrors,
};
use crate::control::text::Text;

/// Reads a message whose cookie and length were checked; `None` if the slice is too short.
pub(super) fn parse(reader: &mut Reader<'_>) -> Option<Result<Message, MessageError>> {
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
        7 => Message::OutgoingCallRequest(outgoing_call(reader)?),
        8 => Message::OutgoingCallReply(OutgoingReply {
            call_id: reader.u16()?,
            peer_call_id: reader.u16()?,
            result: reader.u8()?.into(),
            error: reader.u8()?.into(),
            cause: reader.u16()?,
            speed: reader.u32()?,
            window: reader.u16()?,
            delay: reader.u16()?,
            channel: reader.u32()?,
        }),
        9 => Message::IncomingCallRequest(IncomingCall {
            call_id: reader.u16()?,
            serial: reader.u16()?,
            bearer: reader.u32()?,
            channel: reader.u32()?,
            dialed_len: reader.u16()?,
            dialing_len: reader.u16()?,
            dialed: Text(reader.array()?),
            dialing: Text(reader.array()?),
            subaddress: Text(reader.array()?),
        }),
        10 => Message::IncomingCallReply(IncomingReply {
            call_id: reader.u16()?,
            peer_call_id: reader.u16()?,
            result: reader.u8()?.into(),
            error: reader.u8()?.into(),
            window: reader.u16()?,
            delay: reader.u16()?,
        }),
        11 => {
            let peer_call_id = reader.u16()?;
            let _reserved = reader.u16()?;
            Message::IncomingCallConnected(IncomingConnected {
                peer_call_id,
                speed: reader.u32()?,
                window: reader.u16()?,
                delay: reader.u16()?,
                framing: reader.u32()?,
            })
        }
        12 => Message::CallClearRequest {
            call_id: reader.u16()?,
        },
        13 => {
            let call_id = reader.u16()?;
            let result = reader.u8()?.into();
            let error = reader.u8()?.into();
            let cause = reader.u16()?;
            let _reserved = reader.u16()?;
            Message::CallDisconnectNotify(Disconnect {
                call_id,
                result,
                error,
                cause,
                statistics: Text(reader.array()?),
            })
        }
        14 => {
            let peer_call_id = reader.u16()?;
            let _reserved = reader.u16()?;
            let mut counters = [0; 6];
            for counter in &mut counters {
                *counter = reader.u32()?;
            }
            Message::WanErrorNotify(WanErrors {
                peer_call_id,
                counters,
            })
        }
        // Kind 15: `len_of` accepts no other kind.
        _ => {
            let peer_call_id = reader.u16()?;
            let _reserved = reader.u16()?;
            Message::SetLinkInfo(LinkInfo {
                peer_call_id,
                send_accm: reader.u32()?,
                receive_accm: reader.u32()?,
            })
        }
    }))
}

fn host(version: u16, reader: &mut Reader<'_>) -> Option<Host> {
    Some(Host {
        version,
        framing: reader.u32()?,
        bearer: reader.u32()?,
        max_channels: reader.u16()?,
        firmware: reader.u16()?,
        name: Text(reader.array()?),
        vendor: Text(reader.array()?),
    })
}

fn outgoing_call(reader: &mut Reader<'_>) -> Option<OutgoingCall> {
    let call_id = reader.u16()?;
    let serial = reader.u16()?;
    let min_bps = reader.u32()?;
    let max_bps = reader.u32()?;
    let bearer = reader.u32()?;
    let framing = reader.u32()?;
    let window = reader.u16()?;
    let delay = reader.u16()?;
    let number_len = reader.u16()?;
    let _reserved = reader.u16()?;
    Some(OutgoingCall {
        call_id,
        serial,
        min_bps,
        max_bps,
        bearer,
        framing,
        window,
        delay,
        number_len,
        number: Text(reader.array()?),
        subaddress: Text(reader.array()?),
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

/// Appends the bytes of a message.
pub(super) fn write(message: &Message, out: &mut Vec<u8>) {
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
            out.put(&[reason.code(), 0, 0, 0]);
        }
        Message::StopReply { result, error } => {
            out.put(&[result.code(), error.code(), 0, 0]);
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
            out.put(&[result.code(), error.code(), 0, 0]);
        }
        Message::OutgoingCallRequest(call) => {
            out.put16(call.call_id).put16(call.serial);
            out.put32(call.min_bps).put32(call.max_bps);
            out.put32(call.bearer).put32(call.framing);
            out.put16(call.window).put16(call.delay);
            out.put16(call.number_len).put16(0);
            out.put(&call.number.0).put(&call.subaddress.0);
        }
        Message::OutgoingCallReply(reply) => {
            out.put16(reply.call_id).put16(reply.peer_call_id);
            out.put(&[reply.result.code(), reply.error.code()]);
            out.put16(reply.cause).put32(reply.speed);
            out.put16(reply.window).put16(reply.delay);
            out.put32(reply.channel);
        }
        Message::IncomingCallRequest(call) => {
            out.put16(call.call_id).put16(call.serial);
            out.put32(call.bearer).put32(call.channel);
            out.put16(call.dialed_len).put16(call.dialing_len);
            out.put(&call.dialed.0).put(&call.dialing.0);
            out.put(&call.subaddress.0);
        }
        Message::IncomingCallReply(reply) => {
            out.put16(reply.call_id).put16(reply.peer_call_id);
            out.put(&[reply.result.code(), reply.error.code()]);
            out.put16(reply.window).put16(reply.delay).put16(0);
        }
        Message::IncomingCallConnected(call) => {
            out.put16(call.peer_call_id).put16(0).put32(call.speed);
            out.put16(call.window).put16(call.delay);
            out.put32(call.framing);
        }
        Message::CallClearRequest { call_id } => {
            out.put16(*call_id).put16(0);
        }
        Message::CallDisconnectNotify(notify) => {
            out.put16(notify.call_id);
            out.put(&[notify.result.code(), notify.error.code()]);
            out.put16(notify.cause).put16(0);
            out.put(&notify.statistics.0);
        }
        Message::WanErrorNotify(errors) => {
            out.put16(errors.peer_call_id).put16(0);
            for counter in errors.counters {
                out.put32(counter);
            }
        }
        Message::SetLinkInfo(info) => {
            out.put16(info.peer_call_id).put16(0);
            out.put32(info.send_accm).put32(info.receive_accm);
        }
    }
}

fn put_host(host: &Host, out: &mut Vec<u8>) {
    out.put32(host.framing).put32(host.bearer);
    out.put16(host.max_channels).put16(host.firmware);
    out.put(&host.name.0).put(&host.vendor.0);
}
