//! The lab: a network on one machine, for tests, the demo and the benchmarks.
//!
//! [`Host`]s are network namespaces, joined by [`Link`]s (veth pairs) or by an [`Emulator`] that delays, loses and
//! reorders. A [`Router`] forwards and translates between them; a [`Site`] is an office, a branch router and a
//! device. [`peer`] starts WireGuard programs in a host, [`openvpn`] OpenVPN programs; a [`Tunnel`] joins two of
//! either. [`load`] sends traffic through all that, and [`cpu`] measures the processor time.
//!
//! Each resource belongs to a value and is freed when the value is dropped. Namespaces have no names, only
//! descriptors, and processes die with the thread that started them. Even a killed test leaves nothing behind.
//!
//! ```no_run
//! use lab::{Host, Link, LinkOptions};
//!
//! # fn main() -> Result<(), lab::LabError> {
//! lab::enter()?;
//! let (office, branch) = (Host::new("office")?, Host::new("branch")?);
//! let link = LinkOptions::numbered(1);
//! Link::new(&office, "eth0", &branch, "eth0", &link)?;
//! let ping = lab::load::ping(&office, link.b4(), &Default::default())?;
//! println!("{} of {} answered", ping.received, ping.sent);
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

pub mod cpu;
mod emulator;
mod enter;
mod error;
pub mod forwarder;
mod link;
pub mod load;
mod mounts;
mod namespace;
pub mod openvpn;
pub mod peer;
mod process;
mod random;
mod router;
mod signals;
mod site;
pub mod tools;
mod tunnel;
mod wire;

pub use emulator::{Emulator, Side};
pub use enter::{enter, may_enter};
pub use error::LabError;
pub use link::{Link, LinkOptions, Offloads};
pub use namespace::{Host, HostCommand};
pub use process::{Exit, Process};
pub use require::{met, require, require_that};
pub use router::Router;
pub use signals::{cleanup_on_signal, cleanup_on_signal_then};
pub use site::{Line, Site};
pub use tunnel::{Carrier, Tunnel, TunnelEnd, TunnelOptions};
pub use wire::{Impairment, WireCounters};
