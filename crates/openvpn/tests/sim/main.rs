//! Clients and a server on a virtual wire with a virtual clock.

// Every function serves tests only.
#![allow(clippy::unwrap_used)]

mod connect;
mod handshakes;
mod hostile;
mod link;
mod plane;
mod refusal;
mod renewal;
mod setup;
mod silence;
mod verdict;
mod world;
