//! Opens a UDP socket, and finds which optional kernel features it has. [`Singles`]
//! decides whether it receives trains or single datagrams.

use crate::poll::check;
use crate::rung::Rung;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
#[cfg(feature = "steer")]
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Address family of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6 only (`IPV6_V6ONLY`).
    V6,
}

/// Treatment of datagrams that are longer than a link on their path carries (`IP_MTU_DISCOVER`, ip(7)). It applies to
/// trains and to single datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MtuDiscovery {
    /// Long datagrams are fragmented: IPv4 datagrams have no DF, so routers may do it. This host fragments IPv6 if it
    /// knows the path's MTU.
    #[default]
    No,
    /// The kernel's default: this host fragments if it knows the path's MTU, otherwise sets DF. Excludes trains
    /// (`UDP_SEGMENT`), which the kernel sends without DF in this mode.
    Maybe,
    /// Long datagrams are dropped, here or on the path: all datagrams have DF.
    Yes,
}

/// Options of a socket.
#[derive(Clone, Debug, Default)]
pub struct SocketOptions {
    /// Local UDP port; 0 lets the kernel choose.
    pub port: u16,
    /// Local address; all of them when `None`.
    pub address: Option<IpAddr>,
    /// `SO_MARK` of everything sent; 0 for none.
    pub fwmark: u32,
    /// `SO_BINDTODEVICE`.
    pub device: Option<String>,
    /// Send and receive buffer in bytes; the kernel's default when `None`. Tried with the
    /// `FORCE` variants first, which a privileged process may use beyond `rmem_max`.
    pub buffer: Option<usize>,
    /// Treatment of datagrams that are too long for their path.
    pub mtu_discovery: MtuDiscovery,
    /// Try `UDP_SEGMENT`.
    pub gso: bool,
    /// Try `UDP_GRO`.
    pub gro: bool,
    /// Try `sendmmsg` and `recvmmsg`.
    pub mmsg: bool,
    /// Make the kernel note the arrival time of datagrams ([`UdpSocket::waited`]).
    pub aqm: bool,
    /// Make the kernel report the outer ECN bits of received datagrams; otherwise they read as "no ECN". The report
    /// costs 310 instructions per datagram where datagrams arrive singly (x86-64, Linux 7.2).
    pub ecn: bool,
    /// Whether this end always sends first. If so, the kernel chooses the source address by the present route, and does
    /// not report which local address received a datagram. This saves a control message in each direction.
    pub calls: bool,
}

/// Why a socket could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The kernel has no such family (IPv6 disabled).
    #[error("this kernel has no {0:?}")]
    NoFamily(Family),
    /// No interface of this machine has the local address.
    #[error(
        "no interface of this machine has the address {0}; name one that `ip address` shows, or leave it out for all"
    )]
    NoAddress(IpAddr),
    /// The port is taken.
    #[error("UDP port {0} is in use by another program (choose another ListenPort)")]
    PortInUse(u16),
    /// Another error.
    #[error("UDP socket: {what}: {source}")]
    Option {
        /// The step that failed.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// Longest plausible wait of a datagram: a longer one means that the clock was set.
const WAITED_MAX: Duration = Duration::from_secs(60);

/// An open, non-blocking UDP socket.
#[derive(Debug)]
pub struct UdpSocket {
    pub(super) fd: OwnedFd,
    family: Family,
    port: u16,
    /// `IP_MTU_DISCOVER`, as it was requested.
    pub(super) discovery: libc::c_int,
    /// Whether `UDP_SEGMENT` is in force.
    pub gso: Rung,
    /// Whether `UDP_GRO` is in force.
    pub gro: Rung,
    /// Whether `sendmmsg`/`recvmmsg` are in force.
    pub mmsg: Rung,
    /// Whether the kernel notes the arrival time of datagrams.
    pub aqm: Rung,
    /// Remaining receives of single datagrams with full room, after one that was longer than the receive stride.
    pub(super) long_datagrams: AtomicU32,
    #[cfg(not(feature = "steer"))]
    pub(super) singles: Singles,
    #[cfg(feature = "steer")]
    pub(super) singles: Arc<Singles>,
    /// The port, if a second socket may use it.
    #[cfg(feature = "steer")]
    pub(super) shared: Option<super::SharedPort>,
    /// Answers that a test gives in the kernel's place.
    #[cfg(feature = "simulated")]
    pub faults: crate::simulated::Faults,
}

impl UdpSocket {
    /// Opens and binds a socket.
    ///
    /// # Errors
    /// See [`SocketError`]. A feature that the kernel lacks is not an error.
    pub fn bind(family: Family, options: &SocketOptions) -> Result<Self, SocketError> {
        Self::open(family, options, |_| Ok(()))
    }

    /// Like [`bind`](Self::bind); `before` prepares the socket before it is bound.
    pub(super) fn open(
        family: Family,
        options: &SocketOptions,
        before: impl FnOnce(&OwnedFd) -> io::Result<()>,
    ) -> Result<Self, SocketError> {
        let domain = match family {
            Family::V4 => libc::AF_INET,
            Family::V6 => libc::AF_INET6,
        };
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no pointers are passed; the result is checked before it is owned.
        let fd = match check(unsafe { libc::socket(domain, kind, 0) }) {
            // SAFETY: `fd` is a fresh descriptor that nothing else owns.
            Ok(fd) => unsafe { OwnedFd::from_raw_fd(fd) },
            Err(e) if e.raw_os_error() == Some(libc::EAFNOSUPPORT) => {
                return Err(SocketError::NoFamily(family));
            }
            Err(source) => {
                return Err(SocketError::Option {
                    what: "socket",
                    source,
                });
            }
        };
        let must = |what, result: io::Result<()>| {
            result.map_err(|source| SocketError::Option { what, source })
        };
        let asks = libc::c_int::from(!options.calls);
        match family {
            Family::V4 => {
                must(
                    "IP_PKTINFO",
                    set_int(&fd, libc::IPPROTO_IP, libc::IP_PKTINFO, asks),
                )?;
                if options.ecn {
                    let on = set_int(&fd, libc::IPPROTO_IP, libc::IP_RECVTOS, 1);
                    must("IP_RECVTOS", on)?;
                }
            }
            Family::V6 => {
                must(
                    "IPV6_V6ONLY",
                    set_int(&fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1),
                )?;
                let on = set_int(&fd, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, asks);
                must("IPV6_RECVPKTINFO", on)?;
                if options.ecn {
                    let on = set_int(&fd, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1);
                    must("IPV6_RECVTCLASS", on)?;
                }
            }
        }
        let (level, name) = match family {
            Family::V4 => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
            Family::V6 => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER),
        };
        // The values are the same numbers in both families.
        let value = match options.mtu_discovery {
            MtuDiscovery::No => libc::IP_PMTUDISC_DONT,
            MtuDiscovery::Maybe => libc::IP_PMTUDISC_WANT,
            MtuDiscovery::Yes => libc::IP_PMTUDISC_DO,
        };
        must("IP_MTU_DISCOVER", set_int(&fd, level, name, value))?;
        if options.fwmark != 0 {
            must("SO_MARK", set_mark(&fd, options.fwmark))?;
        }
        if let Some(device) = &options.device {
            must("SO_BINDTODEVICE", set_device(&fd, device))?;
        }
        if let Some(bytes) = options.buffer {
            set_buffers(&fd, bytes);
        }
        let bound = before(&fd).and_then(|()| bind(&fd, family, options));
        bound.map_err(|source| match source.raw_os_error() {
            Some(libc::EADDRINUSE) => SocketError::PortInUse(options.port),
            Some(libc::EAFNOSUPPORT) => SocketError::NoFamily(family),
            // If no address was requested, this error means that the family was switched off.
            Some(libc::EADDRNOTAVAIL) => match options.address {
                Some(address) if !address.is_unspecified() => SocketError::NoAddress(address),
                _ => SocketError::NoFamily(family),
            },
            _ => SocketError::Option {
                what: "bind",
                source,
            },
        })?;
        let port = local_port(&fd).map_err(|source| SocketError::Option {
            what: "getsockname",
            source,
        })?;

        // Setting a segment size of 0 changes nothing and tells whether the option exists.
        let gso = match options.mtu_discovery {
            MtuDiscovery::Maybe => Rung::new_off("udp-gso", "mtu-disc maybe"),
            MtuDiscovery::No | MtuDiscovery::Yes => rung("udp-gso", options.gso, || {
                set_int(&fd, libc::SOL_UDP, libc::UDP_SEGMENT, 0)
            }),
        };
        let gro = rung("udp-gro", options.gro, || {
            set_int(&fd, libc::SOL_UDP, libc::UDP_GRO, 1)
        });
        let mmsg = rung("mmsg", options.mmsg, || probe_mmsg(&fd));
        // The first query makes the kernel start noting the times.
        let aqm = rung("aqm", options.aqm, || arrival(&fd).map(drop));
        let long_datagrams = AtomicU32::new(0);
        Ok(Self {
            fd,
            family,
            port,
            discovery: value,
            gso,
            gro,
            mmsg,
            aqm,
            long_datagrams,
            singles: Default::default(),
            #[cfg(feature = "steer")]
            shared: None,
            #[cfg(feature = "simulated")]
            faults: crate::simulated::Faults::default(),
        })
    }

    /// The family the socket was opened for.
    #[must_use]
    pub fn family(&self) -> Family {
        self.family
    }

    /// The local UDP port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// How long ago the last received datagram arrived at this machine. `None` if the kernel has not noted that, or the
    /// clock was set.
    #[must_use]
    pub fn waited(&self) -> Option<Duration> {
        #[cfg(feature = "simulated")]
        if let Some(answer) = self.faults.answer(crate::simulated::Call::Waited) {
            return answer
                .ok()
                .map(|micros| Duration::from_micros(micros as u64));
        }
        let (seconds, nanos) = arrival(&self.fd).ok()?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        // Seconds have 32 bits where longs do, and wrap around.
        let seconds = u64::from((now.as_secs() as u32).wrapping_sub(seconds));
        let now = Duration::new(seconds, now.subsec_nanos());
        let waited = now.checked_sub(Duration::from_nanos(nanos.into()))?;
        (waited < WAITED_MAX).then_some(waited)
    }

    /// Changes `SO_MARK`.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN`.
    pub fn set_fwmark(&self, fwmark: u32) -> io::Result<()> {
        set_mark(&self.fd, fwmark)
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn rung(name: &'static str, wanted: bool, probe: impl FnOnce() -> io::Result<()>) -> Rung {
    if !wanted {
        return Rung::new_off(name, "setting");
    }
    match probe() {
        Ok(()) => Rung::new_on(name),
        Err(e) => Rung::new_off(name, format!("kernel: {e}")),
    }
}

/// Calls `recvmmsg` for no messages on the empty socket: would-block if the call exists, `ENOSYS` otherwise.
fn probe_mmsg(fd: &OwnedFd) -> io::Result<()> {
    // SAFETY: a vector of length zero is never touched.
    let result = unsafe {
        libc::recvmmsg(
            fd.as_raw_fd(),
            std::ptr::null_mut(),
            0,
            libc::MSG_DONTWAIT as _,
            std::ptr::null_mut(),
        )
    };
    match check(result) {
        Err(e) if e.raw_os_error() == Some(libc::ENOSYS) => Err(e),
        _ => Ok(()),
    }
}

/// Arrival time of the last received datagram: seconds, whose low half is correct, and nanoseconds. The first query
/// makes the kernel note the times of later datagrams.
fn arrival(fd: &OwnedFd) -> io::Result<(u32, u32)> {
    // The older of the ioctl's two forms, with native longs, which every kernel has.
    const SIOCGSTAMPNS: libc::c_int = 0x8907;
    let mut stamp: [libc::c_long; 2] = [0; 2];
    // SAFETY: the kernel writes two native longs.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), SIOCGSTAMPNS as _, stamp.as_mut_ptr()) };
    match check(result) {
        // No datagram was received yet.
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok((0, 0)),
        Err(e) => Err(e),
        Ok(_) => Ok((stamp[0] as u32, stamp[1] as u32)),
    }
}

pub(super) fn set_option<T>(
    fd: &impl AsRawFd,
    level: libc::c_int,
    name: libc::c_int,
    value: &[T],
) -> io::Result<()> {
    let len = size_of_val(value) as libc::socklen_t;
    // SAFETY: pointer and length are those of one live slice.
    let result =
        unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, value.as_ptr().cast(), len) };
    check(result).map(drop)
}

pub(crate) fn set_int(
    fd: &impl AsRawFd,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    set_option(fd, level, name, &[value])
}

pub(crate) fn set_mark(fd: &impl AsRawFd, mark: u32) -> io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_MARK, &[mark])
}

pub(crate) fn set_device(fd: &impl AsRawFd, device: &str) -> io::Result<()> {
    set_option(
        fd,
        libc::SOL_SOCKET,
        libc::SO_BINDTODEVICE,
        device.as_bytes(),
    )
}

pub(crate) fn set_buffers(fd: &impl AsRawFd, bytes: usize) {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    for (force, plain) in [
        (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF),
        (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF),
    ] {
        // A buffer smaller than requested makes the socket slower, not wrong.
        if set_int(fd, libc::SOL_SOCKET, force, bytes).is_err() {
            let _ = set_int(fd, libc::SOL_SOCKET, plain, bytes);
        }
    }
}

fn bind(fd: &OwnedFd, family: Family, options: &SocketOptions) -> io::Result<()> {
    let any: IpAddr = match family {
        Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
        Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
    };
    let addr = SocketAddr::new(options.address.unwrap_or(any), options.port);
    let (raw, len) = to_raw(addr);
    // SAFETY: `raw` is an initialised sockaddr of `len` bytes that lives through the call.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const raw).cast(), len) }).map(drop)
}

fn local_port(fd: &OwnedFd) -> io::Result<u16> {
    // SAFETY: all-zero bytes are a valid sockaddr_storage.
    let mut raw: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut len = size_of_val(&raw) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into `raw`.
    check(unsafe { libc::getsockname(fd.as_raw_fd(), (&raw mut raw).cast(), &raw mut len) })?;
    Ok(from_raw(&raw).map_or(0, |a| a.port()))
}

/// A `sockaddr` of either family and its length.
pub(crate) fn to_raw(addr: SocketAddr) -> (libc::sockaddr_storage, libc::socklen_t) {
    // SAFETY: all-zero bytes are a valid sockaddr_storage.
    let mut raw: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let len = match addr {
        SocketAddr::V4(a) => {
            let sin = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: a.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(a.ip().octets()),
                },
                sin_zero: [0; 8],
            };
            // SAFETY: sockaddr_storage is larger than and aligned for every sockaddr.
            unsafe { (&raw mut raw).cast::<libc::sockaddr_in>().write(sin) };
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(a) => {
            let sin6 = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: a.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr {
                    s6_addr: a.ip().octets(),
                },
                sin6_scope_id: a.scope_id(),
            };
            // SAFETY: sockaddr_storage is larger than and aligned for every sockaddr.
            unsafe { (&raw mut raw).cast::<libc::sockaddr_in6>().write(sin6) };
            size_of::<libc::sockaddr_in6>()
        }
    };
    (raw, len as libc::socklen_t)
}

/// The address in a `sockaddr`; `None` for other families.
pub(crate) fn from_raw(raw: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match libc::c_int::from(raw.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says which sockaddr this is; the storage is large enough.
            let a = unsafe { (&raw const *raw).cast::<libc::sockaddr_in>().read() };
            let ip = Ipv4Addr::from(a.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(ip, u16::from_be(a.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the family says which sockaddr this is; the storage is large enough.
            let a = unsafe { (&raw const *raw).cast::<libc::sockaddr_in6>().read() };
            let ip = Ipv6Addr::from(a.sin6_addr.s6_addr);
            // The scope matters only for link-local addresses; elsewhere it would make equal
            // addresses differ.
            let scope = if ip.is_unicast_link_local() {
                a.sin6_scope_id
            } else {
                0
            };
            Some(SocketAddrV6::new(ip, u16::from_be(a.sin6_port), 0, scope).into())
        }
        _ => None,
    }
}

/// Chooses between receiving trains and single datagrams, by what arrives.
///
/// With `UDP_GRO` one call receives one train. A train is only one datagram if the sender's datagrams differ or the
/// device joins none. Without `UDP_GRO` one call receives many datagrams, and the kernel cuts trains, which is
/// expensive. So `UDP_GRO` is switched off while only single datagrams come. It is tried again, less often after each
/// attempt in vain.
///
/// `UDP_GRO` is switched off only if nothing waits before and after. The kernel does not cut a train that is queued
/// already, and no longer reports where to cut it.
#[derive(Debug, Default)]
pub(super) struct Singles {
    /// `UDP_GRO` is switched off.
    pub(super) on: AtomicBool,
    /// `UDP_GRO` will be switched off as soon as nothing waits.
    pub(super) wanted: AtomicBool,
    /// `UDP_GRO` must not be switched on again, but off as soon as nothing waits.
    #[cfg(feature = "steer")]
    pub(super) gro_is_forbidden: AtomicBool,
    /// Single datagrams in a row, or calls without `UDP_GRO`.
    count: AtomicU32,
    /// Attempts in a row to use `UDP_GRO` that received only single datagrams.
    pub(super) in_vain: AtomicU32,
}

/// Number of single datagrams in a row, while more wait, after which `UDP_GRO` is switched off.
pub(super) const SINGLE: u32 = 16;

/// Calls without `UDP_GRO` until it is tried again: at first, and at most.
pub(super) const CALLS_MIN: u32 = 32;
const CALLS_MAX: u32 = 4096;

impl Singles {
    /// Counts one; at the `limit` returns true and starts again from zero.
    pub(super) fn count(&self, limit: u32) -> bool {
        let count = self.count.load(Ordering::Relaxed) + 1;
        let over = count >= limit;
        self.count
            .store(if over { 0 } else { count }, Ordering::Relaxed);
        over
    }

    pub(super) fn none_in_a_row(&self) {
        self.count.store(0, Ordering::Relaxed);
    }

    /// Whether trains must not be received.
    pub(super) fn forbid_gro(&self) -> bool {
        #[cfg(feature = "steer")]
        return self.gro_is_forbidden.load(Ordering::Relaxed);
        #[cfg(not(feature = "steer"))]
        false
    }

    /// Whether to ask for trains again after this call.
    pub(super) fn tries_again(&self) -> bool {
        if self.forbid_gro() {
            return false;
        }
        let doublings = self.in_vain.load(Ordering::Relaxed);
        let calls = CALLS_MIN.checked_shl(doublings).unwrap_or(CALLS_MAX);
        self.count(calls.min(CALLS_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_the_host_lacks_is_not_taken_for_a_missing_family() {
        let bind = |address: Option<IpAddr>| {
            let options = SocketOptions {
                address,
                ..SocketOptions::default()
            };
            UdpSocket::bind(Family::V4, &options)
        };
        // An address from a range for documentation (RFC 5737).
        let missing = IpAddr::from([192, 0, 2, 77]);
        let error = bind(Some(missing)).unwrap_err();
        assert!(matches!(error, SocketError::NoAddress(address) if address == missing));
        assert!(error.to_string().contains("192.0.2.77"), "{error}");
        assert!(bind(Some([127, 0, 0, 1].into())).is_ok() && bind(None).is_ok());
    }
}
