//! Writes the log as OpenVPN does: selection (`verb`, `mute`), format (times, `suppress-timestamps`,
//! `machine-readable-output`) and destination.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::SystemTime;

use crate::console::log_lines::Line;
use crate::management::LogFlag;
use crate::timestamp::{Clock, since_epoch};
use host::logging::{self, Syslog};
use host::written_file;

/// Lowest `verb` at which times have microseconds.
const MICROSECONDS: u8 = 4;

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Form {
    /// The local time is in front of each line.
    #[default]
    Timed,
    /// `suppress-timestamps`.
    Bare,
    /// `machine-readable-output`: seconds since 1970, and the flags in hexadecimal.
    Machine,
}

impl Form {
    /// Formats a line without its end. `prefix` names a server's client.
    pub(crate) fn text(
        self,
        line: &Line,
        prefix: Option<&str>,
        verb: u8,
        clock: &Clock,
        now: SystemTime,
    ) -> String {
        let said = said(line, prefix);
        match self {
            Self::Bare => said,
            Self::Timed if verb >= MICROSECONDS => {
                format!("{} {said}", clock.ascii_microseconds(now))
            }
            Self::Timed => format!("{} {said}", clock.ascii(now)),
            Self::Machine => {
                let at = since_epoch(now);
                let (seconds, micros) = (at.as_secs(), at.subsec_micros());
                format!("{seconds}.{micros:06} {:x} {said}", line.bits())
            }
        }
    }
}

/// Returns a line's text with its prefix, for the management port.
pub(crate) fn said(line: &Line, prefix: Option<&str>) -> String {
    match prefix {
        Some(prefix) => format!("{prefix} {}", line.text),
        None => line.text.clone(),
    }
}

/// Leaves out lines when too many of one kind come in a row.
#[derive(Clone, Copy, Debug, Default)]
struct Mute {
    most: u32,
    kind: u32,
    count: u32,
}

/// Decision about a line.
#[derive(Debug, Eq, PartialEq)]
enum Muted {
    /// Write the line.
    Write,
    /// Write the line after a note that this many lines were left out.
    WriteAfter(u32),
    /// Leave the line out, and log that muting begins.
    Begins,
    /// Leave the line out.
    Leave,
}

impl Mute {
    fn judge(&mut self, line: &Line) -> Muted {
        if self.most == 0 {
            return Muted::Write;
        }
        // Lines of kind 0 are never muted.
        if line.kind == self.kind && line.kind != 0 {
            self.count += 1;
            return match self.count {
                count if count <= self.most => Muted::Write,
                count if count == self.most + 1 => Muted::Begins,
                _ => Muted::Leave,
            };
        }
        let left_out = self.count.saturating_sub(self.most);
        self.kind = line.kind;
        self.count = 1;
        if left_out > 0 {
            Muted::WriteAfter(left_out)
        } else {
            Muted::Write
        }
    }
}

/// Destination of log lines.
#[derive(Debug)]
pub(crate) enum Sink {
    /// Standard output, where stock writes too.
    Stdout,
    /// A file or device.
    File(File),
    /// The system log.
    Syslog(Syslog),
}

impl Sink {
    /// Opens the file of `log` or `log-append`.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub(crate) fn file(path: &Path, append: bool) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.create(true).mode(0o600).append(append);
        options.write(true).truncate(!append);
        written_file::open(path, &mut options).map(Self::File)
    }
}

/// Returns the syslog severity.
const fn severity(flag: LogFlag) -> u32 {
    match flag {
        LogFlag::Fatal | LogFlag::NonFatal => logging::ERROR,
        LogFlag::Warning => logging::WARNING,
        LogFlag::Info | LogFlag::Detail | LogFlag::Debug => logging::NOTICE,
    }
}

/// The log.
#[derive(Debug)]
pub(crate) struct Logger {
    sink: Sink,
    form: Form,
    clock: Clock,
    verb: u8,
    mute: Mute,
}

impl Logger {
    /// Makes a log for lines up to `verb`, and at most `mute` of a kind in a row (0: all).
    pub(crate) fn new(sink: Sink, form: Form, clock: Clock, verb: u8, mute: u32) -> Self {
        Self {
            sink,
            form,
            clock,
            verb,
            mute: Mute {
                most: mute,
                ..Mute::default()
            },
        }
    }

    /// Sets `verb`.
    pub(crate) const fn set_verb(&mut self, verb: u8) {
        self.verb = verb;
    }

    /// Sets `mute`.
    pub(crate) const fn set_mute(&mut self, most: u32) {
        self.mute.most = most;
    }

    /// Whether lines of this `verb` are shown; others need not be formatted.
    pub(crate) const fn shows(&self, verb: u8) -> bool {
        verb <= self.verb
    }

    /// Writes a line if it is to be shown, and returns the written lines for the management port. Write errors are
    /// ignored.
    pub(crate) fn write(&mut self, line: Line, prefix: Option<&str>, now: SystemTime) -> Vec<Line> {
        let mut written = Vec::new();
        if self.shows(line.verb) {
            written = match self.mute.judge(&line) {
                Muted::Leave => written,
                Muted::Write => vec![line],
                Muted::Begins => vec![Line::info("NOTE: --mute triggered...")],
                Muted::WriteAfter(count) => {
                    let most = self.mute.most;
                    let note = format!(
                        "{count} variation(s) on previous {most} message(s) suppressed by --mute"
                    );
                    vec![Line::info(note), line]
                }
            };
        }
        for line in &written {
            let _ = self.put(line, prefix, now);
        }
        written
    }

    fn put(&mut self, line: &Line, prefix: Option<&str>, now: SystemTime) -> io::Result<()> {
        let text = |form: Form| {
            let mut text = form.text(line, prefix, self.verb, &self.clock, now);
            text.push('\n');
            text
        };
        match &mut self.sink {
            Sink::Stdout => io::stdout().write_all(text(self.form).as_bytes()),
            Sink::File(file) => file.write_all(text(self.form).as_bytes()),
            Sink::Syslog(syslog) => syslog.send(severity(line.flag), &said(line, prefix), now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;
    use std::time::{Duration, UNIX_EPOCH};

    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::new(1_772_384_645, 42_000)
    }

    #[test]
    fn lines_have_three_forms() {
        let line = Line::fault("TLS handshake 1 failed");
        let text =
            |form: Form, verb| form.text(&line, Some("c/192.0.2.1:5"), verb, &Clock::utc(), now());
        let said = "c/192.0.2.1:5 TLS handshake 1 failed";
        assert_eq!(text(Form::Bare, 3), said);
        assert_eq!(text(Form::Timed, 3), format!("2026-03-01 17:04:05 {said}"));
        assert_eq!(
            text(Form::Timed, 4),
            format!("2026-03-01 17:04:05 us=42 {said}")
        );
        assert_eq!(
            text(Form::Machine, 4),
            format!("1772384645.000042 20 {said}")
        );
    }

    fn logger(directory: &Path, verb: u8, mute: u32) -> Logger {
        let sink = Sink::file(&directory.join("log"), false).unwrap();
        Logger::new(sink, Form::Bare, Clock::utc(), verb, mute)
    }

    fn text(directory: &Path) -> String {
        std::fs::read_to_string(directory.join("log")).unwrap()
    }

    #[test]
    fn what_is_shown_depends_on_verb() {
        let directory = tempfile::tempdir().unwrap();
        let mut logger = logger(directory.path(), 1, 0);
        assert_eq!(logger.write(Line::detail(3, "a pause"), None, now()), []);
        let line = Line::info("a");
        assert_eq!(logger.write(line.clone(), None, now()), [line]);
        logger.set_verb(3);
        logger.write(Line::detail(3, "a pause"), Some("x"), now());
        logger.set_verb(0);
        logger.write(Line::info("b"), None, now());
        logger.write(Line::warning("c"), None, now());
        assert_eq!(text(directory.path()), "a\nx a pause\nc\n");
    }

    #[test]
    fn lines_of_a_kind_are_muted_and_those_of_no_kind_are_not() {
        let directory = tempfile::tempdir().unwrap();
        let mut logger = logger(directory.path(), 3, 2);
        for _ in 0..5 {
            logger.write(Line::fault("TLS handshake 1 failed"), None, now());
        }
        logger.write(Line::info("x"), None, now());
        for _ in 0..3 {
            logger.write(Line::info("y"), None, now());
        }
        let failed = "TLS handshake 1 failed\n";
        assert_eq!(
            text(directory.path()),
            format!(
                "{failed}{failed}NOTE: --mute triggered...\n\
                 3 variation(s) on previous 2 message(s) suppressed by --mute\nx\ny\ny\ny\n"
            )
        );
    }

    #[test]
    fn the_system_log_gets_priority_and_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let daemon = UnixDatagram::bind(&path).unwrap();
        let sink = Sink::Syslog(Syslog::at(&path, "ovpn").unwrap());
        let mut logger = Logger::new(sink, Form::Timed, Clock::utc(), 1, 0);
        logger.write(Line::warning("x"), None, now());
        let mut buffer = [0; 200];
        let count = daemon.recv(&mut buffer).unwrap();
        let message = std::str::from_utf8(&buffer[..count]).unwrap();
        let tail = format!(" ovpn[{}]: x", std::process::id());
        assert!(
            message.starts_with("<28>") && message.ends_with(&tail),
            "{message}"
        );
    }
}
