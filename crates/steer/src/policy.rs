//! The policy: packets of the LAN go through a tunnel, around it, or are blocked, by sender and destination.
//!
//! | part | where | what it does |
//! |---|---|---|
//! | [`table`] | `nft` table `inet millrace_policy` | marks connections by their first packet, and refuses wrong ways |
//! | [`rules`] | four kinds of routing rules, v4 and v6 | route by mark: into a tunnel, nowhere, or around tunnels |
//! | `second` | rules next to those, by addresses | route or block known devices while the packet filter is flushed |
//! | [`routes`] | a routing table for each tunnel, and one for packets around tunnels | the default routes |
//! | [`dnsmasq`] | a file in the directory that `dnsmasq` reads | has addresses of names put into sets of the table |
//!
//! A mark is a number in a few bits of a packet's and a connection's mark; the policy writes only these bits. A
//! connection keeps its mark, so all its packets go the same way. Answers to a connection that came in by a tunnel
//! leave by that tunnel.
//!
//! The table, rules and routes belong to the kernel and to no process, like those of the [`guard`]. [`Plan`] only
//! decides; [`control`] applies the changes, and [`watch()`] applies them again when another program has undone them.

mod apply;
pub mod control;
pub mod dnsmasq;
mod error;
mod facts;
mod flows;
mod leases;
mod others;
mod plan;
mod record;
mod report;
mod resolved;
pub mod routes;
pub mod rules;
mod second;
pub mod table;
mod watch;
mod ways;

pub use error::PolicyError;
pub use facts::{Facts, TableFact};
pub use others::Other;
pub use plan::Plan;
pub use report::{EntryReport, Part, Report};
pub use watch::watch;

#[cfg(test)]
mod fixture;
