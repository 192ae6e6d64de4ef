//! Sends keepalives to the service manager, while the control loop and every data plane worker make progress.

use std::time::{Duration, Instant};

/// Number of keepalives in the manager's timeout.
const SIGNS: u32 = 4;

/// Decides when to send a keepalive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watchdog {
    period: Option<Duration>,
    due: Option<Instant>,
}

impl Watchdog {
    /// Takes the interval from the process's service manager.
    pub(crate) fn new(now: Instant) -> Self {
        Self::every(host::notify::watchdog(), now)
    }

    fn every(patience: Option<Duration>, now: Instant) -> Self {
        let period = patience.map(|it| it / SIGNS);
        let due = period.map(|period| now + period);
        Self { period, due }
    }

    /// When the control loop next has to call [`Watchdog::turn`].
    pub(crate) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Called by the control loop. `workers` returns whether all of them have done a round since its last call.
    pub(crate) fn turn(&mut self, now: Instant, workers: impl FnOnce() -> bool) {
        if self.is_alive(now, workers) {
            host::notify::alive();
        }
    }

    /// Whether a keepalive is due and all threads make progress.
    fn is_alive(&mut self, now: Instant, workers: impl FnOnce() -> bool) -> bool {
        let Some(period) = self
            .period
            .filter(|_| self.due.is_some_and(|due| due <= now))
        else {
            return false;
        };
        self.due = Some(now + period);
        workers()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_sign_in_good_time_while_workers_do_their_rounds() {
        let start = Instant::now();
        let mut dog = Watchdog::every(Some(Duration::from_secs(40)), start);
        let at = |secs| start + Duration::from_secs(secs);
        assert!(!dog.is_alive(at(9), || true));
        assert!(dog.is_alive(at(10), || true));
        assert_eq!(dog.due(), Some(at(20)));
        // A worker hangs: no keepalive, however often control calls.
        assert!(!dog.is_alive(at(20), || false));
        assert!(!dog.is_alive(at(25), || true));
        assert!(dog.is_alive(at(30), || true));
        let mut none = Watchdog::every(None, start);
        assert_eq!(none.due(), None);
        assert!(!none.is_alive(at(1000), || true));
    }
}
