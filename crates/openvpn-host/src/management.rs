//! The management port: a line protocol for GUIs, LuCI and monitoring exporters to watch and control the daemon.
//! [`Management`] itself has no sockets.
//!
//! The daemon passes received bytes to [`Management::receive`]. [`Management::handle_lines`] then executes each command
//! and answers it; commands for the whole process become requests, which the daemon takes. [`Management::transmit`]
//! holds the output. Notifications have methods of their own, which may be called at any time.
//! Unsupported commands are answered as stock does, with a line that begins with `ERROR:`.
//!
//! Lines, words, histories and unread output are all bounded.

mod answer;
mod command;
mod dispatch;
mod history;
mod port;
pub mod server;
pub(crate) mod socket;
mod words;

pub use answer::{Query, QueryKind};
pub use command::Victim;
pub use history::{Addresses, LogFlag, State};
pub use port::{Answer, Management, Settings, Told};

#[cfg(test)]
mod tests;
