//! The WireGuard protocol, sans-IO: datagrams and the time go in, datagrams, keys and deadlines come out.
//!
//! The crate has the handshake (Noise IKpsk2), cookies and the rate limiter for a responder under load, the replay
//! window, the five timers, the life of keys. It has no sockets, clocks or threads, and does not seal data packets: the
//! data plane does, with the keys that it is given here.
//!
//! Start at [`Device`], which holds all peers of one interface, and [`Output`], which is all it ever requests. The
//! files have the nouns of the kernel's implementation, so that both can be read side by side; behaviour follows the
//! kernel's wherever the paper leaves a choice, and says so where it does not.
//!
//! ```
//! use std::time::{Instant, SystemTime};
//! use crypto::x25519::PrivateKey;
//! use wireguard::{Device, Output};
//!
//! let (now, wall) = (Instant::now(), SystemTime::now());
//! let (mut left, mut right) = (Device::new(now, wall, 1), Device::new(now, wall, 2));
//! let mut out = Vec::new();
//! left.set_private_key(Some(PrivateKey::generate()), now, &mut out);
//! right.set_private_key(Some(PrivateKey::generate()), now, &mut out);
//! right.add_peer(left.public_key().unwrap())?;
//! let peer = left.add_peer(right.public_key().unwrap())?;
//!
//! // Packets wait for keys: the left side begins a handshake.
//! left.set_endpoint(peer, Some("192.0.2.2:51820".parse().unwrap()), now, &mut out);
//! left.need_session(peer, now, &mut out);
//! let Some(Output::Send { datagram, .. }) = out.pop() else { unreachable!() };
//!
//! // The right side answers, and may already open packets that are sealed with the new keys.
//! right.receive(datagram.as_bytes(), "192.0.2.1:51820".parse().unwrap(), now, false, &mut out)?;
//! assert!(matches!(out[..], [Output::Heard { .. }, Output::AddKeys { .. }, Output::Send { .. }]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Paper: Jason A. Donenfeld, "WireGuard: Next Generation Kernel Network Tunnel",
//! <https://www.wireguard.com/papers/wireguard.pdf>.

#![forbid(unsafe_code)]

#[cfg(feature = "amnezia")]
pub mod amnezia;
mod cookie;
mod data;
mod device;
#[cfg_attr(not(feature = "amnezia"), path = "plain.rs")]
mod disguise;
pub mod echo;
#[cfg(feature = "postquantum")]
mod hybrid;
#[cfg(feature = "postquantum")]
pub mod inside;
mod keys;
pub mod message;
mod noise;
mod output;
pub mod path_probe;
mod peer;
mod ratelimiter;
mod receive;
mod send;
mod timers;

#[cfg(feature = "postquantum")]
pub use data::Carriage;
pub use data::{DATA_HEADER_LEN, DATA_MIN_LEN, DataHeader, DataKeys, WireGuard};
pub use device::{AddPeerError, Device};
pub use disguise::Reader;
#[cfg(feature = "postquantum")]
pub use hybrid::{PostQuantum, PostQuantumStatus};
pub use output::{Datagram, Output};
pub use receive::Dropped;
pub use timers::Activity;
