//! Answers of the process with privileges, from this host.

use super::steering;
use crate::list;
use crate::status::{self, StatusError};
use monitor::back::Source;
use monitor::day::TEXT_MAX;
use monitor::sample::{GuardView, Known, Sample};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use steer::Way;
use steer::guard::{PartReport, Report, State};

/// How often to search for tunnels' files.
const FILES: Duration = Duration::from_secs(15);

/// How often to write the day's rates, which change every five minutes.
const WRITE: Duration = Duration::from_secs(15 * 60);

/// How often to look at the paths of devices.
const PATHS: Duration = Duration::from_secs(5);

/// Maximum number of tunnels in an answer that are not up.
const MOST: usize = 1000;

/// This host as a source of samples.
pub(crate) struct Host {
    known: Vec<Known>,
    looked: Option<Instant>,
    /// The paths of devices, and the time of the last look at them.
    steering: Option<(Instant, Value)>,
    history: PathBuf,
    /// The text of the day's rates, and the time of the last write.
    day: Option<String>,
    written: Instant,
}

impl Host {
    /// Uses this file for the rates of a day.
    pub(crate) fn new(history: &Path) -> Self {
        Self {
            known: Vec::new(),
            looked: None,
            steering: None,
            history: history.to_owned(),
            day: None,
            written: Instant::now(),
        }
    }

    /// Writes the day's rates to the file, if they have changed.
    pub(super) fn write(&mut self) {
        let Some(day) = self.day.take() else { return };
        self.written = Instant::now();
        // The front's text is parsed and formatted again, so that it cannot write anything else into the file.
        let day = monitor::day::Day::from_text(&day).to_text();
        let write = || {
            if let Some(directory) = self.history.parent() {
                fs::create_dir_all(directory)?;
            }
            host::written_file::replace_for_now(&self.history, day.as_bytes(), 0o600)
        };
        if let Err(error) = write() {
            log::warn!("{}: {error}", self.history.display());
        }
    }

    fn look_for_files(&mut self) {
        if self.looked.is_some_and(|it| it.elapsed() < FILES) {
            return;
        }
        self.looked = Some(Instant::now());
        let all = list::all().unwrap_or_default();
        let down = all.into_iter().filter(|it| it.pid.is_none());
        let known = down.map(|it| Known {
            protocol: it.protocol.to_owned(),
            name: it.name,
        });
        self.known = known.take(MOST).collect();
    }
}

/// The tunnels and the guard, without what only the page shows; and the guard's report.
pub(crate) fn brief() -> (Sample, Option<Report>) {
    let (tunnels, hidden) = status::all().unwrap_or_else(|error| (Vec::new(), vec![error]));
    let guard = crate::guard::brief();
    let unread = hidden.iter().filter_map(StatusError::ifname);
    let sample = Sample {
        unread: unread.map(str::to_owned).collect(),
        trouble: hidden.first().map(ToString::to_string),
        tunnels,
        guard: guard.as_ref().map(view),
        ..Sample::default()
    };
    (sample, guard)
}

impl Source for Host {
    fn sample(&mut self) -> Sample {
        self.look_for_files();
        let (sample, guard) = brief();
        let steering = match self.steering.take() {
            Some(it) if it.0.elapsed() < PATHS => it,
            _ => {
                let look = steering::look(guard.as_ref(), &sample.tunnels);
                (Instant::now(), look)
            }
        };
        Sample {
            known: self.known.clone(),
            steering: self.steering.insert(steering).1.clone(),
            ..sample
        }
    }

    fn day(&mut self) -> String {
        let text = config::file::read_text(&self.history, TEXT_MAX as u64);
        text.map(|it| it.to_string()).unwrap_or_default()
    }

    fn keep(&mut self, day: String) {
        self.day = Some(day);
        if self.written.elapsed() >= WRITE {
            self.write();
        }
    }
}

/// The guard, as the page shows it.
fn view(report: &Report) -> GuardView {
    let held = |part: &PartReport| {
        let why = part.ways.iter().find_map(|way| match way {
            Way::Held(why) => Some(why.to_string()),
            Way::Through { .. } => None,
        })?;
        Some(match report.parts.len() {
            1 => why,
            _ => format!("{}: {why}", part.lan.join(", ")),
        })
    };
    let (why, about) = match report.state {
        State::Off => (String::new(), "The guard is configured, but not in force."),
        State::Held => (
            report
                .held()
                .filter_map(held)
                .collect::<Vec<_>>()
                .join("; "),
            match report.held().count() == report.parts.len() {
                true => "Traffic of the guarded devices is blocked until a tunnel is up.",
                false => {
                    "Traffic of some guarded devices is blocked until one of their tunnels is up."
                }
            },
        ),
        State::Through => (
            String::new(),
            "Traffic of the guarded devices uses a tunnel or is blocked.",
        ),
    };
    GuardView {
        state: report.state.name().to_owned(),
        why,
        about: about.to_owned(),
        rows: steering::unique(crate::guard::rows(report)),
        groups: (report.parts.iter().filter(|_| report.state != State::Off))
            .map(|it| {
                let state = crate::guard::state_of(it).name().to_owned();
                (it.lan.join(","), state)
            })
            .collect(),
        refused: report.refused,
    }
}
