//! Clients and servers: a control connection, the GRE and PPP of its calls, and their events.

mod authenticator;
mod client;
mod link;
mod login;
mod network;
mod output;
mod packets;
mod server;
mod settings;
mod several;

pub use authenticator::Accounts;
pub use client::Client;
pub use link::{Link, LinkCounters, LinkOutput};
pub use network::mtu;
pub use output::{DownReason, LoginError, Protection, SendError, Up};
pub use server::{ConnectionId, ProbeCounters, Server, ServerOutput};
pub use settings::{
    ClientSettings, Encryption, Entropy, LinkSettings, Mode, ServerSettings, Settings, StartError,
};

pub use crate::gre::Ends;
