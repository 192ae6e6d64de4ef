//! Devices on a virtual wire with a virtual clock: handshakes, timers, load, and hostile datagrams.

// Every function serves tests only.
#![allow(clippy::unwrap_used)]

#[cfg(feature = "amnezia")]
mod amneziawg;
mod handshake;
mod hostile;
mod load;
#[cfg(feature = "amnezia")]
mod mismatch;
#[cfg(feature = "postquantum")]
mod post_quantum;
mod sim;
mod timers;
