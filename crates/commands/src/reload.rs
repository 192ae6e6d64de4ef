//! `millrace reload`: has a running tunnel read its file again, if the file is usable.

use crate::arguments::{option, text};
use crate::down::{is_millrace, process_of, signal, words_of};
use crate::{Outcome, openvpn};
use clap::{Arg, ArgMatches, Command as Cli, value_parser};
use config::kind::Kind;
use nix::sys::signal::Signal;
use service::running;
use std::error::Error;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::{env, fs};

/// The command-line definition of `reload`.
pub(crate) fn command() -> Cli {
    let pid = option("pid", "PID", "The tunnel's process, instead of NAME");
    Cli::new("reload")
        .about("Make a running tunnel read its file again")
        .long_about(
            "Read the file of a running tunnel as its process would, with the arguments that it was started with, and \
             send the process SIGHUP. If the file is not usable, the tunnel keeps running unchanged.\n\nWireGuard: \
             keys, peers, addresses, routes and name servers change while sessions go on; uplinks change at the next \
             start; no script runs. OpenVPN client: it reconnects, or moves to another data \
             plane if only dataplane.kind has changed. OpenVPN server: routes, pushes, limits, users and \
             clients' files change while sessions go on; after any other change it restarts. Relay: keys change at \
             once, Listen at the next start. PPTP: nothing can change; use `millrace restart`.",
        )
        .arg(
            Arg::new("NAME")
                .required_unless_present("pid")
                .help("The profile's name"),
        )
        .arg(
            pid.conflicts_with("NAME")
                .value_parser(value_parser!(i32).range(1..)),
        )
}

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> Outcome {
    let name = text(matches, "NAME").unwrap_or_default();
    let pid = match matches.get_one::<i32>("pid") {
        Some(pid) if !is_millrace(*pid) => {
            return Err(format!("process {pid} is not Millrace").into());
        }
        Some(pid) => *pid,
        None => process_of(name, running::all()?)?,
    };
    if judge_process(pid)? == Some(Kind::Pptp) {
        return Err("a PPTP tunnel reads its file only when it begins: `millrace restart` ends it and brings it up \
                    again".into());
    }
    signal(name, pid, Signal::SIGHUP)?;
    Ok(ExitCode::SUCCESS)
}

/// Judges the file of a running tunnel as its process would read it, and returns its kind if known. Changes to that
/// process's directory and stays there, as file names may be relative.
pub(crate) fn judge_process(pid: i32) -> Result<Option<Kind>, Box<dyn Error>> {
    let process = Path::new("/proc").join(pid.to_string());
    let words = words_of(&process)?;
    env::set_current_dir(fs::read_link(process.join("cwd"))?)?;
    Ok(judge(words).map_err(|error| format!("{error}; the tunnel keeps running unchanged"))?)
}

/// Judges the file that a process with these arguments would read again.
fn judge(arguments: Vec<OsString>) -> Result<Option<Kind>, Box<dyn Error>> {
    if let Some(own) = crate::openvpn_arguments(&arguments) {
        openvpn::judge_own(own)?;
        return Ok(Some(Kind::OpenVpn));
    }
    let matches = crate::cli().try_get_matches_from(arguments)?;
    match matches.subcommand() {
        Some(("up", matches)) => Ok(Some(crate::up::judge(matches)?)),
        #[cfg(feature = "relay")]
        Some(("relay", matches)) => {
            crate::up::judge_relay(matches)?;
            Ok(Some(Kind::Relay))
        }
        // Other processes, such as those of netifd's interfaces, judge their own files.
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With the unit's few rights, a reload could not reach a process that has changed its user.
    #[test]
    fn units_reload_with_all_rights() {
        for unit in [
            include_str!("../../../packaging/debian/millrace/lib/systemd/system/millrace@.service"),
            include_str!(
                "../../../packaging/debian/millrace-openvpn/lib/systemd/system/openvpn-client@.service"
            ),
            include_str!(
                "../../../packaging/debian/millrace-openvpn/lib/systemd/system/openvpn-server@.service"
            ),
        ] {
            assert!(
                unit.contains("\nExecReload=+/usr/sbin/millrace reload --pid $MAINPID\n"),
                "{unit}"
            );
        }
    }

    #[test]
    fn a_process_is_judged_by_its_own_arguments() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("office.conf");
        let text = "[Interface]\nPrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\nPostUp = true\n";
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        let judged = |command: &str, file: &str| {
            fs::write(&path, file).unwrap();
            let judged = judge(words(&format!("millrace {command} {}", path.display())));
            judged.map(|_| ()).map_err(|error| error.to_string())
        };
        assert!(judged("up", text).is_err(), "scripts are not permitted");
        assert_eq!(judged("up --allow-scripts", text), Ok(()));
        assert_eq!(judged("start --allow-scripts", text), Ok(()));
        let typo = text.replace("PrivateKey", "PrivteKey");
        assert!(judged("up --allow-scripts", &typo).is_err());
        #[cfg(feature = "relay")]
        {
            let error = judged("relay", "[Relay]\nTargt = 192.0.2.1:51820\n").unwrap_err();
            assert!(error.contains("office.conf"), "{error}");
        }
        let error = judge(words("openvpn --client --dev tun --remot 192.0.2.1")).unwrap_err();
        assert!(error.to_string().contains("remot"), "{error}");
    }
}
