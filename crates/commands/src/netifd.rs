//! `millrace netifd`: a tunnel as OpenWrt's netifd runs it, by the protocol handler `millrace`.
//!
//! The interface is made bare. What it has, netifd is told over ubus, and netifd does it: addresses, routes, name servers.
//! The section of the interface is read from UCI by this program itself, so that netifd sees no change where none is
//! needed, and `renew` (SIGHUP) takes over what has changed in place. What is missing or wrong is waited for, with a fault
//! that netifd keeps: an exit would only make it start the program again and again.

mod given;
mod held;
mod manager;
mod others;
mod telling;
mod waiting;
mod wireguard;

use super::settings;
use clap::{Arg, ArgMatches, Command, value_parser};
use given::{At, Given, Kind};
use manager::Netifd;
use service::openvpn::Caught;
use service::running::{Claim, ClaimError};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use telling::Telling;
use waiting::{Heard, Waiting};

/// The process's exit code when the other end does not take the credentials: pppd's, which others know.
const REFUSED: u8 = 19;

/// Where netifd has its interfaces.
const NETWORK: &str = "/etc/config/network";

/// How long a process of before has for its end, which is what netifd gives it.
const END: Duration = Duration::from_secs(5);

/// How often it is looked whether a configuration that is missing or wrong has become right, without being told.
const LOOK: Duration = Duration::from_secs(30);

/// How often it is looked whether a line has got a device, where the tunnel waits for one.
const LOOK_AT_LINES: Duration = Duration::from_secs(3);

/// The pauses after a tunnel that ended by itself; netifd would start it again at once.
const PAUSE: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(60)];

/// A tunnel that was up for so long counts as one that works.
const SETTLED: Duration = Duration::from_secs(120);

/// Codes of faults that netifd keeps; docs/openwrt.md lists them.
mod code {
    pub(super) const NO_CONFIG: &str = "NO_CONFIG";
    pub(super) const CONFIG_FAULT: &str = "CONFIG_FAULT";
    pub(super) const PEER_FAULT: &str = "PEER_FAULT";
    pub(super) const LINE_UNKNOWN: &str = "LINE_UNKNOWN";
    pub(super) const START_FAILED: &str = "START_FAILED";
    pub(super) const AUTH_FAILED: &str = "AUTH_FAILED";
}

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The command's own command line.
pub(crate) fn command() -> Command {
    let path = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name(value)
            .value_parser(value_parser!(PathBuf))
            .help(help)
    };
    let command = Command::new("netifd")
        .about("Run an interface of OpenWrt, as its network daemon starts it")
        .long_about(
            "Run an interface of OpenWrt that has `option proto 'millrace'` in /etc/config/network. \
             Its network daemon (netifd) starts this by the protocol handler; by hand there is \
             `ifup NAME`.",
        )
        .arg(
            Arg::new("INTERFACE")
                .required(true)
                .help("The interface's name in /etc/config/network"),
        )
        .arg(path(
            "uci",
            "DIRECTORY",
            "Where the file `network` is [default: /etc/config]",
        ))
        .arg(path(
            "ubus",
            "SOCKET",
            "Where ubus listens [default: /var/run/ubus/ubus.sock]",
        ))
        .arg(settings::log_argument());
    settings::arguments(command)
}

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> ExitCode {
    // Before anything else: netifd may send SIGHUP at any moment, and that must not end it.
    let outcome = Waiting::catch()
        .map_err(Box::from)
        .and_then(|waiting| netifd(matches, waiting));
    match outcome {
        Ok(code) => code,
        Err(error) => {
            log::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn netifd(matches: &ArgMatches, mut waiting: Waiting) -> Outcome<ExitCode> {
    settings::log_to_file(matches)?;
    let name = matches.get_one::<String>("INTERFACE").cloned();
    let path = |name: &str| matches.get_one::<PathBuf>(name).cloned();
    let at = At {
        interface: name.unwrap_or_default(),
        uci: path("uci").unwrap_or_else(|| "/etc/config".into()),
        ubus: path("ubus"),
    };
    let Ok(_claim) = claim(&at, &mut waiting) else {
        return Ok(ExitCode::SUCCESS);
    };
    let telling = Telling::start(&at.interface, at.ubus.as_deref(), waiting.end())?;
    let code = serve(matches, &at, &mut waiting, &telling);
    telling.end();
    code
}

/// A signal says to end.
struct Over;

/// Makes the interface this process's own, if there can be a file that says so. A process of before, whose netifd is gone,
/// is ended.
fn claim(at: &At, waiting: &mut Waiting) -> Result<Option<Claim>, Over> {
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;
    // No file: what `millrace down` names it by.
    let name = Path::new(NETWORK).join(&at.interface);
    let end = Instant::now() + END;
    let mut signal = Signal::SIGTERM;
    loop {
        let pid = match Claim::new(&name) {
            Ok(claim) => return Ok(Some(claim)),
            Err(ClaimError::Running { pid, .. }) => pid,
            Err(error) => {
                log::warn!("{error}");
                return Ok(None);
            }
        };
        if Instant::now() > end {
            signal = Signal::SIGKILL;
        }
        // Its file is held: the number is still its own.
        if pid > 0 && kill(Pid::from_raw(pid), signal).is_ok() {
            log::info!("{}: process {pid} of before is ended", at.interface);
        }
        if waiting.wait(Duration::from_millis(200)) == Heard::End {
            return Err(Over);
        }
    }
}

/// Serves the interface until a signal says to end, or its credentials were refused.
fn serve(
    matches: &ArgMatches,
    at: &At,
    waiting: &mut Waiting,
    telling: &Telling,
) -> Outcome<ExitCode> {
    let mut pause = PAUSE[0];
    let mut signals = Caught::default();
    loop {
        let settings = match settings::load(matches) {
            Ok(settings) => settings,
            Err(error) => {
                log::error!("{error}");
                telling.fault(code::CONFIG_FAULT, &error.to_string());
                match waiting.wait(LOOK) {
                    Heard::End => return Ok(ExitCode::SUCCESS),
                    Heard::Nothing => continue,
                }
            }
        };
        let Some(given) = wait_for_config(at, waiting, telling) else {
            return Ok(ExitCode::SUCCESS);
        };
        let began = Instant::now();
        let netifd = Arc::new(Netifd::new(at, &given, telling.teller()));
        let ended = match &given.kind {
            Kind::WireGuard(_) => wireguard::run(at, given, settings, &netifd, telling),
            Kind::OpenVpn(file) => {
                let (file, netifd) = (file.clone(), &netifd);
                others::run_openvpn(at, &given, &file, settings, netifd, telling, &mut signals)
            }
            #[cfg(feature = "pptp")]
            Kind::Pptp(file) => others::run_pptp(at, &given, file, &netifd, telling),
        };
        if waiting.is_over() {
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(why) = netifd.take_refused() {
            return Ok(refused(&why, netifd.blocks(), waiting, telling));
        }
        if began.elapsed() > SETTLED {
            pause = PAUSE[0];
        }
        match ended {
            Ok(Ended::Again) => continue,
            Ok(Ended::Exit) => return Ok(ExitCode::SUCCESS),
            Err(error) => {
                log::error!("{}: {error}", at.interface);
                telling.fault(code::START_FAILED, &error.to_string());
            }
        }
        if waiting.wait(pause) == Heard::End {
            return Ok(ExitCode::SUCCESS);
        }
        pause = (pause * 2).min(PAUSE[1]);
    }
}

/// How a tunnel ended that nothing is wrong with.
enum Ended {
    /// It is to be made anew, with what the configuration says then.
    Again,
    /// netifd is to make everything anew: the device is gone.
    Exit,
}

/// The end after refused credentials. Without a block netifd starts the program again at once, which a server may count.
fn refused(why: &str, blocks: bool, waiting: &mut Waiting, telling: &Telling) -> ExitCode {
    log::error!("the other end does not take the credentials: {why}");
    telling.fault(code::AUTH_FAILED, why);
    if blocks {
        telling.block();
    }
    telling.flush();
    if !blocks {
        waiting.wait(PAUSE[1]);
    }
    ExitCode::from(REFUSED)
}

/// Reads what the interface is made with, until there is something to make. `None` where a signal says to end.
fn wait_for_config(at: &At, waiting: &mut Waiting, telling: &Telling) -> Option<Given> {
    let mut told = None;
    loop {
        if waiting.is_over() {
            return None;
        }
        let mut pause = LOOK;
        let given = Given::read(at).and_then(|given| match given.held(at) {
            None => Ok(given),
            Some(fault) => {
                pause = LOOK_AT_LINES;
                Err(vec![fault])
            }
        });
        match given {
            Ok(given) => {
                given.tell(&at.interface, &telling.teller());
                return Some(given);
            }
            Err(faults) if told.as_ref() == Some(&faults) => {}
            Err(faults) => {
                for fault in &faults {
                    log::error!("{}", fault.words);
                    telling.fault(fault.code, &fault.words);
                }
                log::warn!("{}: waiting until it can be made", at.interface);
                told = Some(faults);
            }
        }
        waiting.wait(pause);
    }
}

#[cfg(test)]
mod tests;

pub(crate) use given::file_of;
pub(crate) use others::notes_of;
