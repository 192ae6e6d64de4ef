//! The data plane as a whole without root: a toy protocol, an interface whose other side is the test's, sockets of the
//! loopback address, and errors that the test chooses.

// Every function serves tests only.
#![allow(clippy::unwrap_used)]

mod inbound;
mod mixed;
mod offload;
mod order;
mod outbound;
mod packets;
mod peers;
mod queue;
mod remote;
mod running;
mod sessions;
mod streams;
mod threads;
mod toy;
mod world;
