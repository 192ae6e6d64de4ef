//! A client and a server of this crate against each other, on a network and by a clock that are not real.

#![allow(clippy::unwrap_used)]

mod lines;
mod schedules;
mod sessions;
mod strangers;
mod world;
