//! The options that a server has its clients set, in `PUSH_REPLY`.
//!
//! A server is trusted with addresses, routes and timers of the tunnel, and with nothing else on the client's machine:
//! what may be pushed is a closed list, every number has bounds, and what is outside is refused by name.

mod filter;
mod lexer;
mod option;
mod reply;
mod server;

pub use filter::{FilterAction, PullFilter};
pub use option::{
    Compression, DnsServer, Ifconfig6, PushedDns, RedirectGateway, Refusal, Route, RouteTarget,
    Topology,
};
pub(crate) use reply::loggable;
pub use reply::{Assembler, MAX_OPTIONS, PushError, PushReply};
pub use server::{PushOptions, bundles};
