//! Timers of a session that is up: pings, timeouts, inactivity and the session limit.

use std::time::{Duration, Instant};

use super::output::CloseReason;
use super::settings::Timers;

/// The data plane's last times of data packets; reported by [`Session::activity`](super::Session::activity).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// When an authentic packet came, pings included.
    pub last_received: Option<Instant>,
    /// When a packet left, pings included.
    pub last_sent: Option<Instant>,
    /// Bytes of data packets of both directions since the session began, without pings.
    pub payload_bytes: u64,
}

/// The timers of a session that is up.
#[derive(Debug)]
pub(super) struct Liveness {
    timers: Timers,
    times: Times,
    /// When the session came up.
    since: Instant,
    control_received: Instant,
    control_sent: Instant,
    /// When the current `inactive` period began, and the byte count at that time.
    counted: (Instant, u64),
}

/// The action that is due.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    Ping,
    Close(CloseReason),
}

impl Liveness {
    /// How long the peer may be silent before the session ends; `None` for no limit.
    pub(super) const fn ping_restart(&self) -> Option<Duration> {
        self.timers.ping_restart
    }

    /// Our silence after which a ping is sent, and the peer's silence after which the session ends.
    pub(super) fn keep_alive(&self) -> (Option<Duration>, Option<Duration>) {
        let limit = |limit: Option<Duration>| limit.filter(|it| !it.is_zero());
        let Timers {
            ping,
            ping_restart,
            ping_exit,
            ..
        } = self.timers;
        (
            limit(ping),
            limit(ping_exit).or_else(|| limit(ping_restart)),
        )
    }

    /// Why to end a session when another data plane's clock reports that the peer was silent for too long.
    pub(super) fn silence(&self) -> CloseReason {
        match self.timers.ping_exit.filter(|it| !it.is_zero()) {
            Some(limit) => CloseReason::PingExit(limit),
            None => CloseReason::PingRestart(self.timers.ping_restart.unwrap_or_default()),
        }
    }

    pub(super) fn new(timers: Timers, now: Instant) -> Self {
        Self {
            timers,
            times: Times::default(),
            since: now,
            control_received: now,
            control_sent: now,
            counted: (now, 0),
        }
    }

    /// Replaces single limits.
    pub(super) fn limit(&mut self, inactive: Option<(Duration, u64)>, timeout: Option<Duration>) {
        self.timers.inactive = inactive.or(self.timers.inactive);
        self.timers.session_timeout = timeout.or(self.timers.session_timeout);
    }

    pub(super) fn activity(&mut self, times: Times) {
        self.times = times;
    }

    pub(super) fn control_received(&mut self, now: Instant) {
        self.control_received = now;
    }

    pub(super) const fn control_received_at(&self) -> Instant {
        self.control_received
    }

    pub(super) fn control_sent(&mut self, now: Instant) {
        self.control_sent = now;
    }

    fn received(&self) -> Instant {
        latest(self.control_received, self.times.last_received)
    }

    fn sent(&self) -> Instant {
        latest(self.control_sent, self.times.last_sent)
    }

    /// The action that is due now. A ping counts as sent from now on, though the caller has not sent it yet.
    pub(super) fn due(&mut self, now: Instant) -> Option<Due> {
        let over = |since: Instant, limit: Option<Duration>| {
            limit.filter(|it| !it.is_zero() && now >= since + *it)
        };
        let close = |reason| Some(Due::Close(reason));
        if let Some(limit) = over(self.since, self.timers.session_timeout) {
            return close(CloseReason::SessionTimeout(limit));
        }
        if let Some(limit) = over(self.received(), self.timers.ping_exit) {
            return close(CloseReason::PingExit(limit));
        }
        if let Some(limit) = over(self.received(), self.timers.ping_restart) {
            return close(CloseReason::PingRestart(limit));
        }
        if let Some((limit, bytes)) = self.timers.inactive
            && !limit.is_zero()
        {
            let (since, before) = self.counted;
            let moved = self.times.payload_bytes.saturating_sub(before);
            if moved > 0 && moved >= bytes {
                // Count from the last packet, which may have come long before `now`. That may be a ping after the last
                // payload, but it changes little, as this check also runs at each ping.
                let last = self.times.last_received.max(self.times.last_sent);
                let at = last.map_or(now, |last| last.clamp(since, now.max(since)));
                self.counted = (at, self.times.payload_bytes);
            }
            if now >= self.counted.0 + limit {
                return close(CloseReason::Inactive(limit));
            }
        }
        if over(self.sent(), self.timers.ping).is_some() {
            self.control_sent = now;
            return Some(Due::Ping);
        }
        None
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let at = |since: Instant, limit: Option<Duration>| {
            limit.filter(|it| !it.is_zero()).map(|it| since + it)
        };
        [
            at(self.since, self.timers.session_timeout),
            at(self.received(), self.timers.ping_exit),
            at(self.received(), self.timers.ping_restart),
            at(self.counted.0, self.timers.inactive.map(|it| it.0)),
            at(self.sent(), self.timers.ping),
        ]
        .into_iter()
        .flatten()
        .min()
    }
}

fn latest(a: Instant, b: Option<Instant>) -> Instant {
    b.map_or(a, |b| a.max(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEC: Duration = Duration::from_secs(1);

    #[test]
    fn pings_after_silence_of_our_own() {
        let start = Instant::now();
        let timers = Timers {
            ping: Some(10 * SEC),
            ..Timers::default()
        };
        let mut liveness = Liveness::new(timers, start);
        assert_eq!(liveness.next_deadline(), Some(start + 10 * SEC));
        assert_eq!(liveness.due(start + 9 * SEC), None);
        assert_eq!(liveness.due(start + 10 * SEC), Some(Due::Ping));
        assert_eq!(liveness.due(start + 10 * SEC), None);
        liveness.activity(Times {
            last_sent: Some(start + 15 * SEC),
            ..Times::default()
        });
        assert_eq!(liveness.next_deadline(), Some(start + 25 * SEC));
    }

    #[test]
    fn gives_up_after_silence_of_the_peer() {
        let start = Instant::now();
        let timers = Timers {
            ping_restart: Some(60 * SEC),
            session_timeout: Some(1000 * SEC),
            ..Timers::default()
        };
        let mut liveness = Liveness::new(timers, start);
        liveness.control_received(start + 30 * SEC);
        assert_eq!(liveness.due(start + 60 * SEC), None);
        assert_eq!(
            liveness.due(start + 90 * SEC),
            Some(Due::Close(CloseReason::PingRestart(60 * SEC)))
        );
        liveness.activity(Times {
            last_received: Some(start + 999 * SEC),
            ..Times::default()
        });
        assert_eq!(liveness.due(start + 999 * SEC), None);
        assert_eq!(
            liveness.due(start + 1000 * SEC),
            Some(Due::Close(CloseReason::SessionTimeout(1000 * SEC)))
        );
    }

    #[test]
    fn what_a_data_plane_is_to_look_after_is_what_would_end_the_session() {
        let of = |restart: Option<Duration>, exit: Option<Duration>| {
            let timers = Timers {
                ping: Some(10 * SEC),
                ping_restart: restart,
                ping_exit: exit,
                ..Timers::default()
            };
            let liveness = Liveness::new(timers, Instant::now());
            (liveness.keep_alive(), liveness.silence())
        };
        let (minute, ping) = (60 * SEC, Some(10 * SEC));
        let restart = CloseReason::PingRestart(minute);
        assert_eq!(of(Some(minute), None), ((ping, Some(minute)), restart));
        let exit = CloseReason::PingExit(minute);
        assert_eq!(
            of(Some(Duration::ZERO), Some(minute)),
            ((ping, Some(minute)), exit)
        );
        let (nothing, _) = of(Some(Duration::ZERO), None);
        assert_eq!(nothing, (ping, None));
    }

    #[test]
    fn limits_of_one_peer_replace_those_of_all() {
        let start = Instant::now();
        let timers = Timers {
            session_timeout: Some(1000 * SEC),
            ..Timers::default()
        };
        let mut liveness = Liveness::new(timers, start);
        liveness.limit(None, Some(10 * SEC));
        assert_eq!(liveness.next_deadline(), Some(start + 10 * SEC));
        liveness.limit(Some((5 * SEC, 1)), None);
        assert_eq!(
            liveness.due(start + 5 * SEC),
            Some(Due::Close(CloseReason::Inactive(5 * SEC)))
        );
    }

    #[test]
    fn inactivity_begins_with_the_last_packet() {
        let start = Instant::now();
        let timers = Timers {
            inactive: Some((3600 * SEC, 1)),
            ..Timers::default()
        };
        let mut liveness = Liveness::new(timers, start);
        liveness.activity(Times {
            last_sent: Some(start + SEC),
            last_received: Some(start + 2 * SEC),
            payload_bytes: 100,
        });
        assert_eq!(liveness.due(start + 3600 * SEC), None);
        assert_eq!(liveness.next_deadline(), Some(start + 3602 * SEC));
        let ended = Some(Due::Close(CloseReason::Inactive(3600 * SEC)));
        assert_eq!(liveness.due(start + 3602 * SEC), ended);
    }

    #[test]
    fn inactivity_counts_bytes() {
        let start = Instant::now();
        let timers = Timers {
            inactive: Some((100 * SEC, 1000)),
            ..Timers::default()
        };
        let mut liveness = Liveness::new(timers, start);
        let moved = |bytes| Times {
            payload_bytes: bytes,
            ..Times::default()
        };
        liveness.activity(moved(1000));
        assert_eq!(liveness.due(start + 99 * SEC), None);
        liveness.activity(moved(1999));
        assert_eq!(liveness.due(start + 198 * SEC), None);
        assert_eq!(
            liveness.due(start + 199 * SEC),
            Some(Due::Close(CloseReason::Inactive(100 * SEC)))
        );
    }
}
