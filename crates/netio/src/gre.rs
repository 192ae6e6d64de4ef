//! Raw sockets for GRE, IP protocol 47, over IPv4. They send and receive the payload of IP packets, in batches.
//!
//! The kernel writes the IP header of sent packets. Received packets still have theirs, which this module removes. Only
//! opening a socket needs `CAP_NET_RAW`. On a kernel without a GRE module, an open socket also keeps it from answering
//! "protocol unreachable".

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::poll::check;
use crate::udp::send::Writer;
use crate::udp::socket::{from_raw, set_buffers, set_device, set_int, to_raw};
use crate::udp::{Headers, MESSAGES, Source};

/// The longest packet that can be received, including its IP header, in bytes. Longer ones are dropped.
pub const PACKET_MAX: usize = 2048;

/// Minimum length of an IPv4 header, in bytes.
const IP_HEADER: usize = 20;

/// An open, non-blocking raw socket.
#[derive(Debug)]
pub struct GreSocket {
    fd: OwnedFd,
    /// The local address; `None` for all of this host's.
    address: Option<Ipv4Addr>,
}

impl GreSocket {
    /// Opens a socket that receives packets from any address. `address` is the local one, `None` for all; `device` is
    /// for `SO_BINDTODEVICE`; `buffer` is the size of the kernel's queues in bytes, its default when `None`.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`; `EADDRNOTAVAIL` or `ENODEV` if this host does not have the address or device.
    pub fn open(
        address: Option<Ipv4Addr>,
        device: Option<&str>,
        buffer: Option<usize>,
    ) -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no pointers are passed; the result is checked before it is owned.
        let fd = check(unsafe { libc::socket(libc::AF_INET, kind, libc::IPPROTO_GRE) })?;
        // SAFETY: `fd` is a fresh descriptor that nothing else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // Lets routers fragment packets that do not fit, as with UDP.
        let discovery = libc::IP_PMTUDISC_DONT;
        set_int(&fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, discovery)?;
        if let Some(device) = device {
            set_device(&fd, device)?;
        }
        if let Some(bytes) = buffer {
            set_buffers(&fd, bytes);
        }
        if let Some(address) = address {
            let (raw, len) = to_raw((address, 0).into());
            // SAFETY: `raw` is an initialised sockaddr of `len` bytes that lives through the call.
            check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const raw).cast(), len) })?;
        }
        Ok(Self { fd, address })
    }

    /// Sets the mark of sent packets (`SO_MARK`), which routing rules can match.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN`.
    pub fn set_mark(&self, mark: u32) -> io::Result<()> {
        set_int(
            &self.fd,
            libc::SOL_SOCKET,
            libc::SO_MARK,
            mark as libc::c_int,
        )
    }

    /// Receives only packets from `peer` from now on. May be called again for another peer, but the source address of
    /// the first call stays: open a new socket when the host has lost that address. (`AF_UNSPEC` would also forget the
    /// device, and make the socket deaf.) Packets that are queued already are still received.
    ///
    /// # Errors
    /// The host has no route to `peer`.
    pub fn connect(&self, peer: Ipv4Addr) -> io::Result<()> {
        let (raw, len) = to_raw((peer, 0).into());
        // SAFETY: `raw` is an initialised sockaddr of `len` bytes that lives through the call.
        check(unsafe { libc::connect(self.fd.as_raw_fd(), (&raw const raw).cast(), len) }).map(drop)
    }

    /// Receives waiting packets, up to a batch, and returns their number. Packets that are too long are dropped and
    /// counted in [`Received::dropped`]. Skips packets for another address that arrived before the socket was bound.
    ///
    /// # Errors
    /// `WouldBlock` when nothing waits; otherwise the kernel's error. The call consumes errors that ICMP left on the
    /// socket; they mean nothing.
    pub fn receive(&self, into: &mut Received) -> io::Result<usize> {
        into.packets.clear();
        let Headers {
            headers,
            vectors,
            names,
            ..
        } = &mut into.headers;
        for (i, buffer) in into.memory.chunks_exact_mut(PACKET_MAX).enumerate() {
            vectors[i] = libc::iovec {
                iov_base: buffer.as_mut_ptr().cast(),
                iov_len: buffer.len(),
            };
            let header = &mut headers[i].msg_hdr;
            header.msg_name = (&raw mut names[i]).cast();
            header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            header.msg_iov = &raw mut vectors[i];
            header.msg_iovlen = 1;
            header.msg_control = std::ptr::null_mut();
            header.msg_controllen = 0;
            header.msg_flags = 0;
        }
        // SAFETY: each of the first `MESSAGES` headers points to live buffers of the lengths that it states.
        let got = check(unsafe {
            libc::recvmmsg(
                self.fd.as_raw_fd(),
                headers.as_mut_ptr(),
                MESSAGES as libc::c_uint,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        })? as usize;
        for i in 0..got {
            let (start, len) = (i * PACKET_MAX, headers[i].msg_len as usize);
            let whole = headers[i].msg_hdr.msg_flags & libc::MSG_TRUNC == 0;
            let buffer = into.memory.get(start..start + PACKET_MAX);
            let called = buffer.and_then(destination);
            if self.address.is_some() && called != self.address {
                continue;
            }
            let payload = into.memory.get(start..start + len).and_then(ip_payload);
            let ends = from_raw(&names[i]).map(|from| from.ip()).zip(called);
            match (payload, ends) {
                (Some(payload), Some((IpAddr::V4(from), called))) if whole => {
                    let place = start + payload.start..start + payload.end;
                    into.packets.push(((from, called), place));
                }
                _ => into.dropped += 1,
            }
        }
        Ok(into.packets.len())
    }

    /// Sends the collected packets in order, and empties the batch. Returns how many were not sent: when the queue is
    /// full, the rest is dropped, as on a congested link.
    pub fn send(&self, batch: &mut Outgoing) -> u64 {
        let mut dropped = 0;
        let mut first = 0;
        while first < batch.packets.len() {
            let count = (batch.packets.len() - first).min(MESSAGES);
            match self.submit(batch, first, count) {
                Ok(sent) => first += sent.max(1),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    dropped += (batch.packets.len() - first) as u64;
                    break;
                }
                // The kernel refuses the first packet, or reports an error that ICMP left.
                Err(_) => {
                    dropped += 1;
                    first += 1;
                }
            }
        }
        batch.clear();
        dropped
    }

    fn submit(&self, batch: &mut Outgoing, first: usize, count: usize) -> io::Result<usize> {
        let Headers {
            headers,
            vectors,
            names,
            controls,
        } = &mut batch.headers;
        let packets = batch.packets[first..first + count].iter();
        for (i, ((to, from), place)) in packets.enumerate() {
            let (name, name_len) = to_raw(SocketAddr::new((*to).into(), 0));
            names[i] = name;
            let payload = &mut batch.memory[place.clone()];
            vectors[i] = libc::iovec {
                iov_base: payload.as_mut_ptr().cast(),
                iov_len: payload.len(),
            };
            let header = &mut headers[i].msg_hdr;
            header.msg_name = (&raw mut names[i]).cast();
            header.msg_namelen = name_len;
            header.msg_iov = &raw mut vectors[i];
            header.msg_iovlen = 1;
            header.msg_control = std::ptr::null_mut();
            header.msg_controllen = 0;
            // A bound socket needs no source address for each packet.
            if let Some(from) = from.filter(|_| self.address.is_none()) {
                let mut control = Writer::new(&mut controls[i]);
                control.source(Source {
                    ip: from.into(),
                    ifindex: 0,
                });
                header.msg_controllen = control.len() as _;
                header.msg_control = controls[i].0.as_mut_ptr().cast();
            }
            header.msg_flags = 0;
        }
        // SAFETY: each of the first `count` headers points to live buffers of the lengths that it states.
        let sent = check(unsafe {
            libc::sendmmsg(
                self.fd.as_raw_fd(),
                headers.as_mut_ptr(),
                count as libc::c_uint,
                libc::MSG_DONTWAIT as _,
            )
        })?;
        Ok(sent as usize)
    }
}

impl AsFd for GreSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The destination of an IPv4 packet.
fn destination(packet: &[u8]) -> Option<Ipv4Addr> {
    let octets: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
    Some(octets.into())
}

/// The payload's range in an IPv4 packet. The IP header gives its length, since a link may have padded the packet.
fn ip_payload(packet: &[u8]) -> Option<Range<usize>> {
    let (&first, total) = (packet.first()?, packet.get(2..4)?);
    let start = usize::from(first & 0x0f) * 4;
    let end = usize::from(u16::from_be_bytes([total[0], total[1]])).min(packet.len());
    (first >> 4 == 4 && start >= IP_HEADER && start <= end).then_some(start..end)
}

/// A batch of received packets, and the memory for it, about 150 KiB.
pub struct Received {
    memory: Vec<u8>,
    headers: Headers,
    /// The sender, our address, and the range of each packet in the memory.
    packets: Vec<((Ipv4Addr, Ipv4Addr), Range<usize>)>,
    /// Packets that were too long, or had no IPv4 header.
    pub dropped: u64,
}

impl Default for Received {
    fn default() -> Self {
        Self::new()
    }
}

impl Received {
    /// Allocates the memory.
    #[must_use]
    pub fn new() -> Self {
        Self {
            memory: vec![0; MESSAGES * PACKET_MAX],
            headers: Headers::new(),
            packets: Vec::with_capacity(MESSAGES),
            dropped: 0,
        }
    }

    /// The packet with this index, which must be below the count from [`GreSocket::receive`]: its sender, our address
    /// that it was sent to, and its payload.
    pub fn packet(&mut self, at: usize) -> Option<((Ipv4Addr, Ipv4Addr), &mut [u8])> {
        let (ends, place) = self.packets.get(at)?.clone();
        Some((ends, self.memory.get_mut(place)?))
    }
}

impl std::fmt::Debug for Received {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Received")
            .field("packets", &self.packets)
            .finish_non_exhaustive()
    }
}

/// The destination of a packet, and its source address if the caller chose one.
type Ends = (Ipv4Addr, Option<Ipv4Addr>);

/// Packets to be sent, one after the other in reused memory.
pub struct Outgoing {
    memory: Vec<u8>,
    headers: Headers,
    /// The destination, our address, and the range of each packet in the memory.
    packets: Vec<(Ends, Range<usize>)>,
}

impl Default for Outgoing {
    fn default() -> Self {
        Self::new()
    }
}

impl Outgoing {
    /// Creates an empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self {
            memory: Vec::with_capacity(MESSAGES * PACKET_MAX),
            headers: Headers::new(),
            packets: Vec::with_capacity(MESSAGES),
        }
    }

    /// Adds the packet that `write` appends to the memory. `write` returns the destination, and our source address or
    /// `None` for the kernel's choice. A `write` that returns `None` adds no packet.
    pub fn push(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>) -> Option<(Ipv4Addr, Option<Ipv4Addr>)>,
    ) {
        let start = self.memory.len();
        match write(&mut self.memory) {
            Some(to) => self.packets.push((to, start..self.memory.len())),
            None => self.memory.truncate(start),
        }
    }

    /// The number of packets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Whether there is nothing to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    fn clear(&mut self) {
        self.memory.clear();
        self.packets.clear();
    }
}

impl std::fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outgoing")
            .field("packets", &self.packets)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll::Poller;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Mutex, MutexGuard, PoisonError};
    use std::thread;
    use std::time::Duration;

    const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;

    /// Raw sockets receive each other's packets: one test at a time.
    fn exclusive() -> MutexGuard<'static, ()> {
        static ONE: Mutex<()> = Mutex::new(());
        ONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn packet(batch: &mut Outgoing, to: Ipv4Addr, payload: &[u8]) {
        batch.push(|memory| {
            memory.extend_from_slice(payload);
            Some((to, None))
        });
    }

    /// Receives `count` packets from one address, ignoring other senders.
    fn receive(socket: &GreSocket, count: usize, from: Ipv4Addr) -> Vec<Vec<u8>> {
        let poller = Poller::new().unwrap();
        poller.add(socket, 0).unwrap();
        let (mut received, mut all) = (Received::new(), Vec::new());
        while all.len() < count {
            let ready = poller.wait(Some(Duration::from_secs(20))).unwrap();
            assert!(!ready.is_empty(), "{} of {count}", all.len());
            let got = socket.receive(&mut received).unwrap();
            for at in 0..got {
                let ((sender, _), payload) = received.packet(at).unwrap();
                if sender == from {
                    all.push(payload.to_vec());
                }
            }
        }
        all
    }

    #[test]
    fn a_batch_arrives_whole_in_order_and_without_ip_headers() {
        let _exclusive = exclusive();
        let Some(socket) = lab::require(GreSocket::open(Some(HERE), Some("lo"), Some(1 << 20)))
        else {
            return;
        };
        let mut batch = Outgoing::new();
        let payload = |n: usize| vec![n as u8; 20 + n * 9];
        for n in 0..150 {
            packet(&mut batch, HERE, &payload(n));
        }
        batch.push(|memory| {
            memory.extend_from_slice(b"given up");
            None
        });
        assert_eq!((batch.len(), socket.send(&mut batch)), (150, 0));
        assert!(batch.is_empty());
        let all = receive(&socket, 150, HERE);
        for (n, found) in all.iter().enumerate() {
            assert_eq!(*found, payload(n), "{n}");
        }
    }

    #[test]
    fn a_connected_socket_hears_its_peer_only() {
        let _exclusive = exclusive();
        let opened = GreSocket::open(Some([127, 0, 0, 3].into()), None, None);
        let Some(socket) = lab::require(opened) else {
            return;
        };
        let peer = Ipv4Addr::new(127, 0, 0, 4);
        socket.connect(peer).unwrap();
        let mut batch = Outgoing::new();
        for from in [[127, 0, 0, 5].into(), peer] {
            let sender = GreSocket::open(Some(from), None, None).unwrap();
            packet(&mut batch, [127, 0, 0, 3].into(), &from.octets());
            assert_eq!(sender.send(&mut batch), 0);
        }
        let mut received = Received::new();
        let poller = Poller::new().unwrap();
        poller.add(&socket, 0).unwrap();
        poller.wait(Some(Duration::from_secs(20))).unwrap();
        assert_eq!(socket.receive(&mut received).unwrap(), 1);
        let ((from, _), payload) = received.packet(0).unwrap();
        assert_eq!((from, &*payload), (peer, &peer.octets()[..]));
        let nothing = socket.receive(&mut received).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_packet_too_long_is_counted_and_those_around_it_arrive() {
        let _exclusive = exclusive();
        let opened = GreSocket::open(Some([127, 0, 0, 6].into()), None, None);
        let Some(socket) = lab::require(opened) else {
            return;
        };
        let mut batch = Outgoing::new();
        for len in [30, 3000, 40] {
            packet(&mut batch, [127, 0, 0, 6].into(), &vec![1; len]);
        }
        assert_eq!(socket.send(&mut batch), 0);
        let poller = Poller::new().unwrap();
        poller.add(&socket, 0).unwrap();
        let (mut received, mut lengths) = (Received::new(), Vec::new());
        // A busy kernel delivers the packets one by one.
        while lengths.len() < 2 || received.dropped < 1 {
            let ready = poller.wait(Some(Duration::from_secs(20))).unwrap();
            assert!(!ready.is_empty(), "{lengths:?}, {}", received.dropped);
            let got = socket.receive(&mut received).unwrap();
            lengths.extend((0..got).map(|at| received.packet(at).unwrap().1.len()));
        }
        assert_eq!((lengths, received.dropped), (vec![30, 40], 1));
    }

    #[test]
    fn a_bound_socket_has_not_heard_what_came_before_it_was_bound() {
        let _exclusive = exclusive();
        let (here, other) = (Ipv4Addr::new(127, 0, 0, 7), Ipv4Addr::new(127, 0, 0, 8));
        let Some(sender) = lab::require(GreSocket::open(Some(other), None, None)) else {
            return;
        };
        let done = AtomicBool::new(false);
        let heard = thread::scope(|scope| {
            scope.spawn(|| {
                let mut batch = Outgoing::new();
                while !done.load(Ordering::Relaxed) {
                    packet(&mut batch, other, b"not for that address");
                    sender.send(&mut batch);
                }
            });
            let mut received = Received::new();
            // No panic is possible here, because the sender would never stop.
            let opened = (0..200).map_while(|_| GreSocket::open(Some(here), None, None).ok());
            let heard = opened.map(|socket| socket.receive(&mut received).unwrap_or(0));
            let heard: Vec<usize> = heard.collect();
            done.store(true, Ordering::Relaxed);
            heard
        });
        assert_eq!(heard, [0; 200]);
    }

    #[test]
    fn lengths_of_headers_that_cannot_be_are_refused() {
        let packet = |first: u8, total: u16, len: usize| {
            let mut packet = vec![0; len];
            if len >= 4 {
                packet[0] = first;
                packet[2..4].copy_from_slice(&total.to_be_bytes());
            }
            ip_payload(&packet)
        };
        assert_eq!(packet(0x45, 28, 28), Some(20..28));
        assert_eq!(packet(0x46, 28, 46), Some(24..28));
        assert_eq!(packet(0x45, 500, 28), Some(20..28));
        for wrong in [
            (0x44, 28, 28),
            (0x65, 28, 28),
            (0x4f, 28, 28),
            (0x45, 9, 28),
            (0x45, 1, 1),
        ] {
            assert_eq!(packet(wrong.0, wrong.1, wrong.2), None, "{wrong:?}");
        }
    }
}
