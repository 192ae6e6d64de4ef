//! Errors while opening a socket to a server.

use std::io;
use std::net::SocketAddr;

use netio::tcp::TcpError;
use thiserror::Error;

use super::http::HttpError;
use super::resolve::ResolveError;
use super::socks::SocksError;

/// Reason why there is no socket to a server; another server may work.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DialError {
    /// A [`Stop`](super::Stop) ended the attempt.
    #[error("stopped")]
    Stopped,
    /// The socket could not be made.
    #[error(transparent)]
    Socket(#[from] TcpError),
    /// The other end refused the connection, or there is no route to it.
    #[error("TCP: connect to {remote} failed: {error}")]
    Refused {
        /// The server or proxy.
        remote: SocketAddr,
        /// The kernel's error.
        error: io::Error,
    },
    /// `connect-timeout` has passed.
    #[error("TCP: connect to {remote} failed: {what} took more than {seconds} seconds")]
    Late {
        /// The server or proxy.
        remote: SocketAddr,
        /// The step that timed out.
        what: &'static str,
        /// Time limit, in seconds.
        seconds: u32,
    },
    /// The other end cannot be reached over this line; another line may do better.
    #[error("TCP: {remote} does not answer")]
    Silent {
        /// The server or proxy.
        remote: SocketAddr,
    },
    /// The connection to a proxy broke during the exchange.
    #[error("proxy {remote}: {error}")]
    Proxy {
        /// Address of the proxy.
        remote: SocketAddr,
        /// The kernel's error.
        error: io::Error,
    },
    /// An HTTP proxy refused.
    #[error("HTTP proxy {remote}: {error}")]
    Http {
        /// Address of the proxy.
        remote: SocketAddr,
        /// The proxy's error.
        error: HttpError,
    },
    /// A SOCKS proxy refused.
    #[error("SOCKS proxy {remote}: {error}")]
    Socks {
        /// Address of the proxy.
        remote: SocketAddr,
        /// The proxy's error.
        error: SocksError,
    },
    /// The local address cannot be resolved.
    #[error("local: {0}")]
    Local(#[from] ResolveError),
    /// The local address is of the other family.
    #[error("local {local} cannot reach {remote}: one is IPv4, the other IPv6")]
    LocalFamily {
        /// Configured local address.
        local: String,
        /// The server or proxy.
        remote: SocketAddr,
    },
    /// HTTP proxies carry only TCP.
    #[error("an http-proxy carries no UDP; use proto tcp-client")]
    HttpUdp,
    /// SOCKS over UDP would need a header on each datagram.
    #[error(
        "UDP through a socks-proxy is not supported: use proto tcp-client, or reach the server \
         without the proxy"
    )]
    SocksUdp,
    /// Descriptors ran out.
    #[error("waiting for {remote}: {error}")]
    Resources {
        /// The server or proxy.
        remote: SocketAddr,
        /// The kernel's error.
        error: io::Error,
    },
}

impl DialError {
    /// Whether another line may do better. A server's refusal proves that the line works.
    pub fn is_of_line(&self) -> bool {
        match self {
            Self::Refused { error, .. } => !matches!(
                error.kind(),
                io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset
            ),
            // The local port is still in use, on any line.
            Self::Socket(TcpError::InUse(_)) => false,
            Self::Socket(_)
            | Self::Late { .. }
            | Self::Silent { .. }
            | Self::LocalFamily { .. } => true,
            _ => false,
        }
    }
}
