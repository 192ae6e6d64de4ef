//! Copies packets that the host sends and receives on all of its devices, through a packet socket.
//!
//! The kernel copies an outgoing packet when it hands the packet to its device, after the packet filter. So filtered
//! packets do not appear, and every outgoing packet seen has left through the device given with it.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::poll::check;
use crate::udp::socket::set_buffers;

/// Bytes of each packet that are copied.
pub const LENGTH: usize = 512;

/// Room for waiting copies, in bytes.
const BUFFER: usize = 8 << 20;

/// `PACKET_OUTGOING` of `linux/if_packet.h`.
const OUTGOING: u8 = 4;

/// An open, non-blocking packet socket.
#[derive(Debug)]
pub struct Capture {
    fd: OwnedFd,
}

/// A captured packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Seen<'a> {
    /// Index of the device.
    pub index: u32,
    /// Whether the packet leaves through the device; otherwise it comes in.
    pub outgoing: bool,
    /// First bytes of the packet, from the IP header on.
    pub packet: &'a [u8],
}

impl Capture {
    /// Opens a socket that sees the calling thread's network namespace from now on.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`, `EAFNOSUPPORT` from a kernel without packet sockets.
    pub fn open() -> io::Result<Self> {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let all = libc::c_int::from((libc::ETH_P_ALL as u16).to_be());
        // SAFETY: no pointers are passed; the result is checked before it is owned.
        let fd = check(unsafe { libc::socket(libc::AF_PACKET, kind, all) })?;
        // SAFETY: `fd` is a fresh descriptor that nothing else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // `dropped` reports packets that were lost because this buffer was full.
        set_buffers(&fd, BUFFER);
        Ok(Self { fd })
    }

    /// The next waiting packet; `None` if there is none.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn next<'b>(&self, buffer: &'b mut [u8; LENGTH]) -> io::Result<Option<Seen<'b>>> {
        // SAFETY: all bytes zero are a valid address of this kind.
        let mut from: libc::sockaddr_ll = unsafe { mem::zeroed() };
        let mut length = size_of_val(&from) as libc::socklen_t;
        // SAFETY: buffer and address outlive the call; their sizes are passed with them.
        let count = unsafe {
            libc::recvfrom(
                self.fd.as_raw_fd(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                0,
                (&raw mut from).cast(),
                &raw mut length,
            )
        };
        let Ok(count) = usize::try_from(count) else {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            };
        };
        Ok(Some(Seen {
            index: from.sll_ifindex.cast_unsigned(),
            outgoing: from.sll_pkttype == OUTGOING,
            packet: &buffer[..count],
        }))
    }

    /// Number of packets lost since the last call, because they were not read in time.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn dropped(&self) -> io::Result<u32> {
        // `struct tpacket_stats`: packets, and lost packets.
        let mut counts = [0_u32; 2];
        let mut length = size_of_val(&counts) as libc::socklen_t;
        // SAFETY: the array outlives the call; its size is passed with it.
        check(unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                counts.as_mut_ptr().cast(),
                &raw mut length,
            )
        })?;
        Ok(counts[1])
    }
}

impl AsFd for Capture {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
