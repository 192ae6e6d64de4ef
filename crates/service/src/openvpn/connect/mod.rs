//! The way to a server: which one is next, its address, and a socket to it, through a proxy where
//! there is one.
//!
//! [`Attempts`] walks over the connections of a configuration and the addresses of their names,
//! with pauses that grow: no clock, no network. Each step is a [`Target`], and [`Target::open`] gives the [`Socket`].
//! Nothing here waits for longer than it takes a [`Stop`] to become readable: names are looked
//! up on threads of their own, and sockets never block.

mod attempts;
mod dial;
mod digest;
mod error;
pub(super) mod fuzz;
mod http;
mod random;
mod resolve;
mod rounds;
mod socks;
mod stop;

pub(super) use attempts::{Attempts, Next};
pub(super) use dial::{ProxyLogin, Socket, Target};
pub(super) use error::DialError;
pub(super) use resolve::{Name, ResolveError, look_up, resolve};
pub(super) use stop::{Attend, Stop};
