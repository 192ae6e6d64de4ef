//! Connecting to a server: the choice of the next one, its address, and a socket, through a proxy if there is one.
//!
//! [`Attempts`] walks over the configured connections and their addresses, with growing pauses; it uses neither clock
//! nor network. Each step is a [`Target`], and [`Target::open`] returns the [`Socket`]. A readable [`Stop`] ends every
//! wait: names are looked up on separate threads, and sockets never block.

mod attempts;
mod dial;
mod digest;
mod error;
pub(crate) mod fuzz;
mod http;
mod resolve;
mod rounds;
mod socks;
mod stop;

pub use attempts::{Attempts, Next};
pub use dial::{ProxyLogin, Socket, Target};
pub use error::DialError;
pub use resolve::{Name, ResolveError, look_up, resolve};
pub use stop::{Attend, Stop};
