//! The five timers, and how the data plane keeps them going without a message for every packet.
//!
//! For each peer there are, as in the kernel:
//!
//! * **Retransmit the handshake**: 5 s and up to 333 ms after an initiation, until both sides have keys. After 90 s
//!   without success it drops what is staged and gives up. Data that wants to be sent restarts the 90 s. (The kernel
//!   counts to 20 attempts, which takes some 103 s; the paper says 90 s, so we do.)
//! * **New handshake**: 15 s and up to 333 ms after the first data packet sent since we have received anything.
//! * **Zero the keys**: 540 s after the last keys were made. Giving up starts it as well, if it is not running.
//! * **Persistent keepalive**, if it is set: when nothing authentic went either way for that interval.
//!
//! The second, the third and the fifth depend on every packet. The data plane only keeps notes of packets, and the
//! device looks at them when something may be due: see [`Activity`].

use std::time::{Duration, Instant};

use plane::{PeerId, Times};

use crate::device::{Device, peer_of};
use crate::disguise::{Draws, Timings};
use crate::message::REKEY_TIMEOUT_JITTER;
use crate::output::Output;

/// The data plane's notes about one peer, which three of the timers go by.
///
/// "Anything" is every authentic packet: data, keepalives, and the handshake messages that
/// [`Output::Send`] and [`Output::Heard`] speak of. Both "since" fields become `None` on [`Output::StopSending`].
///
/// Telling the device of every packet would cost more than the packets. Instead, the device looks at the notes:
///
/// 1. A peer is *disarmed* at first. After the data plane has written its notes, it looks at the peer's `armed` flag.
///    If that is not set while one of the two "since" is there, it sets it and has [`Device::activity`] called.
/// 2. From then on the device looks by itself, through the function that [`Device::expired`] is given: when something
///    is due, and at least every 10 s (AmneziaWG: the least `KeepaliveTimeout`). Nothing that begins after a look is due sooner than that, so nothing is late.
/// 3. A look that finds neither an unanswered nor an unacknowledged packet emits [`Output::Disarmed`]. The owner of
///    the device clears the flag, *then reads the notes again*, and goes on at 1 if one of the two is there after all.
///
/// Notes are written before the flag is looked at, and the flag is cleared before notes are read, both
/// with a sequentially consistent fence between: one of the two always sees the other, so no wake-up is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// When the first data packet was sent since anything was received.
    pub unanswered_since: Option<Instant>,
    /// When the first data packet that was no keepalive was received since anything was sent.
    pub unacknowledged_since: Option<Instant>,
    /// When the last data packet that was no keepalive was sent.
    pub last_data_sent: Option<Instant>,
    /// When anything was last sent or received.
    pub last_traversal: Option<Instant>,
}

impl From<Times> for Activity {
    fn from(times: Times) -> Self {
        Self {
            unanswered_since: times.unanswered_since,
            unacknowledged_since: times.unacked_since,
            last_data_sent: times.last_data_sent,
            last_traversal: times.last_sent.max(times.last_received),
        }
    }
}

/// The timers of one peer. `None` is a timer that does not run.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    pub(crate) retransmit: Option<Instant>,
    /// When data last asked for the handshake that continues: the 90 s count from here.
    pub(crate) attempt_since: Option<Instant>,
    /// When a handshake message was last sent: the next initiation waits for 5 s.
    pub(crate) handshake_sent: Option<Instant>,
    /// When a probe was last sent, which counts for no other timer.
    pub(crate) probe_sent: Option<Instant>,
    /// A handshake is needed, but there is no endpoint or no private key to begin it with.
    pub(crate) wanted: bool,
    /// The next look at the activity; runs exactly while the peer is armed.
    pub(crate) check: Option<Instant>,
    /// When the new-handshake timer last fired. It counts again from there, if data has been sent since.
    new_handshake_fired: Option<Instant>,
    pub(crate) new_handshake_jitter: Duration,
    pub(crate) persistent: Option<Instant>,
    /// Zero is off.
    pub(crate) persistent_interval: Duration,
    /// When the persistent keepalive last fired or, by our own messages, was put off.
    pub(crate) persistent_since: Option<Instant>,
    pub(crate) zero: Option<Instant>,
    pub(crate) draws: Draws,
}

impl Timers {
    fn earliest(&self) -> Option<Instant> {
        [self.retransmit, self.check, self.persistent, self.zero]
            .into_iter()
            .flatten()
            .min()
    }

    /// Begins the handshake that data or a timer of the data asks for, or gives it its full time again.
    pub(crate) fn begin_attempt(&mut self, now: Instant, timings: &Timings) {
        self.draws
            .begin_attempt(self.attempt_since.is_none(), timings);
        self.attempt_since = Some(now);
    }

    /// Stops retransmission: both sides have keys.
    pub(crate) fn handshake_complete(&mut self) {
        self.retransmit = None;
        self.attempt_since = None;
        self.wanted = false;
    }

    /// Starts the timer that zeroes keys: new keys exist, whichever end began.
    pub(crate) fn session_derived(&mut self, now: Instant, timings: &Timings) {
        self.zero = Some(now + timings.reject_after() * 3);
    }

    /// Records that a handshake message was sent.
    pub(crate) fn handshake_sent(&mut self, now: Instant) {
        self.handshake_sent = Some(now);
        self.persistent_since = Some(now);
    }

    /// When the retransmit timer is due after an initiation at `now`: not later than the end of the attempt.
    pub(crate) fn retransmit_after(
        &self,
        now: Instant,
        jitter: Duration,
        timings: &Timings,
    ) -> Instant {
        let regular = now + timings.rekey_timeout() + jitter;
        let end = self
            .attempt_since
            .and_then(|since| self.draws.attempt_end(since));
        end.map_or(regular, |end| regular.min(end))
    }

    /// When the new-handshake timer is due.
    fn new_handshake_due(&mut self, activity: &Activity, timings: &Timings) -> Option<Instant> {
        let mut since = activity.unanswered_since?;
        if let Some(fired) = self.new_handshake_fired.filter(|&fired| fired >= since) {
            activity.last_data_sent.filter(|&sent| sent > fired)?;
            since = fired;
        }
        Some(self.draws.silence(since, timings) + self.new_handshake_jitter)
    }
}

impl Device {
    /// The earliest deadline of all peers: call [`Device::expired`] then.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.earliest()
    }

    /// Runs every timer that is due at `now`. `activity_of` reads the data plane's notes about a peer.
    pub fn expired(
        &mut self,
        now: Instant,
        mut activity_of: impl FnMut(PeerId) -> Activity,
        out: &mut Vec<Output>,
    ) {
        while let Some(id) = self.deadlines.due(now) {
            let Some(peer) = self.peer_mut(id) else { break };
            let due = |timer: &mut Option<Instant>| timer.take_if(|at| *at <= now).is_some();
            let timers = &mut peer.timers;
            let (retransmit, check) = (due(&mut timers.retransmit), due(&mut timers.check));
            let (persistent, zero) = (due(&mut timers.persistent), due(&mut timers.zero));
            // Runs first, so that it does not erase what another timer begins: after a sleep all are due at once.
            if zero {
                self.forget_keys(id, out);
            }
            if retransmit {
                self.retransmit(id, now, out);
            }
            if check || persistent {
                let mut activity = activity_of(id);
                if zero {
                    // `ClearSendKey` is already queued and will clear these.
                    activity.unanswered_since = None;
                    activity.unacknowledged_since = None;
                }
                if check {
                    self.check(id, &activity, now, out);
                }
                if persistent {
                    self.persistent(id, &activity, now, out);
                }
            }
            #[cfg(feature = "postquantum")]
            self.exchange_expired(id, now, out);
            // Each of the above has set its timer to later than `now` or not at all, so the loop ends.
            self.requeue(id);
        }
    }

    /// The data plane reports activity of a disarmed peer (step 1 in [`Activity`]).
    pub fn activity(
        &mut self,
        id: PeerId,
        activity: &Activity,
        now: Instant,
        out: &mut Vec<Output>,
    ) {
        self.check(id, activity, now, out);
        self.requeue(id);
    }

    /// Looks at the notes: runs the timers that are due, then arms the next look or disarms the peer.
    fn check(&mut self, id: PeerId, activity: &Activity, now: Instant, out: &mut Vec<Output>) {
        let jitter = self.jitter();
        let Self {
            peers, disguise, ..
        } = self;
        let Some(peer) = peer_of(peers, id) else {
            return;
        };
        let timings = &disguise.timings;
        if activity.unacknowledged_since.is_none() && activity.unanswered_since.is_none() {
            peer.timers.check = None;
            peer.timers.new_handshake_jitter = jitter;
            out.push(Output::Disarmed { peer: id });
            return;
        }
        let since = activity.unacknowledged_since;
        let keepalive = since.map(|since| peer.timers.draws.keepalive(since, timings));
        let new_handshake = peer.timers.new_handshake_due(activity, timings);
        let later = [keepalive, new_handshake, Some(now + timings.poll())];
        peer.timers.check = later.into_iter().flatten().filter(|&at| at > now).min();

        if new_handshake.is_some_and(|at| at <= now) {
            peer.timers.new_handshake_fired = Some(now);
            peer.timers.new_handshake_jitter = jitter;
            self.initiate(id, true, now, out);
        }
        if keepalive.is_some_and(|at| at <= now) {
            self.keepalive(id, now, out);
        }
    }

    fn persistent(&mut self, id: PeerId, activity: &Activity, now: Instant, out: &mut Vec<Output>) {
        let Some(peer) = self.peer_mut(id) else {
            return;
        };
        let interval = peer.timers.persistent_interval;
        if interval.is_zero() {
            return;
        }
        let since = peer.timers.persistent_since.max(activity.last_traversal);
        match since.map(|since| since + interval).filter(|&due| due > now) {
            Some(due) => peer.timers.persistent = Some(due),
            None => {
                peer.timers.persistent_since = Some(now);
                peer.timers.persistent = Some(now + interval);
                self.keepalive(id, now, out);
            }
        }
    }

    fn retransmit(&mut self, id: PeerId, now: Instant, out: &mut Vec<Output>) {
        let zero = now + self.disguise.timings.reject_after() * 3;
        let Some(peer) = self.peer_mut(id) else {
            return;
        };
        let timers = &mut peer.timers;
        let since = timers.attempt_since;
        if since.is_some_and(|since| timers.draws.is_over(since, now)) {
            timers.attempt_since = None;
            // The state of a failed handshake must be zeroed in time, and packets must not wait for ever.
            timers.zero.get_or_insert(zero);
            out.push(Output::DropStaged { peer: id });
        } else {
            self.initiate(id, false, now, out);
        }
    }

    /// Queues the peer under its earliest timer.
    pub(crate) fn requeue(&mut self, id: PeerId) {
        let Some(peer) = peer_of(&mut self.peers, id) else {
            return;
        };
        let earliest = peer.timers.earliest();
        #[cfg(feature = "postquantum")]
        let earliest = peer.exchange_due().into_iter().chain(earliest).min();
        self.deadlines.set(id, peer.queued, earliest);
        peer.queued = earliest;
    }

    /// A random delay of up to 333 ms. It has to differ between machines, not to be secret.
    pub(crate) fn jitter(&mut self) -> Duration {
        // SplitMix64.
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        Duration::from_millis(z % (REKEY_TIMEOUT_JITTER.as_millis() as u64 + 1))
    }
}
