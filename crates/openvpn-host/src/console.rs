//! Process log in OpenVPN's form: records of the `log` macros go to the one [`Logger`] and to the management client.
//!
//! `verb` levels: errors and warnings always, information from 1 on, debug lines from 4, traces from 6.

pub mod log_lines;
mod logger;

use config::openvpn::Service;
use log::{Level, LevelFilter, Log, Metadata, Record};
use netio::poll::Waker;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Instant, SystemTime};

use crate::console::log_lines::Line;
use crate::console::logger::{Form, Logger, Sink, said};
use crate::timestamp::Clock;
use host::logging::Syslog;
use host::strangers::Strangers;

/// Lines kept for the management port until they are taken.
const LINES: usize = 250;

thread_local! {
    static WHO: RefCell<Option<Who>> = const { RefCell::new(None) };
}

/// The client that a server is handling on this thread; its name begins each log line.
#[derive(Clone, Debug)]
pub struct Who {
    /// `address`, or `name/address` for an admitted client.
    pub label: String,
    /// The client is not admitted: any sender can cause such lines, so they must not fill the log.
    pub stranger: bool,
}

/// Guard: log lines are about this client until the value is dropped.
#[cfg(feature = "server")]
pub struct Speaking(Option<Who>);

#[cfg(feature = "server")]
impl Speaking {
    /// Begins log lines of this thread that are about a client.
    pub fn of(who: Who) -> Self {
        Self(WHO.replace(Some(who)))
    }
}

#[cfg(feature = "server")]
impl Drop for Speaking {
    fn drop(&mut self) {
        WHO.set(self.0.take());
    }
}

/// The client that this thread handles, unless a [`Console`] is the process's log, which names the client itself.
#[cfg(feature = "server")]
pub fn unnamed() -> Option<Who> {
    let is_named = IS_LOG.load(Ordering::Relaxed);
    WHO.with_borrow(|who| who.clone().filter(|_| !is_named))
}

/// The process's only logger.
pub struct Console(Mutex<Inner>);

struct Inner {
    logger: Logger,
    lines: VecDeque<(SystemTime, Line)>,
    listening: bool,
    /// Wakes the reader of the lines.
    waker: Option<Arc<Waker>>,
    strangers: Strangers,
}

static CONSOLE: OnceLock<Console> = OnceLock::new();

/// Whether the console is the process's log; with `millrace up` another one is.
static IS_LOG: AtomicBool = AtomicBool::new(false);

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
    pub fn install(service: &Service, log_path: Option<&Path>) -> io::Result<&'static Self> {
        let sink = match (&service.log, log_path) {
            (Some(log), Some(path)) => Sink::file(path, log.append)?,
            _ if service.syslog => {
                let name = service.syslog_name.as_deref().unwrap_or("openvpn");
                // Standard output if there is no syslog daemon.
                Syslog::new(name).map_or(Sink::Stdout, Sink::Syslog)
            }
            _ => Sink::Stdout,
        };
        let form = match (service.machine_readable, service.suppress_timestamps) {
            (true, _) => Form::Machine,
            (false, true) => Form::Bare,
            (false, false) => Form::Timed,
        };
        let logger = |sink| Logger::new(sink, form, Clock::system(), service.verb, service.mute);
        let console = CONSOLE.get_or_init(|| {
            Self(Mutex::new(Inner {
                logger: logger(Sink::Stdout),
                lines: VecDeque::new(),
                listening: service.management.is_some(),
                waker: None,
                strangers: Strangers::new(),
            }))
        });
        console.inner().logger = logger(sink);
        // A second call fails because the logger is already set.
        if log::set_logger(console).is_ok() {
            IS_LOG.store(true, Ordering::Relaxed);
        }
        log::set_max_level(level(service.verb));
        Ok(console)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes `verb`.
    pub fn set_verb(&self, verb: u8) {
        log::set_max_level(level(verb));
        self.inner().logger.set_verb(verb);
    }

    /// Changes `mute`.
    pub fn set_mute(&self, mute: u32) {
        self.inner().logger.set_mute(mute);
    }

    /// Sets the waker to call when there are lines to [`take`](Self::take).
    pub fn wake(&self, waker: Arc<Waker>) {
        waker.wake();
        self.inner().waker = Some(waker);
    }

    /// Takes the lines since the last call, at most the newest [`LINES`].
    pub fn take(&self) -> Vec<(SystemTime, Line)> {
        let mut inner = self.inner();
        if let Some(waker) = &inner.waker {
            waker.clear();
        }
        inner.lines.drain(..).collect()
    }
}

impl Inner {
    fn write(&mut self, line: Line, prefix: Option<&str>, now: SystemTime) {
        let written = self.logger.write(line, prefix, now);
        if !self.listening {
            return;
        }
        for mut line in written {
            if self.lines.len() >= LINES {
                self.lines.pop_front();
            }
            line.text = said(&line, prefix);
            if self.lines.is_empty()
                && let Some(waker) = &self.waker
            {
                waker.wake();
            }
            self.lines.push_back((now, line));
        }
    }
}

/// Log target of the record that says why the process ends.
pub const FATAL: &str = "fatal";

impl Log for Console {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let now = SystemTime::now();
        // One record is one line: a peer's text must not start another.
        let text = record.args().to_string().replace(['\n', '\r'], " ");
        let line = match record.level() {
            Level::Error if record.target() == FATAL => Line::fatal(text),
            Level::Error => Line::fault(text),
            Level::Warn => Line::warning(text),
            Level::Info => Line::info(text),
            Level::Debug => Line::detail(4, text),
            Level::Trace => Line::detail(6, text),
        };
        let who = WHO.with_borrow(Clone::clone);
        let mut inner = self.inner();
        if who.as_ref().is_some_and(|who| who.stranger) {
            let (write, note) = inner.strangers.judge(Instant::now());
            if let Some(note) = note {
                inner.write(Line::info(note), None, now);
            }
            if !write {
                return;
            }
        }
        inner.write(line, who.as_ref().map(|who| who.label.as_str()), now);
    }

    fn flush(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[cfg(feature = "server")]
    #[test]
    fn whom_a_line_is_about_ends_with_its_value() {
        let label = || WHO.with_borrow(|who| who.as_ref().map(|who| who.label.clone()));
        let of = |label: &str| {
            Speaking::of(Who {
                label: label.to_owned(),
                stranger: true,
            })
        };
        let outer = of("a");
        {
            let _inner = of("b");
            assert_eq!(label().as_deref(), Some("b"));
        }
        assert_eq!(label().as_deref(), Some("a"));
        drop(outer);
        assert_eq!(label(), None);
    }

    fn console(verb: u8) -> Console {
        Console(Mutex::new(Inner {
            logger: Logger::new(Sink::Stdout, Form::Bare, Clock::system(), verb, 0),
            lines: VecDeque::new(),
            listening: true,
            waker: None,
            strangers: Strangers::new(),
        }))
    }

    #[cfg(feature = "server")]
    #[test]
    fn strangers_fill_the_log_at_no_level() {
        for level in [Level::Warn, Level::Info, Level::Debug, Level::Trace] {
            let console = console(11);
            let _speaking = Speaking::of(Who {
                label: "192.0.2.1:1".to_owned(),
                stranger: true,
            });
            let mut builder = Record::builder();
            let record = builder.level(level).args(format_args!("bogus")).build();
            (0..LINES).for_each(|_| console.log(&record));
            assert!(console.take().len() < LINES / 2, "{level}");
        }
    }

    #[test]
    fn a_line_wakes_what_takes_it() {
        let console = console(3);
        let waker = Arc::new(Waker::new().unwrap());
        let poller = netio::poll::Poller::new().unwrap();
        poller.add(&*waker, 0).unwrap();
        let wakes = || poller.wait(Some(Duration::ZERO)).unwrap().iter().count() == 1;
        console.wake(Arc::clone(&waker));
        console.take();
        assert!(!wakes());
        for _ in 0..2 {
            for _ in 0..3 {
                let line = Line::info("the keys are new".to_owned());
                console.inner().write(line, None, SystemTime::now());
            }
            assert!(wakes());
            assert_eq!(console.take().len(), 3);
            assert!(!wakes());
        }
    }

    /// The process has one logger: other tests may write to these files, too.
    #[test]
    fn the_log_goes_where_the_configuration_of_the_last_start_says() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let text = |name: &str| std::fs::read_to_string(path(name)).unwrap();
        let install = |name: &str, more: &str| {
            let path = path(name);
            let lines = format!("auth-user-pass\nlog {}\n{more}", path.display());
            let config = crate::tests::client(&lines);
            Console::install(&config.service, Some(&path)).unwrap()
        };
        let lines = "verb 3\nsuppress-timestamps\nmanagement 127.0.0.1 7505";
        let console = install("first", lines);
        log::info!("two lines\nof a peer");
        log::debug!("a detail at verb 3");
        console.set_verb(4);
        log::debug!("a detail at verb 4");
        log::error!(target: FATAL, "the end");
        let first = text("first");
        for line in ["two lines of a peer", "a detail at verb 4", "the end"] {
            assert!(first.lines().any(|it| it == line), "{line}: {first}");
        }
        assert!(!first.contains("a detail at verb 3"), "{first}");
        let heard = console.take();
        assert!(
            heard
                .iter()
                .any(|(_, line)| line.text == "two lines of a peer")
        );

        // After SIGHUP.
        install("second", "verb 1\nmachine-readable-output");
        log::warn!("on another page");
        let line = "on another page";
        assert!(!text("first").contains(line));
        let second = text("second");
        let line = second.lines().find(|it| it.ends_with(line)).unwrap();
        let seconds = line.split('.').next().unwrap();
        assert!(seconds.parse::<u64>().is_ok(), "{line}");
    }

    #[test]
    fn the_management_client_gets_the_newest_lines() {
        let console = console(3);
        for number in 0..LINES + 5 {
            let line = Line::info(format!("line {number}"));
            console.inner().write(line, None, SystemTime::now());
        }
        let lines = console.take();
        assert_eq!(lines.len(), LINES);
        assert_eq!(lines[0].1.text, "line 5");
    }
}
