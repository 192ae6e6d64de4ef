//! The machine that the program runs on; and whether its clock can be believed. Many routers have no clock that runs while they are off.

use std::time::{Duration, SystemTime};
use std::{fs, thread};

use serde::Serialize;

/// Facts about the machine, which help to judge measured figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// Processors that this process may use.
    pub processors: usize,
    /// The processor's name, or its part number.
    pub model: String,
    /// The kernel's release.
    pub kernel: String,
    /// Memory in MB (1e6 B).
    pub memory_mb: u64,
}

impl Machine {
    /// This machine; unknown values are "unknown".
    pub fn this() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Self {
            processors: thread::available_parallelism().map_or(1, usize::from),
            model: model(&read("/proc/cpuinfo")),
            kernel: match read("/proc/sys/kernel/osrelease").trim() {
                "" => "unknown".to_owned(),
                release => release.to_owned(),
            },
            memory_mb: memory(&read("/proc/meminfo")),
        }
    }

    /// The facts as one line.
    pub fn show(&self) -> String {
        let Self {
            processors,
            model,
            kernel,
            memory_mb,
        } = self;
        format!("{processors} processors ({model}), {memory_mb} MB, Linux {kernel}")
    }
}

/// x86 says "model name", ARM "Model" or "Hardware" or only a part number.
fn model(cpuinfo: &str) -> String {
    let value = |name: &str| {
        cpuinfo.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim().to_owned())
        })
    };
    ["model name", "Model", "Hardware", "CPU part"]
        .into_iter()
        .find_map(value)
        .unwrap_or_else(|| "unknown".to_owned())
}

fn memory(meminfo: &str) -> u64 {
    meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next())
        .and_then(|kilobytes| kilobytes.parse::<u64>().ok())
        .map_or(0, |kilobytes| kilobytes * 1024 / 1_000_000)
}

/// 2026-11-01, in seconds since 1970: a time before this source was written. Raise it now and then. A package built
/// with `SOURCE_DATE_EPOCH` (reproducible-builds.org) uses that date instead.
const WRITTEN: u64 = 1_793_491_200;

/// The build's time, if `SOURCE_DATE_EPOCH` was set.
const BUILT: Option<u64> = match option_env!("SOURCE_DATE_EPOCH") {
    Some(text) => number(text.as_bytes()),
    None => None,
};

/// A time at which this program did not exist yet. A clock that shows an earlier one is not set.
#[must_use]
pub fn built() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(WRITTEN.max(BUILT.unwrap_or(0)))
}

/// Whether a clock that shows this time may be right.
#[must_use]
pub fn clock_is_set(clock: SystemTime) -> bool {
    clock >= built()
}

/// The value of decimal digits; `None` for other text, and for times after the year 3000.
const fn number(text: &[u8]) -> Option<u64> {
    let (mut value, mut at) = (0, 0);
    while at < text.len() {
        let digit = text[at].wrapping_sub(b'0');
        if digit > 9 || value > 3_250_368_000 {
            return None;
        }
        value = value * 10 + digit as u64;
        at += 1;
    }
    if at == 0 { None } else { Some(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_named_on_x86_and_arm() {
        assert_eq!(model("processor\t: 0\nmodel name\t: Xeon\n"), "Xeon");
        assert_eq!(model("processor : 0\nCPU part : 0xc0f\n"), "0xc0f");
        assert_eq!(model(""), "unknown");
        assert_eq!(memory("MemTotal:       1000000 kB\n"), 1024);
    }

    #[test]
    fn a_clock_of_before_the_build_is_not_set() {
        assert!(!clock_is_set(SystemTime::UNIX_EPOCH));
        assert!(!clock_is_set(built() - Duration::from_secs(1)));
        assert!(clock_is_set(built()));
        assert_eq!(number(b"1793491200"), Some(1_793_491_200));
        assert_eq!(
            [number(b""), number(b"1x"), number(b"99999999999999999999")],
            [None; 3]
        );
    }
}
