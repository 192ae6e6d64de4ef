//! The process's log, in OpenVPN's form: what the `log` macros say goes to the one [`Logger`], and
//! to whoever listens on the management port.
//!
//! Errors are shown always, warnings too, information from `verb 1` on, debug lines from 4, traces
//! from 6.

use config::openvpn::Service;
use log::{Level, LevelFilter, Log, Metadata, Record};
use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::SystemTime;

use super::policy::log_lines::Line;
use super::policy::logger::{Form, Logger, Sink};
use super::policy::timestamp::Clock;
use crate::syslog::Syslog;

/// Lines kept for the management port until they are taken.
const LINES: usize = 250;

/// The one logger of the process.
pub(crate) struct Console(Mutex<Inner>);

struct Inner {
    logger: Logger,
    lines: VecDeque<(SystemTime, Line)>,
    listening: bool,
}

static CONSOLE: OnceLock<Console> = OnceLock::new();

const fn level(verb: u8) -> LevelFilter {
    match verb {
        0 => LevelFilter::Warn,
        1..=3 => LevelFilter::Info,
        4..=5 => LevelFilter::Debug,
        _ => LevelFilter::Trace,
    }
}

impl Console {
    /// Makes the process log as the configuration says; called again after SIGHUP.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub(crate) fn install(service: &Service, log_path: Option<&Path>) -> io::Result<&'static Self> {
        let sink = match (&service.log, log_path) {
            (Some(log), Some(path)) => Sink::file(path, log.append)?,
            _ if service.syslog => {
                let name = service.syslog_name.as_deref().unwrap_or("openvpn");
                // Without a log daemon: better on standard output than nowhere.
                Syslog::new(name).map_or(Sink::Stdout, Sink::Syslog)
            }
            _ => Sink::Stdout,
        };
        let form = match (service.machine_readable, service.suppress_timestamps) {
            (true, _) => Form::Machine,
            (false, true) => Form::Bare,
            (false, false) => Form::Timed,
        };
        let logger = Logger::new(sink, form, Clock::system(), service.verb, service.mute);
        let mut logger = Some(logger);
        let console = CONSOLE.get_or_init(|| {
            Self(Mutex::new(Inner {
                // Taken only here, and here only once.
                logger: logger.take().unwrap_or_else(|| {
                    Logger::new(
                        Sink::Stdout,
                        form,
                        Clock::system(),
                        service.verb,
                        service.mute,
                    )
                }),
                lines: VecDeque::new(),
                listening: service.management.is_some(),
            }))
        });
        if let Some(logger) = logger {
            console.inner().logger = logger;
        }
        // A second call finds it set already.
        let _ = log::set_logger(console);
        log::set_max_level(level(service.verb));
        Ok(console)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes `verb`.
    pub(crate) fn set_verb(&self, verb: u8) {
        log::set_max_level(level(verb));
        self.inner().logger.set_verb(verb);
    }

    /// Changes `mute`.
    pub(crate) fn set_mute(&self, mute: u32) {
        self.inner().logger.set_mute(mute);
    }

    /// The lines since the last call, the newest [`LINES`] of them.
    pub(crate) fn take(&self) -> Vec<(SystemTime, Line)> {
        self.inner().lines.drain(..).collect()
    }
}

impl Log for Console {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let now = SystemTime::now();
        // One record, one line: nothing that a peer says can make another.
        let text = record.args().to_string().replace(['\n', '\r'], " ");
        let line = match record.level() {
            Level::Error => Line::fault(text),
            Level::Warn => Line::warning(text),
            Level::Info => Line::info(text),
            Level::Debug => Line::detail(4, text),
            Level::Trace => Line::detail(6, text),
        };
        let mut inner = self.inner();
        let written = inner.logger.write(line, None, now);
        if inner.listening {
            for line in written {
                if inner.lines.len() >= LINES {
                    inner.lines.pop_front();
                }
                inner.lines.push_back((now, line));
            }
        }
    }

    fn flush(&self) {}
}
