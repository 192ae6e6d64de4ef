//! State of one optional kernel feature: in use, unused, or given up.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Rejections in a row after which a feature that the kernel had accepted is given up.
///
/// A single `EINVAL` may be about one packet (a segment larger than the path MTU), three in a
/// row with no success between them are about the device.
const REJECTIONS: u32 = 3;

/// A kernel feature the data plane can use or do without.
///
/// Reading [`Rung::on`] costs one relaxed load; everything else is rare.
#[derive(Debug)]
pub struct Rung {
    name: &'static str,
    on: AtomicBool,
    rejected: AtomicU32,
    why_off: Mutex<String>,
}

impl Rung {
    /// A feature that is in use.
    #[must_use]
    pub fn new_on(name: &'static str) -> Self {
        Self {
            name,
            on: AtomicBool::new(true),
            rejected: AtomicU32::new(0),
            why_off: Mutex::new(String::new()),
        }
    }

    /// A feature that is not used, and the reason: `setting`, or the kernel's answer.
    #[must_use]
    pub fn new_off(name: &'static str, why: impl Into<String>) -> Self {
        Self {
            name,
            on: AtomicBool::new(false),
            rejected: AtomicU32::new(0),
            why_off: Mutex::new(why.into()),
        }
    }

    /// The name used in settings and status.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether the feature is in force.
    #[must_use]
    pub fn on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Stops use of this kernel feature for the rest of the process's life, with one log line.
    pub fn demote(&self, why: impl fmt::Display) {
        if self.on.swap(false, Ordering::Relaxed) {
            log::warn!("{}: switched off: {why}", self.name);
            *self.why_off.lock().unwrap_or_else(|e| e.into_inner()) = format!("demoted: {why}");
        }
    }

    /// Records that the kernel refused one use of the feature; demotes after three in a row.
    pub fn rejected(&self, why: impl fmt::Display) {
        if self.rejected.fetch_add(1, Ordering::Relaxed) + 1 >= REJECTIONS {
            self.demote(why);
        }
    }

    /// Uses the feature again if rejections ended its use: the reason for them may be gone.
    pub fn retry(&self) {
        if self.rejected.swap(0, Ordering::Relaxed) >= REJECTIONS {
            self.on.store(true, Ordering::Relaxed);
        }
    }

    /// Records that the kernel accepted one use of the feature.
    pub fn accepted(&self) {
        if self.rejected.load(Ordering::Relaxed) != 0 {
            self.rejected.store(0, Ordering::Relaxed);
        }
    }
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.on() {
            return f.write_str("on");
        }
        let why = self.why_off.lock().unwrap_or_else(|e| e.into_inner());
        write!(f, "off ({why})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_rejections_in_a_row_demote_and_a_success_between_them_does_not() {
        let rung = Rung::new_on("udp-gso");
        rung.rejected("EINVAL");
        rung.rejected("EINVAL");
        rung.accepted();
        rung.rejected("EINVAL");
        rung.rejected("EINVAL");
        assert!(rung.on());
        rung.rejected("EINVAL");
        assert!(!rung.on());
        assert_eq!(rung.to_string(), "off (demoted: EINVAL)");
        rung.retry();
        assert!(rung.on());
        rung.demote("EIO");
        rung.retry();
        assert!(!rung.on(), "not given up for rejections");
    }

    #[test]
    fn an_unwanted_rung_says_why() {
        assert_eq!(
            Rung::new_off("tun-uso", "setting").to_string(),
            "off (setting)"
        );
    }
}
