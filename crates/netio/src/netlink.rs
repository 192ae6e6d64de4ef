//! Netlink, without calling any program: links, addresses, routes and rules; [`masquerade`]; reading the packet filter;
//! and the kernel's data plane of OpenVPN.
//!
//! Requests use a synchronous socket, one at a time, each answered before the call returns. This module writes requests
//! and reads answers attribute by attribute. It skips unknown or oddly sized attributes, because vendor kernels change
//! structures that this program does not use.

mod address;
mod conntrack;
mod error;
mod generic;
mod link;
pub mod masquerade;
mod monitor;
mod nftables;
mod ovpn;
mod request;
mod route;
mod rule;
mod sets;
mod source_nat;
#[cfg(feature = "steer")]
mod tc;
#[cfg(feature = "postquantum")]
mod wireguard;

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_ACK_TLVS, NLM_F_CAPPED, NLM_F_DUMP, NLM_F_DUMP_INTR, NLMSG_DONE, NLMSG_ERROR,
    NetlinkBuffer, NlasIterator,
};
use netlink_sys::protocols::{NETLINK_NETFILTER, NETLINK_ROUTE};
use netlink_sys::{Socket, SocketAddr};

pub use address::{Address, Neighbour};
pub use conntrack::Flow;
pub use error::NetlinkError;
pub use link::{Counters, Link, VethEnd};
pub use monitor::{Event, Monitor, Watch};
pub use nftables::{
    Chain, ChainRule, ChainsWatch, HOOK_FORWARD, HOOK_INPUT, HOOK_OUTPUT, HOOK_POSTROUTING,
    HOOK_PREROUTING,
};
pub use ovpn::{
    OVPN_NONCE_TAIL, Ovpn, OvpnCipher, OvpnDirection, OvpnEvent, OvpnFamily, OvpnFigures, OvpnKey,
    OvpnMode, OvpnMonitor, OvpnPeer, OvpnPeerState, OvpnSlot, PeerEnd,
};
pub use route::{Route, RouteKind, RouteLookup, TABLE_LOCAL, TABLE_MAIN};
pub use rule::{DeviceName, Further, Rule, RuleAction};
pub use source_nat::{Forwarded, SourceNat};
#[cfg(feature = "steer")]
pub use tc::Redirection;
#[cfg(feature = "postquantum")]
pub use wireguard::{WireGuard, WireGuardDevice, WireGuardPeer};

use request::Body;

/// Bytes of the receive buffer. The kernel cuts dumps to the reader's buffer but never beyond 32 KiB.
const BUFFER_SIZE: usize = 32 * 1024;

/// Number of retries for a dump that was interrupted by changes; then the last answer is used, possibly inconsistent.
/// On a router with a busy routing daemon no dump may ever succeed.
const DUMP_ATTEMPTS: usize = 4;

/// Address family of a route or rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The family that `ip` belongs to.
    pub fn of(ip: IpAddr) -> Self {
        if ip.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    fn wire(self) -> u8 {
        // Both constants fit.
        match self {
            Self::V4 => libc::AF_INET as u8,
            Self::V6 => libc::AF_INET6 as u8,
        }
    }

    fn from_wire(byte: u8) -> Option<Self> {
        match i32::from(byte) {
            libc::AF_INET => Some(Self::V4),
            libc::AF_INET6 => Some(Self::V6),
            _ => None,
        }
    }

    /// The address of all zeroes.
    pub(super) fn unspecified(self) -> IpAddr {
        match self {
            Self::V4 => IpAddr::from([0u8; 4]),
            Self::V6 => IpAddr::from([0u8; 16]),
        }
    }

    /// Bits of an address, 32 or 128.
    pub fn bits(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }
}

/// A synchronous routing netlink socket.
///
/// Uses the network namespace of the thread that opened it, even if that thread moves to another one.
#[derive(Debug)]
pub struct Netlink {
    socket: Socket,
    sequence: u32,
    buffer: Box<[u8]>,
}

impl Netlink {
    /// Opens a socket in the network namespace of the current thread.
    ///
    /// # Errors
    /// [`NetlinkError::Open`] if the kernel has no routing netlink or no descriptor to spare.
    pub fn open() -> Result<Self, NetlinkError> {
        Self::open_for(NETLINK_ROUTE)
    }

    fn open_for(protocol: isize) -> Result<Self, NetlinkError> {
        let mut socket = Socket::new(protocol).map_err(NetlinkError::Open)?;
        socket.bind_auto().map_err(NetlinkError::Open)?;
        socket
            .connect(&SocketAddr::new(0, 0))
            .map_err(NetlinkError::Open)?;
        // Kernels have both since about 4.12; they only make errors readable.
        let _ = socket.set_ext_ack(true);
        let _ = socket.set_cap_ack(true);
        Ok(Self {
            socket,
            sequence: 0,
            buffer: vec![0; BUFFER_SIZE].into_boxed_slice(),
        })
    }

    /// Requests a change with a message of this type, and waits until the kernel has made it.
    fn change(
        &mut self,
        kind: u16,
        body: &Body,
        flags: u16,
        operation: &'static str,
        object: fmt::Arguments<'_>,
    ) -> Result<(), NetlinkError> {
        self.exchange(
            kind,
            body,
            NLM_F_ACK | flags,
            operation,
            object,
            &mut |_| {},
        )
        .map(drop)
    }

    /// Requests one object; `read` gets the body of the answer.
    fn query<T>(
        &mut self,
        kind: u16,
        body: &Body,
        operation: &'static str,
        object: fmt::Arguments<'_>,
        read: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<T, NetlinkError> {
        let mut answer = None;
        self.exchange(kind, body, NLM_F_ACK, operation, object, &mut |body| {
            answer = answer.take().or_else(|| read(body));
        })?;
        answer.ok_or_else(|| NetlinkError::Answer {
            operation,
            object: object.to_string(),
            reason: "an acknowledgement without an object".to_owned(),
        })
    }

    /// Requests all objects of a kind. `read` returns `None` for objects that the caller does not want.
    fn dump<T>(
        &mut self,
        kind: u16,
        body: &Body,
        operation: &'static str,
        read: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<Vec<T>, NetlinkError> {
        let mut found = Vec::new();
        for _ in 0..DUMP_ATTEMPTS {
            found.clear();
            let consistent = self.exchange(
                kind,
                body,
                NLM_F_DUMP,
                operation,
                format_args!("of this namespace"),
                &mut |body| found.extend(read(body)),
            )?;
            if consistent {
                break;
            }
        }
        Ok(found)
    }

    /// Sends one request, reads the whole answer and hands every object to `each`. Returns whether the answer was
    /// consistent.
    fn exchange(
        &mut self,
        kind: u16,
        body: &Body,
        flags: u16,
        operation: &'static str,
        object: fmt::Arguments<'_>,
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, NetlinkError> {
        self.sequence = self.sequence.wrapping_add(1);
        let bytes = body.request(kind, flags, self.sequence);

        let socket_error = |error| NetlinkError::Socket {
            operation,
            object: object.to_string(),
            error,
        };
        let answer_error = |reason: String| NetlinkError::Answer {
            operation,
            object: object.to_string(),
            reason,
        };
        retry(|| self.socket.send(&bytes, 0)).map_err(socket_error)?;

        let mut consistent = true;
        loop {
            let length = receive(&self.socket, &mut self.buffer).map_err(socket_error)?;
            for message in messages(&self.buffer[..length]) {
                let message = message.map_err(answer_error)?;
                // An answer to an earlier request that this program gave up on.
                if message.sequence_number() != self.sequence {
                    continue;
                }
                consistent &= message.flags() & NLM_F_DUMP_INTR == 0;
                let body = message.payload();
                match message.message_type() {
                    NLMSG_DONE | NLMSG_ERROR => {
                        // An old kernel's DONE has no code when it succeeds.
                        let code = decode_u32(body).map_or(0, u32::cast_signed);
                        if code == 0 {
                            return Ok(consistent);
                        }
                        return Err(NetlinkError::Refused {
                            operation,
                            object: object.to_string(),
                            error: io::Error::from_raw_os_error(code.saturating_abs()),
                            hint: hint(message.flags(), body).unwrap_or_default(),
                        });
                    }
                    _ => each(body),
                }
            }
        }
    }
}

/// A synchronous socket to the packet filter and the connection table. The kernel answers only processes with
/// CAP_NET_ADMIN.
#[derive(Debug)]
pub struct Netfilter(Netlink);

impl Netfilter {
    /// Opens a socket in the network namespace of the current thread.
    ///
    /// # Errors
    /// [`NetlinkError::Open`] if the kernel has no packet filter or no descriptor to spare.
    pub fn open() -> Result<Self, NetlinkError> {
        Netlink::open_for(NETLINK_NETFILTER).map(Self)
    }
}

impl AsRawFd for Netlink {
    fn as_raw_fd(&self) -> i32 {
        self.socket.as_raw_fd()
    }
}

/// Receives one datagram of netlink messages. Only the kernel, or a process with CAP_NET_ADMIN here, can send to our
/// routing sockets, so the sender's address need not be checked.
fn receive(socket: &Socket, buffer: &mut [u8]) -> io::Result<usize> {
    let room = buffer.len();
    let length = retry(|| {
        let mut window = &mut buffer[..];
        socket.recv(&mut window, libc::MSG_TRUNC)
    })?;
    if length > room {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("answer of {length} bytes is longer than the buffer of {room}"),
        ));
    }
    Ok(length)
}

/// A socket that follows news of the kernel, and never blocks.
#[derive(Debug)]
struct Follower {
    socket: Socket,
    buffer: Box<[u8]>,
    /// Name of the news in errors.
    subject: &'static str,
}

/// The state of a follower's socket.
enum News<'a> {
    /// Messages have arrived.
    Messages(&'a [u8]),
    /// No message waits.
    None,
    /// The socket has lost messages.
    Lost,
}

impl Follower {
    /// Listens to the groups of these bits, in the network namespace of the current thread.
    fn open(protocol: isize, groups: u32, subject: &'static str) -> Result<Self, NetlinkError> {
        let mut socket = Socket::new(protocol).map_err(NetlinkError::Open)?;
        socket
            .bind(&SocketAddr::new(0, groups))
            .map_err(NetlinkError::Open)?;
        socket.set_non_blocking(true).map_err(NetlinkError::Open)?;
        Ok(Self {
            socket,
            buffer: vec![0; BUFFER_SIZE].into_boxed_slice(),
            subject,
        })
    }

    fn receive(&mut self) -> Result<News<'_>, NetlinkError> {
        match receive(&self.socket, &mut self.buffer) {
            Ok(length) => Ok(News::Messages(&self.buffer[..length])),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(News::None),
            Err(error)
                if error.raw_os_error() == Some(libc::ENOBUFS)
                    || error.kind() == io::ErrorKind::InvalidData =>
            {
                Ok(News::Lost)
            }
            Err(error) => Err(NetlinkError::Socket {
                operation: "follow",
                object: self.subject.to_owned(),
                error,
            }),
        }
    }
}

/// Splits a datagram into its messages.
fn messages(datagram: &[u8]) -> impl Iterator<Item = Result<NetlinkBuffer<&[u8]>, String>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        match NetlinkBuffer::new_checked(rest) {
            Ok(message) => {
                let aligned = (message.length() as usize).next_multiple_of(4);
                rest = rest.get(aligned..).unwrap_or_default();
                Some(Ok(message))
            }
            Err(error) => {
                rest = &[];
                Some(Err(error.to_string()))
            }
        }
    })
}

/// The kernel's explanation in an NLMSG_ERROR. After the error code and the request's header comes the request's body,
/// unless capped. Attributes follow, and the first kind of them is the text.
fn hint(flags: u16, body: &[u8]) -> Option<String> {
    const NLMSGERR_ATTR_MSG: u16 = 1;
    if flags & NLM_F_ACK_TLVS == 0 {
        return None;
    }
    let request = body.get(4..)?;
    let skip = if flags & NLM_F_CAPPED == 0 {
        (decode_u32(request)? as usize).checked_next_multiple_of(4)?
    } else {
        16
    };
    attributes(request.get(skip..)?)
        .find(|(kind, _)| *kind == NLMSGERR_ATTR_MSG)
        .map(|(_, value)| decode_str(value))
}

/// The attributes after a body's fixed header, up to the first truncated one.
fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    NlasIterator::new(bytes).map_while(|attribute| {
        let attribute = attribute.ok()?;
        let end = usize::from(attribute.length());
        Some((attribute.kind(), attribute.into_inner().get(4..end)?))
    })
}

fn decode_u32(value: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(value.get(..4)?.try_into().ok()?))
}

fn decode_str(value: &[u8]) -> String {
    let end = value.iter().position(|&b| b == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

fn decode_ip(value: &[u8]) -> Option<IpAddr> {
    match value.len() {
        4 => Some(IpAddr::from(<[u8; 4]>::try_from(value).ok()?)),
        16 => Some(IpAddr::from(<[u8; 16]>::try_from(value).ok()?)),
        _ => None,
    }
}

fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_datagrams_end_without_a_panic() {
        for length in 0..64 {
            for fill in [0u8, 1, 0x10, 0x7f, 0xff] {
                let datagram = vec![fill; length];
                for message in messages(&datagram).flatten() {
                    let _ = hint(message.flags(), message.payload());
                    let _ = attributes(message.payload()).count();
                }
            }
        }
    }

    #[test]
    fn hint_is_read_behind_a_capped_and_a_whole_request() {
        let text = |prefix: &[u8]| {
            let mut body = (-22i32).to_ne_bytes().to_vec();
            body.extend_from_slice(prefix);
            body.extend_from_slice(&8u16.to_ne_bytes());
            body.extend_from_slice(&1u16.to_ne_bytes());
            body.extend_from_slice(b"bad\0");
            body
        };
        let mut request = [0u8; 20];
        request[..4].copy_from_slice(&20u32.to_ne_bytes());
        assert_eq!(
            hint(NLM_F_ACK_TLVS, &text(&request)).as_deref(),
            Some("bad")
        );
        assert_eq!(
            hint(NLM_F_ACK_TLVS | NLM_F_CAPPED, &text(&request[..16])).as_deref(),
            Some("bad")
        );
        assert_eq!(hint(0, &text(&request)), None);
    }
}
