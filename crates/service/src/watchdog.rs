//! Signs of life for a service manager: only while the control loop and every worker of the data plane do their rounds.

use std::time::{Duration, Instant};

/// Signs of life in the time that the manager waits for one.
const SIGNS: u32 = 4;

/// When there is a sign to be given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watchdog {
    period: Option<Duration>,
    due: Option<Instant>,
}

impl Watchdog {
    /// The intervals follow the process's manager.
    pub(crate) fn new(now: Instant) -> Self {
        Self::every(host::notify::watchdog(), now)
    }

    fn every(patience: Option<Duration>, now: Instant) -> Self {
        let period = patience.map(|it| it / SIGNS);
        let due = period.map(|period| now + period);
        Self { period, due }
    }

    /// When the control loop is to come by.
    pub(crate) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// The control loop comes by. `workers` says whether all of them have done a round since it was last asked.
    pub(crate) fn turn(&mut self, now: Instant, workers: impl FnOnce() -> bool) {
        if self.is_alive(now, workers) {
            host::notify::alive();
        }
    }

    /// Whether this is a sign of life.
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
        // One that hangs: no sign, however often control comes by.
        assert!(!dog.is_alive(at(20), || false));
        assert!(!dog.is_alive(at(25), || true));
        assert!(dog.is_alive(at(30), || true));
        let mut none = Watchdog::every(None, start);
        assert_eq!(none.due(), None);
        assert!(!none.is_alive(at(1000), || true));
    }
}
