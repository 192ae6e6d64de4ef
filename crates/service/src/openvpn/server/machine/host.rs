//! The context of a server's machine while it handles an event: the time, the data plane and its host.

use super::event::{ClientFile, ClientKey, Polled};
use crate::openvpn::Ended;
use crate::openvpn::channel::Plane;
use config::openvpn::{OpenVpn, PasswordMethod};
use openvpn::session::{AuthId, Handshake};
use openvpn::verify::PeerCertificate;
use openvpn_host::accounts::client_names::ClientNames;
use openvpn_host::accounts::htpasswd::PasswordFile;
use openvpn_host::management::State;
use openvpn_host::scripts::Invocation;
use openvpn_host::scripts::auth_script::Credentials;
use openvpn_host::status_file::server::ServerStatus;
use plane::Now;
use plane::{SourceNetwork, StreamId};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Context of an event.
pub(crate) struct Cx<'a> {
    /// Time of the event.
    pub(crate) now: Now,
    pub(crate) plane: &'a Plane,
    /// Everything else outside the machine.
    pub(crate) host: &'a mut dyn Host,
}

/// The process and system around a server. No method calls back into the machine.
pub(crate) trait Host {
    /// Writes a line to the log.
    fn log(&mut self, level: log::Level, text: &str);

    /// Writes a line about a client that came, left or was refused, which the log of `millrace up` shows by default.
    fn announce(&mut self, text: &str);

    /// Hands an accepted connection over to the data plane.
    ///
    /// # Errors
    /// The data plane refuses the connection.
    fn add_stream(&mut self, id: StreamId) -> io::Result<()>;

    /// Closes a connection, whether or not the data plane has taken it over.
    fn remove_stream(&mut self, id: StreamId);

    /// Accepts no more TCP connections.
    fn stop_listening(&mut self);

    /// Raises the limit of open files for this many clients over TCP. Returns the new limit.
    fn raise_open_files(&mut self, clients: usize) -> usize;

    /// Runs a job on another thread; [`Event::JobDone`](super::Event::JobDone) returns the result. Sources take turns.
    ///
    /// # Errors
    /// Says why the job cannot start.
    fn start(&mut self, id: JobId, source: Option<SourceNetwork>, job: Job) -> Result<(), String>;

    /// Drops a job unless it has begun, and ignores its result.
    fn cancel(&mut self, id: JobId);

    /// Returns the current answer in the files of this job's script; `None` without files.
    fn poll(&mut self, id: JobId) -> Option<Polled>;

    /// Removes this job's script files.
    fn forget(&mut self, id: JobId);

    /// Runs a client's handshake step on another thread; sources, and renewals of keys, take turns.
    /// [`Event::Handshaken`](super::Event::Handshaken) returns the result, even if the client is gone.
    fn handshake(
        &mut self,
        client: ClientKey,
        source: SourceNetwork,
        renewal: bool,
        work: Box<Handshake>,
    );

    /// Drops a departed client's handshake unless it has begun.
    fn cancel_handshake(&mut self, client: ClientKey);

    /// Reads the file of the client of this common name in `client-config-dir`; `exclusive` ignores the `DEFAULT` file
    /// (`ccd-exclusive`).
    fn client_file(&mut self, directory: &Path, name: &str, exclusive: bool) -> ClientFile;

    /// Reads the configuration again: [`Event::ConfigurationRead`](super::Event::ConfigurationRead).
    fn read_configuration(&mut self);

    /// Reads the file of names and password hashes.
    ///
    /// # Errors
    /// Says why the file cannot be used.
    fn passwords(&mut self, config: &OpenVpn) -> Result<Option<Arc<PasswordFile>>, String>;

    /// Reads the names of clients that differ from those in their certificates.
    fn names(&mut self, config: &OpenVpn) -> Result<ClientNames, String>;

    /// Shows clients the current certificate in negotiations from now on, if it was renewed.
    fn renew_certificate(&mut self, config: &OpenVpn);

    /// Reads the revocation list if it has changed.
    fn refresh_revocations(&mut self, config: &OpenVpn);

    /// Whether a certificate is revoked now.
    fn is_revoked(&mut self, certificate: &PeerCertificate) -> bool;

    /// Writes a file atomically.
    fn write_file(&mut self, path: &Path, text: &str);

    /// Returns freed memory to the system.
    fn give_memory_back(&mut self);

    /// Signals the waiting parent process that the server is up.
    fn is_up(&mut self);

    /// Informs management clients of a new state.
    fn state(&mut self, state: State, detail: &str);

    /// Writes the status into the log.
    fn log_status(&mut self, status: ServerStatus);

    /// Writes the status file a last time.
    fn last_status(&mut self, status: ServerStatus);

    /// Sets the configuration's current routes and removes those no longer configured.
    fn change_routes(&mut self, config: &OpenVpn);

    /// Undoes the host settings and runs the scripts for their end.
    fn take_down(&mut self);

    /// Leaves the loop.
    fn end(&mut self, ended: Ended);
}

/// Number of a background job, unique within a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct JobId(pub(crate) u64);

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
        /// Script to run.
        script: Invocation,
        /// Response of the client to the challenge.
        response: String,
        /// Directory for script files.
        directory: PathBuf,
    },
    /// Run a notification script.
    Tell(Invocation),
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
