//! `millrace wireguard`: an interface that `wg` configures, in place of `wireguard-go`.

#[cfg(feature = "amnezia")]
mod mtu;

use crate::Outcome;
use crate::arguments::{self, flag, text};
use clap::{Arg, ArgMatches, Command};
use config::lines::{Lines, SharedLines};
use config::permissions::Permissions;
use config::wgquick;
use host::background;
use host::logging;
use host::privileges;
use service::tun_probe::TunProbe;
use service::wireguard::{Daemon, DaemonOptions, Owner};
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

/// The command-line definition of `wireguard`.
pub(crate) fn command() -> Command {
    let command = Command::new("wireguard")
        .about("Run a WireGuard interface that `wg` and `wg-quick` configure")
        .arg(
            Arg::new("IFNAME")
                .required(true)
                .help("Interface to create"),
        )
        .arg(
            flag(
                "foreground",
                "Stay in the foreground and log to standard error",
            )
            .short('f'),
        )
        .arg(arguments::log())
        .arg(arguments::bind_device());
    #[cfg(feature = "null-cipher")]
    let command = command.arg(
        flag(
            "null-cipher",
            "NO ENCRYPTION: only for measuring the engine",
        )
        .hide(true),
    );
    arguments::of_data_plane(command)
}

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> Outcome {
    let settings = match arguments::settings(matches) {
        Ok(settings) => settings,
        Err(error) => {
            log::error!("{error}");
            return Ok(ExitCode::from(2));
        }
    };
    let foreground = matches.get_flag("foreground");
    if !foreground && !background::is_child() {
        return Ok(background::spawn());
    }
    arguments::log_to_file(matches)?;
    #[cfg(feature = "null-cipher")]
    let null_cipher = matches.get_flag("null-cipher");
    #[cfg(feature = "null-cipher")]
    if null_cipher {
        log::warn!("--null-cipher: packets are NOT encrypted");
    }
    let tun_verdict = TunProbe::start(&settings.dataplane).verdict();
    let ifname = text(matches, "IFNAME").unwrap_or_default().to_owned();
    let is_server = is_server(Path::new("/etc/wireguard"), &ifname);
    // Before any lasting thread starts: threads inherit the privileges.
    privileges::drop_privileges();
    let bind_device = text(matches, "bind-device").map(str::to_owned);
    let lines = lines(settings.lines.as_ref(), bind_device.is_some());
    let mut daemon = Daemon::start(&DaemonOptions {
        ifname,
        settings: settings.dataplane,
        bind_device,
        lines,
        tun_verdict,
        #[cfg(feature = "null-cipher")]
        null_cipher,
    })?;
    privileges::confine_other_threads();
    if is_server {
        // `wg` sets the port later, so the policy cannot block guarded devices from connecting to this server.
        host::tunnel_devices::mark_server(daemon.ifname(), None);
    }
    if !foreground {
        logging::leave_terminal(daemon.ifname());
        if let Err(e) = background::ready() {
            log::warn!("cannot detach from the terminal: {e}");
        }
    }
    background::start_is_over();
    host::notify::ready("up");
    let ended = daemon.run(&mut Unowned::default())?;
    log::info!("ended: {}", ended.words());
    Ok(ExitCode::SUCCESS)
}

/// Whether `wg-quick`'s file for the interface is a server's: the guard must know, and `wg` cannot tell it.
fn is_server(directory: &Path, ifname: &str) -> bool {
    let options = Permissions::NONE.with_forwarding(true);
    let read = wgquick::read(&directory.join(format!("{ifname}.conf")), options);
    let tunnel = read.and_then(wgquick::Import::into_tunnel);
    tunnel.is_ok_and(|(tunnel, _)| tunnel.is_server())
}

/// The lines of the settings file. `wg` cannot configure lines, and it adds the peers later.
fn lines(shared: Option<&SharedLines>, bound: bool) -> Lines {
    let Some(shared) = shared else {
        return Lines::default();
    };
    let given = match bound {
        true => shared.refuse("--bind-device sets one device for all packets"),
        // `wg` may add several peers, but a relay serves only one.
        false => shared.fit(false, usize::MAX),
    };
    for warning in &given.warnings {
        log::warn!("{warning}");
    }
    if let Some(origin) = &given.origin {
        log::info!("uplinks: {origin}");
    }
    given.lines
}

/// An interface that `wg` configures and no file describes: its owner follows no more than its MTU.
#[derive(Default)]
struct Unowned {
    #[cfg(feature = "amnezia")]
    mtu: mtu::Mtu,
}

impl Owner for Unowned {
    #[cfg_attr(not(feature = "amnezia"), expect(unused_variables))]
    fn changed(&mut self, daemon: &Daemon) -> Result<(), Box<dyn Error>> {
        #[cfg(feature = "amnezia")]
        self.mtu.follow(daemon);
        Ok(())
    }

    #[cfg(feature = "amnezia")]
    fn look_at_path(&mut self, daemon: &Daemon) -> Result<(), Box<dyn Error>> {
        self.changed(daemon)
    }

    fn reload(&mut self, _: &Daemon) -> Result<(), Box<dyn Error>> {
        logging::reopen();
        log::info!("SIGHUP ignored: there is no file to read again");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_wg_quick_says_whether_an_interface_is_a_servers() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        let key = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=";
        let interface =
            format!("[Interface]\nPrivateKey = {key}\nListenPort = 51820\nPostUp = true\n");
        let peer = format!("[Peer]\nPublicKey = {key}\nAllowedIPs = 10.9.0.0/16\n");
        std::fs::write(at.join("home.conf"), format!("{interface}{peer}")).unwrap();
        let called = format!("{interface}{peer}Endpoint = 192.0.2.1:1\n");
        std::fs::write(at.join("away.conf"), &called).unwrap();
        std::fs::write(at.join("site.conf"), format!("#! [Server]\n{called}")).unwrap();
        let server = |name| is_server(at, name);
        assert!(server("home") && server("site"));
        assert!(!server("away") && !server("none") && !server(""));
    }
}
