//! Where log lines other than OpenVPN's go: standard error, a file, or the system log.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use log::{Level, Record};

use crate::syslog::{self, Syslog};

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
                Ok(())
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
    let level = record.level().as_str().to_lowercase();
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
                    Level::Error => syslog::ERROR,
                    Level::Warn => syslog::WARNING,
                    Level::Info => syslog::INFO,
                    Level::Debug | Level::Trace => syslog::DEBUG,
                };
                syslog.send(severity, unmarked(&record.args().to_string()), now)
            }
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
}
