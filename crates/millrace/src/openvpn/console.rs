//! Where the log of an OpenVPN process goes: standard output, a file or the system log, and what
//! management clients want to hear of it.
//!
//! Levels are OpenVPN's `verb`: errors always, warnings and information from 1, debug lines from 4,
//! traces from 6.

use config::openvpn::Service;
use log::{Level, LevelFilter, Log, Metadata, Record};
use netio::poll::Waker;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

use super::policy::timestamp::{Clock, since_epoch};

/// Lines kept for management clients until they are taken.
const LINES: usize = 250;

/// `LOG_DAEMON`, shifted as the protocol of syslog wants it (RFC 3164 section 4.1.1).
const FACILITY: u8 = 3 << 3;

/// A line of the log, for management clients.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) at: SystemTime,
    pub(crate) level: Level,
    pub(crate) text: String,
}

enum Sink {
    Stdout,
    File(File),
    Syslog(UnixDatagram, String),
}

/// The one logger of the process.
pub(crate) struct Console {
    sink: Mutex<Sink>,
    clock: Clock,
    timestamps: bool,
    machine: bool,
    lines: Mutex<VecDeque<Line>>,
    /// Rung for each line while somebody listens.
    waker: OnceLock<Arc<Waker>>,
    listening: AtomicBool,
}

static CONSOLE: OnceLock<Console> = OnceLock::new();

fn level(verb: u8) -> LevelFilter {
    match verb {
        0 => LevelFilter::Error,
        1..=3 => LevelFilter::Info,
        4..=5 => LevelFilter::Debug,
        _ => LevelFilter::Trace,
    }
}

impl Console {
    /// Makes the process log as the configuration says. Once for each process.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub(crate) fn install(service: &Service, log_path: Option<&Path>) -> io::Result<&'static Self> {
        let sink = match (&service.log, log_path) {
            (Some(log), Some(path)) => {
                let mut options = File::options();
                options.create(true).write(true);
                if log.append {
                    options.append(true);
                } else {
                    options.truncate(true);
                }
                Sink::File(options.open(path)?)
            }
            _ if service.syslog => match UnixDatagram::unbound().and_then(|socket| {
                socket.connect("/dev/log")?;
                Ok(socket)
            }) {
                Ok(socket) => {
                    let name = service.syslog_name.clone();
                    Sink::Syslog(socket, name.unwrap_or_else(|| "openvpn".to_owned()))
                }
                // No log daemon: better on standard output than nowhere.
                Err(_) => Sink::Stdout,
            },
            _ => Sink::Stdout,
        };
        let console = CONSOLE.get_or_init(|| Self {
            sink: Mutex::new(Sink::Stdout),
            clock: Clock::system(),
            timestamps: !service.suppress_timestamps,
            machine: service.machine_readable,
            lines: Mutex::default(),
            waker: OnceLock::new(),
            listening: AtomicBool::new(false),
        });
        *console.sink.lock().unwrap_or_else(PoisonError::into_inner) = sink;
        // A second call, after SIGHUP, finds it set already.
        let _ = log::set_logger(console);
        console.set_verb(service.verb);
        Ok(console)
    }

    /// Changes `verb`.
    pub(crate) fn set_verb(&self, verb: u8) {
        log::set_max_level(level(verb));
    }

    /// Rings `waker` whenever there are lines to take.
    pub(crate) fn listen(&self, waker: Arc<Waker>) {
        let _ = self.waker.set(waker);
        self.listening.store(true, Ordering::Relaxed);
    }

    /// The lines since the last call, the newest [`LINES`] of them.
    pub(crate) fn take(&self) -> Vec<Line> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.drain(..).collect()
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
        {
            let mut sink = self.sink.lock().unwrap_or_else(PoisonError::into_inner);
            // A log that cannot be written has nobody to be told to.
            let _ = match &mut *sink {
                Sink::Stdout => writeln!(io::stdout(), "{}{text}", self.stamp(now, record.level())),
                Sink::File(file) => writeln!(file, "{}{text}", self.stamp(now, record.level())),
                Sink::Syslog(socket, name) => {
                    let severity = match record.level() {
                        Level::Error => 3,
                        Level::Warn => 4,
                        Level::Info => 5,
                        Level::Debug | Level::Trace => 7,
                    };
                    let line =
                        format!("<{}>{name}[{}]: {text}", FACILITY + severity, std::process::id());
                    socket.send(line.as_bytes()).map(drop)
                }
            };
        }
        if self.listening.load(Ordering::Relaxed) {
            let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
            if lines.len() >= LINES {
                lines.pop_front();
            }
            lines.push_back(Line {
                at: now,
                level: record.level(),
                text,
            });
            drop(lines);
            if let Some(waker) = self.waker.get() {
                waker.wake();
            }
        }
    }

    fn flush(&self) {}
}

impl Console {
    fn stamp(&self, now: SystemTime, level: Level) -> String {
        if self.machine {
            let at = since_epoch(now);
            // The second field is stock's message flags in hexadecimal: fatal and warning bits.
            let flags = match level {
                Level::Error => 0x10,
                Level::Warn => 0x40,
                _ => 1,
            };
            return format!("{}.{:06} {flags:x} ", at.as_secs(), at.subsec_micros());
        }
        if !self.timestamps {
            return String::new();
        }
        format!("{} ", self.clock.ascii(now))
    }
}
