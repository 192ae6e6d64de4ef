//! The engine, compiled for each protocol: the data plane that runs in user space.
//!
//! The engine is generic over its protocol, so that calls for each packet are static; the compiler generates its code
//! in the crate that names both. This crate has no other code, so it can be optimised for packets, while the control
//! loops, which only use a [`plane::Transports`], are optimised for size.

#![forbid(unsafe_code)]

use engine::{Sockets, Tunnel, TunnelOptions};
use netio::tun::Tun;
use openvpn::data::wire::OpenVpn;
use plane::{Control, Transports};
use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use wireguard::WireGuard;

/// A data plane on this kernel's sockets, for one protocol.
pub type Plane<P> = dyn Transports<Protocol = P, Sockets = Sockets, Connection = TcpStream>;

/// Starts a data plane for WireGuard.
///
/// # Errors
/// Descriptor or thread limits.
pub fn wireguard(
    tun: Tun,
    protocol: WireGuard,
    control: Arc<dyn Control>,
    options: &TunnelOptions,
) -> io::Result<Box<Plane<WireGuard>>> {
    Ok(Box::new(Tunnel::start(tun, protocol, control, options)?))
}

/// Starts a data plane for OpenVPN.
///
/// # Errors
/// Descriptor or thread limits.
pub fn openvpn(
    tun: Tun,
    protocol: OpenVpn,
    control: Arc<dyn Control>,
    options: &TunnelOptions,
) -> io::Result<Box<Plane<OpenVpn>>> {
    Ok(Box::new(Tunnel::start(tun, protocol, control, options)?))
}
