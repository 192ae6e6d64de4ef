//! A WireGuard interface: the protocol's state machine on one side, the data plane on the other, and three interfaces
//! to users (the `wg` tool, a file, a status reader).
//!
//! [`Machine`] decides and does no I/O: it takes an [`Event`] with the time, and calls its data plane and its [`Host`].
//! [`Interface`] holds the three, and [`Daemon`] waits for events.

#[cfg(feature = "postquantum")]
mod computer;
mod configuration;
mod control;
mod daemon;
#[cfg(feature = "amnezia")]
mod diagnosis;
mod event;
pub mod fixture;
mod host;
mod interface;
mod lines;
mod machine;
mod names;
mod peers;
mod pool;
mod port;
#[cfg(feature = "postquantum")]
mod postquantum;
mod probe_plan;
mod probing;
mod recall;
mod save;
mod server;
mod signals;
pub(crate) mod sockets;
mod statusdoc;
#[cfg(feature = "server")]
mod succession;
#[cfg(test)]
mod tests;
mod want;

pub use crate::socket::SocketError;
pub use ::lines::control::{CapReport, Doubt, LineFacts, LineReport, LineUsage};
pub use ::lines::names::{LookUp, Whose};
pub use daemon::{Daemon, DaemonOptions, Owner};
pub use event::Event;
pub use host::{Ended, Host, LOOKUPS_MAX, Refused};
pub use interface::Interface;
pub use machine::{Cx, Machine, Named, Plane};
pub use peers::Heard;
pub use pool::Rotation;
#[cfg(feature = "postquantum")]
pub use postquantum::OwnAddresses;
pub use probing::ProbePlan;
pub use save::{merge, save};
#[cfg(any(feature = "pptp", feature = "postquantum", feature = "relay"))]
pub(crate) use signals::Signals;
pub(crate) use sockets::SocketPlan;
pub use sockets::mtu_discovery;
pub use want::{OVERHEAD, want};
