//! Counts of simulated events, so that a test can check that each kind occurred.

use std::ops::AddAssign;

/// How often each thing has happened.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    /// Keys that follow others.
    pub(super) renewals: u64,
    /// Clients that the server has found at another address.
    pub(super) floats: u64,
    /// Verdicts of scripts that came after the script had ended.
    pub(super) late_verdicts: u64,
    /// Jobs that ended when their client had gone.
    pub(super) orphaned_jobs: u64,
    /// Handshakes that were done when their client had gone.
    pub(super) orphaned_handshakes: u64,
    /// Management clients that went.
    pub(super) managers_gone: u64,
    /// Times without a network.
    pub(super) network_deaths: u64,
    /// Leaps of the time of day.
    pub(super) clock_jumps: u64,
    /// Times in which the process did not run.
    pub(super) pauses: u64,
}

impl Seen {
    /// Fails if something has not happened at all.
    pub(super) fn is_all(&self) {
        let Self {
            renewals,
            floats,
            late_verdicts,
            orphaned_jobs,
            orphaned_handshakes,
            managers_gone,
            network_deaths,
            clock_jumps,
            pauses,
        } = *self;
        let all = [
            renewals,
            floats,
            late_verdicts,
            orphaned_jobs,
            orphaned_handshakes,
            managers_gone,
            network_deaths,
            clock_jumps,
            pauses,
        ];
        assert!(all.iter().all(|it| *it > 0), "{self:?}");
    }
}

impl AddAssign for Seen {
    fn add_assign(&mut self, other: Self) {
        self.renewals += other.renewals;
        self.floats += other.floats;
        self.late_verdicts += other.late_verdicts;
        self.orphaned_jobs += other.orphaned_jobs;
        self.orphaned_handshakes += other.orphaned_handshakes;
        self.managers_gone += other.managers_gone;
        self.network_deaths += other.network_deaths;
        self.clock_jumps += other.clock_jumps;
        self.pauses += other.pauses;
    }
}
