//! The lab: a network on one machine, for tests, the demo and the benchmarks.
//!
//! [`Host`]s are network namespaces, joined by [`Link`]s (veth pairs) or by an [`Emulator`] that delays, loses and
//! reorders. A [`Router`] forwards and translates between them; a [`Site`] is an office, a branch router and a
//! device. [`peer`] starts WireGuard programs in a host, [`openvpn`] OpenVPN programs; a [`Tunnel`] joins two of
//! either. [`load`] sends traffic through all that, and [`cpu`] measures the processor time.
//!
//! `acceptance` (a feature) has what the tests of the whole program share. [`require`] says what a test needs of the
//! machine; without the feature `network` there is only that.
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

#[cfg(feature = "acceptance")]
pub mod acceptance;
#[cfg(feature = "network")]
pub mod cpu;
#[cfg(feature = "network")]
mod emulator;
#[cfg(feature = "network")]
mod enter;
#[cfg(feature = "network")]
mod error;
#[cfg(feature = "network")]
pub mod forwarder;
#[cfg(feature = "network")]
mod link;
#[cfg(feature = "network")]
pub mod load;
#[cfg(feature = "network")]
mod mounts;
#[cfg(feature = "network")]
mod namespace;
mod needs;
#[cfg(feature = "network")]
pub mod openvpn;
#[cfg(feature = "network")]
pub mod peer;
#[cfg(feature = "network")]
mod process;
#[cfg(feature = "network")]
mod random;
#[cfg(feature = "network")]
mod router;
#[cfg(feature = "network")]
mod signals;
#[cfg(feature = "network")]
mod site;
#[cfg(feature = "network")]
pub mod tools;
#[cfg(feature = "network")]
mod tunnel;
#[cfg(feature = "network")]
mod wire;

#[cfg(feature = "network")]
pub use emulator::{Emulator, Side};
#[cfg(feature = "network")]
pub use enter::{enter, may_enter};
#[cfg(feature = "network")]
pub use error::LabError;
#[cfg(feature = "network")]
pub use link::{Link, LinkOptions, Offloads};
#[cfg(feature = "network")]
pub use namespace::{Host, HostCommand};
pub use needs::{Missing, met, require, require_that};
#[cfg(feature = "network")]
pub use process::{Exit, Process};
#[cfg(feature = "network")]
pub use router::Router;
#[cfg(feature = "network")]
pub use signals::{cleanup_on_signal, cleanup_on_signal_then};
#[cfg(feature = "network")]
pub use site::{Line, Site};
#[cfg(feature = "network")]
pub use tunnel::{Carrier, Tunnel, TunnelEnd, TunnelOptions};
#[cfg(feature = "network")]
pub use wire::{Impairment, WireCounters};
