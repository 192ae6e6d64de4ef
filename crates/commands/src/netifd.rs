//! `millrace netifd`: a tunnel run by OpenWrt's netifd, through the protocol handler `millrace`.
//!
//! This program makes a bare interface and tells netifd over ubus its addresses, routes and name servers, which netifd
//! sets. It reads the interface's section from UCI itself, so that netifd sees no needless changes. `renew` (SIGHUP)
//! applies changed settings in place. It waits while settings are missing or faulty, and reports the fault to netifd;
//! after an exit, netifd would only start it again and again. After an upgrade, `renew` also replaces the program: see
//! [`anew`].

mod anew;
mod device;
mod given;
mod held;
mod manager;
mod others;
mod telling;
mod wireguard;

use crate::arguments::{self, path};
use anew::{INHERIT, JUDGE, Program};
use clap::{Arg, ArgAction, ArgMatches, Command};
use given::{At, Given, Kind, fault};
use manager::Netifd;
use netio::poll::Poller;
use netio::tun::Kept;
use openwrt::device_name;
use openwrt::teller::Fault;
use service::openvpn::Caught;
use service::running::{Claim, ClaimError};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::error::Error;
use std::io::{self, Read as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use telling::{Telling, source};

/// The exit code when the other end rejects the credentials, the same as pppd's.
const REFUSED: u8 = 19;

/// The UCI file of netifd's interfaces.
const NETWORK: &str = "/etc/config/network";

/// How long an earlier process has to end, the same as netifd allows.
const END: Duration = Duration::from_secs(5);

/// How often to check a missing or faulty configuration without a signal.
const LOOK: Duration = Duration::from_secs(30);

/// How often to check whether an uplink has got a device, while the tunnel waits for one.
const LOOK_AT_LINES: Duration = Duration::from_secs(3);

/// The shortest and longest pause after a tunnel that ended by itself; netifd would restart it at once.
const PAUSE: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(60)];

/// A tunnel that was up this long counts as working.
const SETTLED: Duration = Duration::from_secs(120);

/// Codes of faults that netifd keeps; docs/openwrt.md lists them.
mod code {
    pub(super) const NO_CONFIG: &str = "NO_CONFIG";
    pub(super) const CONFIG_FAULT: &str = "CONFIG_FAULT";
    pub(super) const PEER_FAULT: &str = "PEER_FAULT";
    pub(super) const LINE_UNKNOWN: &str = "UPLINK_UNKNOWN";
    pub(super) const START_FAILED: &str = "START_FAILED";
    pub(super) const AUTH_FAILED: &str = "AUTH_FAILED";
    pub(super) const NO_ANSWER: &str = "NO_ANSWER";
    pub(super) const DISTURBED: &str = "DISTURBED";
}

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The command-line definition of `netifd`.
pub(crate) fn command() -> Command {
    let command = Command::new("netifd")
        .about("Run an OpenWrt interface; the network daemon starts this")
        .long_about(
            "Run an OpenWrt interface that has `option proto 'millrace'` in /etc/config/network. OpenWrt's network \
             daemon (netifd) starts this command; by hand use `ifup NAME`.",
        )
        .arg(
            Arg::new("INTERFACE")
                .required(true)
                .help("The interface's name in /etc/config/network"),
        )
        .arg(path("uci", "DIRECTORY", "Directory of the file `network`").default_value("/etc/config"))
        .arg(path(
            "ubus",
            "SOCKET",
            "Socket of ubus [default: /var/run/ubus/ubus.sock]",
        ))
        .arg(arguments::log())
        .arg(
            Arg::new(JUDGE)
                .long(JUDGE)
                .action(ArgAction::SetTrue)
                .hide(true),
        )
        .arg(Arg::new(INHERIT).long(INHERIT).hide(true));
    arguments::of_data_plane(command)
}

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> crate::Outcome {
    // First of all: netifd may send SIGHUP at any moment, which must not end the process.
    let mut waiting = Waiting::catch()?;
    anew::signals().thread_unblock()?;
    let inherited = arguments::text(matches, INHERIT).map(netio::tun::inherit);
    arguments::log_to_file(matches)?;
    if let Some(Err(error)) = &inherited {
        log::warn!("{error}");
    }
    let at = At {
        interface: arguments::text(matches, "INTERFACE")
            .unwrap_or_default()
            .to_owned(),
        uci: arguments::path_of(matches, "uci").to_owned(),
        ubus: arguments::file(matches, "ubus").map(Path::to_owned),
        program: Program::running(),
        matches: matches.clone(),
    };
    lines::names::is_of(&at.interface);
    if matches.get_flag(JUDGE) {
        return judge(&at);
    }
    let Ok(claim) = claim(&at, &mut waiting) else {
        return Ok(ExitCode::SUCCESS);
    };
    let telling = Telling::start(
        &at.interface,
        at.ubus.as_deref(),
        waiting.end(),
        inherited.is_some(),
    )?;
    let finish = serve(&at, &mut waiting, &telling);
    if let Ok(Finish::Anew(_)) = &finish {
        // The end removes the shield, which is needed until netifd has set up the device.
        telling.settle();
    }
    telling.end();
    match finish? {
        Finish::Exit(code) => Ok(code),
        Finish::Anew(kept) => {
            log::info!(
                "{}: the program was upgraded; executing the new one",
                at.interface
            );
            // The new program has the same process number, and would end the claim's process: itself.
            drop(claim);
            at.program.execute(kept.as_ref(), &waiting)
        }
    }
}

/// How [`serve`] ends.
enum Finish {
    /// The process exits.
    Exit(ExitCode),
    /// The process executes the new program, which gets the device if there is one.
    Anew(Option<Kept>),
}

impl From<ExitCode> for Finish {
    fn from(code: ExitCode) -> Self {
        Self::Exit(code)
    }
}

/// Judges whether this program can run the interface with the present configuration, for the program that runs it now.
fn judge(at: &At) -> crate::Outcome {
    let faults = usable(at).err().unwrap_or_default();
    for fault in &faults {
        log::error!("{}", fault.words);
    }
    Ok(match faults.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Reads the interface's settings, and checks that a tunnel can be made now.
fn usable(at: &At) -> Result<Given, Vec<Fault>> {
    let given = Given::read(at)?;
    match given.held(at) {
        None => Ok(given),
        Some(fault) => Err(vec![fault]),
    }
}

/// A signal asks the process to end.
struct Over;

/// Claims the interface for this process, if the claim's file can be written. Ends an earlier process whose netifd is
/// gone.
fn claim(at: &At, waiting: &mut Waiting) -> Result<Option<Claim>, Over> {
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;
    // The path names no real file; it is the name for `millrace down`.
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
        // The process still holds its file, so the ID is its own.
        if pid > 0 && kill(Pid::from_raw(pid), signal).is_ok() {
            log::info!("{}: ended the earlier process {pid}", at.interface);
        }
        if waiting.wait(Duration::from_millis(200)) {
            return Err(Over);
        }
    }
}

/// Serves the interface until a signal, or until the other end rejects the credentials.
fn serve(at: &At, waiting: &mut Waiting, telling: &Telling) -> Outcome<Finish> {
    let mut pause = PAUSE[0];
    let mut signals = Caught::default();
    loop {
        let settings = match arguments::settings(&at.matches) {
            Ok(settings) => settings,
            Err(error) => {
                log::error!("{error}");
                telling.faults(source::CONFIG, fault(code::CONFIG_FAULT, error.to_string()));
                if waiting.wait(LOOK) {
                    return Ok(ExitCode::SUCCESS.into());
                }
                if waiting.woken
                    && let Some(finish) = renewal(at)
                {
                    return Ok(finish);
                }
                continue;
            }
        };
        let given = match wait_for_config(at, waiting, telling) {
            Ok(given) => given,
            Err(finish) => return Ok(finish),
        };
        let began = Instant::now();
        for ended in [source::END, source::ANSWERS] {
            telling.faults(ended, Vec::new());
        }
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
            return Ok(ExitCode::SUCCESS.into());
        }
        if let Some(kept) = netifd.take_kept() {
            return Ok(Finish::Anew(Some(kept)));
        }
        if let Some(why) = netifd.take_refused() {
            return Ok(refused(&why, netifd.blocks(), waiting, telling).into());
        }
        if began.elapsed() > SETTLED {
            pause = PAUSE[0];
        }
        match ended {
            Ok(Ended::Again) => continue,
            Ok(Ended::Exit) => return Ok(ExitCode::SUCCESS.into()),
            Err(error) => {
                log::error!("{}: {error}", at.interface);
                telling.faults(source::END, fault(code::START_FAILED, error.to_string()));
            }
        }
        let is_over = waiting.wait(pause);
        if !is_over
            && waiting.woken
            && let Some(finish) = renewal(at)
        {
            return Ok(finish);
        }
        if is_over || telling.is_stale() {
            return Ok(ExitCode::SUCCESS.into());
        }
        pause = (pause * 2).min(PAUSE[1]);
    }
}

/// The end by which a new program takes over, if there is one and it can run the interface.
fn renewal(at: &At) -> Option<Finish> {
    let kept = || Kept::of(&device_name(&at.interface)).ok();
    let has = at.program.has_successor(&at.interface);
    has.then(|| Finish::Anew(kept()))
}

/// Why a tunnel ended without a fault.
enum Ended {
    /// The tunnel is to be made again, with the present configuration.
    Again,
    /// The device is gone, so netifd must start again.
    Exit,
}

/// Ends after rejected credentials. Unless blocked, netifd restarts the program at once, and the server may count each
/// attempt.
fn refused(why: &str, blocks: bool, waiting: &mut Waiting, telling: &Telling) -> ExitCode {
    log::error!("the other end refuses the credentials: {why}");
    telling.faults(source::END, fault(code::AUTH_FAILED, why.to_owned()));
    if blocks {
        telling.block();
    }
    telling.flush();
    if !blocks {
        waiting.wait(PAUSE[1]);
    }
    ExitCode::from(REFUSED)
}

/// Reads the interface's settings, and waits until they are usable. Returns how the process ends instead: a signal asks
/// for it, netifd lists faults that are mended and starts another process with an empty list, or a new program can use
/// the settings.
fn wait_for_config(at: &At, waiting: &mut Waiting, telling: &Telling) -> Result<Given, Finish> {
    let exit = || Finish::Exit(ExitCode::SUCCESS);
    let mut told = None;
    loop {
        if waiting.is_over() {
            return Err(exit());
        }
        let faults = match usable(at) {
            Ok(given) => {
                // A signal to renew may have come during or after the wait.
                if told.is_some()
                    && let Some(finish) = renewal(at)
                {
                    return Err(finish);
                }
                given.tell(&at.interface, &telling.teller());
                let is_listed = told.is_some() && telling.is_stale();
                return if is_listed { Err(exit()) } else { Ok(given) };
            }
            Err(faults) => faults,
        };
        let for_uplinks = faults.iter().all(|it| it.code == code::LINE_UNKNOWN);
        if told.as_ref() != Some(&faults) {
            for fault in &faults {
                log::error!("{}", fault.words);
            }
            telling.faults(source::CONFIG, faults.clone());
            log::warn!("{}: waiting until the tunnel can be created", at.interface);
            if told.replace(faults).is_some() && telling.is_stale() {
                return Err(exit());
            }
        }
        waiting.wait(if for_uplinks { LOOK_AT_LINES } else { LOOK });
        if waiting.woken
            && let Some(finish) = renewal(at)
        {
            return Err(finish);
        }
    }
}

/// The signals that this process handles during all its life.
struct Waiting {
    pipe: UnixStream,
    poller: Poller,
    end: Arc<AtomicBool>,
    /// Whether a signal ended the last wait.
    woken: bool,
}

impl Waiting {
    /// Starts to catch the signals.
    fn catch() -> io::Result<Self> {
        let (pipe, write) = UnixStream::pair()?;
        pipe.set_nonblocking(true)?;
        write.set_nonblocking(true)?;
        let end = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            // The flag is set first, so that the thread woken by the pipe finds it set.
            if signal != SIGHUP {
                signal_hook::flag::register(signal, Arc::clone(&end))?;
            }
            signal_hook::low_level::pipe::register(signal, write.try_clone()?)?;
        }
        let poller = Poller::new()?;
        poller.add(&pipe, 0)?;
        Ok(Self {
            pipe,
            poller,
            end,
            woken: false,
        })
    }

    /// Whether a signal has asked the process to end.
    fn is_over(&self) -> bool {
        self.end.load(Ordering::Relaxed)
    }

    /// The flag that tells other threads of the end.
    fn end(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.end)
    }

    /// Waits until a signal comes, for at most this long. Returns whether one has asked the process to end.
    fn wait(&mut self, patience: Duration) -> bool {
        if !self.is_over()
            && let Err(error) = self.poller.wait(Some(patience))
        {
            log::warn!("{error}");
        }
        let mut bytes = [0; 64];
        self.woken = false;
        while matches!(self.pipe.read(&mut bytes), Ok(count) if count > 0) {
            self.woken = true;
        }
        self.is_over()
    }
}

#[cfg(test)]
mod tests;

#[cfg(feature = "server")]
pub(crate) use given::device_with;
pub(crate) use given::file_of;
pub(crate) use others::notes_of;
