//! The policy: packets of the LAN go through a tunnel, around it, or nowhere, by who sends them and where to.
//!
//! | part | where | what it does |
//! |---|---|---|
//! | [`table`] | the table `inet millrace_policy` of the packet filter | judges the first packet of a connection, marks it, and refuses what would leave by the wrong way |
//! | [`rules`] | four kinds of routing rules, of both families | lead by the mark: into a tunnel's table, nowhere, around tunnels |
//! | `second` | rules of the same priorities' neighbours, by addresses | lead and hold devices while the packet filter is flushed |
//! | [`routes`] | a routing table for each tunnel, one for what goes around | the default routes |
//! | [`dnsmasq`] | a file in the directory that `dnsmasq` reads | has the addresses of names put into sets of the table |
//!
//! A mark is a number in a few bits of a packet's and a connection's mark, and only these bits are ever written. A
//! connection keeps its mark, so that its packets go the same way to its end, and answers to what came in by a tunnel
//! leave by it.
//!
//! All settings belong to the kernel and to no process, like those of the [`guard`]. [`Plan`] decides and does nothing;
//! [`control`] does it, [`watch()`] does it again when another program has undone it.

#![forbid(unsafe_code)]

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
