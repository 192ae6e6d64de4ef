//! The guard: devices of the LAN leave by a tunnel, or not at all.
//!
//! Two layers hold, each of which is enough where the other has been taken away:
//!
//! | layer | where | what it says |
//! |---|---|---|
//! | [`chain`] | chains of the table `inet millrace`, above all in the `forward` hook | what came in by a guarded device, or has an address of its networks, leaves by one of the LAN or by a tunnel |
//! | [`rules`] | routing rules 900 to 981, of both families | networks of the LAN by the main table; else the guard's own table; else nowhere |
//!
//! They are the kernel's and belong to no process: no tunnel that ends, is killed or was never started changes anything
//! of them. A tunnel's only part is the default route in the guard's table, and where no tunnel makes one, the guard does
//! when it sees the device ([`plan`]).
//!
//! The last rule is a *rule* and not a route, for IPv6 ties a route of that kind to `lo`, with which it goes. The first
//! ones name networks, instead of letting the main table decide about all but its default route: that table also has what
//! a DHCP server has sent (option 121) and the WAN's own network.
//!
//! Where it is wanted, the router's own `dnsmasq` asks name servers behind the tunnel by the tunnel's device only, queries of the
//! LAN to other servers come to the router, and DNS with ciphers of its own is refused.
//!
//! [`Plan`] decides and does nothing: settings and [`Facts`] in, changes out. [`control`] does them, [`watch()`] does them
//! again when another program has undone them. Nothing here is needed for what has been set to hold.

#![forbid(unsafe_code)]

mod apply;
mod asked;
pub mod chain;
pub mod control;
mod dns;
mod error;
mod facts;
pub mod flows;
pub mod networks;
pub mod plan;
pub mod record;
mod report;
pub mod rules;
pub mod system;
mod watch;
mod way;

pub use dns::DnsChange;
pub use error::GuardError;
pub use facts::{ChainFact, DnsmasqFact, Facts};
pub use plan::Plan;
pub use report::{Layer, PartReport, Report, State};
pub use watch::watch;
pub use way::{Way, Why};

#[cfg(test)]
mod fixture;
