//! Connecting to a server: the choice of the next one, its address, and a socket, through a proxy if there is one.
//!
//! [`Attempts`] walks over the configured connections and their addresses, with growing pauses; it uses neither clock
//! nor network. Each step is a [`Target`], and [`Target::open`] returns the [`Socket`]. A readable [`Stop`] ends every
//! wait: names are looked up on separate threads, and sockets never block.

mod attempts;
mod dial;
mod digest;
mod error;
pub(super) mod fuzz;
mod http;
mod resolve;
mod rounds;
mod socks;
mod stop;

pub(super) use attempts::{Attempts, Next};
pub(super) use dial::{ProxyLogin, Socket, Target};
pub(super) use error::DialError;
pub(super) use resolve::{Name, ResolveError, look_up, resolve};
pub(super) use stop::{Attend, Stop};
