//! Events that the client's machine handles.

use super::super::connect::ResolveError;
use super::super::network::{HostFacts, TunnelNetwork};
use super::super::plane_call::Look;
use super::super::policy::scripts::Hook;
use super::super::secrets::Login;
use super::super::signals::Signal;
use crate::inbox::Arrival;
use crate::lines::LineFacts;
use config::openvpn::AuthRetry;
use plane::{CipherName, KeyUsage, LineId, Notice, PeerState, StreamId};
use std::net::SocketAddr;
use std::time::Duration;

/// Party that asks for a name and a password.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Realm {
    /// The server (`auth-user-pass`).
    Server,
    /// The proxy.
    Proxy,
}

/// Outcome of planning the interface's settings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planned {
    /// The interface already has these settings.
    pub(super) alike: bool,
    /// How long routes are put off (`route-delay`).
    pub(super) route_delay: Duration,
}

/// Something that has happened.
pub(super) enum Event {
    /// The first of all.
    Begin,
    /// A name was looked up, or could not be: the answer to the request of this number.
    LookedUp(u64, Result<Vec<SocketAddr>, ResolveError>),
    /// A name and a password, or why there are none.
    Login(Realm, Result<Login, String>),
    /// There is an interface, of this name.
    Opened(String),
    /// There is a socket to the server: the answer to the request of this number.
    Connected {
        /// The request.
        number: u64,
        /// The server, or the proxy in front of it.
        remote: SocketAddr,
        /// The number of the stream; `None` for datagrams.
        stream: Option<StreamId>,
    },
    /// Host facts about the uplinks, in order; `None` where the device is missing.
    LinesRead(Vec<Option<LineFacts>>),
    /// The sockets of a line: their port, or why there are none.
    LineOpened(LineId, Result<u16, String>),
    /// There is none, and why; whether another line may do better.
    DialFailed(u64, String, bool),
    /// The addresses of the name of a line's relay.
    RelayLookedUp(LineId, Result<Vec<SocketAddr>, String>),
    /// Result of [`Effect::Try`](super::effect::Effect::Try).
    LineTried(LineId, Result<(), String>),
    /// Bytes that each uplink has carried.
    LinesCounted(Vec<u64>),
    /// The client ends; it has reported the uplinks' bytes for the last time.
    LinesEnd,
    /// A packet of the control channel.
    Control(Arrival),
    /// A message that was inside a data packet.
    Message(Box<[u8]>),
    /// The data plane has noticed something.
    Notice(Notice),
    /// The stream of this number has ended.
    StreamClosed(StreamId),
    /// The data plane's state of the server.
    PeerState(Look, PeerState),
    /// The data plane has taken the keys of this key id, and this seals with them.
    KeysAdded(u8, CipherName),
    /// How much the keys of this key id were used.
    KeyUsed(u8, KeyUsage),
    /// The interface's settings are planned, or planning failed: the answer to the request of this number.
    Planned(u64, Result<Planned, String>),
    /// The interface has its addresses: what was decided, and what was known of the host then.
    InterfaceSet(Box<(TunnelNetwork, HostFacts)>),
    /// The routes are set.
    RoutesSet,
    /// `tls-verify` was run, as far as this many certificates passed: the answer to the request of this number.
    Judged(u64, usize, Result<(), String>),
    /// A script has ended, well or with this error.
    ScriptFinished(Hook, Result<(), String>),
    /// There is no hold, or no longer.
    Released,
    /// A management client wants passwords to be forgotten.
    Forget,
    /// A management client says what is done after a refused password.
    AuthRetry(AuthRetry),
    /// A signal, or what is as good as one.
    Signal(Signal),
    /// The interface was deleted, by another than us.
    InterfaceGone,
    /// Links or routes of the host have changed.
    NetworkChanged,
    /// The clock was set or a route came back; earlier attempts may have failed for lack of it.
    Hurry,
    /// The last effect could not be done, and those after it were not.
    Failed(String),
    /// A deadline may have passed.
    Deadline,
}
