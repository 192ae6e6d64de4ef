//! A WireGuard interface: the protocol's state machine on one side, the data plane on the other,
//! and the three ways in (the `wg` tool, a file, a status reader).

mod control;
mod daemon;
mod inbox;
mod interface;
mod peers;
mod server;
mod sockets;
mod statusdoc;
mod wire;

pub(crate) use daemon::{Daemon, DaemonOptions, test_tun};
