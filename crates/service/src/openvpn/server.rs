//! A server: many clients behind one port.
//!
//! The [`machine`] decides and calls the data plane and its host; the [`executor`] is that host. Only the executor uses
//! sockets, files, threads and the host's network.

mod executor;
mod machine;

pub(super) use executor::run;
