//! A server: many clients behind one port.
//!
//! The [`machine`] decides and the [`executor`] acts: only the executor uses sockets, files, threads, the data plane
//! and the host's network.

mod executor;
mod machine;

use super::{Context, Ended};

/// Runs a server until it is told to stop.
pub(super) fn run(context: &Context) -> Ended {
    executor::run(context)
}
