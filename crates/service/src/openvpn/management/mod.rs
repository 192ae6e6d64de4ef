//! The management port: a line protocol through which GUIs, LuCI and monitoring exporters watch and
//! steer the daemon. Without sockets of its own.
//!
//! Bytes go in by [`Management::receive`]; [`Management::next_action`] then says, one at a time,
//! what the daemon is to do, and the daemon gives each its reply before it asks for the next, so
//! that answers keep the order of commands. What is to be sent is in [`Management::transmit`].
//! Notifications go in by methods of their own at any time. Commands that make no sense for this
//! daemon are answered as stock does, with a line that begins with `ERROR:`.
//!
//! Everything is bounded: lines, words, histories, and what a peer that does not
//! read may leave waiting.

mod answer;
mod command;
mod dispatch;
mod history;
mod port;
pub(super) mod server;
pub(super) mod socket;
mod words;

pub(super) use answer::{Query, QueryKind};
pub(super) use command::{Signal, Victim};
pub(super) use history::{Addresses, LogFlag, State, StateEntry};
pub(super) use port::{Action, Answer, Management, Settings};

#[cfg(test)]
mod tests;
