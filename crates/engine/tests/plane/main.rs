//! Tests the whole data plane without root: a toy protocol, an interface whose far side the test holds, loopback
//! sockets, and errors that the test injects.

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
