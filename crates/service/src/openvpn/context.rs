//! Context of every client and server: configuration, signals, monitoring, and the state that outlives a session.

use super::ReadAgain;
use super::RunOptions;
use super::device::Rungs;
#[cfg(feature = "server")]
use super::expiry::{earliest, expiring};
use super::kernel_plane::{self, Choice};
use super::monitoring::{Documented, Idle, Monitoring};
use super::statusdoc::Expiry;
use crate::watchdog::Watchdog;
use config::openvpn::{AuthRetry, OpenVpn, RemapUsr1, ScriptSecurity};
use config::settings::DataplaneSettings;
#[cfg(feature = "kernel")]
use config::settings::Kind;
use host::{SharedManager, background, notify, privileges};
use netio::netlink::{Event, Monitor, Watch};
use netio::poll::Poller;
use openvpn::tls::TlsSettings;
use openvpn_host::connect::{Attend, Stop};
use openvpn_host::console::{self, Console};
use openvpn_host::management::{Answer, Query, QueryKind};
use openvpn_host::monitored::ProcessRequest;
use openvpn_host::process;
use openvpn_host::secrets::SecretError;
use openvpn_host::signals::{Signal, Signals};
#[cfg(feature = "server")]
use std::cell::OnceCell;
use std::cell::{Cell, RefCell};
#[cfg(feature = "server")]
use std::fs;
use std::fs::File;
use std::io;
use std::path::Path;
use std::rc::Rc;
#[cfg(feature = "server")]
use std::time::SystemTime;
use std::time::{Duration, Instant};

/// How long a managed client may wait for the server at exit: its manager kills it after 5 seconds.
const FAREWELL: Duration = Duration::from_secs(2);

/// Log target that a terminal shows without `-v`.
const UP: &str = "commands::up";

/// The TUN device file.
const TUN: &str = "/dev/net/tun";

/// Context that a client or server runs in.
pub(super) struct Context {
    pub(super) config: OpenVpn,
    /// Reads the configuration again, as it was read at the start.
    pub(super) again: ReadAgain,
    /// Configurations that were read since the start.
    #[cfg(feature = "server")]
    pub(super) later: Later,
    /// The first configuration file, for scripts.
    pub(super) file: Option<String>,
    pub(super) dataplane: DataplaneSettings,
    /// Who moves the packets: the kernel's data plane, or this program's.
    pub(super) mover: Choice,
    /// The data plane of the settings file, if no other place of settings replaces it.
    #[cfg(feature = "kernel")]
    kind: Cell<Option<Kind>>,
    /// Self-test of the kernel's GSO and GRO on the TUN.
    pub(super) rungs: Rungs,
    pub(super) signals: Rc<Signals>,
    pub(super) news: RefCell<Monitor>,
    pub(super) monitoring: RefCell<Monitoring>,
    /// Poller for signals and management clients while nothing else runs.
    pub(super) idle: Poller,
    /// A management client asked to forget passwords.
    pub(super) forget: Cell<bool>,
    /// Reaction to a refused password.
    pub(super) auth_retry: Cell<AuthRetry>,
    /// Leaves the host's name servers unchanged.
    pub(super) no_dns: bool,
    /// The program that sets the interface's addresses, routes and name servers instead of this process.
    pub(super) manager: Option<SharedManager>,
    /// When a managed client exits at the latest, with or without an answer from the server.
    leave_by: Cell<Option<Instant>>,
    /// The parent process waits for the tunnel and does not know yet that it is up.
    pub(super) tell: Cell<bool>,
    /// The longest time that the parent waits.
    wait_at_most: Option<Duration>,
    wait_until: Cell<Option<Instant>>,
    /// `millrace up` runs the tunnel; it reports when the connection is lost and when it is back.
    pub(super) says: bool,
    /// OpenVPN's own command line runs the tunnel: exit statuses are the stock program's.
    pub(super) is_stock: bool,
    /// The connection is lost, and the user was told.
    pub(super) lost: Cell<bool>,
    watchdog: Cell<Watchdog>,
}

impl Context {
    #[allow(clippy::too_many_arguments, reason = "called once")]
    pub(super) fn new(
        config: OpenVpn,
        again: ReadAgain,
        file: Option<String>,
        dataplane: DataplaneSettings,
        rungs: Rungs,
        console: &'static Console,
        options: RunOptions,
        signals: Rc<Signals>,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let auth_retry = config.client().map(|client| client.auth_retry);
        let auth_retry = auth_retry.unwrap_or_default();
        let located = |error: Box<dyn std::error::Error>| config.located(&error.to_string());
        let monitoring = Monitoring::open(&config, console).map_err(located)?;
        let mut news = Monitor::open(Watch::ALL)?;
        if config.network.home.is_some()
            && let Err(error) = news.follow_table(host::MASQUERADE_TABLES)
        {
            log::debug!("cannot watch the packet filter for changes: {error}");
        }
        let idle = Poller::new()?;
        idle.add(&*signals, 0)?;
        idle.add(monitoring.events(), 1)?;
        #[cfg(feature = "kernel")]
        let kind = super::settings().ok().map(|it| it.dataplane.kind);
        Ok(Self {
            mover: Choice::of(&config, &dataplane),
            #[cfg(feature = "kernel")]
            kind: Cell::new(kind.filter(|it| *it == dataplane.kind && options.manager.is_none())),
            config,
            again,
            #[cfg(feature = "server")]
            later: Later::default(),
            file,
            dataplane,
            rungs,
            signals,
            news: RefCell::new(news),
            monitoring: RefCell::new(monitoring),
            idle,
            forget: Cell::new(false),
            auth_retry: Cell::new(auth_retry),
            no_dns: options.no_dns,
            is_stock: !options.wait && options.manager.is_none(),
            manager: options.manager,
            leave_by: Cell::new(None),
            tell: Cell::new(options.wait),
            wait_at_most: options.wait_at_most.filter(|_| background::is_child()),
            wait_until: Cell::new(None),
            says: options.wait,
            lost: Cell::new(false),
            watchdog: Cell::new(Watchdog::new(Instant::now())),
        })
    }

    /// Returns the UDP socket settings; the kernel's data plane gets no GSO, GRO or AQM.
    pub(super) fn udp_settings(&self) -> DataplaneSettings {
        match self.mover.kernel() {
            true => kernel_plane::udp_settings(self.dataplane.clone()),
            false => self.dataplane.clone(),
        }
    }

    /// Whether to act on a signal: a manager decides whether a reload is needed.
    pub(super) fn minds(&self, signal: Signal) -> bool {
        if let Signal::Exit(_) = signal {
            notify::stopping();
        }
        match (&self.manager, signal) {
            (Some(manager), Signal::Reload) => manager.wants_reload(),
            (Some(_), Signal::Exit(_)) if self.leave_by.get().is_none() => {
                self.leave_by.set(Some(Instant::now() + FAREWELL));
                true
            }
            _ => true,
        }
    }

    /// Returns a second exit signal once the wait for the server's answer is over.
    pub(super) fn leaves_now(&self) -> Option<Signal> {
        let due = self.leave_by.get().filter(|by| *by <= Instant::now());
        due.map(|_| {
            self.leave_by.set(None);
            Signal::Exit("SIGTERM")
        })
    }

    /// Whether a client acts on a signal. It restarts only with a configuration that passes the rehearsal. If only the
    /// settings' data plane has changed, a tunnel that can be moved goes on and moves.
    pub(super) fn obeys(&self, signal: Signal) -> bool {
        // Another program has judged the configuration, and runs it.
        #[cfg(feature = "handover")]
        if self.manager.as_ref().is_some_and(|it| it.is_succeeded()) {
            return true;
        }
        let begins_anew = match signal {
            Signal::Reload => true,
            Signal::Restart => self.config.service.remap_usr1 == Some(RemapUsr1::Hup),
            Signal::Exit(_) | Signal::Status => false,
        };
        let judged = match begins_anew {
            true => self
                .can_begin_anew()
                .and_then(|()| self.read_again())
                .and_then(|read| {
                    super::rehearse(&read, &self.dataplane)?;
                    #[cfg(feature = "kernel")]
                    return Ok(!self.moves(&read));
                    #[cfg(not(feature = "kernel"))]
                    Ok(true)
                }),
            false => Ok(true),
        };
        if let Err(error) = &judged {
            log::error!("SIGHUP received, but the tunnel keeps its old configuration: {error}");
        }
        judged == Ok(true)
    }

    /// Moves the tunnel to another data plane, if nothing else has changed since the start. Returns whether it moves.
    #[cfg(feature = "kernel")]
    fn moves(&self, read: &OpenVpn) -> bool {
        let Ok(now) = super::settings() else {
            return false;
        };
        let kind = now.dataplane.kind;
        let alone = DataplaneSettings {
            kind: self.dataplane.kind,
            ..now.dataplane
        };
        let changed = self.kind.get().is_some_and(|it| it != kind);
        let moves = changed
            && alone == self.dataplane
            && *read == self.config
            && (self.mover)
                .wish_for(Some(kind), "the settings have changed")
                .is_ok();
        if moves {
            self.kind.set(Some(kind));
            log::info!("SIGHUP received: only dataplane.kind has changed, so the tunnel goes on");
        }
        moves
    }

    /// Fails if the process could not open the TUN device again, as another user may not.
    pub(super) fn can_begin_anew(&self) -> Result<(), String> {
        let Some(user) = self.config.service.user.as_deref() else {
            return Ok(());
        };
        let device = File::options().read(true).write(true).open(TUN);
        device.map(drop).map_err(|error| {
            format!("user {user} cannot open {TUN} again ({error}); restart the tunnel instead")
        })
    }

    /// Reads the current configuration.
    pub(super) fn read_again(&self) -> Result<OpenVpn, String> {
        let read = (self.again)()?;
        match kernel_plane::is_wanted(&self.dataplane) {
            true => kernel_plane::checked(read),
            false => Ok(read),
        }
    }

    /// Returns when certificates and lists end.
    #[cfg(feature = "server")]
    pub(super) fn expiry(&self, tls: &TlsSettings) -> Expiry {
        let file = self.file.as_ref().map(|file| {
            // The user may run the remedy in another directory.
            let whole = fs::canonicalize(file).unwrap_or_else(|_| file.into());
            whole.display().to_string()
        });
        let (server, now) = (self.config.server().is_some(), SystemTime::now());
        let ends = tls.ends();
        let expiring = expiring(&ends, server, file.as_deref(), now).into_iter();
        Expiry {
            earliest_unix: earliest(&ends, now),
            warnings: expiring
                .map(|it| format!("{}: {}", it.what, it.remedy))
                .collect(),
        }
    }

    #[cfg(not(feature = "server"))]
    pub(super) fn expiry(&self, _: &TlsSettings) -> Expiry {
        Expiry::default()
    }

    /// Keeps a configuration that was read again, or returns an equal one that is kept already.
    #[cfg(feature = "server")]
    pub(super) fn keep(&self, config: OpenVpn) -> &OpenVpn {
        match self.config == config {
            true => &self.config,
            false => self.later.keep(config),
        }
    }

    /// Logs why the process cannot continue, and tells its manager.
    pub(super) fn fatal(&self, error: &dyn std::error::Error) {
        let why = self.config.located(&error.to_string());
        log::error!(target: console::FATAL, "{why}");
        if let Some(manager) = &self.manager {
            manager.failed(&why);
        }
        log::info!("Exiting due to fatal error");
    }

    /// Registers network changes and management clients with a poller.
    pub(super) fn watch(&self, poller: &Poller, news: u64, clients: u64) -> io::Result<()> {
        poller.add(&*self.news.borrow(), news)?;
        poller.add(self.monitoring.borrow().events(), clients)
    }

    /// Starts the time limit of the parent's wait for the tunnel.
    pub(super) fn begin_waiting(&self) {
        let now = Instant::now();
        self.wait_until.set(self.wait_at_most.map(|it| now + it));
    }

    /// Goes into the background once the parent has waited for the limit.
    fn stop_waiting(&self) {
        let due = self.wait_until.get().filter(|at| *at <= Instant::now());
        if let (Some(_), Some(limit)) = (due, self.wait_at_most) {
            self.wait_until.set(None);
            if self.tell.get() {
                let name = self.file.as_deref().map(Path::new);
                let name = name.and_then(Path::file_stem).unwrap_or_default();
                let name = name.to_string_lossy();
                let note = background::still_trying(&name, limit, background::OUTSIDE);
                host::terminal::note(note);
                process::stop_waiting();
            }
        }
    }

    /// Informs the user who started the tunnel, on the terminal and through the service manager.
    pub(super) fn say(&self, level: log::Level, text: &str) {
        if level == log::Level::Warn {
            self.waits(text);
        }
        if self.says {
            log::log!(target: UP, level, "{text}");
        }
    }

    /// Runs on each turn of the control loop; `workers` checks the data plane's workers for the watchdog.
    pub(super) fn pulse(&self, workers: impl FnOnce() -> bool) {
        self.stop_waiting();
        let mut watchdog = self.watchdog.get();
        watchdog.turn(Instant::now(), workers);
        self.watchdog.set(watchdog);
    }

    /// Reports that the tunnel is not up yet and why; the service manager then starts dependent services anyway.
    pub(super) fn waits(&self, why: &str) {
        notify::ready(&format!("not up: {why}"));
    }

    /// Signals the waiting parent, once, that the tunnel is up.
    pub(super) fn is_up(&self) {
        notify::ready("up");
        self.wait_until.set(None);
        if self.tell.take() {
            if !background::is_child() {
                host::terminal::is_up("the tunnel");
            }
            process::into_background();
            background::start_is_over();
        }
        if self.lost.take() {
            log::info!(target: UP, "the tunnel is up again");
        }
    }

    /// Reports a lost connection that will be made again.
    pub(super) fn is_lost(&self) {
        // The notice is also sent before the first connection: a server may close every attempt.
        self.waits("the connection is lost; reconnecting");
        // Logged only after the tunnel was up once.
        if self.says && !self.tell.get() && !self.lost.replace(true) {
            log::info!(target: UP, "the connection is lost; reconnecting");
        }
    }

    /// Drops surplus privileges (`user`, `group`).
    pub(super) fn drop_privileges(&self) -> Result<(), privileges::UserError> {
        let service = &self.config.service;
        if service.user.is_some() || service.group.is_some() {
            // The new user rewrites these files.
            let status = service.status.as_ref().map(|status| &status.path);
            let server = self.config.server();
            let leases = server.and_then(|server| server.pool_persist.as_ref());
            for path in status.into_iter().chain(leases.map(|leases| &leases.path)) {
                let path = self.config.path(path);
                let (user, group) = (service.user.as_deref(), service.group.as_deref());
                privileges::give_away(&path, user, group)?;
            }
            privileges::become_user(service.user.as_deref(), service.group.as_deref())?;
            log::info!(
                "UID set to {}, GID set to {}; capabilities retained: CAP_NET_ADMIN and two more",
                service.user.as_deref().unwrap_or("(same)"),
                service.group.as_deref().unwrap_or("(same)")
            );
        }
        // A client that sets name servers, or runs scripts, needs its privileges. A managed client stays root to read
        // its manager's files again, but with fewer capabilities.
        let managed = self.manager.is_some();
        let fewer = managed || (self.config.server().is_some() && !self.runs_programs());
        if service.user.is_none() && fewer {
            privileges::drop_privileges();
        }
        privileges::confine_other_threads();
        Ok(())
    }

    /// Whether scripts of the configuration may be run.
    pub(super) fn runs_programs(&self) -> bool {
        self.config.scripts.security >= ScriptSecurity::Scripts
    }

    /// Whether routes or links changed since the last call.
    pub(super) fn network_changed(&self) -> bool {
        let mut news = self.news.borrow_mut();
        let mut changed = false;
        // Address changes count too with several uplinks: an uplink without an address is down.
        let several = !self.config.lines.lines.is_empty();
        loop {
            match news.next() {
                Ok(Some(event)) => changed |= several || !matches!(event, Event::AddressChanged),
                Ok(None) => return changed,
                Err(error) => {
                    log::warn!("{error}");
                    return changed;
                }
            }
        }
    }

    pub(super) fn deadline(&self, other: Option<Instant>) -> Option<Instant> {
        let deadline = self.monitoring.borrow().deadline(other);
        let others = [
            self.leave_by.get(),
            self.watchdog.get().due(),
            self.wait_until.get(),
        ];
        deadline
            .into_iter()
            .chain(others.into_iter().flatten())
            .min()
    }

    /// Serves management clients and status readers, whose signals count as real ones.
    pub(super) fn serve(&self, monitored: &mut dyn Documented) {
        let requests = self.monitoring.borrow_mut().serve(monitored);
        for request in requests {
            self.note(&request);
        }
    }

    /// Records a management client's request that is valid at any time.
    pub(super) fn note(&self, request: &ProcessRequest) {
        match *request {
            ProcessRequest::Signal(signal) => self.signals.raise(signal),
            ProcessRequest::Forget => self.forget.set(true),
            ProcessRequest::AuthRetry(how) => self.auth_retry.set(how),
            ProcessRequest::Verb(verb) => self.monitoring.borrow().console.set_verb(verb),
            ProcessRequest::Mute(mute) => self.monitoring.borrow().console.set_mute(mute),
            // Only `wait_for` handles these.
            ProcessRequest::Begin | ProcessRequest::Answer(_) => {}
        }
    }

    /// Returns a stop condition for waits: a signal ends them, and management clients are served meanwhile.
    pub(super) fn stop(&self) -> Stop<'_> {
        Stop::serving(&self.idle, self)
    }

    /// Asks a question on the management port; `None` without `management-query-passwords`.
    pub(super) fn ask(
        &self,
        kind: &str,
        question: QueryKind,
    ) -> Option<Result<Answer, SecretError>> {
        let port = self.config.service.management.as_ref();
        port.filter(|port| port.query_passwords)?;
        let query = Query {
            kind: kind.to_owned(),
            question,
        };
        if !self.monitoring.borrow_mut().ask(query) {
            return None;
        }
        Some(self.wait_for_answer().ok_or(SecretError::Interrupted))
    }

    /// Waits for the answer to a question on the management port; `None` if a signal came first.
    pub(super) fn wait_for_answer(&self) -> Option<Answer> {
        self.waits("waiting for an answer from the management client");
        self.wait_for(|request| match request {
            ProcessRequest::Answer(answer) => Ok(answer),
            other => Err(other),
        })
    }

    /// Waits for a management client's release if `management-hold` is set.
    pub(super) fn hold(&self) {
        if self.monitoring.borrow_mut().hold() {
            log::info!("Need hold release from management interface, waiting...");
            self.waits("waiting for a management client to connect");
            self.wait_for(|request| match request {
                ProcessRequest::Begin => Ok(()),
                other => Err(other),
            });
        }
    }

    /// Serves only the management client until it sends the awaited request. Returns `None` on a signal, which stays to
    /// be taken.
    pub(super) fn wait_for<T>(
        &self,
        wanted: impl Fn(ProcessRequest) -> Result<T, ProcessRequest>,
    ) -> Option<T> {
        loop {
            if self.signals.is_raised() {
                return None;
            }
            let requests = self.monitoring.borrow_mut().serve(&mut Idle);
            let mut found = None;
            for request in requests {
                // Requests behind the awaited one count, too.
                match found {
                    Some(_) => self.note(&request),
                    None => match wanted(request) {
                        Ok(it) => found = Some(it),
                        Err(other) => self.note(&other),
                    },
                }
            }
            if found.is_some() {
                return found;
            }
            let now = Instant::now();
            let timeout = self
                .deadline(None)
                .map(|at| at.saturating_duration_since(now));
            if !self.signals.is_raised() {
                self.idle.wait(timeout).ok()?;
            }
            self.pulse(|| true);
        }
    }
}

/// Configurations that a server has read since its start. Each lives as long as the server: work for a client refers to
/// the configuration with which it began.
#[cfg(feature = "server")]
#[derive(Default)]
pub(super) struct Later(OnceCell<Box<(OpenVpn, Self)>>);

#[cfg(feature = "server")]
impl Later {
    /// Keeps one more configuration, or returns an equal one.
    pub(super) fn keep(&self, config: OpenVpn) -> &OpenVpn {
        let mut last = self;
        while let Some(next) = last.0.get() {
            if next.0 == config {
                return &next.0;
            }
            last = &next.1;
        }
        &last.0.get_or_init(|| Box::new((config, Self::default()))).0
    }
}

impl Attend for Context {
    fn attend(&self) -> bool {
        self.serve(&mut Idle);
        !self.signals.is_raised()
    }
}
