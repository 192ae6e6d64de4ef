//! Changes that a tunnel makes to its host, and services of the system that its process needs.
//!
//! # The network
//! Addresses, MTU, routes, rules, name servers, and for a server forwarding and masquerading. A service describes what its tunnel
//! needs as a [`Want`]. [`Facts::gather`] reads the host, [`Plan::new`] decides and changes nothing,
//! [`Applied::apply`] makes the changes, and [`Applied::undo`] undoes them. All of it goes through
//! [`System`]: netlink, files below `/proc/sys`, and the program that manages the name servers.
//!
//! A step that outlives the interface is written to a journal in `/run/millrace` before it is done. The next process
//! undoes the steps that a killed one has left: [`recover`] for an interface whose name is known, [`recover_all`] where
//! the kernel chooses the name.
//!
//! When a process is killed, the kernel removes the interface with its addresses and routes. Of a
//! full tunnel the rules stay, which point to an empty table then, and packets go on to the main
//! table: **traffic leaves outside the tunnel**. What prevents that has to be there before the tunnel and
//! after it, so it is not made here: the crate `guard` does it for devices behind a router, whose rules
//! (priorities 900 to 999) those of a tunnel are put behind.
//!
//! wg-quick marks connections so that a strict `rp_filter` accepts the server's answers. Here
//! no such rules are made, and endpoints get host routes where the filter is strict. They are made once
//! and do not follow a gateway that changes later.
//!
//! Where another program gives interfaces their addresses and routes (OpenWrt's netifd), [`Managed`] tells it what a
//! tunnel wants in place of all that.
//!
//! # The process
//! [`background`], [`notify`], [`privileges`], [`logging`] and [`syslog`], [`written_file`] for files that a
//! configuration names, [`run_scripts`] for commands of a configuration, and [`machine`], which says
//! what the process runs on.

#![forbid(unsafe_code)]

mod apply;
pub mod background;
pub mod clock;
mod dns;
mod facts;
mod journal;
pub mod logging;
pub mod machine;
mod managed;
mod mtu;
pub mod notify;
mod plan;
pub mod privileges;
mod scripts;
pub mod startup;
mod step;
pub mod syslog;
mod system;
pub mod tunnel_devices;
mod want;
mod ways;
pub mod written_file;

pub use apply::{Applied, ApplyError, left_behind, recover, recover_all};
pub use dns::dnsmasq::{self, Dnsmasq};
pub use dns::{DnsError, NameServers, Resolver};
pub use facts::{Connected, EndpointWay, Facts, POLICY_RULES};
pub use journal::JournalError;
pub use managed::{Managed, ManagedError, Manager, SharedManager};
pub use mtu::{LineMtu, MtuFollower, TunnelMtu};
pub use plan::{Plan, PlanError};
pub use scripts::{ScriptError, run_scripts};
pub use step::{MAIN, MASQUERADE_TABLES, SavedRoute, Step};
pub use system::System;
pub use want::{
    DefaultV4, DefaultV6, Destination, EndpointRoutes, Forwarding, Gateway, Mtu, ProbedPath, Want,
    WantedAddress, WantedRoute,
};
