//! `millrace up`: a tunnel from a wg-quick or OpenVPN file, and nothing of it left afterwards.

use super::{daemonize, settings};
use crate::network::{self, Applied, Facts, Options, Plan};
use crate::output;
use crate::privileges;
use crate::wireguard::{Daemon, DaemonOptions, test_tun};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use config::report::Verdict;
use config::tunnel::Tunnel;
use config::types::{Endpoint, Host};
use config::wgquick;
use netio::netlink::Netlink;
use std::error::Error;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The command's own command line.
pub(crate) fn command() -> Command {
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .action(ArgAction::SetTrue)
            .help(help)
    };
    let command = Command::new("up")
        .about("Bring a tunnel up from a wg-quick or OpenVPN file, until interrupted")
        .arg(
            Arg::new("FILE")
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .help("IFNAME.conf, or IFNAME for /etc/wireguard/IFNAME.conf; NAME.ovpn"),
        )
        .arg(flag(
            "daemon",
            "Go into the background once the tunnel is up",
        ))
        .arg(flag(
            "allow-scripts",
            "Run PreUp, PostUp, PreDown and PostDown, or an OpenVPN file's scripts, as root",
        ))
        .arg(flag(
            "allow-files",
            "Let an OpenVPN file name files to write, and files to read a password from (implied by --allow-scripts)",
        ))
        .arg(flag(
            "allow-insecure-ciphers",
            "Permit BF-CBC, DES and no cipher at all, which can be broken (OpenVPN)",
        ))
        .arg(flag(
            "ignore-refused",
            "Start without the lines that are refused",
        ))
        .arg(flag("no-dns", "Leave the name servers alone"))
        .arg(
            Arg::new("bind-device")
                .long("bind-device")
                .value_name("DEVICE")
                .help("Send and receive through this network device alone"),
        );
    settings::arguments(command)
}

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> ExitCode {
    if matches.get_flag("daemon") && !daemonize::is_child() {
        return daemonize::spawn();
    }
    match up(matches) {
        Ok(code) => code,
        Err(e) => {
            log::error!("{e}");
            ExitCode::FAILURE
        }
    }
}

fn openvpn_up(
    path: &Path,
    matches: &ArgMatches,
    dataplane: config::settings::DataplaneSettings,
) -> Result<ExitCode, Box<dyn Error>> {
    let options = config::openvpn::Options {
        allow_insecure_ciphers: matches.get_flag("allow-insecure-ciphers"),
        allow_scripts: matches.get_flag("allow-scripts"),
        allow_files: matches.get_flag("allow-files"),
    };
    let import = config::openvpn::read(path, options)?;
    for warning in &import.warnings {
        output::note(warning);
    }
    let (mut model, report) = match (import.is_usable(), import.report.clone()) {
        (true, _) => import.into_model()?,
        (false, report) => {
            tell(&report);
            import.into_model()?
        }
    };
    tell(&report);
    if !report.is_clean() && !matches.get_flag("ignore-refused") {
        return Err(REFUSED.into());
    }
    // Those of the command line count, for a file that people were given.
    model.service.daemon = false;
    model.service.log = None;
    if model.service.verb == 1 {
        model.service.verb = 3;
    }
    let file = Some(path.display().to_string());
    if let Some(device) = matches.get_one::<String>("bind-device") {
        model.sockets.device = Some(device.clone());
    }
    let manner = crate::openvpn::Manner {
        no_dns: matches.get_flag("no-dns"),
        wait: true,
    };
    Ok(crate::openvpn::run(model, file, dataplane, manner))
}

/// Shows what is not honoured.
fn tell(report: &config::report::Report) {
    for entry in &report.entries {
        if entry.verdict != Verdict::Honoured {
            output::note(report.describe(entry));
        }
    }
}

const REFUSED: &str = "lines are refused (see above): mend them, allow what they want with \
    --allow-scripts or --allow-files, or go on without them with --ignore-refused";

fn up(matches: &ArgMatches) -> Result<ExitCode, Box<dyn Error>> {
    let settings = settings::load(matches)?;
    let path = find(matches.get_one::<PathBuf>("FILE").ok_or("no FILE")?);
    let allow_scripts = matches.get_flag("allow-scripts");
    if config::openvpn::is_openvpn(&path) {
        return openvpn_up(&path, matches, settings.dataplane);
    }
    let ifname = wgquick::interface_name(&path)?;
    let import = wgquick::read(&path, wgquick::Options { allow_scripts })?;
    let (tunnel, report) = import.into_tunnel()?;
    tell(&report);
    if !report.is_clean() && !matches.get_flag("ignore-refused") {
        return Err(REFUSED.into());
    }

    if network::recover(&ifname)? {
        log::info!("{ifname}: undid what an earlier run left behind");
    }
    let scripts = |commands: &[String]| -> Result<(), Box<dyn Error>> {
        if allow_scripts {
            network::run_scripts(commands, &ifname)?;
        }
        Ok(())
    };
    scripts(&tunnel.interface.scripts.pre_up)?;
    let tun_verdict = test_tun(&settings.dataplane);
    let runs_programs = allow_scripts || !tunnel.interface.dns.is_empty();
    if !runs_programs {
        privileges::drop_privileges();
    }
    let mut daemon = Daemon::start(&DaemonOptions {
        ifname: ifname.clone(),
        settings: settings.dataplane,
        bind_device: matches.get_one::<String>("bind-device").cloned(),
        tun_verdict,
        null_cipher: false,
    })?;
    privileges::confine_other_threads();

    let mut set = tunnel.to_set_device();
    let mut endpoints = Vec::new();
    for peer in &mut set.peers {
        if let Some(endpoint) = &peer.endpoint {
            let addr = resolve(endpoint)?;
            endpoints.push(addr);
            peer.endpoint = Some(addr.into());
        }
    }
    let mut netlink = Netlink::open()?;
    let facts = Facts::gather(&tunnel, &endpoints, &mut netlink)?;
    let options = Options {
        no_dns: matches.get_flag("no-dns"),
    };
    let plan = Plan::new(&tunnel, &facts, options)?;
    for warning in &plan.warnings {
        log::warn!("{warning}");
    }
    if plan.fwmark != 0 {
        set.fwmark = Some(plan.fwmark);
    }
    // Keys and peers first: a route must not lead packets to where nobody takes them.
    daemon
        .with(|interface| interface.set(&set))
        .ok_or("the interface is gone")?
        .map_err(|(_, words)| words)?;
    let applied = Applied::apply(&plan, &ifname, &mut netlink)?;
    let result = serve(&mut daemon, matches, &scripts, &tunnel);

    // However it ended, everything is taken back.
    let mut faults = Vec::new();
    faults.extend(
        scripts(&tunnel.interface.scripts.pre_down)
            .err()
            .map(|e| e.to_string()),
    );
    if tunnel.interface.save_config
        && let Some((device, peers)) = daemon.with(|i| i.get())
    {
        let merged = network::merge(&tunnel, &device, &peers, plan.fwmark);
        faults.extend(network::save(&path, &merged).err().map(|e| e.to_string()));
    }
    if let Err(errors) = applied.undo() {
        faults.extend(errors.iter().map(ToString::to_string));
    }
    drop(daemon);
    faults.extend(
        scripts(&tunnel.interface.scripts.post_down)
            .err()
            .map(|e| e.to_string()),
    );
    for fault in &faults {
        log::error!("{ifname}: on the way down: {fault}");
    }
    result.map(|()| ExitCode::SUCCESS)
}

/// Runs a list of commands, if that is allowed.
type Scripts<'a> = dyn Fn(&[String]) -> Result<(), Box<dyn Error>> + 'a;

fn serve(
    daemon: &mut Daemon,
    matches: &ArgMatches,
    scripts: &Scripts<'_>,
    tunnel: &Tunnel,
) -> Result<(), Box<dyn Error>> {
    scripts(&tunnel.interface.scripts.post_up)?;
    if matches.get_flag("daemon") {
        daemonize::ready()?;
    } else {
        output::note(format_args!(
            "{} is up; Ctrl-C takes it down",
            daemon.ifname()
        ));
    }
    let ended = daemon.run()?;
    log::info!("{}: ended: {ended:?}", daemon.ifname());
    Ok(())
}

/// `IFNAME` stands for the file that `wg-quick` would read.
fn find(path: &Path) -> PathBuf {
    if path.components().count() == 1 && path.extension().is_none() && !path.exists() {
        return Path::new("/etc/wireguard")
            .join(path)
            .with_extension("conf");
    }
    path.to_owned()
}

fn resolve(endpoint: &Endpoint) -> Result<SocketAddr, Box<dyn Error>> {
    if let Some(addr) = endpoint.socket_addr() {
        return Ok(addr);
    }
    let text = match &endpoint.host {
        Host::Name(name) => format!("{name}:{}", endpoint.port),
        _ => endpoint.to_string(),
    };
    let found = text
        .to_socket_addrs()
        .map_err(|e| {
            format!("endpoint {endpoint}: {e} (is the name right, and a name server reachable?)")
        })?
        .next();
    Ok(found.ok_or_else(|| format!("endpoint {endpoint}: the name has no address"))?)
}
