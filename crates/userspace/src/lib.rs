//! The engine, compiled for each protocol: the data plane that runs in user space.
//!
//! The engine is generic over its protocol, so that what is called for each packet is static; the compiler translates it
//! in the crate that names both. This crate does nothing else, hence has the optimisation of what packets pass through,
//! and the control loops, which only hold a [`plane::DataPlane`], can have another.

#![forbid(unsafe_code)]

use engine::{Sockets, Tunnel, TunnelOptions};
use netio::tun::Tun;
use openvpn::data::wire::OpenVpn;
use plane::{Control, DataPlane};
use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use wireguard::WireGuard;

/// A data plane on this kernel's sockets, for one protocol.
pub type Plane<P> = dyn DataPlane<Protocol = P, Sockets = Sockets, Connection = TcpStream>;

/// Starts one for WireGuard.
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

/// Starts one for OpenVPN.
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
