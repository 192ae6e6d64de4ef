//! PPTP clients and servers.
//!
//! A `ClientMachine` or `ServerMachine` decides and does no I/O: it takes an `Event` or a packet and the time, and
//! emits `Effect`s. Below them are the sans-IO sessions of the crate [`pptp`]. The executor waits for events and
//! carries out the effects: TUN, control connections over TCP, GRE through a raw socket, the host's network.
//!
//! The same thread moves packets, in batches and without the engine: each packet's key follows from the one before
//! it, and data, acknowledgements and PPP's own packets share one sequence of numbers. See docs/pptp.md.

mod awaited;
mod client;
mod counters;
mod executor;
mod machine;
mod network;
mod order;
mod server;
mod settings;
mod traffic;

pub use executor::{RunError, RunOptions, rehearse, run};

#[cfg(test)]
mod tests;
