//! Sends trains: one message each with `UDP_SEGMENT`, otherwise one message per datagram and many messages per system
//! call.
//! [`UdpSocket::send_whole`] sends a single datagram that must not be fragmented, on a socket whose other datagrams may
//! be.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use plane::{Ecn, Endpoint, Source};

use crate::poll::check;
use crate::udp::socket::{Family, UdpSocket, set_int, to_raw};
use crate::udp::{CONTROL_LEN, Control, Headers, MAX_SEGMENTS, MAX_TRAIN_BYTES, MESSAGES};

/// How long a batch waits in total for room in a full socket buffer; then the rest of the batch is dropped. A queue
/// without room for this long belongs to a dead link, not a busy one.
const PATIENCE: Duration = Duration::from_millis(100);

/// A run of equal datagrams to one endpoint.
#[derive(Clone, Copy, Debug)]
pub struct Train {
    /// Offset of the first byte in the memory passed along.
    pub start: u32,
    /// Length of all datagrams together, in bytes.
    pub len: u32,
    /// Length of each datagram, in bytes; the last may be shorter. Not 0.
    pub segment: u32,
    /// Destination of the datagrams.
    pub endpoint: Endpoint,
    /// Outer ECN bits.
    pub ecn: Ecn,
}

impl Train {
    /// One datagram of `len` bytes at the start of the memory, without ECN.
    #[must_use]
    pub const fn single(len: u32, endpoint: Endpoint) -> Self {
        Self {
            start: 0,
            len,
            segment: len,
            endpoint,
            ecn: Ecn::NotEct,
        }
    }

    /// Number of datagrams in the train.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.len.div_ceil(self.segment.max(1))
    }
}

/// The result of a send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendReport {
    /// Number of datagrams handed to the kernel.
    pub sent: u64,
    /// Number of datagrams that the kernel refused.
    pub dropped: u64,
    /// Number of system calls made.
    pub syscalls: u64,
    /// `errno` of the last refusal; 0 for none. `EMSGSIZE` also stands for a train that was refused for the length of its
    /// datagrams, even if these were sent one by one.
    pub errno: i32,
    /// A sticky source address is no longer this host's: forget it.
    pub source_gone: bool,
}

/// Preallocated message headers for one sender.
pub struct SendScratch {
    headers: Headers,
    pending: Vec<Train>,
    /// The rest of [`PATIENCE`] for the current batch.
    patience: Duration,
}

impl Default for SendScratch {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for SendScratch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SendScratch").finish_non_exhaustive()
    }
}

impl SendScratch {
    /// Allocates the headers, about 22 KiB.
    #[must_use]
    pub fn new() -> Self {
        Self {
            headers: Headers::new(),
            pending: Vec::with_capacity(2 * MESSAGES),
            patience: PATIENCE,
        }
    }

    /// Begins a batch, which may wait again for a full socket buffer: 100 ms at most over all its calls of
    /// [`UdpSocket::send_trains`].
    pub fn begin_batch(&mut self) {
        self.patience = PATIENCE;
    }
}

impl UdpSocket {
    /// Sends `trains` out of `memory` in order.
    ///
    /// Every train must be of this socket's family. Datagrams that the kernel refuses are dropped and counted. If the
    /// socket buffer is full, this waits briefly. When the batch's time for that is over
    /// ([`SendScratch::begin_batch`]), the remaining trains are dropped and counted.
    pub fn send_trains(
        &self,
        scratch: &mut SendScratch,
        memory: &[u8],
        trains: &[Train],
    ) -> SendReport {
        let mut report = SendReport::default();
        let mut pending = std::mem::take(&mut scratch.pending);
        for train in trains {
            self.split(train, self.gso.on(), &mut pending);
            if pending.len() >= MESSAGES {
                self.flush(scratch, memory, &mut pending, &mut report);
            }
        }
        self.flush(scratch, memory, &mut pending, &mut report);
        scratch.pending = pending;
        report
    }

    /// Cuts a train into what one message can carry.
    fn split(&self, train: &Train, gso: bool, out: &mut Vec<Train>) {
        let segment = train.segment.max(1);
        let per_message = if gso {
            (MAX_TRAIN_BYTES as u32 / segment).clamp(1, MAX_SEGMENTS as u32)
        } else {
            1
        };
        let most = per_message * segment;
        let (mut start, mut left) = (train.start, train.len);
        while left > 0 {
            let len = left.min(most);
            out.push(Train {
                start,
                len,
                segment,
                ..*train
            });
            start += len;
            left -= len;
        }
    }

    fn flush(
        &self,
        scratch: &mut SendScratch,
        memory: &[u8],
        pending: &mut Vec<Train>,
        report: &mut SendReport,
    ) {
        let mut done = 0;
        while done < pending.len() {
            let most = if self.mmsg.on() { MESSAGES } else { 1 };
            let end = pending.len().min(done + most);
            let result = self.submit(scratch, memory, &pending[done..end]);
            report.syscalls += 1;
            match result {
                Ok(n) => {
                    for train in &pending[done..done + n] {
                        report.sent += u64::from(train.count());
                        if train.len > train.segment {
                            self.gso.accepted();
                        }
                    }
                    done += n;
                }
                Err(e) if is_full(&e) => {
                    if !self.wait_writable(&mut scratch.patience) {
                        for train in &pending[done..] {
                            drop_train(&e, train, report);
                        }
                        break;
                    }
                }
                Err(e) => done += self.refused(&e, scratch, memory, pending[done], report),
            }
        }
        pending.clear();
    }

    /// Handles the kernel's refusal of the first submitted train. Returns how many trains are thereby finished: 0 to
    /// try again, 1 to continue with the next.
    #[cold]
    fn refused(
        &self,
        error: &io::Error,
        scratch: &mut SendScratch,
        memory: &[u8],
        train: Train,
        report: &mut SendReport,
    ) -> usize {
        match error.raw_os_error() {
            Some(libc::EINTR) => return 0,
            Some(libc::ENOSYS) if self.mmsg.on() => {
                self.mmsg.demote("the kernel has no sendmmsg");
                return 0;
            }
            // EIO: the device cannot checksum, so the kernel cannot segment for it. EINVAL and
            // EMSGSIZE: segments larger than the path's MTU, or a device that lies.
            Some(libc::EIO) if train.len > train.segment => self.gso.demote(error),
            Some(libc::EINVAL | libc::EMSGSIZE) if train.len > train.segment => {
                report.errno = libc::EMSGSIZE;
                self.gso.rejected(error);
            }
            // The interface may have lost the sticky source address: let the kernel choose.
            Some(libc::EINVAL | libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENODEV)
                if train.endpoint.source.is_some() =>
            {
                let endpoint = Endpoint::new(train.endpoint.addr);
                report.syscalls += 1;
                match self.submit(scratch, memory, &[Train { endpoint, ..train }]) {
                    Ok(_) => {
                        report.source_gone = true;
                        report.sent += u64::from(train.count());
                    }
                    Err(e) => drop_train(&e, &train, report),
                }
                return 1;
            }
            _ => {
                drop_train(error, &train, report);
                return 1;
            }
        }
        // Retry with one datagram per message.
        let mut start = train.start;
        let end = train.start + train.len;
        while start < end {
            let len = train.segment.min(end - start);
            let single = Train {
                start,
                len,
                ..train
            };
            report.syscalls += 1;
            match self.submit(scratch, memory, &[single]) {
                Ok(_) => report.sent += 1,
                Err(e) => match e.raw_os_error() {
                    Some(libc::EINTR) => continue,
                    _ if is_full(&e) && self.wait_writable(&mut scratch.patience) => continue,
                    _ => drop_train(&e, &single, report),
                },
            }
            start += len;
        }
        1
    }

    /// Waits for room, and deducts the time from `patience`. False if there was no room in that time.
    fn wait_writable(&self, patience: &mut Duration) -> bool {
        if patience.is_zero() {
            return false;
        }
        let mut fd = libc::pollfd {
            fd: self.fd.as_raw_fd(),
            events: libc::POLLOUT,
            revents: 0,
        };
        let begun = Instant::now();
        // Rounded up, so that no wait is too short.
        let millis = (*patience + Duration::from_nanos(999_999)).as_millis() as libc::c_int;
        // SAFETY: one pollfd is passed with its count.
        let ready = unsafe { libc::poll(&raw mut fd, 1, millis) };
        *patience = patience.saturating_sub(begun.elapsed());
        // A signal ends a wait early: if time is left, the caller tries again.
        ready > 0 || (ready < 0 && !patience.is_zero())
    }

    /// Makes one `sendmmsg` (or `sendmsg`) call for at most [`MESSAGES`] trains, and returns how many were sent.
    fn submit(
        &self,
        scratch: &mut SendScratch,
        memory: &[u8],
        trains: &[Train],
    ) -> io::Result<usize> {
        let scratch = &mut scratch.headers;
        let count = trains.len().min(MESSAGES);
        #[cfg(feature = "simulated")]
        if let Some(answer) = self.faults.answer(crate::simulated::Call::Send {
            memory,
            trains: &trains[..count],
        }) {
            return answer;
        }
        for (i, train) in trains[..count].iter().enumerate() {
            let bytes = &memory[train.start as usize..(train.start + train.len) as usize];
            let (name, name_len) = to_raw(train.endpoint.addr);
            scratch.names[i] = name;
            scratch.vectors[i] = libc::iovec {
                iov_base: bytes.as_ptr().cast_mut().cast(),
                iov_len: bytes.len(),
            };
            let mut control = Writer::new(&mut scratch.controls[i]);
            if train.len > train.segment {
                // No segment is longer than a u16: a datagram has at most 65,507 bytes.
                control.segment(u16::try_from(train.segment).unwrap_or(u16::MAX));
            }
            if let Some(source) = train.endpoint.source {
                control.source(source);
            }
            if train.ecn != Ecn::NotEct {
                control.ecn(self.family() == Family::V6, train.ecn);
            }
            let control_len = control.len();
            debug_assert!(control_len <= CONTROL_LEN);
            let header = &mut scratch.headers[i].msg_hdr;
            header.msg_name = (&raw mut scratch.names[i]).cast();
            header.msg_namelen = name_len;
            header.msg_iov = &raw mut scratch.vectors[i];
            header.msg_iovlen = 1;
            header.msg_control = scratch.controls[i].0.as_mut_ptr().cast();
            header.msg_controllen = control_len as _;
            header.msg_flags = 0;
        }
        let fd = self.fd.as_raw_fd();
        if count == 1 {
            // SAFETY: the header's pointers were set above to live, initialised buffers.
            let sent = unsafe { libc::sendmsg(fd, &raw const scratch.headers[0].msg_hdr, 0) };
            return crate::poll::check_len(sent).map(|_| 1);
        }
        let len = count as libc::c_uint;
        // SAFETY: the first `count` headers' pointers were set above to live buffers.
        check(unsafe { libc::sendmmsg(fd, scratch.headers.as_mut_ptr(), len, 0) })
            .map(|n| n as usize)
    }
}

/// Whether the socket buffer is full.
fn is_full(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EAGAIN)
}

fn drop_train(error: &io::Error, train: &Train, report: &mut SendReport) {
    report.dropped += u64::from(train.count());
    report.errno = error.raw_os_error().unwrap_or(0);
}

/// Appends control messages to a buffer of fixed size.
pub(crate) struct Writer<'a> {
    control: &'a mut Control,
    used: usize,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(control: &'a mut Control) -> Self {
        Self { control, used: 0 }
    }

    /// Bytes written so far.
    pub(crate) fn len(&self) -> usize {
        self.used
    }

    fn push<T: Copy>(&mut self, level: libc::c_int, kind: libc::c_int, value: T) {
        let size = size_of::<T>() as u32;
        // SAFETY: CMSG_SPACE and CMSG_LEN only compute.
        let (space, len) = unsafe { (libc::CMSG_SPACE(size) as usize, libc::CMSG_LEN(size)) };
        // The three messages we ever write take at most 24 + 40 + 24 bytes.
        if self.used + space > CONTROL_LEN {
            debug_assert!(false, "control buffer too small");
            return;
        }
        // SAFETY: `used` is a sum of CMSG_SPACE values, so it is aligned for `cmsghdr` in an
        // aligned buffer, and the check above leaves room for header, value and padding.
        unsafe {
            let header = self
                .control
                .0
                .as_mut_ptr()
                .add(self.used)
                .cast::<libc::cmsghdr>();
            (*header).cmsg_len = len as _;
            (*header).cmsg_level = level;
            (*header).cmsg_type = kind;
            std::ptr::write_unaligned(libc::CMSG_DATA(header).cast::<T>(), value);
        }
        self.used += space;
    }

    /// `UDP_SEGMENT`: cut the send into datagrams of `size` bytes.
    fn segment(&mut self, size: u16) {
        self.push(libc::SOL_UDP, libc::UDP_SEGMENT, size);
    }

    /// `IP_PKTINFO` / `IPV6_PKTINFO`: send from this address. The routing table chooses the interface. Naming the one
    /// that the peer's packet came in on would fail where the route back uses another: the kernel would treat the peer
    /// as directly connected.
    pub(crate) fn source(&mut self, source: Source) {
        match source.ip {
            IpAddr::V4(ip) => {
                let info = libc::in_pktinfo {
                    ipi_ifindex: 0,
                    ipi_spec_dst: libc::in_addr {
                        s_addr: u32::from_ne_bytes(ip.octets()),
                    },
                    ipi_addr: libc::in_addr { s_addr: 0 },
                };
                self.push(libc::IPPROTO_IP, libc::IP_PKTINFO, info);
            }
            IpAddr::V6(ip) => {
                let info = libc::in6_pktinfo {
                    ipi6_addr: libc::in6_addr {
                        s6_addr: ip.octets(),
                    },
                    ipi6_ifindex: 0,
                };
                self.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info);
            }
        }
    }

    /// `IP_TOS` / `IPV6_TCLASS`: the outer ECN bits.
    fn ecn(&mut self, v6: bool, ecn: Ecn) {
        let tos = libc::c_int::from(ecn.bits());
        if v6 {
            self.push(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, tos);
        } else {
            self.push(libc::IPPROTO_IP, libc::IP_TOS, tos);
        }
    }
}

impl UdpSocket {
    /// Sends one datagram with DF, whatever the socket's [`MtuDiscovery`](crate::udp::MtuDiscovery), and whatever path
    /// MTU the kernel has learned (`IP_PMTUDISC_PROBE`). If it is too long for the device, the kernel refuses it with
    /// `EMSGSIZE`.
    ///
    /// The option belongs to the socket, not the message. Datagrams that other threads send in these microseconds have
    /// DF too; they fit the device, since they were made for it. Only one thread may call this at a time.
    pub fn send_whole(
        &self,
        scratch: &mut SendScratch,
        datagram: &[u8],
        endpoint: Endpoint,
    ) -> SendReport {
        if let Err(error) = self.discover(libc::IP_PMTUDISC_PROBE) {
            return SendReport {
                dropped: 1,
                errno: error.raw_os_error().unwrap_or(0),
                ..SendReport::default()
            };
        }
        let len = datagram.len() as u32;
        let train = Train::single(len, endpoint);
        scratch.begin_batch();
        let report = self.send_trains(scratch, datagram, &[train]);
        if let Err(error) = self.discover(self.discovery) {
            log::warn!("cannot switch off DF on a UDP socket: {error}");
        }
        report
    }

    fn discover(&self, value: libc::c_int) -> io::Result<()> {
        let (level, name) = match self.family() {
            Family::V4 => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
            Family::V6 => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER),
        };
        set_int(&self.fd, level, name, value)
    }
}

impl SendReport {
    /// Whether this host itself has refused a datagram, or a train of such datagrams, as too long.
    #[must_use]
    pub fn too_long(&self) -> bool {
        self.errno == libc::EMSGSIZE
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket as StdSocket};

    use super::*;
    use crate::udp::{Family, SocketOptions};

    /// A socket whose buffer stays full: actually a TCP connection that nobody reads from, for which the system calls
    /// are the same. The caller must keep the other end.
    fn full_socket() -> (UdpSocket, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (theirs, _) = listener.accept().unwrap();
        ours.set_nonblocking(true).unwrap();
        let options = SocketOptions {
            mmsg: true,
            ..SocketOptions::default()
        };
        let mut socket = UdpSocket::bind(Family::V4, &options).unwrap();
        socket.fd = ours.try_clone().unwrap().into();
        // The buffer is full for good when nothing more fits after late acknowledgements have made room.
        while ours.write(&[0; 65_536]).is_ok() || ours.write(&[0]).is_ok() {
            while ours.write(&[0; 65_536]).is_ok() || ours.write(&[0]).is_ok() {}
            socket.wait_writable(&mut Duration::from_millis(300));
        }
        (socket, theirs)
    }

    #[test]
    fn a_line_that_takes_nothing_is_waited_for_once_a_batch() {
        let (socket, _theirs) = full_socket();
        let endpoint = Endpoint::new((Ipv4Addr::LOCALHOST, 9).into());
        let trains: Vec<Train> = (0..3 * MESSAGES as u32)
            .map(|i| Train {
                start: 10 * i,
                len: 10,
                segment: 10,
                endpoint,
                ecn: Ecn::NotEct,
            })
            .collect();
        let memory = vec![0; 10 * trains.len()];
        let mut scratch = SendScratch::new();
        for _ in 0..2 {
            // Two calls for one batch, as when its packets go to both families.
            let report = socket.send_trains(&mut scratch, &memory, &trains);
            assert_eq!(report.dropped, trains.len() as u64);
            assert_eq!(report.errno, libc::EAGAIN);
            // After one wait in vain, nothing is tried again: three calls are made in all.
            assert_eq!(report.syscalls, 3);
            assert!(scratch.patience.is_zero());
        }
        scratch.begin_batch();
        assert_eq!(scratch.patience, PATIENCE);
    }

    fn option(socket: &UdpSocket, level: libc::c_int, name: libc::c_int) -> libc::c_int {
        let mut value: libc::c_int = -1;
        let mut len = size_of_val(&value) as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes into `value`.
        let result = unsafe {
            libc::getsockopt(
                socket.fd.as_raw_fd(),
                level,
                name,
                (&raw mut value).cast(),
                &raw mut len,
            )
        };
        assert_eq!(result, 0);
        value
    }

    /// Loopback carries 65,536 bytes and a datagram has at most 65,507, so none is too long. This only tests the sent
    /// datagram and the socket's options afterwards.
    #[test]
    fn one_goes_whole_and_the_socket_is_as_it_was() {
        for (family, local) in [(Family::V4, "127.0.0.1:0"), (Family::V6, "[::1]:0")] {
            let Ok(receiver) = StdSocket::bind(local) else {
                continue;
            };
            let to: SocketAddr = receiver.local_addr().unwrap();
            let socket = UdpSocket::bind(family, &SocketOptions::default()).unwrap();
            let mut scratch = SendScratch::new();
            let report = socket.send_whole(&mut scratch, &[7; 1400], Endpoint::new(to));
            assert_eq!((report.sent, report.too_long()), (1, false));
            let mut bytes = [0; 2000];
            assert_eq!(receiver.recv(&mut bytes).unwrap(), 1400);
            let (level, name) = match family {
                Family::V4 => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
                Family::V6 => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER),
            };
            assert_eq!(option(&socket, level, name), libc::IP_PMTUDISC_DONT);
        }
    }
}
