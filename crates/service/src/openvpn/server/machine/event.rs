//! Events of a server: news from outside, and results of the effects that it asked for.

use super::super::super::management::Victim;
use super::super::super::plane_call::{self, Look};
use super::super::super::policy::auth_script::{PendingAuth, Verdict};
use super::super::super::policy::htpasswd::PasswordFile;
use super::super::super::signals::Signal;
use super::effect::{JobId, JobKind};
use crate::inbox::Arrival;
use config::openvpn::OpenVpn;
use openvpn::server::ClientId;
use openvpn::session::{AuthId, Handshaken};
use plane::{CipherName, KeyUsage, Notice, PeerId, PeerState, StreamId};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// When something happens, by both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// The monotonic clock, for deadlines.
    pub(crate) instant: Instant,
    /// The time of day, which may jump.
    pub(crate) system: SystemTime,
}

impl Now {
    /// Reads both clocks.
    pub(crate) fn read() -> Self {
        Self {
            instant: Instant::now(),
            system: SystemTime::now(),
        }
    }
}

/// One client, and not another that has its peer id after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClientKey {
    /// The peer id.
    pub(crate) id: ClientId,
    /// Counted by the server; no two clients of a server have the same.
    pub(crate) number: u64,
}

impl ClientKey {
    /// How the data plane calls it.
    pub(crate) const fn peer(self) -> PeerId {
        peer(self.id)
    }
}

impl From<ClientKey> for PeerId {
    fn from(key: ClientKey) -> Self {
        key.peer()
    }
}

/// A call of the data plane about clients.
pub(crate) type PlaneCall = plane_call::PlaneCall<ClientKey>;

/// How the data plane calls a client: by its peer id.
pub(crate) const fn peer(id: ClientId) -> PeerId {
    PeerId(id.0)
}

/// Event for a server. `'a` is the lifetime of its configurations.
#[derive(Debug)]
pub(crate) enum Event<'a> {
    /// The interface is up, with its addresses and routes: clients may come.
    InterfaceUp,
    /// A packet that is not a data packet.
    Packet(Arrival),
    /// A message inside a data packet.
    Message(ClientId, Box<[u8]>),
    /// Notice of the data plane about a client.
    Notice(ClientId, Notice),
    /// A TCP connection of this number, from this address.
    StreamAccepted(StreamId, SocketAddr),
    /// The TCP connection of this number has ended.
    StreamClosed(StreamId),
    /// A background job has ended.
    JobDone(JobId, Done),
    /// A client's handshake was done.
    Handshaken(ClientKey, Box<Handshaken>),
    /// A signal, or a management client that wants what it would do.
    Signal(Signal),
    /// A management client sends clients away for good.
    Kill(Victim),
    /// A management client has one client connect again, named by its number.
    KillClient(u64),
    /// [`Machine::next_deadline`](super::Machine::next_deadline) has passed.
    DeadlinePassed,
    /// The server cannot go on, for this reason.
    Failed(String),

    /// Answer to [`Effect::ReadConfiguration`](super::effect::Effect::ReadConfiguration).
    ConfigurationRead(Result<ConfigurationRead<'a>, String>),
    /// Answer to [`Effect::ReadPasswords`](super::effect::Effect::ReadPasswords).
    PasswordsRead(Result<Option<Arc<PasswordFile>>, String>),
    /// Answer to [`Effect::FindRevoked`](super::effect::Effect::FindRevoked).
    Revoked(Vec<ClientKey>),
    /// Answer to [`Effect::RaiseOpenFiles`](super::effect::Effect::RaiseOpenFiles): files that may be open.
    OpenFiles(usize),
    /// Answer to [`Effect::ReadClientFile`](super::effect::Effect::ReadClientFile).
    ClientFile(ClientKey, ClientFile),
    /// Answer to [`Effect::StartJob`](super::effect::Effect::StartJob), where it was not started.
    JobRefused(JobId, JobKind, String),
    /// Answer to [`Effect::PollFiles`](super::effect::Effect::PollFiles).
    Polled(ClientKey, JobId, Polled),
    /// Answer to [`PlaneCall::AddKeys`](super::PlaneCall::AddKeys), of the keys with this key id: what seals with them,
    /// or why they cannot be used.
    KeysAdded(ClientKey, u8, Result<CipherName, String>),
    /// Answer to [`PlaneCall::Peer`](super::PlaneCall::Peer).
    PeerState(ClientKey, Look, PeerState),
    /// Answer to [`PlaneCall::KeyUsage`](super::PlaneCall::KeyUsage), of the keys with this key id.
    KeyUsed(ClientKey, u8, KeyUsage),
}

/// A configuration that was read again.
#[derive(Debug)]
pub(crate) struct ConfigurationRead<'a> {
    /// The configuration: the one before it where nothing has changed.
    pub(crate) config: &'a OpenVpn,
    /// A digest of the files that only a new start reads; `None` if one cannot be read.
    pub(crate) material: Option<[u8; 32]>,
    /// Whether the process could make its interface again, or why not.
    pub(crate) anew: Result<(), String>,
}

/// Result of reading a client's file in `client-config-dir`.
#[derive(Debug)]
pub(crate) enum ClientFile {
    /// No file of its own, which `ccd-exclusive` demands.
    NotItsOwn,
    /// The file and what is in it; `None` without any.
    Read(Option<(PathBuf, String)>),
    /// It cannot be read.
    Unreadable(String),
}

/// Result of a background job.
#[derive(Debug)]
pub(crate) enum Done {
    /// The scripts and files that decide about a login have answered.
    Login(AuthId, Login),
    /// A client's script has made its settings: their text, or `None` if it will later.
    Settings(Result<Option<String>, String>),
    /// A script was told of an answer to its question.
    Responded(AuthId, Result<(), String>),
    /// A script that was only told something.
    Told(Result<(), String>),
}

/// The answer to a login.
#[derive(Debug)]
pub(crate) struct Login {
    /// The scripts found nothing wrong with the certificate (`tls-verify`).
    pub(crate) certificate: bool,
    /// The verdict and what more the client is asked, or why none could be had.
    pub(crate) answer: Result<(Verdict, Option<PendingAuth>), String>,
}

/// Current content of a deferred script's files.
#[derive(Debug)]
pub(crate) enum Polled {
    /// Whether the client may come in.
    Login(Verdict),
    /// The client's settings as text; `None` if there is still nothing.
    Settings(Result<Option<String>, String>),
}
