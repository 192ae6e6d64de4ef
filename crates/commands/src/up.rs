//! `millrace up`: brings up a tunnel from a wg-quick, OpenVPN or PPTP file, and removes it completely at the end.

use super::settings;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use config::kind::Kind;
use config::lines::SharedLines;
use config::report::Verdict;
use config::settings::Settings;
use host::background;
use host::logging;
use service::running::Claim;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

#[cfg(feature = "pptp")]
mod pptp;
pub(crate) mod wireguard;

/// The command-line definition of `up`.
pub(crate) fn command() -> Command {
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .action(ArgAction::SetTrue)
            .help(help)
    };
    let command = Command::new("up")
        .about("Bring a tunnel up from a file (wg-quick, OpenVPN, PPTP), until interrupted")
        .arg(
            Arg::new("FILE")
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .help("IFNAME.conf; NAME.ovpn; NAME.toml, or a file of pppd's or pptpd.conf (PPTP); or NAME for the file of that name in /etc/millrace, /etc/wireguard or /etc/openvpn/client"),
        )
        .arg(flag(
            "daemon",
            "Go into the background once the tunnel is up",
        ))
        .arg(
            Arg::new("wait")
                .long("wait")
                .value_name("SECONDS")
                .default_value("30")
                .value_parser(value_parser!(u32))
                .help("With --daemon, wait at most so long for the peer's answer; then go on trying in the background, with exit status 3"),
        )
        .arg(flag(
            "allow-scripts",
            "Run PreUp, PostUp, PreDown and PostDown, or an OpenVPN file's scripts, as root",
        ))
        .arg(flag(
            "allow-files",
            "Let the file name files to write, to send (passwords) and to read as configuration, and sockets for commands \
             (implied by --allow-scripts)",
        ))
        .arg(flag(
            "allow-forwarding",
            "Let a WireGuard file that also calls a peer make this machine a router ([Server]; implied by --allow-scripts)",
        ))
        .arg(flag(
            "allow-insecure-ciphers",
            "Permit BF-CBC, DES and no cipher at all, which can be broken (OpenVPN)",
        ))
        .arg(flag(
            "ignore-refused",
            "Start without the lines that are refused",
        ))
        .arg(settings::log_argument())
        .arg(flag("no-dns", "Leave the name servers alone"))
        .arg(
            Arg::new("bind-device")
                .long("bind-device")
                .value_name("DEVICE")
                .help("Send and receive only through this network device"),
        );
    settings::arguments(command)
}

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> ExitCode {
    if matches.get_flag("daemon") && !background::is_child() {
        return background::spawn();
    }
    match up(matches) {
        Ok(code) => code,
        Err(e) => {
            log::error!("{e}");
            ExitCode::FAILURE
        }
    }
}

/// Checks whether a running tunnel could restart with its file, and returns the file's kind. `matches` are the command
/// line that brought the tunnel up.
pub(crate) fn judge(matches: &ArgMatches) -> Result<Kind, Box<dyn Error>> {
    let settings = settings::load(matches)?;
    let path = crate::profile::find(matches.get_one::<PathBuf>("FILE").ok_or("no FILE")?)?;
    let kind = Kind::at(&path);
    match kind {
        #[cfg(feature = "pptp")]
        Kind::Pptp => pptp::judge(&path, matches)?,
        #[cfg(not(feature = "pptp"))]
        Kind::Pptp => return Err(config::pptp::NOT_BUILT.into()),
        Kind::OpenVpn => {
            let model = read_openvpn(&path, matches, settings.lines.as_ref(), false)?;
            service::openvpn::rehearse(&model, &settings.dataplane)?;
        }
        Kind::Relay | Kind::WireGuard => wireguard::judge(&path, matches)?,
    }
    Ok(kind)
}

/// Reads an OpenVPN file; the command line's settings override the file's. Without `tells`, reports nothing about a
/// usable file.
fn read_openvpn(
    path: &Path,
    matches: &ArgMatches,
    shared: Option<&SharedLines>,
    tells: bool,
) -> Result<config::openvpn::OpenVpn, Box<dyn Error>> {
    let options = config::openvpn::Options {
        allow_insecure_ciphers: matches.get_flag("allow-insecure-ciphers"),
        permissions: crate::check::permitted(matches),
    };
    let mut import = config::openvpn::read(path, options)?;
    import.check_secrecy();
    import.check_files();
    for warning in import.warnings.iter().filter(|_| tells) {
        terminal::note(warning);
    }
    let (mut model, report) = match (import.is_usable(), import.report.clone()) {
        (true, _) => import.into_model()?,
        (false, report) => {
            tell(&report);
            import.into_model()?
        }
    };
    let refused = !report.is_clean() && !matches.get_flag("ignore-refused");
    if tells || refused {
        tell(&report);
    }
    if refused {
        return Err(REFUSED.into());
    }
    // The command line decides these, as the file may come from a stranger.
    model.service.daemon = false;
    model.service.log = None;
    if model.service.verb == 1 {
        model.service.verb = 3;
    }
    if let Some(device) = matches.get_one::<String>("bind-device") {
        if !model.lines.lines.is_empty() {
            return Err(BOUND.into());
        }
        model.sockets.device = Some(device.clone());
    }
    if let Some(shared) = shared {
        let (origin, warnings) = model.take_lines(shared);
        if tells {
            tell_lines(origin.as_deref(), &warnings);
        }
    }
    Ok(model)
}

/// The longest time that `--daemon` waits for a peer.
fn wait_at_most(matches: &ArgMatches) -> Option<Duration> {
    let seconds = matches.get_one::<u32>("wait");
    seconds.map(|it| Duration::from_secs((*it).into()))
}

/// Shows refused lines, which the user must act on, and with `-v` ignored lines.
fn tell(report: &config::report::Report) {
    for entry in &report.entries {
        match entry.verdict {
            Verdict::Refused => terminal::note(report.describe(entry)),
            // A target of its own, as this command's messages appear even without `-v`.
            Verdict::Ignored => log::info!(target: "profile", "{}", report.describe(entry)),
            Verdict::Honoured => {}
        }
    }
}

/// Tells where a tunnel's lines come from, if not from its file.
fn tell_lines(origin: Option<&str>, warnings: &[String]) {
    for warning in warnings {
        terminal::note(warning);
    }
    if let Some(origin) = origin {
        terminal::note(format_args!("lines: {origin}"));
    }
}

/// The error for `--bind-device` beside lines in a file.
const BOUND: &str = "the file has lines, which have devices of their own: leave --bind-device out";

const REFUSED: &str = "lines are refused (see above): mend them, allow what they want with \
    --allow-scripts, --allow-files or --allow-forwarding, or go on without them with --ignore-refused";

fn up(matches: &ArgMatches) -> Result<ExitCode, Box<dyn Error>> {
    let settings = settings::load(matches)?;
    let path = crate::profile::find(matches.get_one::<PathBuf>("FILE").ok_or("no FILE")?)?;
    settings::log_to_file(matches)?;
    let _claim = Claim::new(&path)?;
    match Kind::read(&path)?.0 {
        #[cfg(feature = "pptp")]
        Kind::Pptp => pptp::up(&path, matches),
        #[cfg(not(feature = "pptp"))]
        Kind::Pptp => Err(config::pptp::NOT_BUILT.into()),
        Kind::OpenVpn => openvpn_until_end(&path, matches, &settings),
        Kind::Relay => Err("this file is a relay's: run it by `millrace relay`".into()),
        Kind::WireGuard => wireguard::up(&path, matches, settings),
    }
}

/// Runs the tunnel of an OpenVPN file. Each SIGHUP reads the file again.
fn openvpn_until_end(
    path: &Path,
    matches: &ArgMatches,
    settings: &Settings,
) -> Result<ExitCode, Box<dyn Error>> {
    let mut signals = service::openvpn::Caught::default();
    let shared = settings.lines.as_ref();
    let mut model = read_openvpn(path, matches, shared, true)?;
    loop {
        let options = service::openvpn::RunOptions {
            no_dns: matches.get_flag("no-dns"),
            wait: true,
            wait_at_most: wait_at_most(matches),
            manager: None,
        };
        let again = {
            let (path, matches, shared) = (path.to_owned(), matches.clone(), shared.cloned());
            Box::new(move || {
                let model = read_openvpn(&path, &matches, shared.as_ref(), false);
                model.map_err(|it| it.to_string())
            })
        };
        let file = Some(path.display().to_string());
        let dataplane = settings.dataplane.clone();
        let ended =
            service::openvpn::run(model.clone(), again, file, dataplane, options, &mut signals);
        if let Some(code) = ended {
            return Ok(code);
        }
        logging::reopen();
        // The file may have changed since `reload` judged it.
        let read = read_openvpn(path, matches, shared, true).and_then(|read| {
            service::openvpn::rehearse(&read, &settings.dataplane)?;
            Ok(read)
        });
        match read {
            Ok(read) => model = read,
            Err(error) => log::error!("{error}; the tunnel begins anew as it was"),
        }
    }
}
