//! Who may ask and be told while a tunnel runs: the status file and the management port.

use super::console::Console;
use super::door::{Door, Visitor};
use super::policy::environment::Environment;
use super::policy::management::{
    Action, Answer, Management, Query, Settings, Signal as Asked, State, StateEntry, Victim,
};
use super::policy::status_file::{ClientStatus, Format, PeriodicFile, ServerStatus};
use super::policy::timestamp::{Clock, unix};
use super::secrets;
use super::signals::Signal;
use config::openvpn::{AuthRetry, OpenVpn, Prompted};
use netio::poll::Poller;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant, SystemTime};

/// What the daemon must be able to say and do for those who ask.
pub(crate) trait Desk {
    /// What goes on.
    fn status(&self) -> Status;
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
    fn bytes(&self) -> (u64, u64) {
        match self {
            Self::Client(status) => (status.link_read, status.link_write),
            Self::Server(status) => status.clients.iter().fold((0, 0), |(r, s), client| {
                (r + client.bytes_received, s + client.bytes_sent)
            }),
        }
    }

    fn clients(&self) -> usize {
        match self {
            Self::Client(_) => 1,
            Self::Server(status) => status.clients.len(),
        }
    }
}

/// The management port with its sockets.
struct Port {
    machine: Management,
    door: Door,
    visitor: Option<Visitor>,
    /// The visitor, or where there is none the door: whoever comes while one is there waits outside.
    events: Poller,
    /// `management-signal`.
    signal_on_leave: bool,
    /// `management-forget-disconnect`.
    forget_on_leave: bool,
    /// `management-up-down`.
    up_down: bool,
    /// What comes of a visitor's leaving.
    wishes: Vec<Wish>,
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
}

/// How often a visitor who waits is looked at: only bytes that he could not take yet are served so.
const PATIENCE: Duration = Duration::from_millis(200);

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
        let title = concat!("OpenVPN 2.6 (millrace ", env!("CARGO_PKG_VERSION"), ")").to_owned();
        let port = match &service.management {
            None => None,
            Some(wanted) => {
                let password = match &wanted.password {
                    None => None,
                    Some(Prompted::Ask) => Some(secrets::ask("Management password: ", false)?),
                    Some(Prompted::From(source)) => {
                        let bytes = source.load(config.directory.as_deref())?;
                        let text = String::from_utf8_lossy(&bytes);
                        Some(text.lines().next().unwrap_or_default().to_owned().into())
                    }
                };
                let mut machine = Management::new(Settings {
                    password,
                    hold: wanted.hold,
                    server: config.server().is_some(),
                    // Clients are judged by scripts and files.
                    client_auth: false,
                    title: title.clone(),
                    pid: std::process::id(),
                    log_lines: wanted.log_cache,
                    verb: service.verb,
                    mute: service.mute,
                    auth_retry: config.client().map(|c| c.auth_retry).unwrap_or_default(),
                    format,
                });
                let (door, visitor) = Door::open(config, wanted)?;
                if visitor.is_some() {
                    machine.connected();
                    log::info!("MANAGEMENT: Connected to the management server");
                } else if door.was_called() {
                    return Err("the management server is not who it should be".into());
                } else {
                    log::info!("MANAGEMENT: socket listening");
                }
                for text in &service.echo {
                    machine.echoed(unix(SystemTime::now()), text);
                }
                let events = Poller::new()?;
                match (&visitor, door.fd()) {
                    (Some(visitor), _) => events.add(visitor, 0)?,
                    (None, Some(door)) => events.add(door, 0)?,
                    (None, None) => {}
                }
                Some(Port {
                    machine,
                    door,
                    visitor,
                    events,
                    signal_on_leave: wanted.signal,
                    forget_on_leave: wanted.forget_disconnect,
                    up_down: wanted.up_down,
                    wishes: Vec::new(),
                })
            }
        };
        Ok(Self {
            status,
            format,
            title,
            clock: Clock::system(),
            port,
            console,
        })
    }

    /// Readable when a visitor came, or said something; `None` where nobody can.
    pub(crate) fn events(&self) -> Option<BorrowedFd<'_>> {
        self.port.as_ref().map(|port| port.events.as_fd())
    }

    /// When something is to be done here, or at the time given.
    pub(crate) fn deadline(&self, other: Option<Instant>) -> Option<Instant> {
        let port = self.port.as_ref();
        let waits = port.is_some_and(|p| !p.machine.transmit().is_empty());
        [
            other,
            self.status.as_ref().map(PeriodicFile::next_deadline),
            port.and_then(|p| p.machine.next_deadline()),
            waits.then(|| Instant::now() + PATIENCE),
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
        let Some(port) = &mut self.port else {
            return Vec::new();
        };
        for (at, line) in self.console.take() {
            port.machine.logged(unix(at), line.flag, &line.text);
        }
        port.receive();
        let mut wishes = std::mem::take(&mut port.wishes);
        while let Some(action) = port.machine.next_action(now) {
            port.act(
                action,
                desk,
                self.console,
                &self.title,
                &self.clock,
                &mut wishes,
            );
        }
        if port.machine.bytes_due(now) {
            match desk.status() {
                Status::Client(status) => port.machine.bytes(status.link_read, status.link_write),
                Status::Server(status) => {
                    for client in &status.clients {
                        port.machine.client_bytes(
                            client.client_id,
                            client.bytes_received,
                            client.bytes_sent,
                        );
                    }
                }
            }
        }
        port.transmit();
        wishes.append(&mut port.wishes);
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
    pub(crate) fn state(
        &mut self,
        state: State,
        detail: &str,
        tunnel: Option<Ipv4Addr>,
        remote: Option<SocketAddr>,
    ) {
        if let Some(port) = &mut self.port {
            let mut entry = StateEntry::plain(unix(SystemTime::now()), state, detail);
            entry.tunnel = tunnel;
            entry.remote = remote;
            port.machine.state_changed(entry);
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

    /// The server refused what was answered.
    pub(crate) fn verification_failed(&mut self, kind: &str, reason: Option<&str>) {
        if let Some(port) = &mut self.port {
            port.machine.verification_failed(kind, reason);
            port.transmit();
        }
    }
}

impl Port {
    /// Lets a visitor in, and reads what he says.
    fn receive(&mut self) {
        if self.visitor.is_none()
            && let Some(visitor) = self.door.accept()
        {
            if let Err(error) = self.watch_visitor(&visitor) {
                log::warn!("MANAGEMENT: {error}");
            }
            self.machine.connected();
            self.visitor = Some(visitor);
            log::info!("MANAGEMENT: Client connected");
        }
        let mut buffer = [0; 4096];
        while let Some(visitor) = &mut self.visitor {
            match visitor.read(&mut buffer) {
                Ok(n) if n > 0 => self.machine.receive(&buffer[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                _ => self.leave(),
            }
        }
    }

    fn watch_visitor(&self, visitor: &Visitor) -> io::Result<()> {
        if let Some(door) = self.door.fd() {
            self.events.remove(door)?;
        }
        self.events.add(visitor, 0)
    }

    fn leave(&mut self) {
        // Closed, and so out of the set by itself.
        self.visitor = None;
        if let Some(door) = self.door.fd()
            && let Err(error) = self.events.add(door, 0)
        {
            log::warn!("MANAGEMENT: {error}");
        }
        self.machine.disconnected();
        log::info!("MANAGEMENT: Client disconnected");
        if self.forget_on_leave {
            self.wishes.push(Wish::Forget);
        }
        if self.signal_on_leave {
            log::info!("MANAGEMENT: Triggering management signal");
            self.wishes.push(Wish::Signal(Signal::Restart));
        }
        if self.door.was_called() {
            // Whoever started us has gone.
            log::info!("MANAGEMENT: Triggering management exit");
            self.wishes.push(Wish::Signal(Signal::Exit("SIGTERM")));
        }
    }

    fn transmit(&mut self) {
        while let Some(visitor) = &mut self.visitor
            && !self.machine.transmit().is_empty()
        {
            match visitor.write(self.machine.transmit()) {
                Ok(n) if n > 0 => self.machine.sent(n),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                _ => self.leave(),
            }
        }
        if self.machine.wants_close() {
            self.leave();
        }
    }

    fn act(
        &mut self,
        action: Action,
        desk: &mut dyn Desk,
        console: &Console,
        title: &str,
        clock: &Clock,
        wishes: &mut Vec<Wish>,
    ) {
        match action {
            Action::Signal(asked) => wishes.push(Wish::Signal(match asked {
                Asked::Hup => Signal::Reload,
                Asked::Usr1 => Signal::Restart,
                Asked::Usr2 => Signal::Status,
                Asked::Term => Signal::Exit("SIGTERM"),
                Asked::Int => Signal::Exit("SIGINT"),
            })),
            Action::Status(format) => {
                let text = desk.status().text(format, title, clock);
                self.machine.reply_status(&text);
            }
            Action::Kill(victim) => {
                let count = desk.kill(&victim);
                self.machine.reply_kill(count);
            }
            Action::ClientKill { client, .. } => {
                let done = desk.kill_client(client);
                self.machine.reply_done(done);
            }
            Action::LoadStats => {
                let status = desk.status();
                let (received, sent) = status.bytes();
                self.machine.reply_load(status.clients(), received, sent);
            }
            Action::ClientCount => self.machine.reply_client_count(desk.status().clients()),
            Action::Verb(verb) => console.set_verb(verb),
            Action::Mute(mute) => console.set_mute(mute),
            Action::Begin => wishes.push(Wish::Begin),
            Action::Answer(answer) => wishes.push(Wish::Answer(answer)),
            Action::ForgetPasswords => wishes.push(Wish::Forget),
            // Decisions about clients are made by scripts and files here.
            Action::Client { .. } | Action::ChallengeResponse(_) => self.machine.reply_done(false),
            Action::AuthRetry(how) => wishes.push(Wish::AuthRetry(how)),
        }
    }
}
