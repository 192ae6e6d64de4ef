//! Times of handshakes and keys: WireGuard's, or drawn from the ranges of 3.0.

use std::time::Duration;

use super::fault::or;
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
    /// For how long handshakes are tried.
    attempt_time: u32,
}

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
        let or = |range, default: Duration| or(range, default.as_secs() as u16);
        let rekey_timeout = or(settings.rekey_timeout, REKEY_TIMEOUT);
        Self {
            rekey_after: or(settings.rekey_after, REKEY_AFTER_TIME),
            rekey_timeout,
            reject_after: or(settings.reject_after, REJECT_AFTER_TIME),
            keepalive: or(settings.keepalive, KEEPALIVE_TIMEOUT),
            attempt_time: match settings.attempts.hi {
                0 => REKEY_ATTEMPT_TIME.as_secs() as u32,
                // The first initiation, and the wait for the answer to the last. At most 65537 * 65535.
                attempts => (u32::from(attempts) + 2) * rekey_timeout.hi,
            },
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

    /// Time after which a received packet is answered by a keepalive.
    pub(crate) fn keepalive(&self) -> Duration {
        seconds(self.keepalive.draw())
    }

    /// The longest time for which nothing may come back: then a handshake begins.
    pub(crate) fn silence(&self) -> Duration {
        seconds(self.keepalive.hi + self.rekey_timeout.draw())
    }

    /// For how long handshakes are tried.
    pub(crate) fn attempt_time(&self) -> Duration {
        seconds(self.attempt_time)
    }
}
