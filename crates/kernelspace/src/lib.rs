//! Linux's own OpenVPN data plane (`ovpn`), behind the same boundary as the one in user space. The kernel has it if it
//! has the netlink family of that name, whatever its version: some have it as a backport.
//!
//! Packets never come here: the kernel takes them off the interface, seals them and sends them through the peers'
//! socket, and back. Two tasks remain. [`Peers`](peers::Peers) turns control's calls into netlink requests. A thread
//! ([`listener`]) receives control packets from the socket and the kernel's news.

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

pub use interface::{Started, start};
pub use plane::{DROPS, RUNG, StartError};
