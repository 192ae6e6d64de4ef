//! The checked model of an OpenVPN configuration: what will be done, every default filled in.

use super::report::CONCEALED;
use crate::lines::Lines;
use std::path::{Path, PathBuf};

mod action;
mod connection;
mod data;
mod network;
mod role;
mod scripts;
mod service;
pub(crate) mod source;
mod timers;
mod tls;

pub use action::*;
pub use connection::*;
pub use data::*;
pub use network::*;
pub use role::*;
pub use scripts::*;
pub use service::*;
pub use source::{Prompted, SOURCE_MAX, Secret, Source, resolve};
pub use timers::*;
pub use tls::*;

/// The tunnel's interface.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Device {
    /// `dev`: `tun` for the next free `tunN`, or the name itself.
    pub name: String,
    /// `dev null`: no interface at all; sessions run without one.
    pub null: bool,
    /// `txqueuelen`.
    pub queue_length: Option<u32>,
}

impl Device {
    /// True when the kernel is to choose the number.
    #[must_use]
    pub fn is_dynamic(&self) -> bool {
        self.name == "tun"
    }
}

/// Options of the outer sockets that all connections share.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Sockets {
    /// `sndbuf` in bytes; `None` for the kernel's choice.
    pub send_buffer: Option<u32>,
    /// `rcvbuf` in bytes.
    pub receive_buffer: Option<u32>,
    /// `shaper`: bytes a second that leave at most, 100 to 100,000,000. What would be more waits in a fair queue.
    pub shaper: Option<u32>,
    /// `mark`: firewall mark of outer packets.
    pub mark: Option<u32>,
    /// `bind-dev`: the device that outer packets leave through.
    pub device: Option<String>,
    /// `tcp-nodelay`, `socket-flags TCP_NODELAY`. Millrace always sets it.
    pub tcp_nodelay: bool,
}

/// An OpenVPN configuration.
///
/// Invariant: `connections` is not empty; in a client each has a remote, in a server none:
/// they are where it listens.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OpenVpn {
    /// Client or server, with what only that one has.
    pub role: Role,
    /// The interface.
    pub device: Device,
    /// The servers to try, in order; or how to listen.
    pub connections: Vec<Connection>,
    /// Options of the outer sockets.
    pub sockets: Sockets,
    /// Certificates and keys.
    pub tls: Tls,
    /// Ciphers and framing.
    pub data: DataChannel,
    /// Times.
    pub timers: Timers,
    /// Addresses, routes, names.
    pub network: Network,
    /// Hooks.
    pub scripts: Scripts,
    /// The process.
    pub service: Service,
    /// The lines that a client reaches its server by, or how a server answers clients that call by several lines.
    pub lines: Lines,
    /// `cd`: where relative paths begin; `None` for the directory of the process.
    pub directory: Option<PathBuf>,
    /// Names of the directives that hold, where each stands, and whether another file includes that one, for messages.
    pub places: Vec<(String, String, bool)>,
}

impl OpenVpn {
    /// The server's part, `None` in a client.
    #[must_use]
    pub const fn server(&self) -> Option<&Server> {
        match &self.role {
            Role::Server(server) => Some(server),
            Role::Client(_) => None,
        }
    }

    /// The client's part, `None` in a server.
    #[must_use]
    pub const fn client(&self) -> Option<&Client> {
        match &self.role {
            Role::Client(client) => Some(client),
            Role::Server(_) => None,
        }
    }

    /// Where the directive of this name stands: `file:line`, or which argument it is.
    #[must_use]
    pub fn place(&self, name: &str) -> Option<&str> {
        self.named(name).map(|(place, _)| place)
    }

    /// Where the directive of this name stands, and whether another file includes that one.
    pub(super) fn named(&self, name: &str) -> Option<(&str, bool)> {
        let mut places = self.places.iter().rev();
        let (_, place, included) = places.find(|it| it.0 == name)?;
        Some((place, *included))
    }

    /// A message that begins with a directive's name, with its place in front; others unchanged. An included file is not
    /// quoted.
    #[must_use]
    pub fn located(&self, message: &str) -> String {
        let name = message.split([':', ' ']).next().unwrap_or_default();
        match self.named(name) {
            Some((place, false)) => format!("{place}: {message}"),
            Some((place, true)) => format!("{place}: {name}: {CONCEALED}"),
            None => message.to_owned(),
        }
    }

    /// A path of the configuration, from where the process stands.
    #[must_use]
    pub fn path(&self, path: &Path) -> PathBuf {
        resolve(self.directory.as_deref(), path)
    }
}
