//! Remotes, and the settings that may differ between them.

pub use openvpn::data::mtu::{FragmentSize, MssFix};
pub use openvpn::keyfile::KeyDirection;

use super::{Prompted, Source};
use crate::settings::MtuDiscovery;

/// Default port of OpenVPN.
pub const PORT: u16 = 1194;

/// UDP, or which side of TCP.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Transport {
    /// `udp`, `udp4`, `udp6`.
    #[default]
    Udp,
    /// `tcp-client`, `tcp4-client`, `tcp6-client`; `tcp` in a client.
    TcpClient,
    /// `tcp-server`, `tcp4-server`, `tcp6-server`; `tcp` in a server.
    TcpServer,
}

impl Transport {
    /// True for both sides of TCP.
    #[must_use]
    pub const fn is_tcp(self) -> bool {
        matches!(self, Self::TcpClient | Self::TcpServer)
    }
}

/// Address family that a name may resolve to, or that a server listens on.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Family {
    /// `udp`, `tcp`: either family; a server listens on both.
    #[default]
    Any,
    /// `udp4`, `tcp4`.
    V4,
    /// `udp6`, `tcp6`.
    V6,
}

/// `proto`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Protocol {
    /// UDP, or the side of TCP.
    pub transport: Transport,
    /// Address family.
    pub family: Family,
}

/// The server that a client connects to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Remote {
    /// A name or an address.
    pub host: String,
    /// TCP or UDP port of the server.
    pub port: u16,
}

/// The local end of the outer socket.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Local {
    /// True when bound to [`Local::port`]; false for `nobind`: any free port.
    pub bind: bool,
    /// Name or address; `None` for all addresses.
    pub host: Option<String>,
    /// The port; 0 for any free one.
    pub port: u16,
    /// `bind ipv6only`.
    pub ipv6_only: bool,
}

/// A proxy that a connection goes through.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Proxy {
    /// `http-proxy`: CONNECT, for TCP only.
    Http(HttpProxy),
    /// `socks-proxy`: SOCKS 5, for TCP only.
    Socks {
        /// Name or address of the proxy.
        host: String,
        /// The proxy's port, by default 1080.
        port: u16,
        /// User name and password; `None` for no authentication.
        credentials: Option<Prompted>,
    },
}

/// `http-proxy` and its related directives.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HttpProxy {
    /// Name or address of the proxy.
    pub host: String,
    /// TCP port of the proxy.
    pub port: u16,
    /// The authentication method.
    pub auth: HttpAuth,
    /// User name and password; `None` for no authentication.
    pub credentials: Option<Prompted>,
    /// `http-proxy-option VERSION`, by default `1.0`.
    pub version: String,
    /// `http-proxy-option AGENT`.
    pub user_agent: Option<String>,
    /// `http-proxy-option CUSTOM-HEADER`: name, and value if it was given separately.
    pub headers: Vec<(String, Option<String>)>,
}

/// Authentication methods of an HTTP proxy.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum HttpAuth {
    /// No authentication.
    #[default]
    None,
    /// `basic`: user name and password in clear text.
    Basic,
    /// `auto`: the method that the proxy requests.
    Auto,
    /// `auto-nct`: the method that the proxy requests, except in clear text.
    AutoNoClearText,
}

/// Packet sizes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Mtu {
    /// `tun-mtu`: MTU of the tunnel, in bytes; `None` when not given, which means 1500 and lets a server push
    /// another.
    pub tun: Option<u16>,
    /// `tun-mtu-max`: the largest MTU that a server may push, by default 1600.
    pub tun_max: Option<u16>,
    /// `tun-mtu N OCC`: the MTU in the options string, if it differs.
    pub occ: Option<u16>,
    /// `max-packet-size`: largest packet of the control channel, in bytes, 154 to 2048, by default 1250.
    pub control: Option<u16>,
    /// `mssfix`; `None` for [`MssFix::default_for`] the tunnel's MTU.
    pub mssfix: Option<MssFix>,
    /// `fragment`. UDP only; both ends must have it.
    pub fragment: Option<FragmentSize>,
    /// `mtu-disc`; `None` uses Millrace's settings.
    pub discovery: Option<MtuDiscovery>,
}

/// The control channel's wrapping with a key that all clients share.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum SharedWrap {
    /// No shared wrapping.
    #[default]
    None,
    /// `tls-auth`; its digest is [`super::DataChannel::auth`].
    TlsAuth {
        /// A static key of 2048 bits.
        key: Source,
        /// The key set for sending.
        direction: KeyDirection,
    },
    /// `tls-crypt`.
    TlsCrypt {
        /// A static key of 2048 bits.
        key: Source,
    },
}

/// How packets of the control channel are wrapped. A client has at most one of the two; a server may accept both.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ControlWrap {
    /// `tls-auth` or `tls-crypt`.
    pub shared: SharedWrap,
    /// `tls-crypt-v2`: the client's own key with its wrapped form, or the server's key.
    pub tls_crypt_v2: Option<Source>,
}

/// One address of the server, or one on which clients reach it: one `remote` or `<connection>` with all defaults filled
/// in.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Connection {
    /// The server; `None` if this host is the server.
    pub remote: Option<Remote>,
    /// `proto`.
    pub protocol: Protocol,
    /// `local`, `lport`, `bind`, `nobind`.
    pub local: Local,
    /// `float`: a client takes authentic packets from any address.
    pub float: bool,
    /// `connect-retry N`: seconds before the same server is tried again, by default 1.
    pub retry: u32,
    /// `connect-retry N MAX`: limit of the doubling pause, in seconds, by default 300.
    pub retry_max: u32,
    /// `connect-timeout`, `server-poll-timeout`: time limit for one server, in seconds, by default 120.
    pub connect_timeout: u32,
    /// `http-proxy`, `socks-proxy`.
    pub proxy: Option<Proxy>,
    /// Packet sizes.
    pub mtu: Mtu,
    /// `explicit-exit-notify`: number of messages that a client sends (0: none). In a server 1 asks the clients to
    /// come back, 2 to take their next server.
    pub exit_notify: u8,
    /// Wrapping of the control channel.
    pub wrap: ControlWrap,
}
