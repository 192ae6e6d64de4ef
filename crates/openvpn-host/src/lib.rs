//! OpenVPN on the host, around a tunnel: the management port, the log and the status file, scripts, accounts and
//! addresses of clients, connections to a server, also through proxies, the interface's network, secrets, and what a
//! configuration means for the protocol.
//!
//! Nothing here runs a tunnel: the loops of clients and servers are in the crate `service`.

#![forbid(unsafe_code)]

#[cfg(feature = "server")]
pub mod accounts;
pub mod connect;
pub mod console;
#[doc(hidden)]
pub mod fuzz;
pub mod hooks;
pub mod management;
pub mod monitored;
pub mod network;
pub mod process;
pub mod revocation;
pub mod scripts;
pub mod secrets;
pub mod setup;
pub mod signals;
pub mod sizes;
pub mod status_file;
pub mod terms;
#[cfg(test)]
mod tests;
pub mod timestamp;
