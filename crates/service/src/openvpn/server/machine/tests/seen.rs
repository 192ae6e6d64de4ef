//! Counts of simulated events, so that a test can check that each kind occurred.

use std::ops::AddAssign;

/// Counters of simulated events.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    /// Key renewals.
    pub(super) renewals: u64,
    /// Moved clients that the server followed.
    pub(super) floats: u64,
    /// Verdicts that came after the script's end.
    pub(super) late_verdicts: u64,
    /// Jobs that ended after their client had gone.
    pub(super) orphaned_jobs: u64,
    /// Handshakes that finished after their client had gone.
    pub(super) orphaned_handshakes: u64,
    /// Management clients that left.
    pub(super) managers_gone: u64,
    /// Network outages.
    pub(super) network_deaths: u64,
    /// Jumps of the wall clock.
    pub(super) clock_jumps: u64,
    /// Pauses of the process.
    pub(super) pauses: u64,
}

impl Seen {
    /// Fails if any counter is zero.
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
