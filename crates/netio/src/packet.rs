//! Raw Ethernet frames through AF_PACKET, in batches.
//!
//! Every frame travels with the kernel's note (`virtio_net_hdr`, such as "the checksum is still to be filled in"), so
//! that a relay passes on exactly what it received. This module does not interpret the note.

use std::ffi::CString;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Bytes of the note: `struct virtio_net_hdr` without the number of merged buffers.
pub const NOTE_SIZE: usize = 10;
/// Maximum number of frames that one system call moves.
pub const BATCH: usize = 64;
/// Room for one SCM_TIMESTAMPNS message, with slack for 64-bit time on 32-bit machines.
const CONTROL_SIZE: usize = 64;

/// The kernel's note on a frame.
pub type Note = [u8; NOTE_SIZE];

/// A raw socket bound to one interface, which must carry Ethernet frames. It receives arriving frames, not frames that
/// this host sends.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
}

/// A received frame.
#[derive(Debug, Clone, Copy)]
pub struct Received<'a> {
    /// Note of the kernel about the frame.
    pub note: Note,
    /// The frame from the destination address on.
    pub frame: &'a [u8],
    /// Time from the frame's arrival to the end of the receive call; zero if the kernel does not report it.
    pub age: Duration,
}

/// Memory for one batch of received frames.
#[derive(Debug)]
pub struct FrameBatch {
    bytes: Vec<u8>,
    frame_size: usize,
    frames: Vec<Slot>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    note: Note,
    length: usize,
    age: Duration,
    /// This host sent the frame: kernels before 4.20 show those too.
    own: bool,
    truncated: bool,
}

impl FrameBatch {
    /// Memory for [`BATCH`] frames of at most `frame_size` bytes.
    pub fn new(frame_size: usize) -> Self {
        Self {
            bytes: vec![0; BATCH * frame_size],
            frame_size,
            frames: Vec::with_capacity(BATCH),
        }
    }

    /// The frames of the last receive call, except those longer than the memory.
    pub fn frames(&self) -> impl Iterator<Item = Received<'_>> {
        self.frames
            .iter()
            .zip(self.bytes.chunks_exact(self.frame_size))
            .filter(|(slot, _)| !slot.truncated && !slot.own)
            .map(|(slot, bytes)| Received {
                note: slot.note,
                frame: &bytes[..slot.length],
                age: slot.age,
            })
    }

    /// Number of frames of the last receive call that were longer than the memory.
    pub fn truncated(&self) -> usize {
        self.frames
            .iter()
            .filter(|slot| slot.truncated && !slot.own)
            .count()
    }
}

impl PacketSocket {
    /// Opens a non-blocking socket on an interface of the current thread's namespace.
    ///
    /// # Errors
    /// EPERM without CAP_NET_RAW, ENODEV if there is no such interface.
    pub fn open(interface: &str) -> io::Result<Self> {
        let name = CString::new(interface).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: `name` ends with a NUL and lives over the call.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        if index == 0 {
            return Err(io::Error::last_os_error());
        }
        // Protocol 0 receives nothing until bind names the interface, so that no frame of another one arrives before.
        // SAFETY: no pointers are passed.
        let fd = unsafe {
            libc::socket(
                libc::AF_PACKET,
                libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
                0,
            )
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        let socket = Self {
            // SAFETY: the descriptor is new and nothing else owns it.
            fd: unsafe { OwnedFd::from_raw_fd(fd) },
        };
        socket.set(libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
        socket.set(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
        // Without it (before 4.20) the socket also receives own frames, recognised by their type.
        let _ = socket.set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1);
        let _ = socket.set(libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1);
        // Root may exceed the system's limit; other users get as much as it allows.
        let size = 8 << 20;
        if socket
            .set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, size)
            .is_err()
        {
            socket.set(libc::SOL_SOCKET, libc::SO_RCVBUF, size)?;
        }
        socket.bind(index)?;
        Ok(socket)
    }

    fn bind(&self, index: u32) -> io::Result<()> {
        // SAFETY: `sockaddr_ll` is plain data, for which all zeroes is a value.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = index.cast_signed();
        // SAFETY: the pointer and the length are those of a live `sockaddr_ll`.
        let result = unsafe {
            libc::bind(
                self.fd.as_raw_fd(),
                (&raw const address).cast(),
                size_of_val(&address) as libc::socklen_t,
            )
        };
        check(result as isize).map(|_| ())
    }

    fn set(&self, level: i32, option: i32, value: i32) -> io::Result<()> {
        // SAFETY: the pointer and the length are those of a live `i32`.
        let result = unsafe {
            libc::setsockopt(
                self.fd.as_raw_fd(),
                level,
                option,
                (&raw const value).cast(),
                size_of_val(&value) as libc::socklen_t,
            )
        };
        check(result as isize).map(|_| ())
    }

    /// Receives waiting frames, at most [`BATCH`], and returns how many; zero is not an error.
    ///
    /// # Errors
    /// ENETDOWN once after the interface went down, ENXIO or ENODEV when it no longer exists.
    pub fn receive(&self, batch: &mut FrameBatch) -> io::Result<usize> {
        batch.frames.clear();
        let mut notes = [[0u8; NOTE_SIZE]; BATCH];
        let mut control = [[0u64; CONTROL_SIZE / 8]; BATCH];
        // SAFETY: these are plain data, for which all zeroes is a value.
        let (mut parts, mut headers, mut froms): (
            [[libc::iovec; 2]; BATCH],
            [libc::mmsghdr; BATCH],
            [libc::sockaddr_ll; BATCH],
        ) = unsafe { (mem::zeroed(), mem::zeroed(), mem::zeroed()) };
        let chunks = batch.bytes.chunks_exact_mut(batch.frame_size);
        for (number, chunk) in chunks.enumerate().take(BATCH) {
            parts[number] = [
                iovec(notes[number].as_mut_ptr(), NOTE_SIZE),
                iovec(chunk.as_mut_ptr(), chunk.len()),
            ];
            let header = &mut headers[number].msg_hdr;
            header.msg_iov = parts[number].as_mut_ptr();
            header.msg_iovlen = 2;
            header.msg_control = control[number].as_mut_ptr().cast();
            header.msg_controllen = CONTROL_SIZE as _;
            header.msg_name = (&raw mut froms[number]).cast();
            header.msg_namelen = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        }
        // SAFETY: every header points at parts, control memory and an address that live over the
        // call and are as long as it says.
        let result = unsafe {
            libc::recvmmsg(
                self.fd.as_raw_fd(),
                headers.as_mut_ptr(),
                BATCH as _,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        let count = match check(result as isize) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            Err(error) => return Err(error),
        };
        let now = SystemTime::now();
        for number in 0..count {
            let header = &headers[number];
            let length = header.msg_len as usize;
            let own = froms[number].sll_pkttype == libc::PACKET_OUTGOING;
            batch.frames.push(Slot {
                note: notes[number],
                length: length.saturating_sub(NOTE_SIZE).min(batch.frame_size),
                age: timestamp(&header.msg_hdr)
                    .and_then(|arrival| now.duration_since(arrival).ok())
                    .unwrap_or_default(),
                own,
                truncated: length < NOTE_SIZE || header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            });
        }
        Ok(count)
    }

    /// Sends frames with their notes, and returns how many the interface accepted before it refused one. The caller
    /// retries or drops the rest.
    ///
    /// # Errors
    /// If the interface refused the first frame: EAGAIN or ENOBUFS when it is busy, ENETDOWN when it is down, EMSGSIZE
    /// when the frame is longer than its MTU.
    pub fn send_batch(&self, frames: &[(Note, &[u8])]) -> io::Result<usize> {
        let frames = &frames[..frames.len().min(BATCH)];
        // SAFETY: these are plain data, for which all zeroes is a value.
        let (mut parts, mut headers): ([[libc::iovec; 2]; BATCH], [libc::mmsghdr; BATCH]) =
            unsafe { (mem::zeroed(), mem::zeroed()) };
        for (number, (note, frame)) in frames.iter().enumerate() {
            parts[number] = [
                iovec(note.as_ptr().cast_mut(), NOTE_SIZE),
                iovec(frame.as_ptr().cast_mut(), frame.len()),
            ];
            let header = &mut headers[number].msg_hdr;
            header.msg_iov = parts[number].as_mut_ptr();
            header.msg_iovlen = 2;
        }
        // SAFETY: every header points at parts that live over the call and that sending only reads.
        let result = unsafe {
            libc::sendmmsg(
                self.fd.as_raw_fd(),
                headers.as_mut_ptr(),
                frames.len() as _,
                libc::MSG_DONTWAIT as _,
            )
        };
        check(result as isize)
    }

    /// Sends one complete frame: no longer than the wire allows, and with its checksums.
    ///
    /// # Errors
    /// The errors of [`PacketSocket::send_batch`].
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        self.send_batch(&[([0; NOTE_SIZE], frame)]).map(|_| ())
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for PacketSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

fn iovec(base: *mut u8, length: usize) -> libc::iovec {
    libc::iovec {
        iov_base: base.cast(),
        iov_len: length,
    }
}

fn check(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// The arrival time in the control messages that the kernel left in `header`.
fn timestamp(header: &libc::msghdr) -> Option<SystemTime> {
    // SAFETY: the kernel has set the control length of `header` to what it wrote into the control
    // memory, which is alive; the macros stay inside of it.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while let Some(found) = message.as_ref() {
            if (found.cmsg_level, found.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS)
                && found.cmsg_len >= libc::CMSG_LEN(size_of::<libc::timespec>() as u32) as _
            {
                let time = libc::CMSG_DATA(message)
                    .cast::<libc::timespec>()
                    .read_unaligned();
                let seconds = u64::try_from(time.tv_sec).ok()?;
                let nanoseconds = u32::try_from(time.tv_nsec).ok()?;
                return UNIX_EPOCH.checked_add(Duration::new(seconds, nanoseconds));
            }
            message = libc::CMSG_NXTHDR(header, message);
        }
    }
    None
}
