//! OpenVPN: what stands between the protocol crate, the data plane and the system.
//!
//! A [`client`] or a [`server`] is one loop on one thread: it takes control packets that workers
//! left in the [`plane`]'s inbox, feeds them to the sessions of the protocol crate, and does what
//! these ask for. Scripts and password checks run elsewhere and report back.
//!
//! Without the feature `server` there are clients alone. What serves both ends is not told apart any
//! further: the linker leaves out what nobody calls.

#![cfg_attr(
    not(feature = "server"),
    allow(
        dead_code,
        unused_imports,
        reason = "a server uses it; builds with one check that"
    )
)]

mod actions;
mod client;
mod conduit;
mod connect;
mod console;
mod device;
mod door;
mod hooks;
mod idle;
mod later;
mod network;
mod office;
mod plane;
mod policy;
mod port;
mod process;
mod release;
mod revocation;
mod secrets;
#[cfg(feature = "server")]
mod server;
mod setup;
mod signals;
mod sizes;
mod status_socket;
mod statusdoc;
mod terms;

use crate::commands::daemonize;
use crate::network as network_plan;
use crate::output;
use crate::privileges;
use crate::written_file::PidFile;
use config::openvpn::{self, AuthRetry, OpenVpn, ScriptSecurity};
use config::settings::{DataplaneSettings, ENVIRONMENT, Settings};
use connect::{Attend, Stop};
use console::Console;
use crypto::select::Algorithm;
use device::Rungs;
use idle::Idle;
use later::Later;
use netio::netlink::{Event, Monitor, Watch};
use netio::poll::Poller;
use office::{Desk, Office, Wish};
use policy::management::{Answer, Query, QueryKind};
use secrets::SecretError;
use signals::Signals;
use std::cell::{Cell, RefCell};
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Instant;

/// Whose log lines are shown at a terminal without `-v`.
const UP: &str = "millrace::commands::up";

/// Whoever calls us by OpenVPN's own name means what the file says.
const OWN_NAME: openvpn::Options = openvpn::Options {
    allow_insecure_ciphers: false,
    allow_scripts: true,
    allow_files: true,
};

/// Faults of a configuration that are printed.
const FAULTS: usize = 20;

/// How a client or server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// The process is to leave with this status.
    Exit(u8),
    /// The configuration is to be read again.
    Reload,
}

/// How `millrace up` runs a tunnel.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Manner {
    /// The host's name servers are left alone.
    pub(crate) no_dns: bool,
    /// Whoever started it hears when the tunnel is up, and goes on only then.
    pub(crate) wait: bool,
}

/// Reads a configuration, or says why that is not possible.
pub(crate) type ReadAgain = Box<dyn Fn() -> Result<OpenVpn, String>>;

/// What a client or server is run with.
struct Context {
    config: OpenVpn,
    /// Reads the configuration again, as it was read at the start.
    again: ReadAgain,
    /// What was read since.
    later: Later,
    /// The first configuration file, for scripts.
    file: Option<String>,
    dataplane: DataplaneSettings,
    /// What the kernel's super-packets are good for.
    rungs: Rungs,
    signals: Rc<Signals>,
    news: RefCell<Monitor>,
    office: RefCell<Office>,
    /// Signals and visitors, for when nothing else goes on.
    idle: Poller,
    /// A visitor wants passwords to be forgotten.
    forget: Cell<bool>,
    /// What is done after a refused password.
    auth_retry: Cell<AuthRetry>,
    /// The host's name servers are left alone.
    no_dns: bool,
    /// Nobody was told yet that the tunnel is up, and somebody wants to be.
    tell: Cell<bool>,
    /// It is `millrace up` that runs it, and says when the connection is gone and when it is back.
    says: bool,
    /// The connection is gone, and that was said.
    lost: Cell<bool>,
}

/// `openvpn ARGUMENTS`: a tunnel until somebody says stop, or one of the things that need none.
pub(crate) fn main(arguments: &[String]) -> ExitCode {
    let (mut directory_changed, mut signals) = (false, None);
    loop {
        match once(arguments, &mut directory_changed, &mut signals) {
            Ended::Exit(status) => return ExitCode::from(status),
            Ended::Reload => {}
        }
    }
}

/// A configuration that was read already, as `millrace up` does; `again` reads it once more. `None` when all is to begin
/// anew with it, which SIGHUP means to a client, and to a server whose sessions cannot go on.
pub(crate) fn run(
    config: OpenVpn,
    again: ReadAgain,
    file: Option<String>,
    dataplane: DataplaneSettings,
    manner: Manner,
    signals: &mut Caught,
) -> Option<ExitCode> {
    match with_config(config, again, file, dataplane, manner, &mut signals.0) {
        Ended::Exit(status) => Some(ExitCode::from(status)),
        Ended::Reload => None,
    }
}

/// The signals of a process that may read its configuration several times.
#[derive(Default)]
pub(crate) struct Caught(Option<Rc<Signals>>);

fn once(
    arguments: &[String],
    directory_changed: &mut bool,
    signals: &mut Option<Rc<Signals>>,
) -> Ended {
    let mut read = |path: &Path| openvpn::read_config(path);
    let mut import = match openvpn::parse_arguments(arguments, &mut read, OWN_NAME) {
        Ok(import) => import,
        Err(error) => return refuse(&error.to_string()),
    };
    if let Some(action) = &import.action {
        return Ended::Exit(actions::run(action, arguments));
    }
    import.check_secrecy();
    for warning in &import.warnings {
        say(&format!("WARNING: {warning}"));
    }
    import.check_files();
    if !import.faults().is_empty() {
        return refuse_all(import.faults());
    }
    let (config, _) = match import.into_model() {
        Ok(model) => model,
        Err(error) => return refuse(&error.to_string()),
    };
    if let Some(directory) = &config.directory
        && !*directory_changed
    {
        if let Err(error) = std::env::set_current_dir(directory) {
            return refuse(&format!("cd {}: {error}", directory.display()));
        }
        *directory_changed = true;
    }
    if config.service.daemon && !daemonize::is_child() {
        let status = daemonize::spawn();
        return Ended::Exit(u8::from(status != ExitCode::SUCCESS));
    }
    let file = first_file(arguments);
    let environment = std::env::var(ENVIRONMENT).ok();
    match Settings::load(None, environment.as_deref(), &[]) {
        Ok(settings) => {
            let manner = Manner::default();
            let arguments = arguments.to_vec();
            let again: ReadAgain = Box::new(move || read_again(&arguments));
            with_config(config, again, file, settings.dataplane, manner, signals)
        }
        Err(error) => refuse(&error.to_string()),
    }
}

/// Why this build cannot do what a configuration that is right wants.
pub(crate) fn lacking(config: &OpenVpn) -> Option<&'static str> {
    let server = config.server().is_some() && !cfg!(feature = "server");
    server.then_some(
        "server: this build of Millrace is for clients alone; install the one with everything",
    )
}

fn refuse(why: &str) -> Ended {
    refuse_all(&[why.to_owned()])
}

fn refuse_all(faults: &[String]) -> Ended {
    for fault in faults.iter().take(FAULTS) {
        say(&format!("Options error: {fault}"));
    }
    if faults.len() > FAULTS {
        say(&format!("and {} more", faults.len() - FAULTS));
    }
    say("Use --help for more information.");
    Ended::Exit(1)
}

/// Prints a line where nobody may be reading any more.
fn say(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

fn first_file(arguments: &[String]) -> Option<String> {
    match arguments {
        [file] if !file.starts_with("--") => Some(file.clone()),
        _ => {
            let at = arguments.iter().position(|word| word == "--config")?;
            arguments.get(at + 1).cloned()
        }
    }
}

/// The configuration of a command line as it is now.
fn read_again(arguments: &[String]) -> Result<OpenVpn, String> {
    let mut read = |path: &Path| openvpn::read_config(path);
    let import = openvpn::parse_arguments(arguments, &mut read, OWN_NAME);
    let import = import.map_err(|error| error.to_string())?;
    if let Some(fault) = import.faults().first() {
        return Err(fault.clone());
    }
    let (config, _) = import.into_model().map_err(|error| error.to_string())?;
    Ok(config)
}

fn with_config(
    config: OpenVpn,
    again: ReadAgain,
    file: Option<String>,
    dataplane: DataplaneSettings,
    manner: Manner,
    signals: &mut Option<Rc<Signals>>,
) -> Ended {
    if let Some(why) = lacking(&config) {
        return refuse(&config.located(why));
    }
    let service = &config.service;
    if let Err(error) = privileges::look_up(service.user.as_deref(), service.group.as_deref()) {
        return refuse(&config.located(&error.to_string()));
    }
    let log = config
        .service
        .log
        .as_ref()
        .map(|log| config.path(&log.path));
    let console = match Console::install(&config.service, log.as_deref()) {
        Ok(console) => console,
        Err(error) => {
            let path = log.unwrap_or_default();
            return refuse(&format!("log {}: {error}", path.display()));
        }
    };
    log::info!("{}", release::title());
    let rungs = Rungs::test(&config.device, &dataplane);
    crate::backends::choose_beside(dataplane.crypto_backend, algorithms(&config));
    let caught = match signals {
        Some(signals) => Ok(Rc::clone(signals)),
        None => Signals::catch().inspect(|caught| *signals = Some(Rc::clone(caught))),
    };
    let context = caught.map_err(Into::into).and_then(|signals| {
        Context::new(
            config, again, file, dataplane, rungs, console, manner, signals,
        )
    });
    let context = match context {
        Ok(context) => context,
        Err(error) => {
            log::error!("{error}");
            return Ended::Exit(1);
        }
    };
    let pid_file = context.config.service.pid_file.as_ref();
    let pid_file = pid_file.map(|path| context.config.path(path));
    let pid_file = match pid_file.as_deref().map(PidFile::write).transpose() {
        Ok(pid_file) => pid_file,
        Err(error) => {
            let path = pid_file.unwrap_or_default();
            log::error!("writepid {}: {error}", path.display());
            return Ended::Exit(1);
        }
    };
    if !manner.wait {
        process::into_background();
    }
    process::settle(&context.config.service);
    for text in &context.config.service.echo {
        log::info!("ECHO:{text}");
    }
    match network_plan::recover_all() {
        Ok(names) => {
            for name in names {
                log::info!("{name}: undid what an earlier run left behind");
            }
        }
        Err(error) => log::warn!("{error}"),
    }
    context.hold();
    let ended = match context.config.server() {
        #[cfg(feature = "server")]
        Some(_) => server::run(&context),
        _ => client::run(&context),
    };
    drop(pid_file);
    ended
}

/// What data packets may be sealed with, the likely first: which it will be, the other end has a say in.
fn algorithms(config: &OpenVpn) -> Vec<Algorithm> {
    let data = &config.data;
    let chained = data
        .ciphers
        .iter()
        .chain(&data.fallback)
        .any(|cipher| !cipher.is_aead());
    let wanted = |algorithm: &Algorithm| {
        chained || matches!(algorithm, Algorithm::AesGcm | Algorithm::ChaCha20Poly1305)
    };
    Algorithm::ALL.into_iter().filter(wanted).collect()
}

impl Context {
    #[allow(clippy::too_many_arguments, reason = "called once")]
    fn new(
        config: OpenVpn,
        again: ReadAgain,
        file: Option<String>,
        dataplane: DataplaneSettings,
        rungs: Rungs,
        console: &'static Console,
        manner: Manner,
        signals: Rc<Signals>,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let auth_retry = config.client().map(|client| client.auth_retry);
        let auth_retry = auth_retry.unwrap_or_default();
        let located = |error: Box<dyn std::error::Error>| config.located(&error.to_string());
        let office = Office::open(&config, console).map_err(located)?;
        let idle = Poller::new()?;
        idle.add(&*signals, 0)?;
        idle.add(office.events(), 1)?;
        Ok(Self {
            config,
            again,
            later: Later::default(),
            file,
            dataplane,
            rungs,
            signals,
            news: RefCell::new(Monitor::open(Watch::ALL)?),
            office: RefCell::new(office),
            idle,
            forget: Cell::new(false),
            auth_retry: Cell::new(auth_retry),
            no_dns: manner.no_dns,
            tell: Cell::new(manner.wait),
            says: manner.wait,
            lost: Cell::new(false),
        })
    }

    /// The configuration as it is now.
    fn read_again(&self) -> Result<OpenVpn, String> {
        (self.again)()
    }

    /// Keeps a configuration that was read again.
    fn keep(&self, config: OpenVpn) -> &OpenVpn {
        self.later.keep(config)
    }

    /// Says why the process cannot go on.
    fn fatal(&self, error: &dyn std::error::Error) {
        log::error!(target: console::FATAL, "{}", self.config.located(&error.to_string()));
        log::info!("Exiting due to fatal error");
    }

    /// Has a poller wake for changes of the network and for visitors.
    fn watch(&self, poller: &Poller, news: u64, visitors: u64) -> io::Result<()> {
        poller.add(&*self.news.borrow(), news)?;
        poller.add(self.office.borrow().events(), visitors)
    }

    /// The tunnel is up: whoever waits for that is told, once.
    fn is_up(&self) {
        if self.tell.take() {
            if !daemonize::is_child() {
                output::note("the tunnel is up; Ctrl-C takes it down");
            }
            process::into_background();
        }
        if self.lost.take() {
            log::info!(target: UP, "the tunnel is up again");
        }
    }

    /// A connection has ended that is to be made again.
    fn is_lost(&self) {
        // Not before it was up for the first time.
        if self.says && !self.tell.get() && !self.lost.replace(true) {
            log::info!(target: UP, "the connection is lost; connecting again");
        }
    }

    /// Gives up what is not needed any more: `user`, `group`.
    fn drop_privileges(&self) -> Result<(), privileges::UserError> {
        let service = &self.config.service;
        if service.user.is_some() || service.group.is_some() {
            // Written over again and again, from now on by the other user.
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
        // A client sets name servers and reads its keys again, which another user could not.
        if service.user.is_none() && self.config.server().is_some() && !self.runs_programs() {
            privileges::drop_privileges();
        }
        privileges::confine_other_threads();
        Ok(())
    }

    /// Whether scripts of the configuration may be run.
    fn runs_programs(&self) -> bool {
        self.config.scripts.security >= ScriptSecurity::Scripts
    }

    /// Whether routes or links changed since the last call.
    fn network_changed(&self) -> bool {
        let mut news = self.news.borrow_mut();
        let mut changed = false;
        loop {
            match news.next() {
                Ok(Some(event)) => changed |= !matches!(event, Event::AddressChanged),
                Ok(None) => return changed,
                Err(error) => {
                    log::warn!("{error}");
                    return changed;
                }
            }
        }
    }

    fn deadline(&self, other: Option<Instant>) -> Option<Instant> {
        self.office.borrow().deadline(other)
    }

    /// Serves whoever asks. Signals that come this way are as good as real ones.
    fn serve(&self, desk: &mut dyn Desk) {
        let wishes = self.office.borrow_mut().serve(desk);
        for wish in wishes {
            self.note(&wish);
        }
    }

    /// Takes note of what a visitor wants at any time.
    fn note(&self, wish: &Wish) {
        match *wish {
            Wish::Signal(signal) => self.signals.raise(signal),
            Wish::Forget => self.forget.set(true),
            Wish::AuthRetry(how) => self.auth_retry.set(how),
            // Nobody waits for them.
            Wish::Begin | Wish::Answer(_) => {}
        }
    }

    /// What breaks off every waiting: signals. Visitors are served meanwhile.
    fn stop(&self) -> Stop<'_> {
        Stop::serving(&self.idle, self)
    }

    /// Asks on the management port; `None` where `management-query-passwords` does not say so.
    fn ask(&self, kind: &str, question: QueryKind) -> Option<Result<Answer, SecretError>> {
        let port = self.config.service.management.as_ref();
        port.filter(|port| port.query_passwords)?;
        let query = Query {
            kind: kind.to_owned(),
            question,
        };
        if !self.office.borrow_mut().ask(query) {
            return None;
        }
        Some(self.wait_for_answer().ok_or(SecretError::Interrupted))
    }

    /// The answer to what was asked on the management port; `None` if a signal came first.
    fn wait_for_answer(&self) -> Option<Answer> {
        self.wait_for(|wish| match wish {
            Wish::Answer(answer) => Ok(answer),
            other => Err(other),
        })
    }

    /// Waits for the management port where `management-hold` says so.
    fn hold(&self) {
        if self.office.borrow_mut().hold() {
            log::info!("Need hold release from management interface, waiting...");
            self.wait_for(|wish| match wish {
                Wish::Begin => Ok(()),
                other => Err(other),
            });
        }
    }

    /// Serves nobody but the visitor until he says what is waited for, or a signal comes (`None`;
    /// the signal stays to be taken).
    fn wait_for<T>(&self, wanted: impl Fn(Wish) -> Result<T, Wish>) -> Option<T> {
        loop {
            if self.signals.is_raised() {
                return None;
            }
            let wishes = self.office.borrow_mut().serve(&mut Idle);
            for wish in wishes {
                match wanted(wish) {
                    Ok(found) => return Some(found),
                    Err(other) => self.note(&other),
                }
            }
            let now = Instant::now();
            let timeout = self
                .deadline(None)
                .map(|at| at.saturating_duration_since(now));
            if !self.signals.is_raised() {
                self.idle.wait(timeout).ok()?;
            }
        }
    }
}

impl Attend for Context {
    fn attend(&self) -> bool {
        self.serve(&mut Idle);
        !self.signals.is_raised()
    }
}
