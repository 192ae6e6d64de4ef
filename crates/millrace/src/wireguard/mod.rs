//! A WireGuard interface: the protocol's state machine on one side, the data plane on the other,
//! and the three ways in (the `wg` tool, a file, a status reader).

mod control;
mod daemon;
mod inbox;
mod interface;
mod names;
mod peers;
mod query;
mod server;
mod signals;
mod sockets;
mod statusdoc;
mod wire;

pub(crate) use daemon::{Daemon, DaemonOptions, Owner, start_test_tun, test_tun};
pub(crate) use interface::{Interface, Named};
pub(crate) use server::{Listener as SocketListener, SocketError};
pub(crate) use sockets::mtu_discovery;
