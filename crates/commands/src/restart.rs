//! `millrace restart`: ends a tunnel and brings it up again, through whatever runs it.

use crate::arguments::{flag, text};
use crate::down::{self, DownError, words_of};
use crate::{Outcome, code};
use clap::{Arg, ArgMatches, Command as Cli};
use config::types::is_ifname;
use service::running::{self, Running};
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The command-line definition of `restart`.
pub(crate) fn command() -> Cli {
    Cli::new("restart")
        .about("End a tunnel and bring it up again, as it was brought up")
        .long_about(
            "End a tunnel and bring it up again: by systemd where a unit (millrace@NAME, openvpn-client@NAME, one of your own) \
             has it up, or by millrace@NAME where there is no such tunnel yet, by netifd (ifup) on OpenWrt where it is an interface, and otherwise with the arguments that `millrace up` was \
             called with, in the background. A tunnel whose file cannot be used any more is not ended.",
        )
        .arg(
            Arg::new("NAME")
                .required_unless_present("daemons")
                .help("The profile's name, or the interface's on OpenWrt"),
        )
        .arg(
            flag(
                "daemons",
                "Every tunnel that `millrace up --daemon` has brought up: after an upgrade",
            )
            .conflicts_with("NAME"),
        )
}

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> Outcome {
    let (root, running) = (Path::new("/"), running::all()?);
    if matches.get_flag("daemons") {
        return restart_daemons(root, &running, &OfThisHost);
    }
    let name = text(matches, "NAME").unwrap_or_default();
    match by(name, root, running, &OfThisHost)? {
        By::Systemd(unit) => call("systemctl", &["restart", "--", &unit]),
        By::Netifd => call("ifup", &[name]),
        By::Hand {
            pid,
            arguments,
            directory,
        } => end_and_begin(name, pid, arguments, &directory),
    }
}

/// The program or person that runs a tunnel.
#[derive(Debug, PartialEq, Eq)]
enum By {
    /// Restart through systemd: the name of the unit.
    Systemd(String),
    Netifd,
    /// A process started by hand, with these arguments in this directory.
    Hand {
        pid: i32,
        arguments: Vec<OsString>,
        directory: PathBuf,
    },
}

/// Ends a tunnel and brings it up again. Refuses if its file is no longer usable: a user who came in through the tunnel
/// could not repair it.
fn end_and_begin(name: &str, pid: i32, arguments: Vec<OsString>, directory: &Path) -> Outcome {
    crate::reload::judge_process(pid)?;
    down::end(name, pid)?;
    let status = Command::new(program()?)
        .args(in_background(arguments))
        .current_dir(directory)
        .status()?;
    let code = status.code().and_then(|it| u8::try_from(it).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}

/// The path of this program, even after an upgrade has replaced the file.
fn program() -> std::io::Result<PathBuf> {
    let path = std::env::current_exe()?;
    let text = path.as_os_str().as_bytes();
    Ok(match text.strip_suffix(b" (deleted)") {
        Some(text) => PathBuf::from(OsStr::from_bytes(text)),
        None => path,
    })
}

/// Restarts every tunnel that `up --daemon` started, for package scripts. A failure does not stop the others.
fn restart_daemons(root: &Path, running: &[Running], asked: &dyn Systemd) -> Outcome {
    let mut code = ExitCode::SUCCESS;
    for Running {
        pid, name, path, ..
    } in running
    {
        let words = words_of(&root.join(format!("proc/{pid}"))).unwrap_or_default();
        // A tunnel at a terminal would lose it; others are restarted by the program that started them.
        if !words.iter().any(|it| it == "--daemon") {
            continue;
        }
        let restarted = match by(&path.display().to_string(), root, running.to_vec(), asked) {
            Ok(By::Hand {
                pid,
                arguments,
                directory,
            }) => end_and_begin(name, pid, arguments, &directory),
            Ok(By::Systemd(_) | By::Netifd) => continue,
            Err(error) => Err(error),
        };
        match restarted {
            Ok(ExitCode::SUCCESS) => {}
            Ok(other) => code = other,
            Err(error) => {
                log::error!("{name}: not restarted: {error}");
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}

fn unit(name: &str) -> String {
    format!("millrace@{name}.service")
}

/// The units of the packages that may have a tunnel of this name up.
pub(crate) fn units(name: &str) -> [String; 3] {
    let openvpn = |of: &str| format!("openvpn-{of}@{name}.service");
    [unit(name), openvpn("client"), openvpn("server")]
}

/// Runs a system program, and returns its exit code.
fn call(program: &str, arguments: &[&str]) -> Outcome {
    let status = Command::new(program).args(arguments).status();
    let status = status.map_err(|error| format!("{program}: {error}"))?;
    Ok(code(status.success()))
}

/// Asks systemd about processes and units.
trait Systemd {
    /// The unit of a process; `None` if it has none. Fails if systemd does not answer.
    fn unit_of(&self, pid: i32) -> Result<Option<String>, ()>;

    /// The main process of a unit; 0 if it has none.
    fn main_process(&self, unit: &str) -> Option<i32>;

    /// Whether a unit is enabled, runs or is about to.
    fn is_in_use(&self, unit: &str) -> bool;
}

/// This host's systemd, through `busctl` and `systemctl`.
struct OfThisHost;

impl Systemd for OfThisHost {
    fn unit_of(&self, pid: i32) -> Result<Option<String>, ()> {
        const NAME: &str = "org.freedesktop.systemd1";
        let (object, manager) = ("/org/freedesktop/systemd1", format!("{NAME}.Manager"));
        let pid = pid.to_string();
        let arguments = ["call", NAME, object, &manager, "GetUnitByPID", "u", &pid];
        let output = Command::new("busctl").args(arguments).output();
        let output = output.map_err(|_| ())?;
        if output.status.success() {
            let text = String::from_utf8(output.stdout).map_err(|_| ())?;
            return Ok(Some(unit_of_object(&text).ok_or(())?));
        }
        // Distinguishes a process without a unit from a bus that does not answer.
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        match why.contains("does not belong to any loaded unit") {
            true => Ok(None),
            false => Err(()),
        }
    }

    fn main_process(&self, unit: &str) -> Option<i32> {
        let arguments = ["show", "--property=MainPID", "--value", "--", unit];
        let output = Command::new("systemctl").args(arguments).output().ok()?;
        String::from_utf8(output.stdout).ok()?.trim().parse().ok()
    }

    fn is_in_use(&self, unit: &str) -> bool {
        let arguments = ["show", "--property=ActiveState,UnitFileState", "--", unit];
        let output = Command::new("systemctl").args(arguments).output();
        let text = output.map(|it| String::from_utf8_lossy(&it.stdout).into_owned());
        let in_use = |line: &str| match line.split_once('=') {
            Some(("ActiveState", state)) => !matches!(state, "inactive" | "failed" | ""),
            Some((_, state)) => state.starts_with("enabled"),
            None => false,
        };
        text.is_ok_and(|text| text.lines().any(in_use))
    }
}

/// The unit in `busctl`'s output: `o "/org/freedesktop/systemd1/unit/millrace_40office_2eservice"`. An underscore and
/// two hexadecimal digits stand for a byte that object names do not allow.
fn unit_of_object(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("/unit/")?;
    let name = rest.trim_end().strip_suffix('"')?.as_bytes();
    let mut unit = Vec::new();
    let mut at = 0;
    while let Some(&byte) = name.get(at) {
        let code = name.get(at + 1..at + 3).filter(|_| byte == b'_');
        let code = code.and_then(|it| std::str::from_utf8(it).ok());
        match code.and_then(|it| u8::from_str_radix(it, 16).ok()) {
            Some(other) => {
                unit.push(other);
                at += 3;
            }
            None => {
                unit.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8(unit).ok()
}

/// Whether a unit can bring a tunnel up again: it is neither a session's scope nor another systemd instance's.
fn is_of_service(unit: &str) -> bool {
    unit.ends_with(".service") && !unit.starts_with("user@")
}

/// The unit of a process in the system's systemd, from `/proc/PID/cgroup`: used if systemd does not answer.
fn unit_of(groups: &str) -> Option<&str> {
    // The unified hierarchy, or systemd's own; other hierarchies may lag behind.
    let path = groups.lines().find_map(|line| {
        line.strip_prefix("0::")
            .filter(|path| *path != "/")
            .or_else(|| line.split_once(":name=systemd:").map(|it| it.1))
    })?;
    let mut parts = path.split('/');
    // Units below a user's systemd do not belong to the system's.
    if parts.clone().any(|it| it.starts_with("user@")) {
        return None;
    }
    // A unit may have control groups below it, but no other unit: a session's shell is in a scope.
    let unit = parts.find(|it| it.ends_with(".service") || it.ends_with(".scope"))?;
    let unit = unit.strip_prefix('_').unwrap_or(unit);
    unit.ends_with(".service").then_some(unit)
}

/// Finds the unit or process that runs the tunnel; `root` is the root of the host's file system.
fn by(
    name: &str,
    root: &Path,
    running: Vec<Running>,
    asked: &dyn Systemd,
) -> Result<By, Box<dyn Error>> {
    let netifd = Path::new("/etc/config/network");
    let interface = |it: &Running| it.name == name && it.path.starts_with(netifd);
    if running.iter().any(interface) {
        return Ok(By::Netifd);
    }
    let systemd = root.join("run/systemd/system").is_dir();
    let pid = match down::process_of(name, running) {
        Ok(pid) => pid,
        // An enabled unit between two starts, or a stopped one.
        Err(DownError::NotRunning { .. })
            if systemd && is_ifname(name) && !crate::profile::files_of(name).is_empty() =>
        {
            let mut units = units(name).into_iter();
            let used = units.find(|unit| asked.is_in_use(unit));
            return Ok(By::Systemd(used.unwrap_or_else(|| unit(name))));
        }
        Err(error) => return Err(error.into()),
    };
    let process = root.join(format!("proc/{pid}"));
    let unit = || match asked.unit_of(pid) {
        Ok(unit) => unit.filter(|it| is_of_service(it)),
        Err(()) => {
            let groups = fs::read_to_string(process.join("cgroup")).unwrap_or_default();
            unit_of(&groups).map(str::to_owned)
        }
    };
    if systemd && let Some(unit) = unit() {
        // Without session scopes, a program started from a shell of ssh.service is in that unit too.
        return match asked.main_process(&unit) {
            Some(main) if main == pid || main == 0 => Ok(By::Systemd(unit)),
            _ => {
                let how = format!(
                    "restart {unit} if that has it up; otherwise `millrace down {name}`, and bring it up again as before"
                );
                Err(
                    format!("{name}: process {pid} is in {unit} and not its main process; {how}")
                        .into(),
                )
            }
        };
    }
    let words = words_of(&process)?.into_iter().skip(1);
    let arguments: Vec<OsString> = words.filter(|it| !it.is_empty()).collect();
    if arguments
        .first()
        .is_none_or(|it| it != "up" && it != "start")
    {
        let how = "it was not brought up by `millrace up`; restart what started it";
        return Err(format!("{name}: process {pid}: {how}").into());
    }
    Ok(By::Hand {
        pid,
        arguments,
        directory: fs::read_link(process.join("cwd"))?,
    })
}

/// The arguments for starting the process without a terminal.
fn in_background(mut arguments: Vec<OsString>) -> Vec<OsString> {
    if !arguments.iter().any(|it| it == "--daemon") {
        arguments.insert(1, "--daemon".into());
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A systemd that does not answer about processes, with this main process for every unit.
    struct ByGroups(Option<i32>);

    impl Systemd for ByGroups {
        fn unit_of(&self, _: i32) -> Result<Option<String>, ()> {
            Err(())
        }

        fn main_process(&self, _: &str) -> Option<i32> {
            self.0
        }

        fn is_in_use(&self, _: &str) -> bool {
            false
        }
    }

    /// A systemd with every process in this unit; the main process is 7.
    struct In(Option<&'static str>);

    impl Systemd for In {
        fn unit_of(&self, _: i32) -> Result<Option<String>, ()> {
            Ok(self.0.map(str::to_owned))
        }

        fn main_process(&self, _: &str) -> Option<i32> {
            Some(7)
        }

        fn is_in_use(&self, _: &str) -> bool {
            true
        }
    }

    #[test]
    fn objects_of_the_bus_are_units() {
        for (text, unit) in [
            (
                "o \"/org/freedesktop/systemd1/unit/millrace_40office_2eservice\"\n",
                Some("millrace@office.service"),
            ),
            (
                "o \"/org/freedesktop/systemd1/unit/openvpn_2dclient_40my_5fvpn_2eservice\"\n",
                Some("openvpn-client@my_vpn.service"),
            ),
            ("o \"/\"\n", None),
            ("", None),
        ] {
            assert_eq!(unit_of_object(text).as_deref(), unit, "{text}");
        }
    }

    /// The command asks systemd first, even if the cgroup file names another unit.
    #[test]
    fn systemd_is_asked_before_groups_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let process = root.join("proc/7");
        fs::create_dir_all(&process).unwrap();
        fs::create_dir_all(root.join("run/systemd/system")).unwrap();
        fs::write(process.join("cmdline"), b"millrace\0up\0office\0").unwrap();
        std::os::unix::fs::symlink("/etc", process.join("cwd")).unwrap();
        for (unit, groups, by_unit) in [
            (Some("vpn.service"), "5:memory:/x\n0::/\n", true),
            (
                Some("vpn.service"),
                "0::/user.slice/session-1.scope\n",
                true,
            ),
            (
                Some("session-1.scope"),
                "0::/system.slice/vpn.service\n",
                false,
            ),
            (
                Some("user@1000.service"),
                "0::/system.slice/vpn.service\n",
                false,
            ),
            (None, "0::/system.slice/vpn.service\n", false),
        ] {
            fs::write(process.join("cgroup"), groups).unwrap();
            let up = vec![Running {
                pid: 7,
                name: "office".to_owned(),
                path: "/etc/millrace/office.conf".into(),
                started: None,
            }];
            let found = by("office", root, up, &In(unit)).unwrap();
            assert_eq!(matches!(found, By::Systemd(_)), by_unit, "{unit:?}");
        }
    }

    #[test]
    fn what_has_a_tunnel_up_brings_it_up_again() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let running = |path: &str| Running {
            pid: 7,
            name: "office".to_owned(),
            path: path.into(),
            started: None,
        };
        let netifd = vec![running("/etc/config/network/office")];
        assert_eq!(
            by("office", root, netifd, &ByGroups(None)).unwrap(),
            By::Netifd
        );
        let process = root.join("proc/7");
        fs::create_dir_all(&process).unwrap();
        fs::write(process.join("cmdline"), b"millrace\0up\0-v\0office\0").unwrap();
        std::os::unix::fs::symlink("/etc", process.join("cwd")).unwrap();
        let up = || vec![running("/etc/millrace/office.conf")];
        let By::Hand {
            arguments,
            directory,
            pid,
        } = by("office", root, up(), &ByGroups(None)).unwrap()
        else {
            panic!("by hand");
        };
        assert_eq!((pid, directory.as_path()), (7, Path::new("/etc")));
        assert_eq!(in_background(arguments), ["up", "--daemon", "-v", "office"]);
        fs::write(process.join("cmdline"), b"millrace\0start\0office\0").unwrap();
        let found = by("office", root, up(), &ByGroups(None)).unwrap();
        assert!(matches!(found, By::Hand { .. }), "{found:?}");
        fs::create_dir_all(root.join("run/systemd/system")).unwrap();
        let in_group = |group: &str, main| {
            fs::write(process.join("cgroup"), group).unwrap();
            by("office", root, up(), &ByGroups(main))
        };
        for (unit, main, group) in [
            (
                "millrace@office.service",
                7,
                "0::/system.slice/system-millrace.slice/millrace@office.service\n",
            ),
            // A unit with another name than the tunnel's, a control group below it, and no main process known to
            // systemd.
            ("vpn.service", 7, "0::/system.slice/vpn.service\n"),
            ("vpn.service", 0, "0::/system.slice/vpn.service/below\n"),
            (
                "openvpn-client@office.service",
                7,
                "0::/system.slice/system-openvpn\\x2dclient.slice/openvpn-client@office.service\n",
            ),
            (
                "vpn.service",
                7,
                "5:memory:/\n1:name=systemd:/system.slice/vpn.service\n0::/\n",
            ),
        ] {
            let found = in_group(group, Some(main)).unwrap();
            assert_eq!(found, By::Systemd(unit.to_owned()), "{group}");
        }
        // Started by hand on a host with systemd.
        for group in [
            "0::/user.slice/user-0.slice/session-1.scope\n",
            "0::/user.slice/user-1000.slice/user@1000.service/app.slice/terminal.service\n",
            "0::/\n",
        ] {
            assert!(
                matches!(in_group(group, Some(1)).unwrap(), By::Hand { .. }),
                "{group}"
            );
        }
        // A shell without a session scope.
        let error = in_group("0::/system.slice/ssh.service\n", Some(5)).unwrap_err();
        assert!(
            error.to_string().contains("restart ssh.service if"),
            "{error}"
        );
        // An upgrade reports it, except for a tunnel at a terminal.
        for (words, code) in [
            (&b"millrace\0up\0--daemon\0office\0"[..], ExitCode::FAILURE),
            (b"millrace\0up\0office\0", ExitCode::SUCCESS),
        ] {
            fs::write(process.join("cmdline"), words).unwrap();
            let restarted = restart_daemons(root, &up(), &ByGroups(Some(5)));
            assert_eq!(restarted.unwrap(), code);
        }
        fs::write(process.join("cgroup"), "0::/\n").unwrap();
        fs::write(process.join("cmdline"), b"wireguard-go\0-f\0wg0\0").unwrap();
        assert!(by("office", root, up(), &ByGroups(None)).is_err());
        let none = by("none", root, Vec::new(), &ByGroups(None))
            .unwrap_err()
            .to_string();
        assert!(none.contains("no tunnel of this name is up"), "{none}");
    }
}
