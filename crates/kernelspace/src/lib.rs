//! Linux's own OpenVPN data plane (`ovpn`), behind the same boundary as the one in user space. The kernel has it if it
//! has the netlink family of that name, whatever its version: some have it as a backport.
//!
//! Packets never come here: the kernel takes them off the interface, seals them and sends them through the peers'
//! socket, and back. Two tasks remain. [`Peers`](peers::Peers) turns control's calls into netlink requests. A thread
//! ([`listener`]) receives control packets from the socket and the kernel's news.

#![forbid(unsafe_code)]

mod hidden;
mod interface;
mod kernel;
mod keys;
mod listener;
mod moving;
mod owner;
mod peer;
mod peers;
mod plane;
mod receiver;
mod wish;

use ::plane::{Control, Transports};
use engine::Sockets;
use openvpn::data::wire::OpenVpn as Packets;
use std::net::TcpStream;
use std::sync::Arc;

pub use interface::{Started, clean, start};
pub use plane::{DROPS, RUNG, StartError};
pub use wish::Wish;

/// A data plane of either kind.
pub type AnyPlane = dyn Transports<Protocol = Packets, Sockets = Sockets, Connection = TcpStream>;

/// Makes a client's data plane in user space one that moves to the kernel and back, as wished. `tun` is the index of its
/// interface, `control` hears of both data planes, and `confine` takes away the privileges of threads that were started.
///
/// The tunnel moves only while the sockets of its line [share their port](netio::udp::UdpSocket::share_port).
///
/// # Errors
/// Descriptor limits, or the wish [requires](Wish::required) a kernel that cannot move the packets.
pub fn movable(
    user: Box<AnyPlane>,
    tun: u32,
    control: Arc<dyn Control>,
    wish: &Arc<Wish>,
    confine: fn(),
) -> Result<Box<AnyPlane>, StartError> {
    let mut hidden = hidden::Hidden::new(tun, Arc::clone(&control), Arc::clone(wish), confine)?;
    if wish.is_required() {
        hidden.try_out()?;
    }
    let moving = moving::MovableTunnel::new(user, hidden, Arc::clone(wish), control);
    Ok(Box::new(moving))
}
