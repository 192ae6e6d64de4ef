//! The data plane of OpenVPN that Linux has since 6.16 (`ovpn`), behind the boundary that the one in user space is behind.
//!
//! Packets never come here: the kernel takes them off the interface, seals them and sends them through the socket that
//! peers were attached to, and back. What is left are the calls of control, each of which is a request of netlink
//! ([`Peers`](peers::Peers)), and a thread that receives from the socket what is no data packet and hears the kernel's news
//! ([`listener`]).

#![forbid(unsafe_code)]

mod interface;
mod kernel;
mod keys;
mod listener;
mod owner;
mod peer;
mod peers;
mod plane;
mod receiver;
mod rounds;

pub use interface::{StartError, Started, start};
