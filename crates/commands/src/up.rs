//! `millrace up`: brings up a tunnel from a wg-quick, OpenVPN or PPTP file, and removes it completely at the end. And
//! `millrace relay`, which runs a relay's file.

use crate::arguments::{self, flag, path_of};
use crate::{Outcome, openvpn};
use clap::{ArgMatches, Command, value_parser};
use config::kind::Kind;
#[cfg(feature = "pptp")]
use config::pptp;
#[cfg(feature = "relay")]
use config::relay::{self, Relay};
use config::report::{Report, Verdict};
use host::background;
use service::running::Claim;
use std::error::Error;
use std::path::Path;
#[cfg(any(feature = "pptp", feature = "relay"))]
use std::process::ExitCode;
use std::time::Duration;

pub(crate) mod account;
pub(crate) mod pool;
pub(crate) mod wireguard;

/// The command-line definition of `up`.
pub(crate) fn command() -> Command {
    let wait = arguments::option(
        "wait",
        "SECONDS",
        "With --daemon, wait at most this long for the peer's answer; then go on trying in the background",
    );
    let command = Command::new("up")
        .visible_alias("start")
        .about("Bring a tunnel up from its file (wg-quick, OpenVPN, PPTP)")
        .arg(arguments::tunnel_file())
        .arg(flag(
            "daemon",
            "Go into the background once the tunnel is up",
        ))
        .arg(wait.default_value("30").value_parser(value_parser!(u32)))
        .arg(flag(
            "allow-scripts",
            "Run PreUp, PostUp, PreDown and PostDown, or an OpenVPN file's scripts, as root",
        ))
        .arg(flag(
            "allow-files",
            "Permit the file to name files to write, to send (passwords) and to read as configuration, and command \
             sockets (implied by --allow-scripts)",
        ))
        .arg(flag(
            "allow-forwarding",
            "Permit [Server] (forwarding and masquerading) in a WireGuard file whose peer has an Endpoint (implied by \
             --allow-scripts)",
        ))
        .arg(flag(
            "allow-insecure-ciphers",
            "Permit insecure OpenVPN ciphers: BF-CBC, DES and no encryption",
        ))
        .arg(flag(
            "ignore-refused",
            "Start without the refused lines",
        ))
        .arg(arguments::log())
        .arg(flag("no-dns", "Do not change the host's name servers"))
        .arg(arguments::bind_device());
    arguments::of_data_plane(command)
}

/// Runs `up`.
pub(crate) fn run(matches: &ArgMatches) -> Outcome {
    if matches.get_flag("daemon") && !background::is_child() {
        return Ok(background::spawn());
    }
    let settings = arguments::settings(matches)?;
    let path = crate::profile::find(path_of(matches, "FILE"))?;
    arguments::log_to_file(matches)?;
    let _claim = Claim::new(&path)?;
    account::warn_of_others(&path, crate::check::permitted(matches))?;
    match Kind::read(&path)?.0 {
        #[cfg(feature = "pptp")]
        Kind::Pptp => pptp_until_end(&path, matches),
        #[cfg(not(feature = "pptp"))]
        Kind::Pptp => Err(config::pptp::NOT_BUILT.into()),
        Kind::OpenVpn => openvpn::until_end(&path, matches, &settings),
        Kind::Relay => Err("this file belongs to a relay; run it with `millrace relay`".into()),
        Kind::WireGuard => wireguard::up(&path, matches, settings),
    }
}

/// Checks whether a running tunnel could restart with its file, and returns the file's kind. `matches` are the command
/// line that brought the tunnel up.
pub(crate) fn judge(matches: &ArgMatches) -> Result<Kind, Box<dyn Error>> {
    let settings = arguments::settings(matches)?;
    let path = crate::profile::find(path_of(matches, "FILE"))?;
    let kind = Kind::at(&path);
    match kind {
        #[cfg(feature = "pptp")]
        Kind::Pptp => service::pptp::rehearse(&read_pptp(&path, matches)?)?,
        #[cfg(not(feature = "pptp"))]
        Kind::Pptp => return Err(config::pptp::NOT_BUILT.into()),
        Kind::OpenVpn => openvpn::judge(&path, matches, &settings)?,
        Kind::Relay | Kind::WireGuard => wireguard::judge(&path, matches)?,
    }
    Ok(kind)
}

/// Warns if other users can read a file with secrets.
fn warn_of_readers(path: &Path) {
    if let Some(warning) = config::file::exposed(path) {
        log::warn!("{warning}");
    }
}

/// The longest time that `--daemon` waits for a peer.
pub(crate) fn wait_at_most(matches: &ArgMatches) -> Option<Duration> {
    let seconds = matches.get_one::<u32>("wait");
    seconds.map(|it| Duration::from_secs((*it).into()))
}

/// Shows refused lines, which the user must act on, and with `-v` ignored lines.
pub(crate) fn tell(report: &Report) {
    for entry in &report.entries {
        match entry.verdict {
            Verdict::Refused => host::terminal::note(report.describe(entry)),
            // A target of its own, as this command's messages appear even without `-v`.
            Verdict::Ignored => log::info!(target: "profile", "{}", report.describe(entry)),
            Verdict::Honoured => {}
        }
    }
}

/// Shows the refused lines of a file that is all or nothing. One refused line is left to the error of the model.
#[cfg(any(feature = "pptp", feature = "relay"))]
fn mend(report: &Report) -> Result<(), Box<dyn Error>> {
    if report.with(Verdict::Refused).count() > 1 {
        tell(report);
        let file = &report.file;
        return Err(format!("{file}: lines are refused (see above); correct them").into());
    }
    Ok(())
}

/// Reports where a tunnel's lines come from, if not from its file.
pub(crate) fn tell_lines(origin: Option<&str>, warnings: &[String]) {
    for warning in warnings {
        host::terminal::note(warning);
    }
    if let Some(origin) = origin {
        host::terminal::note(format_args!("uplinks: {origin}"));
    }
}

/// The error for `--bind-device` beside lines in a file.
pub(crate) const BOUND: &str =
    "the file has uplinks with devices of their own; leave --bind-device out";

/// The error for refused lines.
pub(crate) const REFUSED: &str = "lines are refused (see above); correct them, permit them with --allow-scripts, \
                                  --allow-files or --allow-forwarding, or skip them with --ignore-refused";

/// Brings up the tunnel of a PPTP file and serves it until it ends.
#[cfg(feature = "pptp")]
fn pptp_until_end(path: &Path, matches: &ArgMatches) -> Outcome {
    for file in pptp::secrets_of(path, crate::check::permitted(matches)) {
        warn_of_readers(&file);
    }
    let options = service::pptp::RunOptions {
        no_dns: matches.get_flag("no-dns"),
        bind_device: arguments::text(matches, "bind-device").map(str::to_owned),
        daemon: matches.get_flag("daemon"),
        wait_at_most: wait_at_most(matches),
        manager: None,
    };
    service::pptp::run(&read_pptp(path, matches)?, &options)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(feature = "pptp")]
fn read_pptp(path: &Path, matches: &ArgMatches) -> Result<pptp::Pptp, Box<dyn Error>> {
    let import = pptp::read(path, crate::check::permitted(matches))?;
    mend(&import.report)?;
    Ok(import.into_model()?)
}

/// The command-line definition of `relay`.
#[cfg(feature = "relay")]
pub(crate) fn relay_command() -> Command {
    let file = clap::Arg::new("FILE")
        .required(true)
        .value_parser(value_parser!(std::path::PathBuf))
        .help("The relay's file, with a [Relay] section; SIGHUP makes it read the file again");
    let command = Command::new("relay")
        .about("Forward tunnels to one server, for clients that have a key")
        .arg(file)
        .arg(arguments::log());
    arguments::of_data_plane(command)
}

/// Runs `relay`: forwards tunnels' datagrams for clients that have two servers rather than two uplinks.
#[cfg(feature = "relay")]
pub(crate) fn relay(matches: &ArgMatches) -> Outcome {
    let settings = arguments::settings(matches)?;
    let path = path_of(matches, "FILE");
    arguments::log_to_file(matches)?;
    warn_of_readers(path);
    let again = || read_relay(path).map_err(|error| error.to_string());
    service::relay::run(read_relay(path)?, &settings.dataplane, &again)?;
    Ok(ExitCode::SUCCESS)
}

/// Checks whether a running relay could apply its file. `matches` are its command line's.
#[cfg(feature = "relay")]
pub(crate) fn judge_relay(matches: &ArgMatches) -> Result<(), Box<dyn Error>> {
    arguments::settings(matches)?;
    read_relay(path_of(matches, "FILE")).map(drop)
}

#[cfg(feature = "relay")]
fn read_relay(path: &Path) -> Result<Relay, Box<dyn Error>> {
    let import = relay::read(path)?;
    mend(&import.report)?;
    Ok(import.into_model()?)
}
