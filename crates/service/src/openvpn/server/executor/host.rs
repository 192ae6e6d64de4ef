//! The process and system around a server.

use super::background::Background;
use super::handshakes::Handshakes;
use super::jobs::{self, Files, Finished};
use super::listeners::Listeners;
use super::network::Set;
use super::start;
use crate::openvpn::device::{Link, SocketPlane};
use crate::openvpn::server::machine::{
    ClientFile, ClientKey, ConfigurationRead, Event, Host, Job, JobId, Polled,
};
use crate::openvpn::{Context, Ended, ready};
use config::openvpn::{OpenVpn, Topology};
use host::strangers;
use openvpn::session::Handshake;
use openvpn::tls::TlsSettings;
use openvpn::verify::PeerCertificate;
use openvpn_host::accounts;
use openvpn_host::accounts::client_names::ClientNames;
use openvpn_host::accounts::htpasswd::PasswordFile;
use openvpn_host::console::{self, Who};
use openvpn_host::hooks::Hooks;
use openvpn_host::management::{Addresses, State, Told};
use openvpn_host::monitored::Status;
use openvpn_host::revocation::RevocationFile;
use openvpn_host::setup;
use openvpn_host::status_file::server::ServerStatus;
use openvpn_host::status_file::write_atomically;
use plane::{LineId, SourceNetwork, StreamId};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

/// The host that a server runs on.
pub(super) struct ThisHost<'a> {
    pub(super) context: &'a Context,
    pub(super) plane: Rc<SocketPlane>,
    pub(super) hooks: Hooks<'a>,
    pub(super) link: Link,
    pub(super) mtu: u16,
    pub(super) topology: Topology,
    pub(super) tls: Arc<TlsSettings>,
    /// The revocation list as it was last read.
    pub(super) crl: RevocationFile,
    pub(super) listeners: Listeners,
    /// Background jobs, each queued under its client's source, or `None` for the server's own.
    pub(super) background: Background<Option<SourceNetwork>, JobId, Finished>,
    pub(super) handshakes: Handshakes,
    /// Files of scripts that answer later.
    pub(super) files: HashMap<JobId, Files>,
    /// The network settings in force.
    pub(super) set: Option<Set>,
    /// Events that the machine gets next.
    pub(super) events: VecDeque<Event<'a>>,
    pub(super) ended: Option<Ended>,
}

/// Log target of the lines about clients that come and go.
const CLIENTS: &str = "service::clients";

/// Writes a line to the log. It begins with the client that it is about.
fn write(target: &str, level: log::Level, text: &str) {
    match console::unnamed() {
        Some(Who { label, stranger }) if stranger => {
            strangers::log(level, format_args!("{label}: {text}"));
        }
        // The lines of the default log.
        Some(Who { label, .. }) if target == CLIENTS || level <= log::Level::Warn => {
            strangers::log_client(target, level, &label, text);
        }
        Some(Who { label, .. }) => log::log!(target: target, level, "{label}: {text}"),
        None => log::log!(target: target, level, "{text}"),
    }
}

impl Host for ThisHost<'_> {
    fn log(&mut self, level: log::Level, text: &str) {
        if log::log_enabled!(level) {
            write(module_path!(), level, text);
        }
    }

    fn announce(&mut self, text: &str) {
        write(CLIENTS, log::Level::Info, text);
    }

    fn add_stream(&mut self, id: StreamId) -> io::Result<()> {
        if let Some(connection) = self.listeners.take(id) {
            self.plane.add_stream(id, LineId::FIRST, connection)?;
        }
        Ok(())
    }

    fn remove_stream(&mut self, id: StreamId) {
        // Closes a connection that the data plane has not taken over.
        drop(self.listeners.take(id));
        self.plane.remove_stream(id);
    }

    fn stop_listening(&mut self) {
        self.listeners.stop();
    }

    fn raise_open_files(&mut self, clients: usize) -> usize {
        start::raise_open_files(clients)
    }

    fn start(
        &mut self,
        id: JobId,
        source: Option<SourceNetwork>,
        mut job: Job,
    ) -> Result<(), String> {
        if let Job::Respond { asked, script, .. } = &mut job {
            // The machine names only jobs whose files exist.
            let Some(Files::Login(files)) = self.files.get(asked) else {
                return Err("the login script's files are gone".to_owned());
            };
            *script = files.name_to(script.clone());
        }
        let submitted = self.background.submit(source, id, move || jobs::run(job));
        submitted.map_err(|busy| busy.to_string())
    }

    fn cancel(&mut self, id: JobId) {
        self.background.cancel(&id);
    }

    fn poll(&mut self, id: JobId) -> Option<Polled> {
        Some(match self.files.remove(&id)? {
            Files::Login(files) => {
                let verdict = files.verdict();
                self.files.insert(id, Files::Login(files));
                Polled::Login(verdict)
            }
            Files::Settings(files) => {
                let (settings, files) = jobs::settings(files.poll());
                if let Some(files) = files {
                    self.files.insert(id, files);
                }
                Polled::Settings(settings)
            }
        })
    }

    fn forget(&mut self, id: JobId) {
        self.files.remove(&id);
    }

    fn handshake(
        &mut self,
        client: ClientKey,
        source: SourceNetwork,
        renewal: bool,
        work: Box<Handshake>,
    ) {
        let done = self.handshakes.begin(client, (source, renewal), work);
        self.events.extend(done);
    }

    fn cancel_handshake(&mut self, client: ClientKey) {
        self.handshakes.cancel(client);
    }

    fn client_file(&mut self, directory: &Path, name: &str, exclusive: bool) -> ClientFile {
        if exclusive && !accounts::has_own_file(directory, name) {
            return ClientFile::NotItsOwn;
        }
        match accounts::file(directory, name) {
            Ok(file) => ClientFile::Read(file),
            Err(error) => ClientFile::Unreadable(error.to_string()),
        }
    }

    fn read_configuration(&mut self) {
        let read = self.configuration();
        self.events.push_back(Event::ConfigurationRead(read));
    }

    fn passwords(&mut self, config: &OpenVpn) -> Result<Option<Arc<PasswordFile>>, String> {
        ready::passwords(config).map_err(|error| error.to_string())
    }

    fn names(&mut self, config: &OpenVpn) -> Result<ClientNames, String> {
        ClientNames::read(config)
    }

    fn renew_certificate(&mut self, config: &OpenVpn) {
        match setup::renew_certificate(config, &self.tls) {
            Ok(true) => log::info!("cert: the renewed certificate is shown from now on"),
            Ok(false) => {}
            Err(error) => log::error!("{error}; the earlier certificate is shown"),
        }
    }

    fn refresh_revocations(&mut self, config: &OpenVpn) {
        self.crl.refresh(config, &self.tls);
    }

    fn is_revoked(&mut self, certificate: &PeerCertificate) -> bool {
        self.tls.is_revoked(certificate)
    }

    fn write_file(&mut self, path: &Path, text: &str) {
        if let Err(error) = write_atomically(path, text) {
            log::warn!("WARNING: {}: {error}", path.display());
        }
    }

    fn give_memory_back(&mut self) {
        netio::process::give_back();
    }

    fn is_up(&mut self) {
        self.context.is_up();
    }

    fn state(&mut self, state: State, detail: &str) {
        let network = &self.context.config.network;
        let addresses = Addresses {
            tunnel: network.ifconfig.map(|i| i.local),
            tunnel_v6: network.ifconfig_v6.map(|i| i.local),
            ..Addresses::default()
        };
        let told = Told::State(state, detail.to_owned(), addresses);
        self.context.monitoring.borrow_mut().tell(&told);
    }

    fn log_status(&mut self, status: ServerStatus) {
        let status = self.status(status);
        self.context.monitoring.borrow().log_status(&status);
    }

    fn last_status(&mut self, status: ServerStatus) {
        let status = self.status(status);
        self.context.monitoring.borrow().last_status(&status);
    }

    fn change_routes(&mut self, config: &OpenVpn) {
        if let Err(error) = self.set_routes(&config.network) {
            log::error!("{error}");
        }
    }

    fn take_down(&mut self) {
        self.undo();
    }

    fn end(&mut self, ended: Ended) {
        self.ended = Some(ended);
    }
}

impl<'a> ThisHost<'a> {
    /// Completes the machine's status.
    pub(super) fn status(&self, mut status: ServerStatus) -> Status {
        status.kernel_data_plane = self.context.mover.kernel();
        Status::Server(status)
    }

    fn configuration(&self) -> Result<ConfigurationRead<'a>, String> {
        let manager = self.context.manager.as_ref();
        if manager.is_some_and(|it| !it.takes_reload()) {
            return Err("its configuration is not usable now".to_owned());
        }
        let read = self.context.read_again()?;
        Ok(ConfigurationRead {
            material: setup::material(&read),
            config: self.context.keep(read),
            anew: self.context.can_begin_anew(),
        })
    }
}
