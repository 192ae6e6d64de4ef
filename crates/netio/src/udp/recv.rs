//! Receives trains: whole ones with `UDP_GRO`, otherwise up to 64 datagrams at a fixed stride.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use plane::{Ecn, Source};

use crate::poll::{check, check_len, is_readable};
use crate::udp::socket::{SINGLE, UdpSocket, from_raw, set_int};
use crate::udp::{CONTROL_LEN, Headers, MESSAGES};

#[cfg(test)]
mod tests;

/// Memory that a receive needs: the largest datagram or coalesced train, in bytes.
pub const TRAIN_ROOM: usize = 65_536;

/// Number of receives with room for the longest datagram, after one that was longer than expected. Limited, because
/// anybody can send a long datagram without a key.
const LONG: u32 = 4096;

/// Datagrams received together from one address.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedTrain {
    /// Offset of the first byte in the memory passed.
    pub start: u32,
    /// Length of all datagrams together, in bytes.
    pub len: u32,
    /// Length of each datagram, in bytes; the last may be shorter. At least 1.
    pub segment: u32,
    /// Source address of the datagrams.
    pub from: SocketAddr,
    /// Our address that the datagrams were sent to.
    pub local: Option<Source>,
    /// Outer ECN bits, if the socket requests them.
    pub ecn: Ecn,
}

/// The result of a receive call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Received {
    /// Bytes of the memory in use.
    pub used: usize,
    /// Number of datagrams that were dropped because they were longer than their room.
    pub dropped: u64,
    /// Fewer datagrams waited than would have fit.
    pub drained: bool,
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

    /// Message `i`, of `len` bytes at `start`, as a train. `None` for a message that must be dropped: an unknown
    /// address family or a truncated datagram.
    fn train(&self, i: usize, start: usize, len: usize) -> Option<ReceivedTrain> {
        let header = &self.0.headers[i].msg_hdr;
        if header.msg_flags & libc::MSG_TRUNC != 0 {
            return None;
        }
        let from = from_raw(&self.0.names[i])?;
        // SAFETY: the header is as the kernel left it, and its buffers are in `self`.
        let parsed = unsafe { parse_control(header) };
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
    /// Receives into `memory`, which must hold at least [`TRAIN_ROOM`] bytes, and hands each train to `each`. `stride`
    /// is the longest expected datagram, in bytes. Single datagrams are received that far apart, up to `limit` of them.
    ///
    /// # Errors
    /// `WouldBlock` when nothing waits; otherwise the kernel's error. The call consumes errors that ICMP left on the
    /// socket (`ECONNREFUSED`); they mean nothing.
    pub fn recv_trains(
        &self,
        scratch: &mut RecvScratch,
        memory: &mut [u8],
        stride: usize,
        limit: usize,
        mut each: impl FnMut(ReceivedTrain),
    ) -> io::Result<Received> {
        #[cfg(feature = "simulated")]
        if let Some(answer) = self.faults.answer(crate::simulated::Call::Receive) {
            return answer.map(|_| Received::default());
        }
        let fd = self.fd.as_raw_fd();
        let trains = self.gro.on() && !self.singles.on.load(Ordering::Relaxed);
        let long = self.long_datagrams.load(Ordering::Relaxed);
        let singly = !self.mmsg.on() || long > 0;
        if trains || singly || limit < 2 {
            let room = memory.len().min(TRAIN_ROOM);
            scratch.prepare(0, &mut memory[..room]);
            // SAFETY: `prepare` has pointed the header at live buffers of the lengths it states.
            let got = unsafe { libc::recvmsg(fd, &raw mut scratch.0.headers[0].msg_hdr, 0) };
            let len = match check_len(got) {
                Ok(len) => len,
                Err(e) => {
                    if trains {
                        self.nothing_waits();
                    }
                    return Err(e);
                }
            };
            let train = scratch.train(0, 0, len);
            if long > 0 {
                // While long datagrams keep coming, keep the room for them: an attempt with less would lose one.
                let more = train
                    .as_ref()
                    .is_some_and(|it| it.segment as usize > stride);
                let left = if more { LONG } else { long - 1 };
                self.long_datagrams.store(left, Ordering::Relaxed);
            }
            if trains && !singly && limit > 1 {
                self.choose(train.as_ref());
            }
            let used = train.map_or(0, |_| len);
            let dropped = train.is_none().into();
            train.into_iter().for_each(each);
            return Ok(Received {
                used,
                dropped,
                drained: false,
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
        });
        // Only after the call: from then on a train may arrive, which does not fit a stride.
        if self.gro.on() && self.singles.tries_again() {
            self.take_trains(true);
        }
        let got = got? as usize;
        let mut dropped = 0;
        for i in 0..got {
            let len = scratch.0.headers[i].msg_len as usize;
            match scratch.train(i, i * stride, len) {
                Some(train) => each(train),
                None => {
                    dropped += 1;
                    if scratch.0.headers[i].msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
                        // The peer's MTU may be larger than ours: give every datagram full room for a while.
                        self.long_datagrams.store(LONG, Ordering::Relaxed);
                        if self.gro.on() && !self.singles.forbid_gro() {
                            self.take_trains(true);
                        }
                    }
                }
            }
        }
        Ok(Received {
            used: got * stride,
            dropped,
            drained: got < count,
        })
    }

    /// Decides from the last train whether trains are worth one call each.
    fn choose(&self, train: Option<&ReceivedTrain>) {
        let singles = &self.singles;
        if train.is_some_and(|train| train.len > train.segment) {
            singles.none_in_a_row();
            singles.wanted.store(false, Ordering::Relaxed);
            singles.in_vain.store(0, Ordering::Relaxed);
        } else if singles.count(SINGLE) {
            singles.wanted.store(true, Ordering::Relaxed);
        }
    }

    /// Switches to single datagrams if wanted: this is safe because nothing waits.
    fn nothing_waits(&self) {
        let singles = &self.singles;
        singles.none_in_a_row();
        if !singles.wanted.load(Ordering::Relaxed) && !singles.forbid_gro() {
            return;
        }
        if !self.set_gro(false) {
            return;
        }
        // Datagrams that arrived since the socket was empty may be a train, which the kernel no longer splits.
        if is_readable(&self.fd, Duration::ZERO) {
            self.take_trains(true);
            return;
        }
        // Only now, as other threads may read it.
        singles.on.store(true, Ordering::Relaxed);
        singles.wanted.store(false, Ordering::Relaxed);
        let before = singles.in_vain.load(Ordering::Relaxed);
        singles
            .in_vain
            .store((before + 1).min(16), Ordering::Relaxed);
    }

    /// Makes the kernel deliver trains, or single datagrams.
    fn take_trains(&self, wanted: bool) {
        if self.set_gro(wanted) {
            self.singles.on.store(!wanted, Ordering::Relaxed);
        }
    }

    /// Sets the socket option. Returns whether the kernel took it.
    fn set_gro(&self, wanted: bool) -> bool {
        set_int(&self.fd, libc::SOL_UDP, libc::UDP_GRO, wanted.into()).is_ok()
    }
}

/// The kernel's control messages for a received datagram.
#[derive(Clone, Copy, Debug, Default)]
struct ParsedControl {
    /// `UDP_GRO` segment size in bytes; 0 for a single datagram.
    segment: u16,
    source: Option<Source>,
    ecn: Ecn,
}

/// Reads the control messages of a message that `recvmsg` has filled.
///
/// # Safety
/// `msg` must be as `recvmsg` left it, its control pointer still valid.
unsafe fn parse_control(msg: &libc::msghdr) -> ParsedControl {
    let mut parsed = ParsedControl::default();
    // SAFETY: the caller vouches for `msg`; the CMSG macros stay within `msg_controllen`, and
    // every read below is of a type that the kernel puts there, unaligned.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(msg);
        while !header.is_null() {
            let data = libc::CMSG_DATA(header);
            match ((*header).cmsg_level, (*header).cmsg_type) {
                // The kernel writes an int; older ones a u16. The low half is the same on the
                // little-endian machines we run on and the length tells which it is.
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    let int_len = libc::CMSG_LEN(size_of::<libc::c_int>() as u32) as usize;
                    parsed.segment = if (*header).cmsg_len as usize >= int_len {
                        u16::try_from(data.cast::<libc::c_int>().read_unaligned()).unwrap_or(0)
                    } else {
                        data.cast::<u16>().read_unaligned()
                    };
                }
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    let info = data.cast::<libc::in_pktinfo>().read_unaligned();
                    parsed.source = Some(Source {
                        ip: Ipv4Addr::from(info.ipi_spec_dst.s_addr.to_ne_bytes()).into(),
                        ifindex: info.ipi_ifindex as u32,
                    });
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let info = data.cast::<libc::in6_pktinfo>().read_unaligned();
                    parsed.source = Some(Source {
                        ip: Ipv6Addr::from(info.ipi6_addr.s6_addr).into(),
                        ifindex: info.ipi6_ifindex as _,
                    });
                }
                (libc::IPPROTO_IP, libc::IP_TOS) => {
                    parsed.ecn = Ecn::from_tos(data.read());
                }
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    let class = data.cast::<libc::c_int>().read_unaligned();
                    parsed.ecn = Ecn::from_tos(class as u8);
                }
                _ => {}
            }
            header = libc::CMSG_NXTHDR(msg, header);
        }
    }
    parsed
}
