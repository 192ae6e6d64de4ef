//! The guard: devices of the LAN reach the Internet through a tunnel, or not at all.
//!
//! Two layers hold packets of IPv4 and IPv6, and each is enough when the other has been removed:
//!
//! | layer | where | what it says |
//! |---|---|---|
//! | [`chain`] | table `inet millrace` | packets by a guarded device, or from its networks, leave by LAN or tunnel |
//! | [`rules`] | routing rules 900 to 981 | main table for the LAN's networks; else the guard's table; else nowhere |
//!
//! The chains are above all in the `forward` hook; "LAN" in the first row is any device of the LAN.
//!
//! The layers belong to the kernel and to no process, so they stay when a tunnel ends, is killed or never starts. A
//! tunnel only adds the default route in the guard's table; where it adds none, the guard does when it sees the device
//! ([`plan`]).
//!
//! The last rule is a *rule* and not a route: IPv6 ties an "unreachable" route to `lo`, and loses it with `lo`. The
//! first rules name networks instead of using the whole main table but its default route. That table also has routes
//! from DHCP (option 121) and the WAN's own network.
//!
//! Where settings ask for it, the router's own `dnsmasq` queries name servers behind the tunnel, and only by the
//! tunnel's device. The LAN's queries to other servers are then redirected to the router, and DNS over TLS or QUIC
//! (port 853) is refused.
//!
//! [`Plan`] only decides: settings and [`Facts`] in, changes out. [`control`] applies the changes; [`watch()`] applies
//! them again when another program has undone them. The layers hold without any process.

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
