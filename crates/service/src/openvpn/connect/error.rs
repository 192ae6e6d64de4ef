//! Why there is no socket to a server.

use std::io;
use std::net::SocketAddr;

use netio::tcp::TcpError;
use thiserror::Error;

use super::http::HttpError;
use super::resolve::ResolveError;
use super::socks::SocksError;

/// Why there is no socket to a server; the next one may be better.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum DialError {
    /// The socket could not be made.
    #[error(transparent)]
    Socket(#[from] TcpError),
    /// The other side does not want us, or there is no way.
    #[error("TCP: connect to {remote} failed: {error}")]
    Refused {
        /// The server or proxy.
        remote: SocketAddr,
        /// The kernel's error.
        error: io::Error,
    },
    /// `connect-timeout` is over.
    #[error("TCP: connect to {remote} failed: {what} took more than {seconds} seconds")]
    Late {
        /// The server or proxy.
        remote: SocketAddr,
        /// The step that timed out.
        what: &'static str,
        /// The limit.
        seconds: u32,
    },
    /// It cannot be reached by one of several lines.
    #[error("TCP: {remote} does not answer")]
    Silent {
        /// The server or proxy.
        remote: SocketAddr,
    },
    /// The connection to a proxy broke while it was spoken with.
    #[error("proxy {remote}: {error}")]
    Proxy {
        /// The proxy.
        remote: SocketAddr,
        /// The kernel's error.
        error: io::Error,
    },
    /// An HTTP proxy said no.
    #[error("HTTP proxy {remote}: {error}")]
    Http {
        /// The proxy.
        remote: SocketAddr,
        /// The proxy's error.
        error: HttpError,
    },
    /// A SOCKS proxy said no.
    #[error("SOCKS proxy {remote}: {error}")]
    Socks {
        /// The proxy.
        remote: SocketAddr,
        /// The proxy's error.
        error: SocksError,
    },
    /// The name of our own end.
    #[error("local: {0}")]
    Local(#[from] ResolveError),
    /// Our own end is of the other family.
    #[error("local {local} cannot reach {remote}: one is IPv4, the other IPv6")]
    LocalFamily {
        /// Our end.
        local: String,
        /// The server or proxy.
        remote: SocketAddr,
    },
    /// HTTP proxies carry only TCP.
    #[error("an http-proxy carries no UDP; use proto tcp-client")]
    HttpUdp,
    /// Each datagram would need a header of its own for the proxy.
    #[error(
        "UDP through a socks-proxy is not supported: use proto tcp-client, or reach the server \
         without the proxy"
    )]
    SocksUdp,
    /// No descriptor to be had.
    #[error("waiting for {remote}: {error}")]
    Resources {
        /// The server or proxy.
        remote: SocketAddr,
        /// The kernel's error.
        error: io::Error,
    },
}

impl DialError {
    /// Whether another line may do better. One by which a server refuses works.
    pub(crate) fn is_of_line(&self) -> bool {
        match self {
            Self::Refused { error, .. } => !matches!(
                error.kind(),
                io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset
            ),
            // The port is that of the last connection, whatever the line.
            Self::Socket(TcpError::InUse(_)) => false,
            Self::Socket(_)
            | Self::Late { .. }
            | Self::Silent { .. }
            | Self::LocalFamily { .. } => true,
            _ => false,
        }
    }
}
