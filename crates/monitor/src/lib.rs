//! The page that shows what the tunnels of this host do, and the same figures for Prometheus.
//!
//! Two processes share the work. The one that reads what others send, the front ([`front`]), has no privileges: it
//! serves HTTP ([`http`], [`connection`]), decides who may look ([`gate`]), and keeps what it has seen ([`overview`]). All that
//! needs privileges it asks of the other over a socket between them ([`link`]): how the tunnels stand, and changes of the
//! clients of a server at home.
//!
//! What is decided is decided without I/O: heads of requests, passwords' attempts, states of tunnels, events, limits, the
//! text of the metrics.

#![forbid(unsafe_code)]

pub mod answer;
pub mod attempts;
pub mod connection;
pub mod day;
pub mod document;
pub mod events;
pub mod figures;
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
pub mod sample;
pub mod sessions;
pub mod site;
