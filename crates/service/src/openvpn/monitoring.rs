//! Monitors of a running tunnel: the status file and the management port.

use super::device::Link;
use super::status_socket::StatusSocket;
use crate::status::Status as Document;
use config::openvpn::OpenVpn;
use netio::poll::{Poller, Waker};
use openvpn_host::console::Console;
use openvpn_host::management::server::{self, Port};
use openvpn_host::management::{Query, Settings, Told};
use openvpn_host::monitored::{Monitored, ProcessRequest, Status, title};
use openvpn_host::status_file::{ClientStatus, Format, PeriodicFile};
use openvpn_host::timestamp::{Clock, unix};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// A client or server, for `millrace status` too.
pub(super) trait Documented: Monitored {
    /// Returns the status for `millrace status`; the socket fills in name, protocol and age of the interface.
    fn document(&self) -> Document;
}

/// Stands in for a client or server that has no session: before the first one, and between two sessions.
pub(super) struct Idle;

impl Monitored for Idle {
    fn status(&self) -> Status {
        Status::Client(ClientStatus::default())
    }
}

impl Documented for Idle {
    fn document(&self) -> Document {
        Document {
            state: Some("connecting".to_owned()),
            ..Document::default()
        }
    }
}

/// The status file and the management port.
pub(super) struct Monitoring {
    status: Option<PeriodicFile>,
    format: Format,
    title: String,
    clock: Clock,
    port: Option<Port>,
    pub(super) console: &'static Console,
    /// Socket that `millrace status` reads, once there is an interface.
    socket: Option<StatusSocket>,
    /// Wakes for management clients, their lines, and status readers.
    events: Poller,
}

const PORT: u64 = 0;
const READER: u64 = 1;
const LINES: u64 = 2;

impl Monitoring {
    /// Opens the monitors that the configuration names.
    ///
    /// # Errors
    /// The port cannot be opened, or has no password.
    pub(super) fn open(
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
        let title = title();
        let port = match &service.management {
            None => None,
            Some(wanted) => {
                let settings = Settings {
                    password: server::password(config, wanted)?,
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
            let waker = Arc::new(Waker::new()?);
            events.add(&*waker, LINES)?;
            console.wake(waker);
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

    /// Opens the socket that `millrace status` reads, unless it is open. With `dev null` the socket is named after the
    /// process.
    pub(super) fn publish(&mut self, link: &Link) {
        let name = match link.index {
            0 => format!("null-{}", std::process::id()),
            _ => link.name.clone(),
        };
        if self.socket.as_ref().is_some_and(|it| it.ifname() == name) {
            return;
        }
        self.socket = None;
        match StatusSocket::open(&name, "openvpn", &self.events, READER) {
            Ok(socket) => self.socket = Some(socket),
            Err(error) => log::warn!("WARNING: millrace status will not show this tunnel: {error}"),
        }
    }

    /// Readable when a management client or a status reader is ready, or log lines wait for one.
    pub(super) fn events(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    /// The earlier of the monitors' next deadline and the given one.
    pub(super) fn deadline(&self, other: Option<Instant>) -> Option<Instant> {
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

    /// Does the due work and serves the management client. Returns the client's requests to the process.
    pub(super) fn serve(&mut self, monitored: &mut dyn Documented) -> Vec<ProcessRequest> {
        let now = Instant::now();
        let (format, title, clock) = (self.format, &self.title, &self.clock);
        if let Some(file) = &mut self.status
            && let Err(error) =
                file.write_if_due(now, || monitored.status().text(format, title, clock))
        {
            log::warn!("WARNING: status: {error}");
        }
        if let Some(socket) = &mut self.socket {
            socket.serve(&self.events, || monitored.document());
        }
        let Some(port) = &mut self.port else {
            return Vec::new();
        };
        for (at, line) in self.console.take() {
            port.machine.logged(unix(at), line.flag, &line.text);
        }
        port.serve(monitored)
    }

    /// Writes the status into the log.
    pub(super) fn log_status(&self, status: &Status) {
        for line in status.text(self.format, &self.title, &self.clock).lines() {
            log::info!("{line}");
        }
    }

    /// Writes the status file a last time.
    #[cfg(feature = "server")]
    pub(super) fn last_status(&self, status: &Status) {
        if let Some(file) = &self.status
            && let Err(error) = file.write(&status.text(self.format, &self.title, &self.clock))
        {
            log::warn!("WARNING: status: {error}");
        }
    }

    /// Reports to the management client; the interface's state only with `management-up-down`.
    pub(super) fn tell(&mut self, told: &Told) {
        if let Some(port) = &mut self.port
            && (port.up_down || !matches!(told, Told::UpDown(..)))
        {
            port.machine.tell(unix(SystemTime::now()), told);
            port.transmit();
        }
    }

    /// Starts a hold before the tunnel begins. Returns whether one is required.
    pub(super) fn hold(&mut self) -> bool {
        self.port.as_mut().is_some_and(|port| port.machine.hold())
    }

    /// Asks the user through the port. Returns whether there is a port to ask.
    pub(super) fn ask(&mut self, query: Query) -> bool {
        match &mut self.port {
            Some(port) => {
                port.machine.ask(query);
                port.transmit();
                true
            }
            None => false,
        }
    }
}
