//! What `millrace up` does to the host beside the tunnel itself: addresses, MTU, routes, rules,
//! name servers, one sysctl. All by netlink except name servers, whose owner is a program.
//!
//! [`Facts`] are gathered, [`Plan::new`] decides without touching anything, [`Applied::apply`]
//! does it, and [`Applied::undo`] takes it back. What would outlive the interface is written to
//! a journal first, so that [`recover`] can clean up after a daemon that was killed.
//!
//! # When the daemon dies
//! The kernel takes the interface's addresses and routes with it. Of a full tunnel the rules
//! stay, pointing at an empty table, and packets go on to the main table: **traffic then leaves
//! outside the tunnel**. Whoever must not let that happen needs a firewall rule of his own that
//! allows forwarding to the tunnel only; it has to be there before the tunnel and after it, so
//! it cannot be the tunnel's.
//!
//! # What differs from wg-quick
//! No firewall rules are made. wg-quick marks connections so that a strict `rp_filter` accepts
//! the server's answers; here the endpoints get host routes instead where it is strict. They
//! are made once and do not follow a gateway that changes later.

mod apply;
mod dns;
mod facts;
mod journal;
mod outer;
mod plan;
mod save;
mod scripts;
mod step;

#[allow(unused_imports, reason = "until the daemon calls it")]
pub(crate) use apply::recover_all;
pub(crate) use apply::{Applied, ApplyError, recover};
pub(crate) use dns::Resolver;
pub(crate) use facts::{EndpointWay, Facts, has_ipv6, way};
pub(crate) use outer::{covers, way_without};
pub(crate) use plan::{Options, Plan, PlanError};
pub(crate) use save::{merge, save};
pub(crate) use scripts::run_scripts;
pub(crate) use step::{MAIN, SavedRoute, Step};
