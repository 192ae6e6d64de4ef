//! OpenVPN clients and servers: they connect the protocol crate with the data plane and the host.
//!
//! A [`client`] or a [`server`] is one loop on one thread. It takes the control packets that workers left in the
//! [`plane`]'s inbox, feeds them to the protocol crate's sessions and performs their outputs. Scripts and password
//! checks run on other threads and report back.
//!
//! Without the feature `server` only clients are compiled.

/// Certificate authority and `tls-crypt-v2` keys, for commands that admit and revoke clients.
#[cfg(feature = "server")]
pub mod authority {
    pub use ::openvpn::authority::{Authority, AuthorityError, Issued, Purpose};
    pub use ::openvpn::expiry::{End, Ending, read as ends};
    pub use ::openvpn::identity::IdentityError;
    pub use ::openvpn::keyfile::KeyFileError;
    pub use ::openvpn::keyfile::v2::{ClientKey, Metadata, ServerKey};
    pub use ::openvpn::renewal::{RenewalError, Renewed, Renewer};
}

mod actions;
mod channel;
mod client;
#[cfg(feature = "kernel")]
pub(crate) mod compared;
mod context;
mod device;
#[cfg(feature = "server")]
pub mod expiry;
mod kernel_plane;
mod monitoring;
mod ready;
#[cfg(test)]
mod seeded;
#[cfg(feature = "server")]
mod server;
pub(crate) mod status_socket;
mod statusdoc;

use crate::inbox::InboxLimits;
use crate::running::Claim;
use config::lines::SharedLines;
use config::openvpn::{self, OpenVpn};
use config::permissions::Permissions;
use config::settings::{DataplaneSettings, ENVIRONMENT, Settings};
use context::Context;
use crypto::Cipher;
use crypto::select::Algorithm;
use device::Rungs;
use host::SharedManager;
use host::background;
use host::written_file::PidFile;
use openvpn_host::console::Console;
use openvpn_host::signals::Signals;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

#[cfg(feature = "kernel")]
pub use compared::{Compared, MEASURED, Speed};
pub use ready::{rehearse, rehearse_alone};

/// Limits of the control thread's inbox: a thousand clients that connect at once send a few control packets each.
#[doc(hidden)]
pub const INBOX: InboxLimits = InboxLimits {
    datagrams: 4096,
    longest: 2048,
    message_head: 0,
    active: false,
};

/// Options for a caller that uses OpenVPN's own name: settings are as the file gives them.
const OWN_NAME: openvpn::Options = openvpn::Options {
    allow_insecure_ciphers: false,
    permissions: Permissions::ALL,
};

/// Asks for a secret on the terminal without echoing the input.
///
/// # Errors
/// There is no terminal.
pub fn ask_at_terminal(prompt: &str) -> io::Result<zeroize::Zeroizing<String>> {
    openvpn_host::secrets::ask(prompt, false)
}

/// Maximum number of configuration faults that are printed.
const FAULTS: usize = 20;

/// How a client or server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// The process exits with this status.
    Exit(u8),
    /// The configuration is read again.
    Reload,
}

/// Options for running a tunnel.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// Leaves the host's name servers unchanged.
    pub no_dns: bool,
    /// The parent process waits until the tunnel is up.
    pub wait: bool,
    /// The longest time that the parent waits; `None` for no limit.
    pub wait_at_most: Option<Duration>,
    /// The program that sets the interface's addresses, routes and name servers instead of this process.
    pub manager: Option<SharedManager>,
}

/// Reads the configuration again, or returns the reason for the failure.
pub type ReadAgain = Box<dyn Fn() -> Result<OpenVpn, String>>;

/// Runs `openvpn ARGUMENTS`: a tunnel until the user stops it, or an action without a tunnel.
pub fn main(arguments: &[String]) -> ExitCode {
    let (mut directory_changed, mut signals, mut last) = (false, None, None);
    // Resolved before `--cd` changes the directory.
    let directory = arguments.iter().position(|word| word == "--cd");
    let directory = directory.and_then(|at| arguments.get(at + 1));
    let file = first_file(arguments).and_then(|file| {
        let directory = Path::new(directory.map_or("", |it| it));
        fs::canonicalize(directory.join(file)).ok()
    });
    let mut claimed = None;
    loop {
        // A restart in place keeps the claim: the process may have lost the privilege to make it again.
        let claim = || {
            if claimed.is_none() {
                claimed = file.as_deref().and_then(|file| Claim::new(file).ok());
            }
        };
        match once(
            arguments,
            &mut directory_changed,
            &mut signals,
            &mut last,
            claim,
        ) {
            Ended::Exit(status) => return ExitCode::from(status),
            Ended::Reload => {}
        }
    }
}

/// Runs a tunnel with a configuration that was already read, as `millrace up` does; `again` reads it once more. Returns
/// `None` to restart with that: on SIGHUP to a client, or to a server that cannot keep its sessions.
pub fn run(
    config: OpenVpn,
    again: ReadAgain,
    file: Option<String>,
    dataplane: DataplaneSettings,
    options: RunOptions,
    signals: &mut Caught,
) -> Option<ExitCode> {
    match with_config(config, again, file, dataplane, options, &mut signals.0) {
        Ended::Exit(status) => Some(ExitCode::from(status)),
        Ended::Reload => None,
    }
}

/// Signal handlers of a process that may read its configuration several times.
#[derive(Default)]
pub struct Caught(Option<Rc<Signals>>);

/// Reads the configuration of a command line; prints its faults and runs actions that need no tunnel.
fn first(arguments: &[String]) -> Result<OpenVpn, Ended> {
    let mut read = |path: &Path| openvpn::read_config(path);
    let mut import = match openvpn::parse_arguments(arguments, &mut read, OWN_NAME) {
        Ok(import) => import,
        Err(error) => return Err(refuse(&error.to_string())),
    };
    if let Some(action) = &import.action {
        return Err(Ended::Exit(actions::run(action, arguments)));
    }
    import.check_secrecy();
    for warning in &import.warnings {
        say(&format!("WARNING: {warning}"));
    }
    import.check_files();
    if !import.faults().is_empty() {
        return Err(refuse_all(import.faults()));
    }
    let model = import.into_model();
    model
        .map(|it| it.0)
        .map_err(|error| refuse(&error.to_string()))
}

/// Runs a tunnel with the current configuration. Falls back to `last` if that is unusable: the file may have changed
/// since the reload was judged. `claim` lets other commands find the process by its file.
fn once(
    arguments: &[String],
    directory_changed: &mut bool,
    signals: &mut Option<Rc<Signals>>,
    last: &mut Option<(OpenVpn, Settings)>,
    claim: impl FnOnce(),
) -> Ended {
    let before = last.take().map(|it| (it, judge_arguments(arguments)));
    let (mut config, settings) = match before {
        Some((before, Err(error))) => {
            say(&format!(
                "Options error: {error}; the tunnel restarts with its old configuration"
            ));
            before
        }
        _ => match (first(arguments), settings()) {
            (Ok(config), Ok(settings)) => (config, settings),
            (Ok(_), Err(error)) => return refuse(&error),
            (Err(ended), _) => return ended,
        },
    };
    *last = Some((config.clone(), settings.clone()));
    if let Some(directory) = &config.directory
        && !*directory_changed
    {
        if let Err(error) = std::env::set_current_dir(directory) {
            return refuse(&format!("cd {}: {error}", directory.display()));
        }
        *directory_changed = true;
    }
    if config.service.daemon && !background::is_child() {
        let status = background::spawn();
        return Ended::Exit(u8::from(status != ExitCode::SUCCESS));
    }
    claim();
    let file = first_file(arguments);
    let options = RunOptions::default();
    let (arguments, shared) = (arguments.to_vec(), settings.lines);
    if let Some(shared) = &shared {
        let (origin, warnings) = config.take_lines(shared);
        for warning in warnings {
            say(&format!("WARNING: {warning}"));
        }
        if let Some(origin) = origin {
            say(&format!("uplinks: {origin}"));
        }
    }
    let again: ReadAgain = Box::new(move || {
        let config = read_again(&arguments, shared.as_ref())?;
        // A restart reads the settings again, too.
        ready::fit(config.clone(), &self::settings()?.dataplane)?;
        Ok(config)
    });
    with_config(config, again, file, settings.dataplane, options, signals)
}

/// The program's settings, for OpenVPN's own command line.
fn settings() -> Result<Settings, String> {
    let environment = std::env::var(ENVIRONMENT).ok();
    Settings::load(None, environment.as_deref(), &[]).map_err(|error| error.to_string())
}

/// Returns the reason why this build cannot run a valid configuration.
pub fn lacking(config: &OpenVpn) -> Option<&'static str> {
    let server = config.server().is_some() && !cfg!(feature = "server");
    server.then_some(
        "server: this build of Millrace is for clients only; install a build with the server",
    )
}

/// Rehearses a start with OpenVPN's own command line, as [`rehearse`] does.
///
/// # Errors
/// The reason why the start would fail.
pub fn judge_arguments(arguments: &[String]) -> Result<(), String> {
    let settings = settings()?;
    let config = read_again(arguments, settings.lines.as_ref())?;
    rehearse(&config, &settings.dataplane)
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

/// Prints a line; ignores a closed standard output.
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

/// Reads the current configuration of a command line.
fn read_again(arguments: &[String], shared: Option<&SharedLines>) -> Result<OpenVpn, String> {
    let mut read = |path: &Path| openvpn::read_config(path);
    let import = openvpn::parse_arguments(arguments, &mut read, OWN_NAME);
    let import = import.map_err(|error| error.to_string())?;
    if let Some(fault) = import.faults().first() {
        return Err(fault.clone());
    }
    let (mut config, _) = import.into_model().map_err(|error| error.to_string())?;
    if let Some(shared) = shared {
        config.take_lines(shared);
    }
    Ok(config)
}

fn with_config(
    config: OpenVpn,
    again: ReadAgain,
    file: Option<String>,
    dataplane: DataplaneSettings,
    options: RunOptions,
    signals: &mut Option<Rc<Signals>>,
) -> Ended {
    let config = match ready::fit(config, &dataplane) {
        Ok(config) => config,
        Err(why) => return refuse(&why),
    };
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
    log::info!("{}", openvpn_host::monitored::title());
    let waits = options.wait;
    let rungs = Rungs::test(&config, &dataplane);
    #[cfg(feature = "server")]
    if config.server().is_some() {
        // Set before the first thread starts, so that handshake threads share its heap.
        netio::process::one_heap();
    }
    crate::backends::choose_beside(dataplane.crypto_backend, algorithms(&config));
    let caught = match signals {
        Some(signals) => Ok(Rc::clone(signals)),
        None => Signals::catch().inspect(|caught| *signals = Some(Rc::clone(caught))),
    };
    let context = caught.map_err(Into::into).and_then(|signals| {
        Context::new(
            config, again, file, dataplane, rungs, console, options, signals,
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
    if !waits {
        openvpn_host::process::into_background();
    }
    openvpn_host::process::settle(&context.config.service);
    for text in &context.config.service.echo {
        log::info!("ECHO:{text}");
    }
    // Routes that the last program has left are needed until this tunnel is up.
    let recovered = match netio::tun::has_inherited() {
        true => Ok(Vec::new()),
        false => host::recover_all(),
    };
    match recovered {
        Ok(names) => {
            for name in names {
                log::info!("{name}: undid what an earlier run left behind");
            }
        }
        Err(error) => log::warn!("{error}"),
    }
    context.begin_waiting();
    context.hold();
    let ended = match context.config.server() {
        #[cfg(feature = "server")]
        Some(_) => server::run(&context),
        _ => client::run(&context),
    };
    drop(pid_file);
    ended
}

/// Returns the algorithms that may seal data packets, the likeliest first; negotiation with the peer picks one.
fn algorithms(config: &OpenVpn) -> Vec<Algorithm> {
    let data = &config.data;
    let all = || data.ciphers.iter().chain(&data.fallback);
    let wanted = |algorithm: &Algorithm| match algorithm {
        Algorithm::AesGcm => all().any(|it| it.is_aead() && *it != Cipher::ChaCha20Poly1305),
        Algorithm::ChaCha20Poly1305 => all().any(|it| *it == Cipher::ChaCha20Poly1305),
        _ => all().any(|it| !it.is_aead()),
    };
    Algorithm::ALL.into_iter().filter(wanted).collect()
}
