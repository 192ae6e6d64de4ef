//! The health of a line: how well it works, and the reason for that verdict.
//!
//! Most signs cost nothing: the tunnel's own authentic packets, and the round trips of its handshakes and keepalives.
//! Probes are for a silent line: one a second or so while it is idle, quicker once something sent on it has gone
//! unanswered. The owner of a [`Health`] reports events to it, asks [`Health::probe_due`], and calls [`Health::poll`]
//! after each of these and every so often.
//!
//! States have hysteresis: the round trips at which a line degrades are longer than those at which it recovers, and
//! must last a few seconds. A line that was down is up again only after several answers.

mod probes;
mod reason;
#[cfg(test)]
mod tests;

pub use probes::Loss;
pub use reason::{Fault, LineState, Reason};

use probes::Probes;
use std::time::{Duration, Instant};

/// The settings by which a line is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whether the peer answers probes. If not, only packets that it sends by itself count, and the line may be silent
    /// for longer.
    pub probes: bool,
    /// Interval of probes on an idle line.
    pub probe_interval: Duration,
    /// Interval of probes on a line that does not answer.
    pub probe_interval_silent: Duration,
    /// A line is down when nothing has come for this long after a packet that the peer should answer.
    pub silence: Duration,
    /// The same as `silence`, for a peer that does not answer probes.
    pub silence_without_probes: Duration,
    /// Probes that must also be unanswered before the line is down.
    pub unanswered: u8,
    /// Authentic packets after which a line that was down is up; they must come half a probe interval apart.
    pub answers: u8,
    /// A line degrades when round trips are this many times as long as usual, and also longer by `round_trip_more`.
    pub round_trip_times: u8,
    /// Minimum increase of round trips that degrades a line; see `round_trip_times`.
    pub round_trip_more: Duration,
    /// How long a line must be bad before it is degraded.
    pub degrade_after: Duration,
    /// How long a line must be good before it has recovered.
    pub recover_after: Duration,
}

impl Default for Settings {
    /// A line is down within 1.2 seconds of an unanswered packet, so that another takes over within two.
    fn default() -> Self {
        Self {
            probes: true,
            probe_interval: Duration::from_secs(1),
            probe_interval_silent: Duration::from_millis(200),
            silence: Duration::from_secs(1),
            // WireGuard answers data within 10 s, and retries a handshake after 5.
            silence_without_probes: Duration::from_secs(15),
            unanswered: 3,
            answers: 3,
            round_trip_times: 3,
            round_trip_more: Duration::from_millis(100),
            degrade_after: Duration::from_secs(3),
            recover_after: Duration::from_secs(10),
        }
    }
}

/// A change of state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Previous state.
    pub from: LineState,
    /// New state.
    pub to: LineState,
    /// Reason for the change.
    pub reason: Reason,
}

/// The health of one line.
#[derive(Clone, Debug)]
pub struct Health {
    settings: Settings,
    state: LineState,
    reason: Option<Reason>,
    /// When the state changed last.
    since: Option<Instant>,
    fault: Option<Fault>,
    /// A fault that has gone since the last poll.
    fault_gone: Option<Fault>,
    round_trips: RoundTrips,
    heard: Option<Instant>,
    /// When the first packet that is still unanswered was sent.
    unanswered_since: Option<Instant>,
    probe_sent: Option<Instant>,
    probes: Probes,
    /// Probes since the last packet was heard.
    probes_unanswered: u8,
    /// Answers since the line was down, and the time of the last one that counted.
    answers: u8,
    answer_counted: Option<Instant>,
    /// Since when the line has been as bad, or as good, as another state needs.
    bad_since: Option<Instant>,
    good_since: Option<Instant>,
}

impl Health {
    /// Makes the health of a line about which nothing is known.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            state: LineState::Unknown,
            reason: None,
            since: None,
            fault: None,
            fault_gone: None,
            round_trips: RoundTrips::default(),
            heard: None,
            unanswered_since: None,
            probe_sent: None,
            probes: Probes::default(),
            probes_unanswered: 0,
            answers: 0,
            answer_counted: None,
            bad_since: None,
            good_since: None,
        }
    }

    /// Sets the interval of probes on an idle line.
    pub const fn set_probe_interval(&mut self, interval: Duration) {
        self.settings.probe_interval = interval;
    }

    /// Sets how the peer answers. `None`: it answers probes. A time: only packets that it sends by itself count, and
    /// they must come within that time of something sent to it.
    pub const fn set_answers(&mut self, within: Option<Duration>) {
        self.settings.probes = within.is_none();
        if let Some(within) = within {
            self.settings.silence_without_probes = within;
        }
    }

    /// The state and the reason for it; `None` while nothing has happened.
    #[must_use]
    pub const fn state(&self) -> (LineState, Option<Reason>) {
        (self.state, self.reason)
    }

    /// When the state changed last.
    #[must_use]
    pub const fn since(&self) -> Option<Instant> {
        self.since
    }

    /// The smoothed round trip, once one was measured.
    #[must_use]
    pub const fn smoothed(&self) -> Option<Duration> {
        self.round_trips.smoothed
    }

    /// The usual difference of two round trips in a row (RFC 3550, section 6.4.1), once two were measured.
    #[must_use]
    pub const fn jitter(&self) -> Option<Duration> {
        self.round_trips.jitter
    }

    /// The share of lost probes; `None` with too few of them.
    #[must_use]
    pub fn loss(&self) -> Option<Loss> {
        self.probes.loss()
    }

    /// Records that packets were sent that the peer answers sooner or later, as it does data.
    pub fn sent(&mut self, now: Instant) {
        self.unanswered_since.get_or_insert(now);
    }

    /// Records that authentic packets have come.
    pub fn received(&mut self, now: Instant) {
        self.heard = Some(now);
        self.unanswered_since = None;
        self.probes_unanswered = 0;
        let apart = self.settings.probe_interval_silent / 2;
        if self.answer_counted.is_none_or(|last| now >= last + apart) {
            self.answers = self.answers.saturating_add(1);
            self.answer_counted = Some(now);
        }
    }

    /// Takes a measured round trip that ends now: of a handshake, a keepalive, a probe.
    pub fn round_trip(&mut self, sample: Duration, now: Instant) {
        self.round_trips.sample(sample);
        if now.checked_sub(sample) == self.probe_sent {
            self.probes.answered();
        }
    }

    /// Sets the fault by which the host knows that the line cannot work, or clears it.
    pub fn fault(&mut self, fault: Option<Fault>) {
        if fault.is_none() {
            self.fault_gone = self.fault;
        }
        self.fault = fault;
    }

    /// Returns whether a probe must be sent now, and then counts it as sent.
    pub fn probe_due(&mut self, now: Instant) -> bool {
        let due = self
            .next_probe()
            .is_some_and(|at| at.is_none_or(|at| at <= now));
        if due {
            self.probe_sent = Some(now);
            self.probes.sent(now);
            self.unanswered_since.get_or_insert(now);
            self.probes_unanswered = self.probes_unanswered.saturating_add(1);
        }
        due
    }

    /// Judges the line by everything reported so far. Returns the change, if any.
    pub fn poll(&mut self, now: Instant) -> Option<Change> {
        let (to, reason) = self.judge(now)?;
        let from = std::mem::replace(&mut self.state, to);
        self.reason = Some(reason);
        self.since = Some(now);
        self.bad_since = None;
        self.good_since = None;
        if to == LineState::Down || to == LineState::Unknown {
            self.answers = 0;
        }
        Some(Change { from, to, reason })
    }

    fn judge(&mut self, now: Instant) -> Option<(LineState, Reason)> {
        if let Some(fault) = self.fault {
            let reason = Reason::Fault(fault);
            let known = self.state == LineState::Down && self.reason == Some(reason);
            return (!known).then_some((LineState::Down, reason));
        }
        if let Some(fault) = self.fault_gone.take() {
            self.unanswered_since = None;
            self.probes_unanswered = 0;
            self.answers = 0;
            if self.state == LineState::Down {
                return Some((LineState::Unknown, Reason::FaultGone(fault)));
            }
        }
        match self.state {
            LineState::Unknown | LineState::Up | LineState::Degraded if self.is_silent(now) => {
                let since = self.heard.or(self.unanswered_since).unwrap_or(now);
                let silent = now.saturating_duration_since(since);
                Some((LineState::Down, Reason::Silent(silent)))
            }
            LineState::Unknown => {
                (self.answers > 0).then_some((LineState::Up, Reason::FirstPacket))
            }
            LineState::Down => {
                let back = self.answers >= self.settings.answers;
                let away = self
                    .since
                    .map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
                back.then_some((LineState::Up, Reason::PacketsAgain(away)))
            }
            LineState::Up => self.judge_up(now),
            LineState::Degraded => self.judge_degraded(now),
        }
    }

    fn judge_up(&mut self, now: Instant) -> Option<(LineState, Reason)> {
        let Some(reason) = self.trouble(1) else {
            self.bad_since = None;
            return None;
        };
        let since = *self.bad_since.get_or_insert(now);
        (now >= since + self.settings.degrade_after).then_some((LineState::Degraded, reason))
    }

    fn judge_degraded(&mut self, now: Instant) -> Option<(LineState, Reason)> {
        if self.trouble(2).is_some() {
            self.good_since = None;
            return None;
        }
        let since = *self.good_since.get_or_insert(now);
        let good = now.saturating_duration_since(since);
        (good >= self.settings.recover_after).then_some((LineState::Up, Reason::Recovered(good)))
    }

    /// Reports round trips that exceed the usual by more than the limit divided by `part`.
    fn trouble(&self, part: u32) -> Option<Reason> {
        let smoothed = self.round_trips.smoothed?;
        let usual = self.round_trips.least;
        let times = u32::from(self.settings.round_trip_times.max(1)) - 1;
        let more = (usual * times).max(self.settings.round_trip_more) / part;
        (smoothed > usual + more).then_some(Reason::RoundTrip {
            now: smoothed,
            usual,
        })
    }

    fn is_silent(&self, now: Instant) -> bool {
        let enough = !self.settings.probes || self.probes_unanswered >= self.settings.unanswered;
        enough && self.down_at().is_some_and(|at| now >= at)
    }

    /// When the line will be down, if nothing comes and probes are sent as they are due.
    fn down_at(&self) -> Option<Instant> {
        let since = self.unanswered_since?;
        if !self.settings.probes {
            return Some(since + self.settings.silence_without_probes);
        }
        // The time that an answer normally takes does not count as silence.
        let timeout = self.round_trips.timeout().unwrap_or_default();
        let at = since + self.settings.silence.max(timeout);
        // The last of the probes must have had its time for an answer as well.
        let enough = self.probes_unanswered >= self.settings.unanswered;
        Some(if enough {
            at
        } else {
            at + self.settings.probe_interval_silent
        })
    }

    /// When the next probe is due: `Some(None)` means at once, `None` means never.
    fn next_probe(&self) -> Option<Option<Instant>> {
        if !self.settings.probes || self.fault.is_some() {
            return None;
        }
        let heard = self.heard.max(self.probe_sent);
        let idle = heard.map(|at| at + self.settings.probe_interval);
        let Some(unanswered) = self.unanswered_since else {
            return Some(match self.state {
                // A line that has just answered again is soon probed again.
                LineState::Down => heard.map(|at| at + self.settings.probe_interval_silent),
                _ => idle,
            });
        };
        if self.state == LineState::Down && self.answers == 0 {
            // Probes of a new line become rarer with each lost one, so that a few losses at the start do not keep the
            // line down for a minute.
            let times = 1 << self.probes_unanswered.min(16);
            let backoff = self.settings.probe_interval_silent * times;
            let interval = backoff.min(self.settings.probe_interval);
            return Some(heard.map(|at| at + interval));
        }
        // A packet is unanswered: send a probe, unless the line is merely slow.
        let patience = self
            .round_trips
            .timeout()
            .unwrap_or_default()
            .max(self.settings.probe_interval_silent);
        let last = self.probe_sent.filter(|at| *at >= unanswered);
        let at = last.unwrap_or(unanswered) + patience;
        Some(Some(idle.map_or(at, |idle| idle.min(at))))
    }
}

/// Round trips: smoothed and their deviation as in RFC 6298, and the least recent value.
#[derive(Clone, Copy, Debug, Default)]
struct RoundTrips {
    smoothed: Option<Duration>,
    deviation: Duration,
    least: Duration,
    last: Duration,
    jitter: Option<Duration>,
}

impl RoundTrips {
    fn sample(&mut self, sample: Duration) {
        let Some(smoothed) = self.smoothed else {
            *self = Self {
                smoothed: Some(sample),
                deviation: sample / 2,
                least: sample,
                last: sample,
                jitter: None,
            };
            return;
        };
        let differ = sample.abs_diff(std::mem::replace(&mut self.last, sample));
        self.jitter = Some((self.jitter.unwrap_or_default() * 15 + differ) / 16);
        self.deviation = (self.deviation * 3 + sample.abs_diff(smoothed)) / 4;
        self.smoothed = Some((smoothed * 7 + sample) / 8);
        // The least value rises by a 256th of the difference, or a path that has become longer would look slow for
        // ever.
        let risen = self.least + sample.saturating_sub(self.least) / 256;
        self.least = risen.min(sample);
    }

    /// The time after which an answer counts as lost.
    fn timeout(&self) -> Option<Duration> {
        self.smoothed.map(|smoothed| smoothed + self.deviation * 4)
    }
}
