//! Copies of packets that the host sends and receives by all of its devices: a packet socket.
//!
//! A copy of an outgoing packet is made when it is handed to its device, behind the packet filter: what is refused is not
//! seen, and what is seen has left by the device whose number is told.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::poll::check;
use crate::udp::socket::set_buffers;

/// Bytes of each packet that are looked at.
pub const LENGTH: usize = 512;

/// Room for copies that wait, in bytes.
const BUFFER: usize = 8 << 20;

/// `PACKET_OUTGOING` of `linux/if_packet.h`.
const OUTGOING: u8 = 4;

/// An open, non-blocking packet socket.
#[derive(Debug)]
pub struct Capture {
    fd: OwnedFd,
}

/// A packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Seen<'a> {
    /// Number of the device.
    pub index: u32,
    /// It leaves by the device; otherwise it comes in.
    pub outgoing: bool,
    /// Its beginning, from the IP header on.
    pub packet: &'a [u8],
}

impl Capture {
    /// Opens one, which sees the network namespace of the calling thread from now on.
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
        // `dropped` tells of packets that are lost for want of room.
        set_buffers(&fd, BUFFER);
        Ok(Self { fd })
    }

    /// The next packet that waits, if there is one.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn next<'b>(&self, buffer: &'b mut [u8; LENGTH]) -> io::Result<Option<Seen<'b>>> {
        // SAFETY: all bytes zero are a valid address of this kind.
        let mut from: libc::sockaddr_ll = unsafe { mem::zeroed() };
        let mut length = size_of_val(&from) as libc::socklen_t;
        // SAFETY: buffer and address live through the call, and their sizes are told.
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

    /// How many packets have been lost since this was asked for last, because they were not taken in time.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn dropped(&self) -> io::Result<u32> {
        // `struct tpacket_stats`: packets, and those lost.
        let mut counts = [0_u32; 2];
        let mut length = size_of_val(&counts) as libc::socklen_t;
        // SAFETY: the array lives through the call, and its size is told.
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
