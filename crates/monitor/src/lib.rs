//! The page that shows what the tunnels of this host do, and the same figures for Prometheus.
//!
//! Two processes share the work. The front ([`front`]) reads the requests of strangers, and has no privileges. It
//! serves HTTP ([`http`], [`connection`], [`places`]), shows its page to those who have logged in ([`gate`]), and keeps
//! recent samples ([`overview`]). For all else it asks the other process, the back ([`back`]), over a socket ([`link`],
//! [`question`]). The back knows the state of the tunnels, checks passwords ([`rights`]), and changes the clients of a
//! server at home. It makes changes only for those who have logged in.
//!
//! Alerts ([`alerts`]) need neither process: they come from the same samples and events.
//!
//! Decisions need no I/O: heads of requests, password attempts, states of tunnels, events, limits, the text of the
//! metrics.

#![forbid(unsafe_code)]

pub mod alerts;
pub mod answer;
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
pub mod help;
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
pub mod sessions;
pub mod site;
pub mod strips;
pub mod tries;
