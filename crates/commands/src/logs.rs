//! `millrace logs`: shows tunnels' log messages, from wherever this host keeps them.

use crate::arguments::{flag, text};
use crate::down::words_of;
use crate::restart::units;
use crate::{Outcome, code};
use clap::{Arg, ArgMatches, Command as Cli};
use service::running::{self, Running};
use std::error::Error;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Number of lines to show if this program does not filter them.
const LINES: &str = "200";

/// Files that syslog daemons write.
const SYSLOGS: [&str; 2] = ["var/log/syslog", "var/log/messages"];

/// The command-line definition of `logs`.
pub(crate) fn command() -> Cli {
    Cli::new("logs")
        .about("Show the tunnels' log")
        .long_about(
            "Show the tunnels' log: from the file that `millrace up --log` writes, systemd's journal, OpenWrt's log \
             (logread), or the syslog daemon's file.",
        )
        .arg(Arg::new("NAME").help("Show only this tunnel, named by its profile or interface"))
        .arg(flag("follow", "Show new lines, too, until interrupted").short('f'))
}

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> Outcome {
    let name = text(matches, "NAME");
    let follow = matches.get_flag("follow");
    let running = running::all();
    let may_be_up = running.is_err();
    let running = running.unwrap_or_default();
    let known = may_be_up || name.is_none_or(|name| is_known(name, &running));
    let source = source(name, follow, Path::new("/"), &running).ok_or(
        "no log found: this host has no journal, no logread and no syslog file; start tunnels with `millrace up --log \
         FILE`, and read that file yourself once its tunnel has ended",
    )?;
    let (code, count) = source.show(follow && known)?;
    if count == 0 && !known {
        // A removed tunnel may still have a log.
        let name = name.unwrap_or_default();
        log::error!(
            "{name}: no tunnel of this name exists, and the log has no lines of one; `millrace list` shows the tunnels"
        );
        return Ok(match code {
            ExitCode::SUCCESS => ExitCode::FAILURE,
            code => code,
        });
    }
    if count == 0 && !follow {
        let whose = name.map_or_else(String::new, |name| format!("{name}: "));
        host::terminal::note(format_args!("millrace: {whose}the log is empty"));
    }
    Ok(code)
}

/// Whether a tunnel has this name: as a file, a running process, or a daemon's interface.
fn is_known(name: &str, running: &[Running]) -> bool {
    let runs = running.iter().any(|it| it.name == name);
    runs || !crate::profile::files_of(name).is_empty()
        || service::status::socket_path(name).exists()
        // Interfaces of OpenWrt's netifd need no files.
        || Path::new("/etc/config/network").exists()
}

/// A program that prints a log, and a filter for its lines.
#[derive(Debug, PartialEq, Eq)]
struct Source {
    program: &'static str,
    arguments: Vec<String>,
    /// Texts that mark a line to be shown; if empty, every line is shown.
    marks: Vec<String>,
}

/// Finds the log; `root` is the root of the host's file system.
fn source(name: Option<&str>, follow: bool, root: &Path, running: &[Running]) -> Option<Source> {
    let source = |program, arguments: &[&str], more: Vec<String>, marks| {
        let own = arguments.iter().map(|it| (*it).to_owned());
        Some(Source {
            program,
            arguments: own.chain(more).collect(),
            marks,
        })
    };
    let tail = |count, file: &Path, marks| {
        let file = vec![file.display().to_string()];
        let options = ["-n", count, "-F"];
        source("tail", &options[..2 + usize::from(follow)], file, marks)
    };
    if let Some(file) = name.and_then(|name| own_file(name, root, running)) {
        return tail(LINES, &file, Vec::new());
    }
    if root.join("run/systemd/system").is_dir() {
        let mut fields = Vec::new();
        match name {
            // Units of that name, the running process, or the syslog name of a background process.
            Some(name) => {
                fields.extend(units(name).map(|it| format!("_SYSTEMD_UNIT={it}")));
                for up in running.iter().filter(|it| it.name == name) {
                    // The process ID may have belonged to another program before.
                    let of_process = format!("_PID={}", up.pid);
                    fields.extend(["+".to_owned(), of_process, "_COMM=millrace".to_owned()]);
                }
                fields.extend(["+".to_owned(), format!("SYSLOG_IDENTIFIER=millrace-{name}")]);
            }
            None => fields.push("_COMM=millrace".to_owned()),
        }
        let option = if follow { "-f" } else { "--no-pager" };
        return source("journalctl", &[option, "-n", LINES], fields, Vec::new());
    }
    let marks = marks(name, running);
    if root.join("sbin/logread").exists() {
        let options = if follow { &["-f"][..] } else { &[] };
        return source("logread", options, Vec::new(), marks);
    }
    let file = SYSLOGS.iter().find(|it| root.join(it).is_file())?;
    tail("+1", &root.join(file), marks)
}

/// Texts that mark lines of tunnels: the prefix of syslog daemons, and that of netifd, which repeats its processes'
/// output.
fn marks(name: Option<&str>, running: &[Running]) -> Vec<String> {
    let of = |name: &str| {
        [
            format!("millrace-{name}["),
            format!("millrace-{name}:"),
            format!("netifd: {name} ("),
        ]
    };
    let names = running.iter().map(|it| it.name.as_str());
    match name {
        Some(name) => of(name).to_vec(),
        None => ["millrace-", "millrace[", "millrace:"]
            .map(str::to_owned)
            .into_iter()
            .chain(names.flat_map(of))
            .collect(),
    }
}

/// The log file that a running tunnel writes.
fn own_file(name: &str, root: &Path, running: &[Running]) -> Option<PathBuf> {
    let up = running.iter().find(|it| it.name == name)?;
    let process = root.join(format!("proc/{}", up.pid));
    let words = words_of(&process).ok()?;
    let words: Vec<_> = words.iter().map(|it| it.to_string_lossy()).collect();
    let own = words.iter().find_map(|it| it.strip_prefix("--log="));
    let next = words.iter().position(|it| it == "--log");
    let file = own.or_else(|| Some(words.get(next? + 1)?.as_ref()))?;
    let directory = fs::read_link(process.join("cwd")).unwrap_or_default();
    Some(directory.join(file))
}

impl Source {
    /// Shows the log, and counts its lines. With `through`, an unfiltered program prints directly, and its lines are
    /// not counted.
    fn show(&self, through: bool) -> Result<(ExitCode, usize), Box<dyn Error>> {
        let mut command = Command::new(self.program);
        command.args(&self.arguments);
        let failed = |error: io::Error| format!("{}: {error}", self.program);
        if self.marks.is_empty() && through {
            let status = command.status().map_err(failed)?;
            return Ok((code(status.success()), 0));
        }
        let mut count = 0;
        let mut child = command.stdout(Stdio::piped()).spawn().map_err(failed)?;
        let out = child.stdout.take().ok_or("no output")?;
        for line in BufReader::new(out).split(b'\n') {
            let line = line?;
            let text = String::from_utf8_lossy(&line);
            let marked = || self.marks.iter().any(|mark| text.contains(mark.as_str()));
            // journald's message for an empty log.
            if text == "-- No entries --" || !(self.marks.is_empty() || marked()) {
                continue;
            }
            count += 1;
            if let Err(error) = writeln!(io::stdout().lock(), "{text}") {
                let _ = child.kill();
                child.wait()?;
                // The reader has closed the pipe.
                return match error.kind() {
                    io::ErrorKind::BrokenPipe => Ok((ExitCode::SUCCESS, count)),
                    _ => Err(format!("standard output: {error}").into()),
                };
            }
        }
        let status = child.wait()?;
        Ok((code(status.success()), count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_where_this_host_keeps_it() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let make = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let running = [Running {
            pid: 7,
            name: "office".to_owned(),
            path: "/etc/millrace/office.conf".into(),
            started: None,
        }];
        let source = |name, follow| source(name, follow, root, &running);
        assert_eq!(source(None, false), None);
        make("var/log/messages", "");
        let found = source(Some("office"), true).unwrap();
        assert_eq!((found.program, &*found.arguments[2]), ("tail", "-F"));
        assert!(found.marks.contains(&"millrace-office[".to_owned()));
        make("sbin/logread", "");
        let found = source(None, true).unwrap();
        assert_eq!(
            (found.program, &found.arguments[..]),
            ("logread", &["-f".to_owned()][..])
        );
        assert!(found.marks.contains(&"netifd: office (".to_owned()));
        make("run/systemd/system/x", "");
        let found = source(Some("office"), false).unwrap();
        assert_eq!(found.program, "journalctl");
        for field in [
            "_SYSTEMD_UNIT=millrace@office.service",
            "_SYSTEMD_UNIT=openvpn-client@office.service",
            "_PID=7",
            "SYSLOG_IDENTIFIER=millrace-office",
        ] {
            assert!(found.arguments.contains(&field.to_owned()), "{field}");
        }
        assert!(found.marks.is_empty());
        // A tunnel's own log file comes before all other sources.
        make(
            "proc/7/cmdline",
            "millrace\0up\0--log\0office.log\0office\0",
        );
        std::os::unix::fs::symlink("/var/log", root.join("proc/7/cwd")).unwrap();
        let found = source(Some("office"), false).unwrap();
        assert_eq!(found.program, "tail");
        assert!(found.arguments.contains(&"/var/log/office.log".to_owned()));
    }

    #[test]
    fn only_lines_of_tunnels_are_shown() {
        let source = Source {
            program: "printf",
            arguments: vec!["a dhcp line\\n".to_owned()],
            marks: vec!["millrace-office[".to_owned()],
        };
        let (code, count) = source.show(false).unwrap();
        assert_eq!((code, count), (ExitCode::SUCCESS, 0));
        let unreadable = Source {
            program: "false",
            ..source
        };
        assert_eq!(unreadable.show(false).unwrap().0, ExitCode::FAILURE);
    }

    #[test]
    fn lines_are_counted_and_those_of_the_journal_itself_are_not() {
        for (printed, count) in [("-- No entries --\\n", 0), ("one\\ntwo\\n", 2)] {
            let source = Source {
                program: "printf",
                arguments: vec!["--".to_owned(), printed.to_owned()],
                marks: Vec::new(),
            };
            assert_eq!(source.show(false).unwrap().1, count, "{printed}");
        }
    }
}
