//! The data plane: moves packets between a TUN and UDP sockets in batches on every core, independent of the protocol.
//!
//! Both directions take the same five steps, each a file:
//!
//! ```text
//! LAN -> TUN --fill--> [slot] --look up--> --transform--> --commit--> --drain--> UDP
//! UDP --fill--> [slot] --look up--> --transform--> --commit--> --drain--> TUN -> LAN
//! ```
//!
//! A *slot* is the memory of one batch. Packets are sealed, opened, cut and joined in place, and never copied to
//! another slot. A protocol classifies its messages ([`plane::Wire`]), installs keys with the format of their packets
//! ([`plane::Format`]) through [`Tunnel`], and receives events for its state machine through [`plane::Control`].

#![forbid(unsafe_code)]

mod alignment;
mod aqm;
mod checksum;
mod clock;
mod coalescing;
mod commit;
mod data_plane;
mod drain;
mod fill;
mod flags;
mod gathered;
mod gro;
mod gso;
mod icmp;
pub mod interface;
mod ip;
mod key;
mod line;
mod lookup;
mod peer;
mod peer_line;
mod peer_order;
mod peers;
mod reorder;
mod ring;
mod sent;
mod session;
mod shaper;
mod shared;
mod slot;
mod stats;
mod stream;
mod transform;
mod tunnel;
mod ways;
mod whole;
mod worker;

pub use line::Sockets;
pub use peer::Peer;
pub use plane::{Moving, Routes, Times};
pub use shared::TunnelOptions;
pub use stats::{Counter, Drops, PipelineStats};
pub use stream::{Stream, Written};
pub use tunnel::Tunnel;

/// Entry points for fuzzing input from the kernel and from peers. Not a public interface.
#[doc(hidden)]
pub mod fuzzing;
