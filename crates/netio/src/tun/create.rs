//! Creates a TUN, and finds out which optional features the kernel has.

use super::{IfReq, Tun};
use crate::poll::check;
use crate::rung::Rung;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::AtomicBool;

pub(super) const IFF_TUN: i16 = 0x0001;
pub(super) const IFF_NO_PI: i16 = 0x1000;
pub(super) const IFF_VNET_HDR: i16 = 0x4000;
const TUN_F_CSUM: u32 = 0x01;
const TUN_F_TSO4: u32 = 0x02;
const TUN_F_TSO6: u32 = 0x04;
const TUN_F_TSO_ECN: u32 = 0x08;
const TUN_F_USO4: u32 = 0x20;
const TUN_F_USO6: u32 = 0x40;

/// Longest interface name, in bytes, without the terminating zero.
pub const NAME_MAX: usize = 15;

/// Which optional features to request.
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
    /// Options that request every feature.
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
    /// `/dev/net/tun` is missing, or this process may not open it.
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

impl Tun {
    /// Creates the non-blocking interface `name`, in which the kernel replaces a `%d` by a number.
    ///
    /// Requests each feature separately: a kernel without USO keeps TSO, a kernel without either gets plain packets.
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
        #[cfg(feature = "handover")]
        if let Some((fd, vnet_hdr, had)) = super::handover::take(name) {
            let options = TunOptions {
                tso: options.tso && had.tso,
                uso: options.uso && had.uso,
                gro: options.gro && had.gro,
            };
            return Ok(Self::of(fd, name.to_owned(), options, vnet_hdr));
        }
        let wants_vnet = options.tso || options.uso || options.gro;
        let create = |source| TunError::Create {
            name: name.to_owned(),
            source,
        };
        // The kernel may know the flag while a vendor's driver does not: fall back to plain packets.
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
        Ok(Self::of(fd, name, options, vnet_hdr))
    }

    /// The open interface `name`, with those of the features that the kernel has.
    fn of(fd: OwnedFd, name: String, options: TunOptions, vnet_hdr: bool) -> Self {
        let (tso, uso, gro) = probe(&fd, options, vnet_hdr);
        #[cfg(feature = "handover")]
        super::handover::note(&name, &fd, options);
        Self {
            fd,
            name,
            vnet_hdr,
            null: false,
            singly: AtomicBool::new(false),
            tso,
            uso,
            gro,
            #[cfg(feature = "simulated")]
            faults: crate::simulated::Faults::default(),
        }
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
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, &raw mut req) })
        .map_err(OpenError::Iff)?;
    Ok((fd, req))
}

/// Sets which super-packets the kernel may deliver.
pub(super) fn set_offloads(fd: &OwnedFd, tso: bool, uso: bool) -> io::Result<()> {
    let mut bits = TUN_F_CSUM;
    if uso {
        bits |= TUN_F_USO4 | TUN_F_USO6;
    }
    if tso {
        bits |= TUN_F_TSO4 | TUN_F_TSO6;
        // Old kernels do not know this bit; nothing is lost without it.
        if set_bits(fd, bits | TUN_F_TSO_ECN).is_ok() {
            return Ok(());
        }
    }
    set_bits(fd, bits).map(drop)
}

fn set_bits(fd: &OwnedFd, bits: u32) -> io::Result<i32> {
    // SAFETY: TUNSETOFFLOAD takes its argument by value.
    check(unsafe {
        libc::ioctl(
            fd.as_raw_fd(),
            libc::TUNSETOFFLOAD,
            libc::c_ulong::from(bits),
        )
    })
}

fn probe(fd: &OwnedFd, options: TunOptions, vnet_hdr: bool) -> (Rung, Rung, Rung) {
    const TSO: &str = "tun-gso";
    const USO: &str = "tun-uso";
    const GRO: &str = "tun-gro";
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
    let csum = set_bits(fd, bits);
    let mut ask = |wanted: bool, more: u32| -> io::Result<i32> {
        if !wanted {
            return Err(io::Error::from(io::ErrorKind::Unsupported));
        }
        let result = set_bits(fd, bits | more);
        if result.is_ok() {
            bits |= more;
        }
        result
    };
    let tso = ask(options.tso && csum.is_ok(), TUN_F_TSO4 | TUN_F_TSO6);
    if tso.is_ok() {
        // Old kernels know TSO without its ECN variant; nothing is lost then.
        let _ = ask(true, TUN_F_TSO_ECN);
    }
    let uso = ask(options.uso && csum.is_ok(), TUN_F_USO4 | TUN_F_USO6);
    let rung = |name, wanted, result: io::Result<i32>| match result {
        Ok(_) => Rung::new_on(name),
        Err(_) => off(name, wanted, &result),
    };
    // Writing a super-packet only needs the header, no offload bit.
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
    fn bad_names_are_refused_before_the_kernel_sees_them() {
        for name in ["", "sixteen-bytes-xx", "a/b", "a b", "..", "a:b"] {
            assert!(
                matches!(Tun::create(name, TunOptions::ALL), Err(TunError::Name(_))),
                "{name}"
            );
        }
    }
}
