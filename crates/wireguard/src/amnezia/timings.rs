//! Times of handshakes and keys: WireGuard's, or drawn from the ranges of 3.0.

use std::time::{Duration, Instant};

use super::{Range, Settings};
use crate::message::{
    KEEPALIVE_TIMEOUT, REJECT_AFTER_TIME, REKEY_AFTER_TIME, REKEY_ATTEMPT_TIME, REKEY_TIMEOUT,
};

/// The times of one interface, in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timings {
    rekey_after: Range<u32>,
    rekey_timeout: Range<u32>,
    reject_after: Range<u32>,
    keepalive: Range<u32>,
    /// Number of initiations before a handshake is given up; `None` where time alone decides.
    sends: Option<Range<u32>>,
}

/// `MaxHandshakeAttempts` where it is not set: with WireGuard's times, its 90 seconds.
const ATTEMPTS: u16 = 18;

impl Default for Timings {
    fn default() -> Self {
        Self::new(&Settings::default())
    }
}

fn seconds(seconds: u32) -> Duration {
    Duration::from_secs(seconds.into())
}

impl Timings {
    pub(crate) fn new(settings: &Settings) -> Self {
        let time =
            |range: Range<u16>, default: Duration| range.or_default(default.as_secs() as u16);
        Self {
            rekey_after: time(settings.rekey_after, REKEY_AFTER_TIME),
            rekey_timeout: time(settings.rekey_timeout, REKEY_TIMEOUT),
            reject_after: time(settings.reject_after, REJECT_AFTER_TIME),
            keepalive: time(settings.keepalive, KEEPALIVE_TIMEOUT),
            sends: (settings.attempts.hi > 0 || settings.rekey_timeout.hi > 0).then(|| {
                let attempts = settings.attempts.or_default(ATTEMPTS);
                // Other programs count neither the first nor the one after which they look.
                Range {
                    lo: attempts.lo + 2,
                    hi: attempts.hi + 2,
                }
            }),
        }
    }

    /// Age at which an initiator that sends renews a session's keys; drawn once for a session.
    pub(crate) fn rekey_after(&self) -> Duration {
        seconds(self.rekey_after.draw())
    }

    /// Age at which an initiator that only receives renews them: the last moment at which an answer comes in time.
    pub(crate) fn last_moment(&self) -> Duration {
        let before = self.keepalive.lo + self.rekey_timeout.lo;
        seconds(self.reject_after.draw().saturating_sub(before))
    }

    /// Age from which keys are not used.
    pub(crate) fn reject_after(&self) -> Duration {
        seconds(self.reject_after.hi)
    }

    /// Least time between two initiations to one peer.
    pub(crate) fn spacing(&self) -> Duration {
        seconds(self.rekey_timeout.lo)
    }

    /// Time after which an initiation is repeated.
    pub(crate) fn rekey_timeout(&self) -> Duration {
        seconds(self.rekey_timeout.draw())
    }

    /// Time after which a peer's packets are looked at again: nothing that begins later is due before that.
    pub(crate) fn poll(&self) -> Duration {
        seconds(self.keepalive.lo)
    }
}

/// Times and numbers drawn for one peer. A time stays as it was drawn until its timer begins anew.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Draws {
    /// Initiations since data last asked for the handshake.
    sent: u32,
    /// Number of them before the handshake is given up.
    most: Option<u32>,
    keepalive: Option<(Instant, Duration)>,
    silence: Option<(Instant, Duration)>,
}

/// The end of a time that began at `since`.
fn end(
    drawn: &mut Option<(Instant, Duration)>,
    since: Instant,
    draw: impl FnOnce() -> Duration,
) -> Instant {
    let lasts = match *drawn {
        Some((began, lasts)) if began == since => lasts,
        _ => draw(),
    };
    *drawn = Some((since, lasts));
    since + lasts
}

impl Draws {
    /// Data or a timer asks for a handshake; `first` unless one is being tried.
    pub(crate) fn begin_attempt(&mut self, first: bool, timings: &Timings) {
        self.sent = 0;
        if first {
            self.most = timings.sends.map(|sends| sends.draw());
        }
    }

    /// Counts an initiation.
    pub(crate) const fn initiated(&mut self) {
        self.sent = self.sent.saturating_add(1);
    }

    /// Whether to give up a handshake that data last asked for at `since`.
    pub(crate) fn is_over(&self, since: Instant, now: Instant) -> bool {
        self.most
            .map_or(now >= since + REKEY_ATTEMPT_TIME, |most| self.sent >= most)
    }

    /// The end of the time for which a handshake is tried that data last asked for at `since`.
    pub(crate) fn attempt_end(&self, since: Instant) -> Option<Instant> {
        self.most.is_none().then(|| since + REKEY_ATTEMPT_TIME)
    }

    /// When a packet that was received at `since` is answered by a keepalive.
    pub(crate) fn keepalive(&mut self, since: Instant, timings: &Timings) -> Instant {
        end(&mut self.keepalive, since, || {
            seconds(timings.keepalive.draw())
        })
    }

    /// When a handshake begins if nothing came back since a packet was sent at `since`.
    pub(crate) fn silence(&mut self, since: Instant, timings: &Timings) -> Instant {
        end(&mut self.silence, since, || {
            seconds(timings.keepalive.hi + timings.rekey_timeout.draw())
        })
    }
}
