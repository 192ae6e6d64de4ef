//! Effects: actions that a server machine requests. The executor does them in order.

use super::event::{ClientKey, PlaneCall};
use crate::openvpn::Ended;
use crate::openvpn::console::Who;
use crate::openvpn::management::State;
use crate::openvpn::policy::auth_script::Credentials;
use crate::openvpn::policy::htpasswd::PasswordFile;
use crate::openvpn::policy::scripts::Invocation;
use config::openvpn::PasswordMethod;
use openvpn::session::{AuthId, Handshake};
use openvpn::verify::PeerCertificate;
use plane::SourceNetwork;
use std::path::PathBuf;
use std::sync::Arc;

/// Number of a background job, unique within a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct JobId(pub(crate) u64);

/// Action for the executor.
pub(crate) enum Effect {
    /// Write a line to the log.
    Log {
        /// Severity of the line.
        level: log::Level,
        /// The client that the line is about.
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

    /// Run a job on another thread. Sources take turns.
    StartJob(JobId, Option<SourceNetwork>, Box<Job>),
    /// Run a client's handshake step on another thread; sources take turns.
    /// [`Event::Handshaken`](super::event::Event::Handshaken) returns the result, even if the client is gone.
    Handshake {
        /// The client.
        client: ClientKey,
        /// The client's source network.
        source: SourceNetwork,
        /// The client was admitted before and renews its keys.
        renewal: bool,
        /// The handshake step.
        work: Box<Handshake>,
    },
    /// Drop a departed client's handshake unless it has begun.
    CancelHandshake(ClientKey),
    /// Drop a job unless it has begun, and ignore its result.
    CancelJob(JobId),
    /// Check whether this job's script has written its answer.
    PollFiles(ClientKey, JobId),
    /// Remove this job's script files.
    ForgetFiles(JobId),

    /// Read the file of a client.
    ReadClientFile {
        /// The client.
        client: ClientKey,
        /// `client-config-dir`.
        directory: PathBuf,
        /// Common name of the client.
        name: String,
        /// Ignore the `DEFAULT` file (`ccd-exclusive`).
        exclusive: bool,
    },
    /// Read the configuration again.
    ReadConfiguration,
    /// Read the currently configured file of names and password hashes.
    ReadPasswords,
    /// Read the revocation list if it has changed.
    RefreshRevocations,
    /// Find the clients whose certificate is revoked now.
    FindRevoked(Vec<(ClientKey, Arc<PeerCertificate>)>),
    /// Write a file atomically.
    WriteFile(PathBuf, String),

    /// Give freed memory back to the system.
    GiveMemoryBack,
    /// The server is up: tell the waiting parent process.
    IsUp,
    /// Tell management clients about a new state.
    State(State, &'static str),
    /// Write the status into the log.
    LogStatus,
    /// Write the status file a last time.
    WriteLastStatus,

    /// Set the configuration's current routes and remove those no longer configured.
    ChangeRoutes,
    /// Undo the host settings and run the scripts for it.
    TakeDown,
    /// Leave the loop.
    Exit(Ended),
}

/// Background work.
#[allow(
    clippy::large_enum_variant,
    reason = "few are made, and only those of guessers are kept"
)]
pub(crate) enum Job {
    /// Ask whether a client may come in.
    Login(AuthId, LoginChecks),
    /// Run the script that makes a client's settings.
    Settings(Invocation, PathBuf),
    /// Run the script for a client's answer to a challenge; it may write a verdict to the files of the job `asked`.
    Respond {
        /// The login that is pending.
        auth: AuthId,
        /// The job whose script sent the challenge.
        asked: JobId,
        /// The script.
        script: Invocation,
        /// The client's answer.
        response: String,
        /// Directory for script files.
        directory: PathBuf,
    },
    /// Run a notification script.
    Tell(Invocation),
}

/// Kind of waiter for a job's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobKind {
    /// A login.
    Login(AuthId),
    /// A client that waits for its options.
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

/// Checks that a login must pass, in this order.
#[derive(Default)]
pub(crate) struct LoginChecks {
    /// `tls-verify`, for each certificate of the chain.
    pub(crate) certificates: Vec<Invocation>,
    /// `tls-crypt-v2-verify`, and the metadata to show it.
    pub(crate) metadata: Option<(Invocation, Vec<u8>)>,
    /// `auth-user-pass-file`.
    pub(crate) file: Option<(Arc<PasswordFile>, Credentials)>,
    /// `auth-user-pass-verify`.
    pub(crate) login: Option<(Invocation, Credentials, PasswordMethod)>,
    /// Directory for script files.
    pub(crate) directory: PathBuf,
}

impl LoginChecks {
    /// Whether there is no check to run.
    pub(crate) fn is_empty(&self) -> bool {
        self.certificates.is_empty()
            && self.metadata.is_none()
            && self.file.is_none()
            && self.login.is_none()
    }
}
