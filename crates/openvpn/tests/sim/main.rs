//! Clients and a server on a virtual wire with a virtual clock.

// Every function serves tests only.
#![allow(clippy::unwrap_used)]

mod connect;
mod hostile;
mod refusal;
mod renewal;
mod silence;
mod world;
