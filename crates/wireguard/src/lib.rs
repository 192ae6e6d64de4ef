//! The WireGuard protocol, sans-IO: datagrams and the time go in, datagrams, keys and deadlines come out.
//!
//! What is here: the handshake (Noise IKpsk2), cookies and the rate limiter for a responder under load, the replay
//! window, the five timers, the life of keys. What is not: sockets, clocks, threads, and the sealing of data packets,
//! which the data plane does with the keys that it is given here.
//!
//! Start at [`Device`], which holds all peers of one interface, and [`Output`], which is all it ever asks for. The files
//! have the nouns of the kernel's implementation, so that both can be read side by side; behaviour follows the kernel's
//! wherever the paper leaves a choice, and says so where it does not.
//!
//! Paper: Jason A. Donenfeld, "WireGuard: Next Generation Kernel Network Tunnel", <https://www.wireguard.com/papers/wireguard.pdf>.

#![forbid(unsafe_code)]

mod cookie;
mod deadlines;
mod device;
mod index;
mod keys;
pub mod message;
mod noise;
mod output;
mod peer;
mod ratelimiter;
mod receive;
mod replay;
mod send;
mod tai64n;
mod timers;

pub use device::{AddPeerError, Device, PeerId};
pub use keys::Lifetime;
pub use output::{Datagram, Output};
pub use receive::Dropped;
pub use replay::ReplayWindow;
pub use timers::Activity;
