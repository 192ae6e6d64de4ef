//! The sending key, and the limits that every key has.

use plane::AtomicU64;
use plane::{Format, KeyLimits};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// The key used to seal packets to a peer.
pub(crate) struct SendKey {
    /// The receiver's name for the session.
    pub(crate) index: u32,
    /// Our name for the session.
    pub(crate) session: u32,
    pub(crate) format: Arc<dyn Format>,
    pub(crate) limits: KeyLimits,
    counter: AtomicU64,
    refresh_asked: AtomicBool,
}

impl std::fmt::Debug for SendKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SendKey")
            .field("index", &self.index)
            .finish_non_exhaustive()
    }
}

impl SendKey {
    pub(crate) fn new(
        (index, session): (u32, u32),
        format: Arc<dyn Format>,
        limits: KeyLimits,
    ) -> Self {
        let (counter, refresh_asked) = (AtomicU64::new(0), AtomicBool::new(false));
        Self {
            index,
            session,
            format,
            limits,
            counter,
            refresh_asked,
        }
    }

    /// Packets numbered so far.
    pub(crate) fn used(&self) -> u64 {
        self.counter.load(Ordering::Relaxed)
    }

    /// Takes `n` packet numbers and returns the first. `None` when the key is used up.
    pub(crate) fn take(&self, n: u64) -> Option<u64> {
        let first = self.counter.fetch_add(n, Ordering::Relaxed);
        if first
            .checked_add(n)
            .is_some_and(|end| end <= self.limits.messages_max)
        {
            return Some(first);
        }
        // Stops the counter before it could wrap round to used numbers.
        self.counter
            .store(self.limits.messages_max, Ordering::Relaxed);
        None
    }

    pub(crate) fn alive(&self, now: Instant) -> bool {
        now < self.limits.expires && self.used() < self.limits.messages_max
    }

    /// Whether the caller must request a new key: true once.
    pub(crate) fn should_refresh(&self, now: Instant) -> bool {
        let due = self.limits.refresh_at.is_some_and(|at| now >= at)
            || self.used() >= self.limits.refresh_messages;
        due && !self.refresh_asked.swap(true, Ordering::Relaxed)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use plane::{
        Batch, Class, Control, Endpoint, Line, Notice, Packet, Payload, PeerId, ReplayWindow, Wire,
    };
    use std::net::SocketAddr;
    use std::time::Duration;

    /// A format that does nothing.
    pub(crate) struct Plain;

    impl Format for Plain {
        fn head(&self) -> usize {
            0
        }
        fn tail(&self, _: usize) -> usize {
            0
        }
        fn seal(&self, _: &mut Batch<'_>) {}
        fn open(&self, _: &mut Batch<'_>) {}
        fn reveal(&self, _: &mut [u8], _: &mut Packet) -> Payload {
            Payload::Inner
        }
    }

    /// A control that ignores everything.
    pub(crate) struct Deaf;

    impl Control for Deaf {
        fn datagram(&self, _: Line, _: &[u8]) -> bool {
            true
        }
        fn notify(&self, _: PeerId, _: Notice) {}
        fn device_gone(&self) {}
    }

    /// A protocol without messages.
    pub(crate) struct PlainWire;

    impl Wire for PlainWire {
        const HEAD_MAX: usize = 0;
        const TAIL_MAX: usize = 0;
        const STAGES: bool = false;
        const ECN: bool = false;
        type Window = ReplayWindow;
        type Reader = ();

        fn classify(&self, (): &(), _: &[u8]) -> Class {
            Class::Malformed
        }
        fn loops(&self, _: &[u8], _: SocketAddr, _: u32, _: &Endpoint) -> bool {
            false
        }
    }

    fn key(messages_max: u64, refresh_messages: u64) -> SendKey {
        let limits = KeyLimits {
            expires: Instant::now() + Duration::from_secs(180),
            messages_max,
            refresh_at: None,
            refresh_messages,
        };
        SendKey::new((1, 2), Arc::new(Plain), limits)
    }

    #[test]
    fn numbers_run_out_and_never_wrap() {
        let key = key(10, u64::MAX);
        assert_eq!(key.take(4), Some(0));
        assert_eq!(key.take(6), Some(4));
        assert!(!key.alive(Instant::now()));
        for _ in 0..3 {
            assert_eq!(key.take(u64::MAX / 2), None);
        }
        assert_eq!(key.take(1), None);
    }

    #[test]
    fn a_refresh_is_asked_for_once() {
        let key = key(100, 3);
        let now = Instant::now();
        key.take(2);
        assert!(!key.should_refresh(now));
        key.take(1);
        assert!(key.should_refresh(now));
        assert!(!key.should_refresh(now));
    }
}
