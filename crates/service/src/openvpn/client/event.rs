//! Events that the client's machine handles.

use crate::inbox::Arrival;
use config::openvpn::AuthRetry;
use openvpn_host::connect::ResolveError;
use openvpn_host::network::{HostFacts, TunnelNetwork};
use openvpn_host::scripts::Hook;
use openvpn_host::secrets::Login;
use openvpn_host::signals::Signal;
use plane::{LineId, Notice, StreamId};
use std::net::SocketAddr;
use std::time::Duration;

/// Party that requires a name and a password.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Realm {
    /// The server (`auth-user-pass`).
    Server,
    /// The HTTP or SOCKS proxy.
    Proxy,
}

/// Outcome of planning the interface's settings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planned {
    /// The interface already has these settings.
    pub(super) alike: bool,
    /// Delay before routes are set (`route-delay`).
    pub(super) route_delay: Duration,
}

/// Event for the client's machine.
pub(super) enum Event {
    /// Start of the tunnel.
    Begin,
    /// Result of the name look-up with this number.
    LookedUp(u64, Result<Vec<SocketAddr>, ResolveError>),
    /// A name and a password, or why there is none.
    Login(Realm, Result<Login, String>),
    /// The interface with this name is made.
    Opened(String),
    /// The socket to the server is open.
    Connected {
        /// Number of the request.
        number: u64,
        /// The server, or the proxy in front of it.
        remote: SocketAddr,
        /// Number of the stream; `None` for UDP.
        stream: Option<StreamId>,
    },
    /// The dial with this number failed: the reason, and whether another line may do better.
    DialFailed(u64, String, bool),
    /// The addresses of a line's relay.
    RelayLookedUp(LineId, Result<Vec<SocketAddr>, String>),
    /// Result of the test of a line.
    LineTried(LineId, Result<(), String>),
    /// Control packet from the server.
    Control(Arrival),
    /// A message from inside a data packet.
    Message(Box<[u8]>),
    /// A notice from the data plane.
    Notice(Notice),
    /// The stream of this number has ended.
    StreamClosed(StreamId),
    /// The interface's settings are planned, or planning failed: the answer to the request of this number.
    Planned(u64, Result<Planned, String>),
    /// The interface has its addresses: the planned network, and the host's state when it was planned.
    InterfaceSet(Box<(TunnelNetwork, HostFacts)>),
    /// The routes are set.
    RoutesSet,
    /// `tls-verify` has run: how many certificates passed, for the request of this number.
    Judged(u64, usize, Result<(), String>),
    /// A script has succeeded, or failed with this error.
    ScriptFinished(Hook, Result<(), String>),
    /// No hold is configured, or it is over.
    Released,
    /// A management client asks to forget passwords.
    Forget,
    /// A management client sets the reaction to a refused password.
    AuthRetry(AuthRetry),
    /// A signal, or an equivalent request.
    Signal(Signal),
    /// Another program deleted the interface.
    InterfaceGone,
    /// Links or routes of the host have changed.
    NetworkChanged,
    /// The server is reached by another way than before: the TCP connection, or the dial, keeps an address that no longer
    /// leads to it.
    Moved,
    /// The clock was set or a route came back; earlier attempts may have failed for lack of it.
    Hurry,
    /// A step failed, and the later steps of its event were dropped.
    Failed(String),
    /// A deadline may have passed.
    Deadline,
}
