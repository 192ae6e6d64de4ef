//! A WireGuard interface: the protocol's state machine on one side, the data plane on the other, and three interfaces
//! to users (the `wg` tool, a file, a status reader).
//!
//! [`Machine`] decides and does no I/O: it takes an [`Event`] and the time, and puts out [`Effect`]s. [`Interface`]
//! carries them out, those for the data plane through [`perform`], and [`Daemon`] waits for events.

mod configuration;
mod control;
mod daemon;
mod dataplane;
mod effect;
mod event;
mod interface;
mod lines;
mod machine;
pub(crate) mod names;
mod peers;
mod port;
mod probe_plan;
mod probing;
mod recall;
mod relays;
pub(crate) mod resolver;
mod save;
mod server;
mod signals;
pub(crate) mod sockets;
mod statusdoc;
#[cfg(test)]
mod tests;
mod want;

pub use crate::lines::{CapReport, Doubt, LineFacts, LineReport, LineUsage};
pub use daemon::{Daemon, DaemonOptions, Owner};
pub use dataplane::perform;
pub use effect::{Effect, Ended, LOOKUPS_MAX, LookUp, PlaneRequest, Refused, Whose};
pub use event::Event;
pub use interface::Interface;
pub use machine::{Machine, Named, View};
pub use probing::ProbePlan;
pub use save::{merge, save};
pub use server::{Listener as SocketListener, SocketError};
#[cfg(any(feature = "pptp", feature = "relay"))]
pub(crate) use signals::Signals;
pub(crate) use sockets::SocketPlan;
pub use sockets::mtu_discovery;
pub use want::want;
