//! The UDP sockets of the exchange, which carry only packets of the interface.

use nix::sys::socket::sockopt::{BindToDevice, Ipv4Ttl, Ipv6Ttl, Ipv6V6Only};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, setsockopt, socket,
};
use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Opens a socket on all addresses of this machine and this port, through which only packets of `device` pass. It does
/// not block. Another socket may have the same port on another device.
pub(super) fn open(device: &str, v6: bool, port: u16) -> io::Result<UdpSocket> {
    let (family, any): (_, IpAddr) = match v6 {
        true => (AddressFamily::Inet6, Ipv6Addr::UNSPECIFIED.into()),
        false => (AddressFamily::Inet, Ipv4Addr::UNSPECIFIED.into()),
    };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(family, SockType::Datagram, flags, None)?;
    // Before the address: two devices may have the same port.
    setsockopt(&fd, BindToDevice, &OsString::from(device))?;
    let hops = postquantum::HOPS.into();
    if v6 {
        setsockopt(&fd, Ipv6V6Only, &true)?;
        setsockopt(&fd, Ipv6Ttl, &hops)?;
    } else {
        setsockopt(&fd, Ipv4Ttl, &hops)?;
    }
    let address = SockaddrStorage::from(SocketAddr::new(any, port));
    bind(std::os::fd::AsRawFd::as_raw_fd(&fd), &address)?;
    Ok(fd.into())
}
