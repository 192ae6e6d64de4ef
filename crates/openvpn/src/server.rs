//! The front of a server's sessions: answers strangers without keeping anything of them, and finds clients by address
//! and transport.
//!
//! ```text
//! datagram -> a session with this address, transport and client session id?  -> Session::receive
//!          -> a reset?                   -> answered with a cookie, nothing is kept; limited by rate and room
//!          -> the packet that follows?   -> the cookie is good: a session begins
//!          -> anything else              -> dropped and counted
//! ```

mod drops;
mod listener;
mod strangers;
mod table;

pub use drops::{Drops, Refused};
pub use listener::{Listener, ListenerSettings, ServerOutput};
pub use table::{ClientId, Remote};
