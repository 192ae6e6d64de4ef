//! `millrace reload`: has a running tunnel read its file again, if the file is usable.

use crate::down::{is_millrace, process_of};
use clap::{Arg, ArgMatches, Command as Cli, value_parser};
use config::kind::Kind;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use service::running;
use std::error::Error;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::{env, fs};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The command-line definition of `reload`.
pub(crate) fn command() -> Cli {
    Cli::new("reload")
        .about("Have a running tunnel read its file again, if the file can be used")
        .long_about(
            "Read the file of a running tunnel as its process would, with the arguments that it was started with, and \
             send the process SIGHUP. A file that cannot be used is refused with exit code 1: the tunnel goes on as \
             it was, and the process is told nothing. A PPTP tunnel has to be restarted.",
        )
        .arg(
            Arg::new("NAME")
                .required_unless_present("pid")
                .help("The profile's name"),
        )
        .arg(
            Arg::new("pid")
                .long("pid")
                .value_name("PID")
                .conflicts_with("NAME")
                .value_parser(value_parser!(i32).range(1..))
                .help("The process that has the tunnel up, in place of NAME"),
        )
}

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> ExitCode {
    match reload(matches) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn reload(matches: &ArgMatches) -> Outcome<()> {
    let pid = match (
        matches.get_one::<i32>("pid"),
        matches.get_one::<String>("NAME"),
    ) {
        (Some(pid), _) if !is_millrace(*pid) => {
            return Err(format!("process {pid} is no Millrace").into());
        }
        (Some(pid), _) => *pid,
        (None, name) => process_of(name.map_or("", String::as_str), running::all()?)?,
    };
    if judge_process(pid)? == Some(Kind::Pptp) {
        return Err("a PPTP tunnel reads its file only when it begins: `millrace restart` ends it and brings it up again".into());
    }
    kill(Pid::from_raw(pid), Signal::SIGHUP)?;
    Ok(())
}

/// Judges the file of a running tunnel as its process would read it, and returns its kind if known. Changes to that
/// process's directory and stays there, as file names may be relative.
pub(crate) fn judge_process(pid: i32) -> Outcome<Option<Kind>> {
    let process = Path::new("/proc").join(pid.to_string());
    let words = fs::read(process.join("cmdline"))?;
    env::set_current_dir(fs::read_link(process.join("cwd"))?)?;
    let judged = judge(arguments(&words));
    Ok(judged.map_err(|error| format!("{error}; the tunnel goes on as it was"))?)
}

/// The words of `/proc/PID/cmdline`.
fn arguments(words: &[u8]) -> Vec<OsString> {
    let words = words.strip_suffix(&[0]).unwrap_or(words);
    let words = words.split(|byte| *byte == 0);
    words
        .map(|word| OsString::from_vec(word.to_vec()))
        .collect()
}

/// Judges the file that a process with these arguments would read again.
fn judge(arguments: Vec<OsString>) -> Outcome<Option<Kind>> {
    if let Some(own) = crate::openvpn_arguments(&arguments) {
        let own: Result<Vec<String>, OsString> =
            own.into_iter().map(OsString::into_string).collect();
        let own = own.map_err(|word| format!("an argument is not UTF-8: {}", word.display()))?;
        service::openvpn::judge_arguments(&own)?;
        return Ok(Some(Kind::OpenVpn));
    }
    let matches = crate::cli().try_get_matches_from(arguments)?;
    match matches.subcommand() {
        Some(("up", matches)) => Ok(Some(crate::up::judge(matches)?)),
        #[cfg(feature = "relay")]
        Some(("relay", matches)) => {
            crate::relay::judge(matches)?;
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
        let judged = |more: &str, file: &str| {
            fs::write(&path, file).unwrap();
            let words = format!("millrace\0up\0{more}{}\0", path.display());
            let judged = judge(arguments(words.as_bytes()));
            judged.map(|_| ()).map_err(|error| error.to_string())
        };
        assert!(judged("", text).is_err(), "scripts are not permitted");
        assert_eq!(judged("--allow-scripts\0", text), Ok(()));
        let typo = text.replace("PrivateKey", "PrivteKey");
        assert!(judged("--allow-scripts\0", &typo).is_err());
        #[cfg(feature = "relay")]
        {
            fs::write(&path, "[Relay]\nTargt = 192.0.2.1:51820\n").unwrap();
            let words = format!("millrace\0relay\0{}\0", path.display());
            let error = judge(arguments(words.as_bytes())).unwrap_err().to_string();
            assert!(error.contains("office.conf"), "{error}");
        }
        let words = b"openvpn\0--client\0--dev\0tun\0--remot\x00192.0.2.1\0";
        let error = judge(arguments(words)).unwrap_err().to_string();
        assert!(error.contains("remot"), "{error}");
    }
}
