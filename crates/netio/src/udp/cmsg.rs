//! Control messages: written into and read from fixed buffers, never allocated.

use super::endpoint::{Ecn, Source};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Room for the three control messages that we send or receive together, in bytes.
pub(crate) const CONTROL_LEN: usize = 128;

/// A control buffer with the alignment of `cmsghdr`.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(crate) struct Control(pub(crate) [u8; CONTROL_LEN]);

impl Control {
    pub(crate) const EMPTY: Self = Self([0; CONTROL_LEN]);
}

/// Appends control messages to a buffer.
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
    pub(crate) fn segment(&mut self, size: u16) {
        self.push(libc::SOL_UDP, libc::UDP_SEGMENT, size);
    }

    /// `IP_PKTINFO` / `IPV6_PKTINFO`: send from this address. The interface is left to the
    /// routing table: naming the one that the peer's packet came in on would, where the way back
    /// is another, send into a void that the kernel takes for a direct link.
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
    pub(crate) fn ecn(&mut self, v6: bool, ecn: Ecn) {
        let tos = libc::c_int::from(ecn.bits());
        if v6 {
            self.push(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, tos);
        } else {
            self.push(libc::IPPROTO_IP, libc::IP_TOS, tos);
        }
    }
}

/// What the kernel said of a received datagram.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Parsed {
    /// `UDP_GRO` segment size in bytes; 0 when the datagram came alone.
    pub(crate) segment: u16,
    pub(crate) source: Option<Source>,
    pub(crate) ecn: Ecn,
}

/// Reads the control messages of a message that `recvmsg` has filled.
///
/// # Safety
/// `msg` must be as `recvmsg` left it, its control pointer still valid.
pub(crate) unsafe fn parse(msg: &libc::msghdr) -> Parsed {
    let mut parsed = Parsed::default();
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
