//! The TUN device: one descriptor for whole IP packets. Where the kernel supports it, a header precedes each packet and
//! super-packets are possible.

mod create;
#[cfg(feature = "handover")]
mod handover;
mod sample;
mod selftest;

pub use create::{NAME_MAX, TunError, TunOptions};
#[cfg(feature = "handover")]
pub use handover::{Kept, NotInherited, has_inherited, inherit, settle_inherited};
pub use selftest::{TunProbe, TunVerdict, self_test, start_self_test};

use crate::poll::{check, check_len};
use crate::rung::Rung;
use std::ffi::CStr;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether an inherited TUN waits for its use; without the feature `handover`, never.
#[cfg(not(feature = "handover"))]
#[must_use]
pub const fn has_inherited() -> bool {
    false
}

/// Bytes of a [`VnetHdr`].
pub const VNET_HDR_LEN: usize = 10;

/// The name of a simulated interface; longer than [`NAME_MAX`], so that no real one can have it.
const SIMULATED: &str = "simulated interface";

const F_NEEDS_CSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// An open TUN device. Dropping this removes the interface.
#[derive(Debug)]
pub struct Tun {
    fd: OwnedFd,
    name: String,
    vnet_hdr: bool,
    null: bool,
    singly: AtomicBool,
    /// Whether TCP super-packets are read.
    pub tso: Rung,
    /// Whether UDP super-packets are read, and may be written.
    pub uso: Rung,
    /// Whether TCP super-packets may be written.
    pub gro: Rung,
    /// Answers that a test gives in the kernel's place.
    #[cfg(feature = "simulated")]
    pub faults: crate::simulated::Faults,
}

#[repr(C)]
struct IfReq {
    name: [u8; 16],
    flags: i16,
    pad: [u8; 22],
}

/// The interface's name in a request.
fn name_of(req: &IfReq) -> String {
    CStr::from_bytes_until_nul(&req.name)
        .map(|c| c.to_string_lossy().into_owned())
        .unwrap_or_default()
}

impl Tun {
    /// A null interface: it never delivers a packet, and discards written ones. For tunnels that are only set up as a
    /// check (`dev null`); needs no privileges.
    ///
    /// # Errors
    /// Descriptor limits.
    pub fn null() -> io::Result<Self> {
        const WHY: &str = "no interface";
        // SAFETY: no pointers are passed; the result is checked before it is owned.
        let fd = check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        Ok(Self {
            // SAFETY: `fd` is a fresh descriptor that nothing else owns.
            fd: unsafe { OwnedFd::from_raw_fd(fd) },
            name: "null".to_owned(),
            vnet_hdr: false,
            null: true,
            singly: AtomicBool::new(false),
            tso: Rung::new_off("tun-gso", WHY),
            uso: Rung::new_off("tun-uso", WHY),
            gro: Rung::new_off("tun-gro", WHY),
            #[cfg(feature = "simulated")]
            faults: crate::simulated::Faults::default(),
        })
    }

    /// A simulated interface outside the kernel, with a header before each packet and super-packets both ways. Also
    /// returns its other side, where each packet is a datagram.
    ///
    /// # Errors
    /// Descriptor limits.
    #[doc(hidden)]
    pub fn simulated() -> io::Result<(Self, UnixDatagram)> {
        let (ours, theirs) = UnixDatagram::pair()?;
        ours.set_nonblocking(true)?;
        let tun = Self {
            fd: ours.into(),
            name: SIMULATED.to_owned(),
            vnet_hdr: true,
            null: false,
            singly: AtomicBool::new(false),
            tso: Rung::new_on("tun-gso"),
            uso: Rung::new_on("tun-uso"),
            gro: Rung::new_on("tun-gro"),
            #[cfg(feature = "simulated")]
            faults: crate::simulated::Faults::default(),
        };
        Ok((tun, theirs))
    }

    /// Disables headers, and thus super-packets, as with drivers without `IFF_VNET_HDR`.
    #[cfg(feature = "simulated")]
    #[must_use]
    pub fn plain(self) -> Self {
        const WHY: &str = "kernel: no vnet_hdr";
        Self {
            vnet_hdr: false,
            tso: Rung::new_off("tun-gso", WHY),
            uso: Rung::new_off("tun-uso", WHY),
            gro: Rung::new_off("tun-gro", WHY),
            ..self
        }
    }

    /// The interface's name when it was created.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The interface's current name: it may have been renamed.
    ///
    /// # Errors
    /// `EBADFD` after the interface was deleted.
    pub fn current_name(&self) -> io::Result<String> {
        if self.null {
            return Ok(self.name.clone());
        }
        let mut req = IfReq {
            name: [0; 16],
            flags: 0,
            pad: [0; 22],
        };
        // SAFETY: TUNGETIFF fills a `struct ifreq`, which `IfReq` has the size of.
        check(unsafe { libc::ioctl(self.fd.as_raw_fd(), libc::TUNGETIFF, &raw mut req) })?;
        Ok(name_of(&req))
    }

    /// Makes the interface outlive this descriptor, until its namespace ends.
    fn outlive_descriptor(&self) -> io::Result<()> {
        self.set_persistent(true)
    }

    /// Sets whether the interface stays when this is dropped.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn set_persistent(&self, persistent: bool) -> io::Result<()> {
        // SAFETY: TUNSETPERSIST takes its argument by value.
        check(unsafe {
            libc::ioctl(
                self.fd.as_raw_fd(),
                libc::TUNSETPERSIST,
                libc::c_ulong::from(persistent),
            )
        })?;
        Ok(())
    }

    /// Whether every packet is preceded by a [`VnetHdr`].
    #[must_use]
    pub fn vnet_hdr(&self) -> bool {
        self.vnet_hdr
    }

    /// Sets whether the kernel delivers super-packets where it can (the default) or single packets. Packets already
    /// queued in the interface stay as they are.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn set_super_packets(&self, wanted: bool) -> io::Result<()> {
        // A null or simulated interface has no offloads to set.
        if self.vnet_hdr && !self.null && self.name != SIMULATED {
            create::set_offloads(&self.fd, wanted && self.tso.on(), wanted && self.uso.on())?;
        }
        self.singly.store(!wanted, Ordering::Relaxed);
        Ok(())
    }

    /// Whether [`Tun::set_super_packets`] has requested single packets.
    #[must_use]
    pub fn gives_singly(&self) -> bool {
        self.singly.load(Ordering::Relaxed)
    }

    /// Reads one packet (or super-packet), preceded by its header if [`Tun::vnet_hdr`].
    ///
    /// # Errors
    /// `WouldBlock` when none waits; `EBADFD` after the interface was deleted; `EIO` while the
    /// interface is down.
    pub fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        #[cfg(feature = "simulated")]
        if let Some(answer) = self.faults.answer(crate::simulated::Call::Read) {
            return answer;
        }
        // SAFETY: the pointer and the length are those of one live slice.
        check_len(unsafe { libc::read(self.fd.as_raw_fd(), buf.as_mut_ptr().cast(), buf.len()) })
    }

    /// Writes one packet (or super-packet) from `parts`, which begin with its header if [`Tun::vnet_hdr`]. One part is
    /// cheapest.
    ///
    /// # Errors
    /// `EINVAL` when the kernel refuses the header or the packet, `EIO` while the interface is
    /// down.
    pub fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        #[cfg(feature = "simulated")]
        if let Some(answer) = self.faults.answer(crate::simulated::Call::Write { parts }) {
            return answer;
        }
        if self.null {
            return Ok(parts.iter().map(|part| part.len()).sum());
        }
        if let [whole] = parts {
            // `write` is cheaper than `writev`.
            let fd = self.fd.as_raw_fd();
            // SAFETY: the pointer and the length are those of one live slice.
            return check_len(unsafe { libc::write(fd, whole.as_ptr().cast(), whole.len()) });
        }
        let count = i32::try_from(parts.len()).unwrap_or(i32::MAX);
        // SAFETY: `IoSlice` is ABI-compatible with `iovec`, and the slices live through the call.
        check_len(unsafe { libc::writev(self.fd.as_raw_fd(), parts.as_ptr().cast(), count) })
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The segmentation that a super-packet needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GsoKind {
    /// No segmentation: the packet is not coalesced.
    None,
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP over either family (USO), since Linux 6.2.
    Udp,
}

/// `struct virtio_net_hdr`, the ten bytes that precede every packet of a TUN opened with `IFF_VNET_HDR` (Linux
/// `include/uapi/linux/virtio_net.h`; VIRTIO 1.1 section 5.1.6).
///
/// Only the legacy layout is used: native byte order, no `num_buffers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VnetHdr {
    /// The checksum field holds only the pseudo-header sum; the receiver must complete it over `csum_start..`.
    pub needs_csum: bool,
    /// Kind of super-packet.
    pub gso: GsoKind,
    /// A TCP super-packet of which only the first segment carries CWR.
    pub gso_ecn: bool,
    /// Length of the headers in bytes. A hint only: forwarded packets carry wrong values, so readers compute it from
    /// the packet.
    pub hdr_len: u16,
    /// Payload bytes per segment.
    pub gso_size: u16,
    /// Where the checksummed part starts, in bytes from the packet's first.
    pub csum_start: u16,
    /// Where the checksum field is, in bytes from `csum_start`.
    pub csum_offset: u16,
}

impl VnetHdr {
    /// The header of an ordinary, fully checksummed packet.
    pub const NONE: Self = Self {
        needs_csum: false,
        gso: GsoKind::None,
        gso_ecn: false,
        hdr_len: 0,
        gso_size: 0,
        csum_start: 0,
        csum_offset: 0,
    };

    /// Reads a header.
    ///
    /// `None` if it is short or requests a segmentation that was never negotiated (UFO, tunnel types): the packet must
    /// be dropped.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let b: &[u8; VNET_HDR_LEN] = bytes.get(..VNET_HDR_LEN)?.try_into().ok()?;
        let word = |i: usize| u16::from_ne_bytes([b[i], b[i + 1]]);
        let gso = match b[1] & !GSO_ECN {
            GSO_NONE => GsoKind::None,
            GSO_TCPV4 => GsoKind::Tcp4,
            GSO_TCPV6 => GsoKind::Tcp6,
            GSO_UDP_L4 => GsoKind::Udp,
            _ => return None,
        };
        Some(Self {
            needs_csum: b[0] & F_NEEDS_CSUM != 0,
            gso,
            gso_ecn: b[1] & GSO_ECN != 0,
            hdr_len: word(2),
            gso_size: word(4),
            csum_start: word(6),
            csum_offset: word(8),
        })
    }

    /// Writes the header.
    #[must_use]
    pub fn emit(&self) -> [u8; VNET_HDR_LEN] {
        let mut b = [0; VNET_HDR_LEN];
        b[0] = if self.needs_csum { F_NEEDS_CSUM } else { 0 };
        b[1] = match self.gso {
            GsoKind::None => GSO_NONE,
            GsoKind::Tcp4 => GSO_TCPV4,
            GsoKind::Tcp6 => GSO_TCPV6,
            GsoKind::Udp => GSO_UDP_L4,
        } | if self.gso_ecn { GSO_ECN } else { 0 };
        b[2..4].copy_from_slice(&self.hdr_len.to_ne_bytes());
        b[4..6].copy_from_slice(&self.gso_size.to_ne_bytes());
        b[6..8].copy_from_slice(&self.csum_start.to_ne_bytes());
        b[8..10].copy_from_slice(&self.csum_offset.to_ne_bytes());
        b
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_null_interface_swallows_and_gives_nothing() {
        let tun = Tun::null().unwrap();
        let packet = [IoSlice::new(&[0x45; 20]), IoSlice::new(&[1])];
        assert_eq!(tun.write(&packet).unwrap(), 21);
        let error = tun.read(&mut [0; 100]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_header_survives_the_round_trip() {
        let hdr = VnetHdr {
            needs_csum: true,
            gso: GsoKind::Tcp6,
            gso_ecn: true,
            hdr_len: 60,
            gso_size: 1360,
            csum_start: 40,
            csum_offset: 16,
        };
        assert_eq!(VnetHdr::parse(&hdr.emit()), Some(hdr));
        assert_eq!(VnetHdr::NONE.emit(), [0; VNET_HDR_LEN]);
    }

    #[test]
    fn unknown_segmentation_and_short_headers_are_refused() {
        assert_eq!(VnetHdr::parse(&[0; 9]), None);
        assert_eq!(VnetHdr::parse(&[0, 3, 0, 0, 0, 0, 0, 0, 0, 0]), None);
    }
}
