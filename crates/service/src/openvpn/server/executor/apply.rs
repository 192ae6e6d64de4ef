//! Effects that do not concern the data plane.

use super::work::Files;
use super::{Executor, start, work};
use crate::openvpn::console::Speaking;
use crate::openvpn::management::Addresses;
use crate::openvpn::monitoring::{Monitored as _, Status};
use crate::openvpn::policy::clients;
use crate::openvpn::policy::periodic_file::write_atomically;
use crate::openvpn::server::machine::{
    ClientFile, ClientKey, ConfigurationRead, Effect, Event, Job, JobId, Polled,
};
use crate::openvpn::{ready, setup};
use plane::SourceNetwork;
use std::path::Path;

impl<'a> Executor<'a> {
    /// Performs one effect. Returns its answer, if it has one.
    pub(super) fn apply(&mut self, effect: Effect) -> Option<Event<'a>> {
        match effect {
            Effect::Log { level, who, text } => {
                let _speaking = who.map(Speaking::of);
                log::log!(level, "{text}");
            }
            Effect::Plane(call) => return self.call(call),
            Effect::StopListening => self.listeners.stop(),
            Effect::RaiseOpenFiles(clients) => {
                return Some(Event::OpenFiles(start::raise_open_files(clients)));
            }

            Effect::StartJob(id, source, job) => return self.start_job(id, source, *job),
            Effect::Handshake {
                client,
                source,
                renewal,
                work,
            } => return self.handshakes.begin(client, (source, renewal), work),
            Effect::CancelHandshake(client) => self.handshakes.cancel(client),
            Effect::CancelJob(id) => {
                if let Some(number) = self.jobs.remove(&id) {
                    self.background.cancel(number);
                }
            }
            Effect::PollFiles(client, job) => return self.poll_files(client, job),
            Effect::ForgetFiles(job) => {
                self.files.remove(&job);
            }

            Effect::ReadClientFile {
                client,
                directory,
                name,
                exclusive,
            } => {
                let file = client_file(&directory, &name, exclusive);
                return Some(Event::ClientFile(client, file));
            }
            Effect::ReadConfiguration => {
                return Some(Event::ConfigurationRead(self.read_configuration()));
            }
            Effect::ReadPasswords => {
                let read = ready::passwords(self.machine.config());
                return Some(Event::PasswordsRead(read.map_err(|it| it.to_string())));
            }
            Effect::RefreshRevocations => self.crl.refresh(self.machine.config(), &self.tls),
            Effect::FindRevoked(certified) => {
                let revoked = certified
                    .into_iter()
                    .filter(|(_, certificate)| self.tls.is_revoked(certificate));
                return Some(Event::Revoked(revoked.map(|(client, _)| client).collect()));
            }
            Effect::WriteFile(path, text) => {
                if let Err(error) = write_atomically(&path, &text) {
                    log::warn!("WARNING: {}: {error}", path.display());
                }
            }

            Effect::GiveMemoryBack => netio::memory::give_back(),
            Effect::IsUp => self.context.is_up(),
            Effect::State(state, detail) => {
                let network = &self.machine.config().network;
                let addresses = Addresses {
                    tunnel: network.ifconfig.map(|i| i.local),
                    tunnel_v6: network.ifconfig_v6.map(|i| i.local),
                    ..Addresses::default()
                };
                let mut monitoring = self.context.monitoring.borrow_mut();
                monitoring.state(state, detail, addresses);
            }
            Effect::LogStatus => {
                let status: Status = self.status();
                self.context.monitoring.borrow().log_status(&status);
            }
            Effect::WriteLastStatus => {
                let status: Status = self.status();
                self.context.monitoring.borrow().last_status(&status);
            }

            Effect::ChangeRoutes => {
                self.hooks.follow(self.machine.config());
                if let Err(error) = self.change_routes() {
                    log::error!("{error}");
                }
            }
            Effect::TakeDown => self.take_down(),
            Effect::Exit(ended) => self.ended = Some(ended),
        }
        None
    }

    fn read_configuration(&self) -> Result<ConfigurationRead<'a>, String> {
        let manager = self.context.manager.as_ref();
        if manager.is_some_and(|it| !it.takes_reload()) {
            return Err("its configuration cannot be used as it is now".to_owned());
        }
        let read = self.context.read_again()?;
        let material = setup::material(&read);
        let before = self.machine.config();
        let config = if *before == read {
            before
        } else {
            self.context.keep(read)
        };
        Ok(ConfigurationRead {
            config,
            material,
            anew: self.context.can_begin_anew(),
        })
    }

    fn start_job(
        &mut self,
        id: JobId,
        source: Option<SourceNetwork>,
        job: Job,
    ) -> Option<Event<'a>> {
        let kind = job.kind();
        let job = match job {
            Job::Respond {
                auth,
                asked,
                script,
                response,
                directory,
            } => {
                // The machine names only jobs whose files exist.
                let Some(Files::Login(files)) = self.files.get(&asked) else {
                    let why = "the files of the script that asked are gone";
                    return Some(Event::JobRefused(id, kind, why.to_owned()));
                };
                let script = files.name_to(script);
                Job::Respond {
                    auth,
                    asked,
                    script,
                    response,
                    directory,
                }
            }
            job => job,
        };
        match self.background.submit(source, move || (id, work::run(job))) {
            Ok(number) => {
                self.jobs.insert(id, number);
                None
            }
            Err(busy) => Some(Event::JobRefused(id, kind, busy.to_string())),
        }
    }

    fn poll_files(&mut self, client: ClientKey, job: JobId) -> Option<Event<'a>> {
        let polled = match self.files.remove(&job)? {
            Files::Login(files) => {
                let verdict = files.verdict();
                self.files.insert(job, Files::Login(files));
                Polled::Login(verdict)
            }
            Files::Settings(files) => {
                let (settings, files) = work::settings(files.poll());
                if let Some(files) = files {
                    self.files.insert(job, files);
                }
                Polled::Settings(settings)
            }
        };
        Some(Event::Polled(client, job, polled))
    }
}

fn client_file(directory: &Path, name: &str, exclusive: bool) -> ClientFile {
    if exclusive && !clients::has_own_file(directory, name) {
        return ClientFile::NotItsOwn;
    }
    match clients::file(directory, name) {
        Ok(file) => ClientFile::Read(file),
        Err(error) => ClientFile::Unreadable(error.to_string()),
    }
}
