//! The checked model of an OpenVPN configuration, with every default filled in.

use std::io;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::report::CONCEALED;
use crate::file;
use crate::lines::Lines;
pub use crate::types::Secret;

mod connection;
mod network;
mod role;
mod service;
mod session;

pub use connection::*;
pub use network::*;
pub use role::*;
pub use service::*;
pub use session::*;

/// Directives for the tunnel's interface.
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
    /// True when the kernel chooses the interface's number.
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
    /// `shaper`: limit of sent bytes a second, 100 to 100,000,000. Excess packets wait in a fair queue.
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
/// Invariant: `connections` is not empty. In a client each has a remote; in a server none has, and they are the
/// addresses to listen on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OpenVpn {
    /// Client or server, with its own settings.
    pub role: Role,
    /// Directives for the tunnel's interface.
    pub device: Device,
    /// The servers to try, in order; or the addresses to listen on.
    pub connections: Vec<Connection>,
    /// Options of the outer sockets.
    pub sockets: Sockets,
    /// Certificates and keys.
    pub tls: Tls,
    /// Ciphers and framing.
    pub data: DataChannel,
    /// Timers.
    pub timers: Timers,
    /// Addresses, routes and name servers inside the tunnel.
    pub network: Network,
    /// Hook scripts.
    pub scripts: Scripts,
    /// Settings of the process.
    pub service: Service,
    /// The lines (uplinks) of a client; or how a server answers clients that connect over several lines.
    pub lines: Lines,
    /// `cd`: where relative paths start; `None` for the working directory.
    pub directory: Option<PathBuf>,
    /// Honoured directives, for messages: name, place, and whether that file is included by another.
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

    /// Place of a directive: `file:line`, or the number of the argument.
    #[must_use]
    pub fn place(&self, name: &str) -> Option<&str> {
        self.named(name).map(|(place, _)| place)
    }

    /// Place of a directive, and whether that file is included by another.
    pub(super) fn named(&self, name: &str) -> Option<(&str, bool)> {
        let mut places = self.places.iter().rev();
        let (_, place, included) = places.find(|it| it.0 == name)?;
        Some((place, *included))
    }

    /// Puts the place in front of a message that begins with a directive's name; returns others unchanged. Quotes
    /// nothing of an included file.
    #[must_use]
    pub fn located(&self, message: &str) -> String {
        let name = message.split([':', ' ']).next().unwrap_or_default();
        match self.named(name) {
            Some((place, false)) => format!("{place}: {message}"),
            Some((place, true)) => format!("{place}: {name}: {CONCEALED}"),
            None => message.to_owned(),
        }
    }

    /// Resolves a path of the configuration for this process.
    #[must_use]
    pub fn path(&self, path: &Path) -> PathBuf {
        resolve(self.directory.as_deref(), path)
    }
}

/// Largest accepted file of certificates, keys or passwords, in bytes.
pub const SOURCE_MAX: u64 = 4 << 20;

/// Source of a certificate, a key, a list or a password.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Source {
    /// Text in the configuration, between `<name>` and `</name>`. A PKCS#12 bundle is base64 here.
    Inline(Secret),
    /// A file; a relative path starts at [`OpenVpn::directory`].
    File(PathBuf),
}

impl Source {
    /// Returns the inline text, or the file's content. Relative paths start at `directory`.
    ///
    /// # Errors
    /// The kernel's error, or `FileTooLarge` above [`SOURCE_MAX`] bytes.
    pub fn load(&self, directory: Option<&Path>) -> io::Result<Zeroizing<Vec<u8>>> {
        match self {
            Self::Inline(text) => Ok(Zeroizing::new(text.expose().as_bytes().to_vec())),
            Self::File(path) => file::read_handed_over(&resolve(directory, path), SOURCE_MAX),
        }
    }

    /// True for an inline block.
    #[must_use]
    pub const fn is_inline(&self) -> bool {
        matches!(self, Self::Inline(_))
    }
}

/// Source of a user name and a password.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Prompted {
    /// Ask the user: on the terminal, or through the management interface.
    Ask,
    /// Two lines (one for a passphrase); the user is asked for a missing second line.
    From(Source),
}

/// Resolves a path of the configuration against `directory`.
#[must_use]
pub fn resolve(directory: Option<&Path>, path: &Path) -> PathBuf {
    match directory {
        Some(directory) => directory.join(path),
        None => path.to_owned(),
    }
}
