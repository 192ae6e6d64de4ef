//! Where log lines other than OpenVPN's go: standard error, a file, or the system log. [`Syslog`] writes to the
//! machine's system log through its socket (RFC 3164, section 4.1).

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use log::{Level, Record};

/// The variable that sets the level, and keeps the log of a process in the background on standard error.
const VARIABLE: &str = "MILLRACE_LOG";

/// A destination other than standard error.
enum Sink {
    File(PathBuf, File),
    Syslog(Syslog),
}

static SINK: Mutex<Option<Sink>> = Mutex::new(None);

/// Starts logging to standard error, at `level` or the environment's level.
pub fn begin(level: &str) {
    let environment = env_logger::Env::default().filter_or(VARIABLE, level);
    env_logger::Builder::from_env(environment)
        .format(|out, record| match &mut *sink() {
            None => writeln!(out, "millrace: {}", line(record)),
            Some(sink) => {
                // A log that cannot be written is no reason to stop.
                let _ = sink.put(record);
                // A start that fails tells the terminal why. A process in the background has none.
                match sink {
                    Sink::File(..) if record.level() == Level::Error => {
                        writeln!(out, "millrace: {}", line(record))
                    }
                    _ => Ok(()),
                }
            }
        })
        .init();
}

/// Logs to a file, relative to the current directory. [`reopen`] opens it again.
///
/// # Errors
/// The file cannot be opened; the text names it.
pub fn to_file(path: &Path) -> Result<(), String> {
    // Absolute: a process in the background may have another directory when it opens the file again.
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let file = open(&path).map_err(|e| format!("--log {}: {e}", path.display()))?;
    *sink() = Some(Sink::File(path, file));
    Ok(())
}

/// Stops using standard error. Without a log file, lines go to the system log, now or once it runs.
pub fn leave_terminal(ifname: &str) {
    let mut sink = sink();
    if sink.is_none() && std::env::var_os(VARIABLE).is_none() {
        *sink = Syslog::later(&format!("millrace-{ifname}"))
            .ok()
            .map(Sink::Syslog);
    }
}

/// Opens the log file again, if there is one: another program may have moved it away.
pub fn reopen() {
    let mut sink = sink();
    if let Some(Sink::File(path, file)) = &mut *sink
        && let Ok(new) = open(path)
    {
        *file = new;
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
}

fn sink() -> std::sync::MutexGuard<'static, Option<Sink>> {
    // No code that can panic holds this lock.
    SINK.lock().unwrap_or_else(PoisonError::into_inner)
}

fn line(record: &Record<'_>) -> String {
    let level = record.level().as_str().to_ascii_lowercase();
    format!("{level}: {}", unmarked(&record.args().to_string()))
}

/// A line without the mark that OpenVPN's own log puts before a warning: here each line shows its level.
fn unmarked(text: &str) -> &str {
    text.strip_prefix("WARNING: ").unwrap_or(text)
}

impl Sink {
    fn put(&mut self, record: &Record<'_>) -> io::Result<()> {
        let now = SystemTime::now();
        match self {
            Self::File(_, file) => {
                let text = format!("{} {}\n", netio::time::local(now), line(record));
                file.write_all(text.as_bytes())
            }
            Self::Syslog(syslog) => {
                let severity = match record.level() {
                    Level::Error => ERROR,
                    Level::Warn => WARNING,
                    Level::Info => INFO,
                    Level::Debug | Level::Trace => DEBUG,
                };
                syslog.send(severity, unmarked(&record.args().to_string()), now)
            }
        }
    }
}

/// Severities of RFC 3164, table 2.
pub const ERROR: u32 = 3;
/// See [`ERROR`].
pub const WARNING: u32 = 4;
/// See [`ERROR`].
pub const NOTICE: u32 = 5;
/// See [`ERROR`].
pub const INFO: u32 = 6;
/// See [`ERROR`].
pub const DEBUG: u32 = 7;

/// The socket of the system log.
const SOCKET: &str = "/dev/log";

/// The facility for daemons, shifted into place.
const FACILITY: u32 = 3 << 3;

/// The system log.
#[derive(Debug)]
pub struct Syslog {
    socket: UnixDatagram,
    path: PathBuf,
    name: String,
}

impl Syslog {
    /// Connects to the system log of this machine, under the name `name`.
    ///
    /// # Errors
    /// No system log listens.
    pub fn new(name: &str) -> io::Result<Self> {
        Self::at(Path::new(SOCKET), name)
    }

    /// Opens a log as [`Syslog::new`] does, but lets the system log start later.
    ///
    /// # Errors
    /// The kernel gives no socket.
    pub fn later(name: &str) -> io::Result<Self> {
        Self::unconnected(Path::new(SOCKET), name)
    }

    /// Opens a log as [`Syslog::new`] does, on another socket than the machine's.
    ///
    /// # Errors
    /// The errors of [`Syslog::new`].
    pub fn at(path: &Path, name: &str) -> io::Result<Self> {
        let syslog = Self::unconnected(path, name)?;
        syslog.socket.connect(path)?;
        Ok(syslog)
    }

    fn unconnected(path: &Path, name: &str) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        // A full log must not hold up the tunnel.
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            path: path.to_owned(),
            name: name.to_owned(),
        })
    }

    /// Sends a line.
    ///
    /// # Errors
    /// No system log listens, or its queue is full.
    pub fn send(&self, severity: u32, text: &str, now: SystemTime) -> io::Result<()> {
        let priority = FACILITY | severity;
        let at = netio::time::local(now).syslog();
        let pid = std::process::id();
        let message = format!("<{priority}>{at} {}[{pid}]: {text}", self.name);
        let sent = self.socket.send(message.as_bytes());
        match sent {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                // The system log has started or restarted since, with a new socket.
                self.socket.connect(&self.path)?;
                self.socket.send(message.as_bytes()).map(drop)
            }
            sent => sent.map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_marked_once() {
        for (text, wanted) in [
            ("WARNING: nice failed", "warn: nice failed"),
            ("plain", "warn: plain"),
        ] {
            let shown = line(
                &Record::builder()
                    .level(Level::Warn)
                    .args(format_args!("{text}"))
                    .build(),
            );
            assert_eq!(shown, wanted);
        }
    }

    #[test]
    fn a_log_that_starts_late_or_anew_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let syslog = Syslog::unconnected(&path, "name").unwrap();
        let send = |text: &str| syslog.send(WARNING, text, SystemTime::now());
        send("lost").unwrap_err();
        for text in ["first", "second"] {
            let _ = std::fs::remove_file(&path);
            let daemon = UnixDatagram::bind(&path).unwrap();
            send(text).unwrap();
            let mut buffer = [0; 200];
            let count = daemon.recv(&mut buffer).unwrap();
            let message = std::str::from_utf8(&buffer[..count]).unwrap();
            assert!(
                message.starts_with("<28>") && message.ends_with(text),
                "{message}"
            );
        }
    }
}
