//! The data plane: moves packets between a TUN and UDP sockets, in batches, on every core, and
//! knows no protocol.
//!
//! Both directions are the same five words, each a file:
//!
//! ```text
//! LAN -> TUN --fill--> [slot] --look up--> --transform--> --commit--> --drain--> UDP
//! UDP --fill--> [slot] --look up--> --transform--> --commit--> --drain--> TUN -> LAN
//! ```
//!
//! A *slot* is the memory of one batch. Packets are sealed, opened, cut up and joined in it; they
//! are never copied to another. A protocol says how its messages are told apart ([`Wire`]), gives keys with
//! the format of their packets ([`Format`]) through [`Tunnel`], and hears of what matters to its state machine through [`Control`].

#![forbid(unsafe_code)]

mod checksum;
mod clock;
mod commit;
mod control;
mod drain;
mod fill;
mod format;
mod gro;
mod gso;
mod icmp;
mod ip;
mod key;
mod lookup;
mod peer;
mod ring;
mod routes;
mod session;
mod shared;
mod slot;
mod stats;
mod stream;
mod transform;
mod tunnel;
mod wire;
mod worker;

pub use control::{Control, Notice};
pub use format::{Format, Joined, Payload};
pub use key::KeyLimits;
pub use peer::{Moving, Peer, Times};
pub use routes::Routes;
pub use session::ReceiveUsage;
pub use shared::Sockets;
pub use stats::{Counter, Drops, LaneStats};
pub use stream::{RECORD_HEADER, Stream, Written};
pub use tunnel::{Tunnel, TunnelOptions};
pub use wire::{Class, SessionName, Window, Wire};

/// Entry points for fuzzing what the kernel and peers hand to the data plane. Not an interface.
#[doc(hidden)]
pub mod fuzzing;
