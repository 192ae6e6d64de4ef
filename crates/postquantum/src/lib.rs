//! Post-quantum keys for WireGuard, sans-IO: two peers agree by ML-KEM-768 inside their tunnel on the preshared key of
//! their next handshake.
//!
//! WireGuard mixes a preshared key into the keys of a session, beside the secrets of X25519. A recording of the tunnel
//! stays secret if either holds. Sessions under the *base* key, the configured preshared key or none, carry the
//! exchange; a session under the result is protected.
//!
//! ```text
//! Offer    encapsulation key          ->
//!          <-  ciphertext, tag        Answer
//! Confirm  tag                        ->
//!          <-  tag                    Done
//! ```
//!
//! [`Exchange`] is the state of one peer: datagrams, sessions and the time go in, [`Effect`]s come out. A [`Job`] of
//! ML-KEM runs on any thread. Start at `exchange.rs`; `message.rs` has the wire format.

#![forbid(unsafe_code)]

mod derivation;
mod exchange;
mod job;
mod keys;
mod limit;
pub mod message;
mod pending;

pub use exchange::{Effect, Exchange, Peer, Session, Settings, Status};
pub use job::{Computed, Job, Outcome, Task};
pub use keys::KeyId;
pub use message::is_exchange;

/// UDP port of the exchange inside the tunnel, unless another is configured.
pub const PORT: u16 = 51_819;

/// Hop limit of the exchange's packets. Receivers take no others: routers lower it, so hosts behind a peer cannot forge
/// packets of the peer.
pub const HOPS: u8 = 255;
