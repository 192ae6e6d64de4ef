//! Changes that a tunnel makes to its host, and system services that its process needs.
//!
//! # The network
//! Addresses, MTU, routes, rules, name servers, and for a server forwarding and masquerading. A service describes its
//! tunnel's needs as a [`Want`]. [`Facts::gather`] reads the host, [`Plan::new`] decides and changes nothing,
//! [`Applied::apply`] makes the changes, and [`Applied::undo`] undoes them. All access goes through [`System`]:
//! netlink, files below `/proc/sys`, and the program that manages the name servers.
//!
//! A step that outlives the interface is recorded in a journal in `/run/millrace` before it is done. The next process
//! undoes the steps that a killed one left: [`recover`] for a known interface name, [`recover_all`] if the kernel
//! chooses the name.
//!
//! When a process is killed, the kernel removes the interface with its addresses and routes. A full tunnel's rules
//! stay, but their table is empty, so packets continue to the main table: **traffic leaves outside the tunnel**.
//! Protection must exist before and after the tunnel, so this crate does not provide it. The crate `steer` does, for
//! devices behind a router. Its rules (priorities 900 to 999) go before a tunnel's.
//!
//! wg-quick marks connections so that a strict `rp_filter` accepts the server's answers. This crate makes no such
//! rules: where the filter is strict, endpoints get host routes. Those are made once and do not follow a gateway that
//! changes later.
//!
//! Where another program configures interfaces (OpenWrt's netifd), [`Managed`] passes a tunnel's wishes to it instead.
//!
//! # Names
//! [`names`] asks name servers for the addresses of a name.
//!
//! # The process
//! [`background`], [`gate`] for sockets without descriptors, [`strangers`] for what they may write to the log,
//! [`notify`], [`privileges`], [`logging`], [`written_file`] for files that a configuration names, [`run_scripts`] for
//! commands of a configuration, and [`machine`], which says what the process runs on.

#![forbid(unsafe_code)]

mod apply;
pub mod background;
mod dns;
mod facts;
pub mod gate;
mod journal;
#[cfg(feature = "policy")]
pub mod lan;
pub mod logging;
pub mod machine;
mod managed;
mod mtu;
pub mod names;
pub mod notify;
mod plan;
pub mod privileges;
mod scripts;
mod step;
pub mod strangers;
mod system;
pub mod terminal;
pub mod tunnel_devices;
mod want;
mod ways;
pub mod written_file;

pub use apply::{Applied, ApplyError, left_behind, recover, recover_all, recover_profile};
pub use dns::dnsmasq::{self, Dnsmasq};
pub use dns::{DnsError, NameServers, Resolver, name_servers_in};
pub use facts::{Connected, EndpointWay, Facts, LineMtu, POLICY_RULES};
pub use journal::{JournalError, name_profile};
pub use managed::{Managed, ManagedError, Manager, SharedManager};
pub use mtu::{MtuFollower, TunnelMtu};
pub use plan::{Plan, PlanError};
pub use scripts::{ScriptError, run_scripts};
pub use step::{MAIN, MASQUERADE_TABLES, SavedRoute, Step};
pub use system::System;
pub use want::{
    DefaultV4, DefaultV6, Destination, EndpointRoutes, Forwarding, Gateway, Mtu, ProbedPath, Want,
    WantedAddress, WantedRoute,
};
pub use ways::{covers, device_to, has_way_past, is_private, masked};
