//! Events of a server.

use super::host::JobId;
use crate::inbox::Arrival;
use config::openvpn::OpenVpn;
use openvpn::server::ClientId;
use openvpn::session::{AuthId, Handshaken};
use openvpn_host::management::Victim;
use openvpn_host::scripts::auth_script::{PendingAuth, Verdict};
use openvpn_host::signals::Signal;
use plane::{Notice, PeerId, StreamId};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Key of one client; unlike its peer id, it is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClientKey {
    /// Peer id of the client.
    pub(crate) id: ClientId,
    /// Client number, unique within a server.
    pub(crate) number: u64,
}

/// Converts a client's peer id to the data plane's name for it.
pub(crate) const fn peer(id: ClientId) -> PeerId {
    PeerId(id.0)
}

/// Event for a server. `'a` is the lifetime of its configurations.
#[derive(Debug)]
pub(crate) enum Event<'a> {
    /// The interface has its addresses and routes: clients may connect.
    InterfaceUp,
    /// Control packet from a client.
    Packet(Arrival),
    /// A message inside a data packet.
    Message(ClientId, Box<[u8]>),
    /// The data plane's notice about a client.
    Notice(ClientId, Notice),
    /// A TCP connection with this number was accepted from this address.
    StreamAccepted(StreamId, SocketAddr),
    /// The TCP connection of this number has ended.
    StreamClosed(StreamId),
    /// A background job has ended.
    JobDone(JobId, Done),
    /// A client's handshake step is done.
    Handshaken(ClientKey, Box<Handshaken>),
    /// A signal, or the same request from a management client.
    Signal(Signal),
    /// A management client disconnects clients for good.
    Kill(Victim),
    /// A management client makes one client reconnect, by number.
    KillClient(u64),
    /// [`Machine::next_deadline`](super::Machine::next_deadline) has passed.
    DeadlinePassed,
    /// The server cannot continue, for this reason.
    Failed(String),

    /// The configuration was read again.
    ConfigurationRead(Result<ConfigurationRead<'a>, String>),
}

/// A configuration that was read again.
#[derive(Debug)]
pub(crate) struct ConfigurationRead<'a> {
    /// The new configuration, or the previous one if nothing changed.
    pub(crate) config: &'a OpenVpn,
    /// A digest of the files that only a new start reads; `None` if one cannot be read.
    pub(crate) material: Option<[u8; 32]>,
    /// Whether the process could make its interface again, or why not.
    pub(crate) anew: Result<(), String>,
}

/// Result of reading a client's file in `client-config-dir`.
#[derive(Debug)]
pub(crate) enum ClientFile {
    /// `ccd-exclusive` is set and the client has no file of its own.
    NotItsOwn,
    /// The file's path and content; `None` if there is no file.
    Read(Option<(PathBuf, String)>),
    /// The file cannot be read.
    Unreadable(String),
}

/// Result of a background job.
#[derive(Debug)]
pub(crate) enum Done {
    /// A login's scripts and files have answered.
    Login(AuthId, Login),
    /// A script has made a client's settings: their text, or `None` if the text comes later.
    Settings(Result<Option<String>, String>),
    /// The script has received a client's answer to its challenge.
    Responded(AuthId, Result<(), String>),
    /// A notification script has ended.
    Told(Result<(), String>),
}

/// Result of a login's checks.
#[derive(Debug)]
pub(crate) struct Login {
    /// The scripts found nothing wrong with the certificate (`tls-verify`).
    pub(crate) certificate: bool,
    /// The verdict and a further challenge for the client, or why there is no verdict.
    pub(crate) answer: Result<(Verdict, Option<PendingAuth>), String>,
}

/// Current content of a deferred script's files.
#[derive(Debug)]
pub(crate) enum Polled {
    /// Result of a login.
    Login(Verdict),
    /// The client's settings as text; `None` if the script has not written them.
    Settings(Result<Option<String>, String>),
}
