//! A client and a server of this crate on a simulated network and clock.

#![allow(clippy::unwrap_used)]

mod lines;
mod schedules;
mod sessions;
mod strangers;
mod world;
