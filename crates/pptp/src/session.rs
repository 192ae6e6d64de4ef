//! Clients and servers: a control connection, the GRE and PPP of its calls, and their events.

mod account;
mod authenticator;
mod call;
mod client;
mod link;
mod login;
mod network;
mod output;
mod packets;
mod server;
mod settings;
mod several;

pub use account::{Accounts, Entropy};
pub use call::Call;
pub use client::{Client, ClientOutput};
pub use link::{Link, LinkCounters, LinkOutput};
pub use output::{DownReason, Ends, Ipv6Up, LoginError, Protection, SendError, Up};
pub use server::{ConnectionId, ProbeCounters, Server, ServerOutput};
pub use settings::{
    ClientSettings, Encryption, LinkSettings, Mode, ServerSettings, Settings, StartError,
};
