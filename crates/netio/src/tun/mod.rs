//! The TUN device: one descriptor, whole IP packets, super-packets where the kernel has them.

mod sample;
mod selftest;

pub use selftest::{TunTest, TunVerdict, self_test, start_self_test};

use crate::poll::{check, check_len};
use crate::rung::Rung;
use std::ffi::CStr;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;

const TUNSETIFF: libc::Ioctl = 0x4004_54ca_u32 as libc::Ioctl;
const TUNSETOFFLOAD: libc::Ioctl = 0x4004_54d0_u32 as libc::Ioctl;
const TUNGETIFF: libc::Ioctl = 0x8004_54d2_u32 as libc::Ioctl;
const TUNSETPERSIST: libc::Ioctl = 0x4004_54cb_u32 as libc::Ioctl;
const IFF_TUN: i16 = 0x0001;
const IFF_NO_PI: i16 = 0x1000;
const IFF_VNET_HDR: i16 = 0x4000;
const TUN_F_CSUM: u32 = 0x01;
const TUN_F_TSO4: u32 = 0x02;
const TUN_F_TSO6: u32 = 0x04;
const TUN_F_TSO_ECN: u32 = 0x08;
const TUN_F_USO4: u32 = 0x20;
const TUN_F_USO6: u32 = 0x40;

/// Longest interface name, in bytes, without the terminating zero.
pub const NAME_MAX: usize = 15;

/// Which rungs to try.
#[derive(Clone, Copy, Debug)]
pub struct TunOptions {
    /// Let the kernel hand over TCP super-packets (TSO4/6).
    pub tso: bool,
    /// Let the kernel hand over UDP super-packets (USO4/6, Linux 6.2).
    pub uso: bool,
    /// Write coalesced super-packets.
    pub gro: bool,
}

impl TunOptions {
    /// Everything on.
    pub const ALL: Self = Self {
        tso: true,
        uso: true,
        gro: true,
    };
    /// Plain packets only.
    pub const PLAIN: Self = Self {
        tso: false,
        uso: false,
        gro: false,
    };
}

/// Why a TUN could not be made.
#[derive(Debug, thiserror::Error)]
pub enum TunError {
    /// `/dev/net/tun` is missing or not permitted.
    #[error(
        "cannot open /dev/net/tun: {0} (load the tun module; run as root or with CAP_NET_ADMIN)"
    )]
    Open(io::Error),
    /// The name is empty, too long, or has a slash or white space.
    #[error("{0:?} is not an interface name: 1 to 15 bytes without '/' or white space")]
    Name(String),
    /// The kernel refused the device.
    #[error("cannot create interface {name}: {source}{}", hint(source))]
    Create {
        /// The interface.
        name: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

fn hint(e: &io::Error) -> &'static str {
    match e.raw_os_error() {
        Some(libc::EBUSY) => " (an interface of that name is in use by another program)",
        Some(libc::EPERM) => " (run as root or with CAP_NET_ADMIN)",
        Some(libc::EINVAL) => " (an interface of that name exists and is not a TUN)",
        _ => "",
    }
}

/// An open TUN device. The interface disappears when this is dropped.
#[derive(Debug)]
pub struct Tun {
    fd: OwnedFd,
    name: String,
    vnet_hdr: bool,
    null: bool,
    /// TCP super-packets are read.
    pub tso: Rung,
    /// UDP super-packets are read, and may be written.
    pub uso: Rung,
    /// TCP super-packets may be written.
    pub gro: Rung,
}

#[repr(C)]
struct IfReq {
    name: [u8; 16],
    flags: i16,
    pad: [u8; 22],
}

impl Tun {
    /// Creates the interface `name` (a `%d` in it is numbered by the kernel), non-blocking.
    ///
    /// Each rung is asked for by itself: a kernel without USO keeps TSO, a kernel without either
    /// gets plain packets.
    ///
    /// # Errors
    /// See [`TunError`].
    pub fn create(name: &str, options: TunOptions) -> Result<Self, TunError> {
        let valid = !name.is_empty()
            && name.len() <= NAME_MAX
            && name != "."
            && name != ".."
            && !name
                .bytes()
                .any(|b| b == b'/' || b == b':' || b.is_ascii_whitespace() || b == 0);
        if !valid {
            return Err(TunError::Name(name.to_owned()));
        }
        let wants_vnet = options.tso || options.uso || options.gro;
        let create = |source| TunError::Create {
            name: name.to_owned(),
            source,
        };
        // A kernel may know the flag and a vendor's driver may not: fall back to plain packets.
        let (fd, req, vnet_hdr) = match (wants_vnet, wants_vnet.then(|| open(name, IFF_VNET_HDR))) {
            (true, Some(Ok((fd, req)))) => (fd, req, true),
            (true, Some(Err(OpenError::Iff(e)))) if e.raw_os_error() != Some(libc::EINVAL) => {
                return Err(create(e));
            }
            (true, Some(Err(OpenError::Dev(e)))) => return Err(TunError::Open(e)),
            _ => match open(name, 0) {
                Ok((fd, req)) => (fd, req, false),
                Err(OpenError::Dev(e)) => return Err(TunError::Open(e)),
                Err(OpenError::Iff(e)) => return Err(create(e)),
            },
        };
        let name = CStr::from_bytes_until_nul(&req.name)
            .map_or_else(|_| name.to_owned(), |c| c.to_string_lossy().into_owned());
        let (tso, uso, gro) = probe(&fd, options, vnet_hdr);
        Ok(Self {
            fd,
            name,
            vnet_hdr,
            null: false,
            tso,
            uso,
            gro,
        })
    }

    /// An interface that is none: nothing ever comes from it, and what is written is gone. For
    /// tunnels that are only made to see whether they can be (`dev null`); needs no privileges.
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
            tso: Rung::new_off("tun-gso", WHY),
            uso: Rung::new_off("tun-uso", WHY),
            gro: Rung::new_off("tun-gro", WHY),
        })
    }

    /// An interface that the kernel does not know, with a header before each packet and super-packets
    /// both ways, and its other side, where each packet is a datagram. For simulations.
    ///
    /// # Errors
    /// Descriptor limits.
    #[doc(hidden)]
    pub fn simulated() -> io::Result<(Self, UnixDatagram)> {
        let (ours, theirs) = UnixDatagram::pair()?;
        ours.set_nonblocking(true)?;
        let tun = Self {
            fd: ours.into(),
            name: "simulated".to_owned(),
            vnet_hdr: true,
            null: false,
            tso: Rung::new_on("tun-gso"),
            uso: Rung::new_on("tun-uso"),
            gro: Rung::new_on("tun-gro"),
        };
        Ok((tun, theirs))
    }

    /// The interface's name when it was created.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The interface's present name: it may have been renamed.
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
        check(unsafe { libc::ioctl(self.fd.as_raw_fd(), TUNGETIFF, &raw mut req) })?;
        Ok(CStr::from_bytes_until_nul(&req.name)
            .map(|c| c.to_string_lossy().into_owned())
            .unwrap_or_default())
    }

    /// Leaves the interface to its namespace when this is dropped.
    fn outlive_descriptor(&self) -> io::Result<()> {
        self.set_persistent(true)
    }

    /// Whether the interface stays when this is dropped.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn set_persistent(&self, persistent: bool) -> io::Result<()> {
        // SAFETY: TUNSETPERSIST takes its argument by value.
        check(unsafe {
            libc::ioctl(
                self.fd.as_raw_fd(),
                TUNSETPERSIST,
                libc::c_ulong::from(persistent),
            )
        })?;
        Ok(())
    }

    /// Whether every packet is preceded by a [`VnetHdr`](crate::vnet::VnetHdr).
    #[must_use]
    pub fn vnet_hdr(&self) -> bool {
        self.vnet_hdr
    }

    /// Reads one packet (or super-packet), preceded by its header if [`Tun::vnet_hdr`].
    ///
    /// # Errors
    /// `WouldBlock` when none waits; `EBADFD` after the interface was deleted; `EIO` while the
    /// interface is down.
    pub fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        // SAFETY: the pointer and the length are those of one live slice.
        check_len(unsafe { libc::read(self.fd.as_raw_fd(), buf.as_mut_ptr().cast(), buf.len()) })
    }

    /// Writes one packet (or super-packet) gathered from `parts`, the first of which is its
    /// header if [`Tun::vnet_hdr`].
    ///
    /// # Errors
    /// `EINVAL` when the kernel refuses the header or the packet, `EIO` while the interface is
    /// down.
    pub fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.null {
            return Ok(parts.iter().map(|part| part.len()).sum());
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

enum OpenError {
    Dev(io::Error),
    Iff(io::Error),
}

fn open(name: &str, extra: i16) -> Result<(OwnedFd, IfReq), OpenError> {
    let flags = libc::O_RDWR | libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: the path is a C string literal; the result is checked before it is owned.
    let fd =
        check(unsafe { libc::open(c"/dev/net/tun".as_ptr(), flags) }).map_err(OpenError::Dev)?;
    // SAFETY: `fd` is a fresh descriptor that nothing else owns.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut req = IfReq {
        name: [0; 16],
        flags: IFF_TUN | IFF_NO_PI | extra,
        pad: [0; 22],
    };
    req.name[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: TUNSETIFF reads and writes a `struct ifreq`, which `IfReq` has the size of.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETIFF, &raw mut req) })
        .map_err(OpenError::Iff)?;
    Ok((fd, req))
}

fn probe(fd: &OwnedFd, options: TunOptions, vnet_hdr: bool) -> (Rung, Rung, Rung) {
    const TSO: &str = "tun-gso";
    const USO: &str = "tun-uso";
    const GRO: &str = "tun-gro";
    let offload = |bits: u32| {
        // SAFETY: TUNSETOFFLOAD takes its argument by value.
        check(unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETOFFLOAD, libc::c_ulong::from(bits)) })
    };
    let off = |name, wanted: bool, why: &io::Result<i32>| {
        let why = match (wanted, vnet_hdr, why) {
            (false, ..) => "setting".to_owned(),
            (true, false, _) => "kernel: no vnet_hdr".to_owned(),
            (true, true, Err(e)) => format!("kernel: {e}"),
            (true, true, Ok(_)) => "kernel".to_owned(),
        };
        Rung::new_off(name, why)
    };
    if !vnet_hdr {
        let none = Ok(0);
        return (
            off(TSO, options.tso, &none),
            off(USO, options.uso, &none),
            off(GRO, options.gro, &none),
        );
    }
    let mut bits = TUN_F_CSUM;
    let csum = offload(bits);
    let mut ask = |wanted: bool, more: u32| -> io::Result<i32> {
        if !wanted {
            return Err(io::Error::from(io::ErrorKind::Unsupported));
        }
        let result = offload(bits | more);
        if result.is_ok() {
            bits |= more;
        }
        result
    };
    let tso = ask(options.tso && csum.is_ok(), TUN_F_TSO4 | TUN_F_TSO6);
    if tso.is_ok() {
        // Old kernels know TSO but not its ECN variant; nothing is lost without it.
        let _ = ask(true, TUN_F_TSO_ECN);
    }
    let uso = ask(options.uso && csum.is_ok(), TUN_F_USO4 | TUN_F_USO6);
    let rung = |name, wanted, result: io::Result<i32>| match result {
        Ok(_) => Rung::new_on(name),
        Err(_) => off(name, wanted, &result),
    };
    // Writing a super-packet needs no offload bit: only the header.
    let gro = if options.gro {
        Rung::new_on(GRO)
    } else {
        Rung::new_off(GRO, "setting")
    };
    (
        rung(TSO, options.tso, tso),
        rung(USO, options.uso, uso),
        gro,
    )
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
    fn bad_names_are_refused_before_the_kernel_sees_them() {
        for name in ["", "sixteen-bytes-xx", "a/b", "a b", "..", "a:b"] {
            assert!(
                matches!(Tun::create(name, TunOptions::ALL), Err(TunError::Name(_))),
                "{name}"
            );
        }
    }
}
