//! Effects: actions that a server machine requests. The executor does them in order.

use super::super::super::Ended;
use super::super::super::console::Who;
use super::super::super::management::State;
use super::super::super::policy::auth_script::Credentials;
use super::super::super::policy::htpasswd::PasswordFile;
use super::super::super::policy::scripts::Invocation;
use super::event::{ClientKey, PlaneCall};
use config::openvpn::PasswordMethod;
use openvpn::session::{AuthId, Handshake};
use openvpn::verify::PeerCertificate;
use plane::SourceNetwork;
use std::path::PathBuf;
use std::sync::Arc;

/// A background job. No two of a server have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct JobId(pub(crate) u64);

/// Something to do.
pub(crate) enum Effect {
    /// Write a line to the log.
    Log {
        /// How important it is.
        level: log::Level,
        /// The client that it is about.
        who: Option<Who>,
        /// The line.
        text: String,
    },
    /// Call the data plane.
    Plane(PlaneCall),

    /// Accept no more TCP connections.
    StopListening,
    /// Raise the limit of open files for so many clients over TCP.
    RaiseOpenFiles(usize),

    /// Do this on another thread. The jobs of one source are done in turn with those of others.
    StartJob(JobId, Option<SourceNetwork>, Box<Job>),
    /// Do this for a client on another thread; [`Event::Handshaken`](super::event::Event::Handshaken) brings back what comes of
    /// it, whether the client is still there or not. Those of one source are done in turn with those of others.
    Handshake {
        /// For whom.
        client: ClientKey,
        /// Where it calls from.
        source: SourceNetwork,
        /// It was let in before.
        renewal: bool,
        /// The handshake step.
        work: Box<Handshake>,
    },
    /// The client has gone: do not do its handshake if it has not begun.
    CancelHandshake(ClientKey),
    /// Do not begin this job if it has not begun. Whatever comes of it is not wanted.
    CancelJob(JobId),
    /// Look whether the script of this job has written what it said that it would.
    PollFiles(ClientKey, JobId),
    /// Remove the files of this job's script.
    ForgetFiles(JobId),

    /// Read the file of a client.
    ReadClientFile {
        /// The client.
        client: ClientKey,
        /// `client-config-dir`.
        directory: PathBuf,
        /// Its common name.
        name: String,
        /// The file of all others does not do (`ccd-exclusive`).
        exclusive: bool,
    },
    /// Read the configuration again.
    ReadConfiguration,
    /// Read the file of names and password hashes that the configuration names now.
    ReadPasswords,
    /// Read the revocation list if it has changed.
    RefreshRevocations,
    /// Look which of these clients have a certificate that is revoked now.
    FindRevoked(Vec<(ClientKey, Arc<PeerCertificate>)>),
    /// Write this into a file, whole or not at all.
    WriteFile(PathBuf, String),

    /// Give freed memory back to the system.
    GiveMemoryBack,
    /// The server is up: the process that waits for that is told.
    IsUp,
    /// Tell management clients of another state.
    State(State, &'static str),
    /// Write the status into the log.
    LogStatus,
    /// Write the status file a last time.
    WriteLastStatus,

    /// Set the host's routes that the configuration has now, and remove those that it has no more.
    ChangeRoutes,
    /// Undo what was set on the host, and run the scripts for it.
    TakeDown,
    /// Leave the loop.
    Exit(Ended),
}

/// Work for another thread.
#[allow(
    clippy::large_enum_variant,
    reason = "few are made, and only those of guessers are kept"
)]
pub(crate) enum Job {
    /// Ask whether a client may come in.
    Login(AuthId, LoginChecks),
    /// Have a script make a client's settings.
    Settings(Invocation, PathBuf),
    /// Tell the script that decides about a login, by the files of that job, what the client answered.
    Respond {
        /// The question that this belongs to.
        auth: AuthId,
        /// The job whose script asked.
        asked: JobId,
        /// The script.
        script: Invocation,
        /// The answer.
        response: String,
        /// Where files for scripts are made.
        directory: PathBuf,
    },
    /// Tell a script something.
    Tell(Invocation),
}

/// Waiter for the end of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobKind {
    /// A login.
    Login(AuthId),
    /// A client that is to get its options.
    Settings,
    /// Nothing.
    Other,
}

impl Job {
    /// Returns the waiter for its end.
    pub(crate) const fn kind(&self) -> JobKind {
        match self {
            Self::Login(auth, _) => JobKind::Login(*auth),
            Self::Settings(..) => JobKind::Settings,
            Self::Respond { .. } | Self::Tell(_) => JobKind::Other,
        }
    }
}

/// Checks to pass before a client comes in, in this order.
#[derive(Default)]
pub(crate) struct LoginChecks {
    /// `tls-verify`, for each certificate of the chain.
    pub(crate) certificates: Vec<Invocation>,
    /// `tls-crypt-v2-verify`, and what it is shown.
    pub(crate) metadata: Option<(Invocation, Vec<u8>)>,
    /// `auth-user-pass-file`.
    pub(crate) file: Option<(Arc<PasswordFile>, Credentials)>,
    /// `auth-user-pass-verify`.
    pub(crate) login: Option<(Invocation, Credentials, PasswordMethod)>,
    /// Where files for scripts are made.
    pub(crate) directory: PathBuf,
}

impl LoginChecks {
    /// Whether there is nothing to ask.
    pub(crate) fn is_empty(&self) -> bool {
        self.certificates.is_empty()
            && self.metadata.is_none()
            && self.file.is_none()
            && self.login.is_none()
    }
}
