//! Remotes, and what may differ from one to the next.

use super::source::{Prompted, Source};
use crate::settings::MtuDiscovery;

/// Default port of OpenVPN.
pub const PORT: u16 = 1194;

/// UDP, or which side of TCP.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Transport {
    /// `udp`, `udp4`, `udp6`.
    #[default]
    Udp,
    /// `tcp-client` and its kin; `tcp` in a client.
    TcpClient,
    /// `tcp-server` and its kin; `tcp` in a server.
    TcpServer,
}

impl Transport {
    /// True for both sides of TCP.
    #[must_use]
    pub const fn is_tcp(self) -> bool {
        matches!(self, Self::TcpClient | Self::TcpServer)
    }
}

/// Which addresses a name may resolve to, and which are listened on.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Family {
    /// `udp`, `tcp`: either; a server listens on both.
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
    /// The transport of the datagrams.
    pub transport: Transport,
    /// Which addresses.
    pub family: Family,
}

/// The server of a client.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Remote {
    /// A name or an address.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// The local end of the outer socket.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Local {
    /// True when bound to [`Local::port`]; false for `nobind`: any free port.
    pub bind: bool,
    /// Name or address, `None` for every address.
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
        /// Its port, by default 1080.
        port: u16,
        /// Name and password, `None` for no authentication.
        credentials: Option<Prompted>,
    },
}

/// `http-proxy` with its companions.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HttpProxy {
    /// Name or address of the proxy.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// How to say who we are.
    pub auth: HttpAuth,
    /// Name and password, `None` for no authentication.
    pub credentials: Option<Prompted>,
    /// `http-proxy-option VERSION`, by default `1.0`.
    pub version: String,
    /// `http-proxy-option AGENT`.
    pub user_agent: Option<String>,
    /// `http-proxy-option CUSTOM-HEADER`: name, and value if it was given apart.
    pub headers: Vec<(String, Option<String>)>,
}

/// The ways of authentication with an HTTP proxy.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum HttpAuth {
    /// None.
    #[default]
    None,
    /// `basic`: name and password in clear.
    Basic,
    /// `auto`: what the proxy asks for.
    Auto,
    /// `auto-nct`: what the proxy asks for, but nothing in clear.
    AutoNoClearText,
}

/// `mssfix`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum MssFix {
    /// Not given: 1492 as with [`MssFix::Mtu`] when the tunnel's MTU is 1500, otherwise
    /// the tunnel's MTU.
    #[default]
    Default,
    /// `mssfix 0`.
    Off,
    /// `mssfix N`: outer packets of at most N bytes, without their IP and UDP or TCP headers.
    Payload(u16),
    /// `mssfix N mtu`: outer packets of at most N bytes, IP and UDP or TCP headers included.
    Mtu(u16),
    /// `mssfix N fixed`: this MSS, whatever the overhead.
    Fixed(u16),
}

/// `fragment`: the largest outer packet before a payload is cut into pieces. UDP only; both ends
/// must have it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Fragment {
    /// Size in bytes.
    pub size: u16,
    /// `mtu`: the size includes the outer IP and UDP headers.
    pub with_headers: bool,
}

/// Sizes of packets.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Mtu {
    /// `tun-mtu`: MTU of the tunnel in bytes; `None` when not given, which means 1500 and lets a
    /// server push another.
    pub tun: Option<u16>,
    /// `tun-mtu-max`: the largest that a server may push, by default 1600.
    pub tun_max: Option<u16>,
    /// `tun-mtu N OCC`: the MTU that is named in the options string, if another.
    pub occ: Option<u16>,
    /// `max-packet-size`: largest packet of the control channel in bytes, 154 to 2048, by
    /// default 1250.
    pub control: Option<u16>,
    /// `mssfix`.
    pub mssfix: MssFix,
    /// `fragment`.
    pub fragment: Option<Fragment>,
    /// `mtu-disc`; `None` leaves it to the settings.
    pub discovery: Option<MtuDiscovery>,
}

/// `key-direction`: which of the two key sets of a static key is for sending.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum KeyDirection {
    /// Not given: the first set both ways.
    #[default]
    Bidirectional,
    /// `0`, the usual choice of servers.
    Normal,
    /// `1`, the usual choice of clients.
    Inverse,
}

/// The layer around the control channel that every client shares, if any.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum SharedWrap {
    /// None.
    #[default]
    None,
    /// `tls-auth`; its digest is [`super::DataChannel::auth`].
    TlsAuth {
        /// A static key of 2048 bits.
        key: Source,
        /// Which halves of it.
        direction: KeyDirection,
    },
    /// `tls-crypt`.
    TlsCrypt {
        /// A static key of 2048 bits.
        key: Source,
    },
}

/// How packets of the control channel are wrapped. A client has at most one of the two, a
/// server may take both kinds of client.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ControlWrap {
    /// `tls-auth` or `tls-crypt`.
    pub shared: SharedWrap,
    /// `tls-crypt-v2`: the client's own key with its wrapped form, or the server's key.
    pub tls_crypt_v2: Option<Source>,
}

/// One way to reach the server, or the way clients reach us: one `remote` or `<connection>`
/// with every default filled in.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Connection {
    /// `None` in a server.
    pub remote: Option<Remote>,
    /// `proto`.
    pub protocol: Protocol,
    /// `local`, `lport`, `bind`, `nobind`.
    pub local: Local,
    /// `float`: a client takes authentic packets from any address.
    pub float: bool,
    /// `connect-retry N`: seconds before the same server is tried again, by default 1.
    pub retry: u32,
    /// `connect-retry N MAX`: how far the pause doubles, in seconds, by default 300.
    pub retry_max: u32,
    /// `connect-timeout`, `server-poll-timeout`: seconds for one server, by default 120.
    pub connect_timeout: u32,
    /// `http-proxy`, `socks-proxy`.
    pub proxy: Option<Proxy>,
    /// Sizes.
    pub mtu: Mtu,
    /// `explicit-exit-notify`: attempts of a client (0: none); in a server 1 asks the clients to
    /// come back, 2 to take their next server.
    pub exit_notify: u8,
    /// Wrapping of the control channel.
    pub wrap: ControlWrap,
}
