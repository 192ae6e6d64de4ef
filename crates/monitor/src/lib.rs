//! The page that shows what the tunnels of this host do, and the same figures for Prometheus.
//!
//! Two processes share the work. The one that reads what others send, the front ([`front`]), has no privileges: it
//! serves HTTP ([`http`], [`connection`], [`places`]), shows its page to those who have logged in ([`gate`]), and keeps what it has
//! seen ([`overview`]). All else it asks of the other, the back ([`back`]), over a socket between them ([`link`], [`question`]): how the
//! tunnels stand, whether a password is the one ([`rights`]), and changes of the clients of a server at home, which are made
//! for those only who have logged in.
//!
//! Decisions are made without I/O: heads of requests, passwords' attempts, states of tunnels, events, limits, the text
//! of the metrics.

#![forbid(unsafe_code)]

pub mod answer;
pub mod attempts;
pub mod back;
pub mod connection;
pub mod day;
pub mod document;
pub mod events;
pub mod figures;
pub mod frame;
pub mod front;
pub mod gate;
pub mod health;
pub mod http;
pub mod limits;
pub mod link;
pub mod metrics;
pub mod overview;
pub mod page;
pub mod password;
pub mod peers;
pub mod places;
pub mod question;
pub mod rights;
pub mod sample;
pub mod secret;
pub mod sessions;
pub mod site;
pub mod turns;
