//! Who may ask and be told while a tunnel runs: the status file and the management port.

use super::console::Console;
use super::device::Link;
use super::policy::environment::Environment;
use super::policy::management::{
    Addresses, Answer, Management, Query, Settings, State, StateEntry, Victim,
};
use super::policy::status_file::{ClientStatus, Format, PeriodicFile, ServerStatus};
use super::policy::timestamp::{Clock, unix};
use super::port::{self, Port};
use super::release;
use super::signals::Signal;
use super::status_socket::StatusSocket;
use crate::status::Status as Document;
use config::openvpn::{AuthRetry, OpenVpn};
use netio::poll::Poller;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant, SystemTime};

/// What the daemon must be able to say and do for those who ask.
pub(crate) trait Desk {
    /// What goes on.
    fn status(&self) -> Status;
    /// The same for `millrace status`. Name, protocol and age of the interface are filled in.
    fn document(&self) -> Document;
    /// Sends clients away, and says how many. A client has none.
    fn kill(&mut self, victim: &Victim) -> usize {
        let _ = victim;
        0
    }
    /// Sends one client away, by the number that the status shows.
    fn kill_client(&mut self, number: u64) -> bool {
        let _ = number;
        false
    }
}

/// What goes on.
pub(crate) enum Status {
    /// In a client.
    Client(ClientStatus),
    /// In a server.
    Server(ServerStatus),
}

impl Status {
    pub(crate) fn text(&self, format: Format, title: &str, clock: &Clock) -> String {
        let now = SystemTime::now();
        match self {
            Self::Client(status) => status.text(clock, now),
            Self::Server(status) => status.text(format, title, clock, now),
        }
    }

    /// Bytes received and sent, in all.
    pub(super) fn bytes(&self) -> (u64, u64) {
        match self {
            Self::Client(status) => (status.link_read, status.link_write),
            Self::Server(status) => status.clients.iter().fold((0, 0), |(r, s), client| {
                (r + client.bytes_received, s + client.bytes_sent)
            }),
        }
    }

    /// Tells them on the management port: a server's for each client.
    pub(super) fn tell_bytes(&self, port: &mut Management) {
        match self {
            Self::Client(status) => port.bytes(status.link_read, status.link_write),
            Self::Server(status) => {
                for client in &status.clients {
                    let (received, sent) = (client.bytes_received, client.bytes_sent);
                    port.client_bytes(client.client_id, received, sent);
                }
            }
        }
    }

    /// How many clients there are; a client has none.
    pub(super) fn clients(&self) -> usize {
        match self {
            Self::Client(_) => 0,
            Self::Server(status) => status.clients.len(),
        }
    }
}

/// What a visitor wants of the process itself.
#[derive(Debug)]
pub(crate) enum Wish {
    /// A signal.
    Signal(Signal),
    /// Begin, after a hold.
    Begin,
    /// The answer to a question.
    Answer(Answer),
    /// Forget passwords.
    Forget,
    /// Do this after a refused password.
    AuthRetry(AuthRetry),
}

/// The status file and the management port.
pub(crate) struct Office {
    status: Option<PeriodicFile>,
    format: Format,
    title: String,
    clock: Clock,
    port: Option<Port>,
    console: &'static Console,
    /// What `millrace status` reads, once there is an interface.
    socket: Option<StatusSocket>,
    /// The port's visitors and the readers of the status.
    events: Poller,
}

const PORT: u64 = 0;
const READER: u64 = 1;

impl Office {
    /// Opens what the configuration names.
    ///
    /// # Errors
    /// The port cannot be opened, or has no password.
    pub(crate) fn open(
        config: &OpenVpn,
        console: &'static Console,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let service = &config.service;
        let now = Instant::now();
        let status = service.status.as_ref().map(|status| {
            let period = Duration::from_secs(status.seconds.max(1).into());
            PeriodicFile::new(config.path(&status.path), period, now)
        });
        let format = Format::from_number(service.status_version).unwrap_or_default();
        let title = release::title();
        let port = match &service.management {
            None => None,
            Some(wanted) => {
                let settings = Settings {
                    password: port::password(config, wanted)?,
                    hold: wanted.hold,
                    server: config.server().is_some(),
                    // Clients are judged by scripts and files.
                    title: title.clone(),
                    pid: std::process::id(),
                    log_lines: wanted.log_cache,
                    verb: service.verb,
                    mute: service.mute,
                    auth_retry: config.client().map(|c| c.auth_retry).unwrap_or_default(),
                    format,
                };
                Some(Port::open(config, wanted, settings)?)
            }
        };
        let events = Poller::new()?;
        if let Some(port) = &port {
            events.add(&port.events, PORT)?;
        }
        Ok(Self {
            status,
            format,
            title,
            clock: Clock::system(),
            port,
            console,
            socket: None,
            events,
        })
    }

    /// Opens the socket that `millrace status` reads, unless it is open. `dev null` has no name to
    /// call it by but the process's.
    pub(crate) fn publish(&mut self, link: &Link) {
        let name = match link.index {
            0 => format!("null-{}", std::process::id()),
            _ => link.name.clone(),
        };
        if self.socket.as_ref().is_some_and(|it| it.ifname() == name) {
            return;
        }
        self.socket = None;
        match StatusSocket::open(&name, &self.events, READER) {
            Ok(socket) => self.socket = Some(socket),
            Err(error) => log::warn!("WARNING: millrace status will not show this tunnel: {error}"),
        }
    }

    /// Readable when a visitor came or said something, or somebody reads the status.
    pub(crate) fn events(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    /// When something is to be done here, or at the time given.
    pub(crate) fn deadline(&self, other: Option<Instant>) -> Option<Instant> {
        [
            other,
            self.status.as_ref().map(PeriodicFile::next_deadline),
            self.port.as_ref().and_then(Port::next_deadline),
            self.socket.as_ref().and_then(StatusSocket::next_deadline),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Does what is due, and serves the visitor. Returns what he wants of the process.
    pub(crate) fn serve(&mut self, desk: &mut dyn Desk) -> Vec<Wish> {
        let now = Instant::now();
        let (format, title, clock) = (self.format, &self.title, &self.clock);
        if let Some(file) = &mut self.status
            && let Err(error) = file.write_if_due(now, || desk.status().text(format, title, clock))
        {
            log::warn!("WARNING: status: {error}");
        }
        if let Some(socket) = &mut self.socket {
            socket.serve(&self.events, || desk.document());
        }
        let Some(port) = &mut self.port else {
            return Vec::new();
        };
        for (at, line) in self.console.take() {
            port.machine.logged(unix(at), line.flag, &line.text);
        }
        let mut wishes = Vec::new();
        port.serve(desk, self.console, title, clock, &mut wishes);
        wishes
    }

    /// Writes the status into the log.
    pub(crate) fn log_status(&self, status: &Status) {
        for line in status.text(self.format, &self.title, &self.clock).lines() {
            log::info!("{line}");
        }
    }

    /// Writes the status file a last time.
    pub(crate) fn last_status(&self, status: &Status) {
        if let Some(file) = &self.status
            && let Err(error) = file.write(&status.text(self.format, &self.title, &self.clock))
        {
            log::warn!("WARNING: status: {error}");
        }
    }

    /// The tunnel is in another state.
    pub(crate) fn state(&mut self, state: State, detail: &str, addresses: Addresses) {
        if let Some(port) = &mut self.port {
            port.machine.state_changed(StateEntry {
                at: unix(SystemTime::now()),
                state,
                detail: detail.to_owned(),
                addresses,
            });
            port.transmit();
        }
    }

    /// Begins to wait before the tunnel begins. Whether it must.
    pub(crate) fn hold(&mut self) -> bool {
        self.port.as_mut().is_some_and(|port| port.machine.hold(0))
    }

    /// The tunnel has ended.
    pub(crate) fn closed(&mut self) {
        if let Some(port) = &mut self.port {
            port.machine.tunnel_closed();
        }
    }

    /// Asks the user through the port. Whether there is one.
    pub(crate) fn ask(&mut self, query: Query) -> bool {
        match &mut self.port {
            Some(port) => {
                port.machine.ask(query);
                port.transmit();
                true
            }
            None => false,
        }
    }

    /// The interface went up or down: who wants to know is told (`management-up-down`).
    pub(crate) fn up_down(&mut self, up: bool, environment: &Environment) {
        if let Some(port) = self.port.as_mut().filter(|port| port.up_down) {
            port.machine.up_down(up, environment);
            port.transmit();
        }
    }

    /// The server said something by `echo`.
    pub(crate) fn echoed(&mut self, text: &str) {
        if let Some(port) = &mut self.port {
            port.machine.echoed(unix(SystemTime::now()), text);
            port.transmit();
        }
    }

    /// The server gave a token in the place of the password.
    pub(crate) fn auth_token(&mut self, token: &str) {
        if let Some(port) = &mut self.port {
            port.machine.auth_token(token);
            port.transmit();
        }
    }

    /// The server refused what was answered.
    pub(crate) fn verification_failed(&mut self, kind: &str, reason: Option<&str>) {
        if let Some(port) = &mut self.port {
            port.machine.verification_failed(kind, reason);
            port.transmit();
        }
    }
}
