//! The vocabulary that protocols, ciphers and data planes share. It depends on nothing else of the workspace.
//!
//! A protocol crate says how its packets are told apart ([`Wire`]) and how those of one key look ([`Format`]); a cipher
//! works on a [`Batch`]; a data plane moves packets by these, does what control asks of it ([`DataPlane`]), and tells
//! [`Control`] what its state machine must know.

#![forbid(unsafe_code)]

mod atomic;
mod batch;
mod control;
mod data_plane;
mod endpoint;
#[cfg(any(test, feature = "fake"))]
pub mod fake;
mod format;
mod guesses;
mod limits;
mod line;
mod line_mode;
mod line_set;
mod line_state;
pub mod mss;
mod peer;
mod protocol;
mod replay;
mod routes;
mod source_network;
mod statistics;
pub mod tai64n;
mod wire;

pub use atomic::AtomicU64;
pub use batch::{Batch, Packet};
pub use control::{Control, Notice};
pub use data_plane::{DataPlane, KeyError, RouteChange, Sender, Transports, Whole};
pub use endpoint::{Ecn, Endpoint, Source};
pub use format::{Format, Joined, Payload};
pub use guesses::Guesses;
pub use limits::KeyLimits;
pub use line::{LINES_MAX, Line, LineId, StreamId, Transport};
pub use line_mode::{LineMode, Reorder};
pub use line_set::LineSet;
pub use line_state::{LineCounts, LineState, OrderCounts, PeerLines};
pub use peer::{Moving, PeerId, PeerState, Times};
pub use protocol::{CipherName, Formats, KeyUsage, Protocol, SessionKeys};
pub use replay::ReplayWindow;
pub use routes::Routes;
pub use source_network::SourceNetwork;
pub use statistics::{PipelineCounts, Statistics};
/// The promise of a protocol's [`Protocol::Keys`].
pub use zeroize::ZeroizeOnDrop;

pub use wire::{Class, Record, ReplayCheck, SessionName, Window, Wire};
