//! The vocabulary that protocols, ciphers and data planes share. It depends on nothing else of the workspace.
//!
//! A protocol crate classifies packets ([`Wire`]) and defines the packet format of a key ([`Format`]). A cipher works
//! on a [`Batch`]. A data plane moves packets with these, carries out the calls of control ([`DataPlane`]), and reports
//! events to control's state machine ([`Control`]).

#![forbid(unsafe_code)]

use std::sync::{Mutex, MutexGuard, PoisonError};

mod data_plane;
mod endpoint;
#[cfg(any(test, feature = "fake"))]
pub mod fake;
mod format;
mod guesses;
mod line;
pub mod mss;
mod now;
mod peer;
mod protocol;
mod replay;
mod routes;
pub mod tai64n;

pub use data_plane::{
    Control, DataPlane, KeyError, Notice, PipelineCounts, RouteChange, Sender, Statistics,
    Transports, Whole,
};
pub use endpoint::{Ecn, Endpoint, Source, SourceNetwork};
pub use format::{Batch, Format, Joined, Packet, Payload};
pub use guesses::Guesses;
pub use line::{LINES_MAX, Line, LineId, LineMode, LineSet, Reorder, StreamId, Transport};
pub use now::Now;
pub use peer::{LineCounts, LineState, Moving, OrderCounts, PeerId, PeerLines, PeerState, Times};
pub use protocol::{
    CipherName, Class, Formats, KeyLimits, KeyUsage, Protocol, Record, ReplayCheck, SessionKeys,
    SessionName, Window, Wire,
};
pub use replay::ReplayWindow;
pub use routes::Routes;

/// Locks a mutex, whose content is whole also after a thread that held it has panicked.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The promise of a protocol's [`Protocol::Keys`].
pub use zeroize::ZeroizeOnDrop;

// A number of 64 bits that threads share, on every machine. 32-bit MIPS has no 64-bit atomic instructions. There
// `portable-atomic` uses a lock, which a reader takes only if another thread writes.
#[cfg(not(target_has_atomic = "64"))]
pub use portable_atomic::AtomicU64;
#[cfg(target_has_atomic = "64")]
pub use std::sync::atomic::AtomicU64;
