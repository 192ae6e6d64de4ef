//! Receiving trains: whole ones with `UDP_GRO`, else up to 64 datagrams at a fixed stride.

use super::cmsg::{self, CONTROL_LEN};
use super::endpoint::{Ecn, Source};
use super::headers::{Headers, MESSAGES};
use super::socket::{UdpSocket, from_raw};
use crate::poll::{check, check_len};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

/// Room that a receive needs: the largest datagram or coalesced train, in bytes.
pub const TRAIN_ROOM: usize = 65_536;

/// Datagrams received together from one address.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedTrain {
    /// First byte, in the memory passed.
    pub start: u32,
    /// All bytes together.
    pub len: u32,
    /// Bytes of each datagram; the last may be shorter. At least 1.
    pub segment: u32,
    /// Who sent it.
    pub from: SocketAddr,
    /// Our address that was called.
    pub local: Option<Source>,
    /// Outer ECN bits.
    pub ecn: Ecn,
}

/// Preallocated message headers for one receiver.
pub struct RecvScratch(Headers);

impl Default for RecvScratch {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for RecvScratch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecvScratch").finish_non_exhaustive()
    }
}

impl RecvScratch {
    /// Allocates the headers, about 22 KiB.
    #[must_use]
    pub fn new() -> Self {
        Self(Headers::new())
    }

    fn prepare(&mut self, i: usize, buffer: &mut [u8]) {
        self.0.vectors[i] = libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        };
        let header = &mut self.0.headers[i].msg_hdr;
        header.msg_name = (&raw mut self.0.names[i]).cast();
        header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        header.msg_iov = &raw mut self.0.vectors[i];
        header.msg_iovlen = 1;
        header.msg_control = self.0.controls[i].0.as_mut_ptr().cast();
        header.msg_controllen = CONTROL_LEN as _;
        header.msg_flags = 0;
    }

    /// What message `i`, of `len` bytes at `start`, says. `None` for what cannot be answered:
    /// an unknown address family or a truncated datagram.
    fn train(&self, i: usize, start: usize, len: usize) -> Option<ReceivedTrain> {
        let header = &self.0.headers[i].msg_hdr;
        if header.msg_flags & libc::MSG_TRUNC != 0 {
            return None;
        }
        let from = from_raw(&self.0.names[i])?;
        // SAFETY: the header is as the kernel left it, and its buffers are in `self`.
        let parsed = unsafe { cmsg::parse(header) };
        let segment = if parsed.segment == 0 {
            len
        } else {
            usize::from(parsed.segment)
        };
        Some(ReceivedTrain {
            start: start as u32,
            len: len as u32,
            segment: segment.max(1) as u32,
            from,
            local: parsed.source,
            ecn: parsed.ecn,
        })
    }
}

impl UdpSocket {
    /// Receives into `memory`, which must hold at least [`TRAIN_ROOM`] bytes, and hands each
    /// train to `each`. `stride` is the longest datagram expected, in bytes: where datagrams come
    /// singly they are received that far apart, up to `limit` of them.
    ///
    /// Returns the bytes of `memory` used and the datagrams that had to be dropped (truncated).
    ///
    /// # Errors
    /// `WouldBlock` when nothing waits; otherwise what the kernel says. Errors that ICMP left on
    /// the socket (`ECONNREFUSED`) are consumed by the call and mean nothing.
    pub fn recv_trains(
        &self,
        scratch: &mut RecvScratch,
        memory: &mut [u8],
        stride: usize,
        limit: usize,
        mut each: impl FnMut(ReceivedTrain),
    ) -> io::Result<(usize, u64)> {
        let fd = self.fd.as_raw_fd();
        let single = self.gro.on()
            || !self.mmsg.on()
            || self.long_datagrams.load(Ordering::Relaxed)
            || limit < 2;
        if single {
            let room = memory.len().min(TRAIN_ROOM);
            scratch.prepare(0, &mut memory[..room]);
            // SAFETY: `prepare` has pointed the header at live buffers of the lengths it states.
            let got = unsafe { libc::recvmsg(fd, &raw mut scratch.0.headers[0].msg_hdr, 0) };
            let len = check_len(got)?;
            return Ok(match scratch.train(0, 0, len) {
                Some(train) => {
                    each(train);
                    (len, 0)
                }
                None => (0, 1),
            });
        }
        let count = (memory.len() / stride).clamp(1, MESSAGES.min(limit));
        for (i, buffer) in memory.chunks_exact_mut(stride).take(count).enumerate() {
            scratch.prepare(i, buffer);
        }
        // SAFETY: `prepare` has pointed the first `count` headers at live buffers.
        let got = check(unsafe {
            libc::recvmmsg(
                fd,
                scratch.0.headers.as_mut_ptr(),
                count as libc::c_uint,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        })? as usize;
        let mut dropped = 0;
        for i in 0..got {
            let len = scratch.0.headers[i].msg_len as usize;
            match scratch.train(i, i * stride, len) {
                Some(train) => each(train),
                None => {
                    dropped += 1;
                    if scratch.0.headers[i].msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
                        // The peer's MTU is larger than ours: from now on with full-size room.
                        self.long_datagrams.store(true, Ordering::Relaxed);
                    }
                }
            }
        }
        Ok((got * stride, dropped))
    }
}
