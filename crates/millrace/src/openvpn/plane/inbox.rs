//! What workers leave for the control thread, all of it bounded.

use engine::{Control, Notice};
use netio::poll::Waker;
use netio::udp::Endpoint;
use std::collections::{HashSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Control packets that may wait. A thousand clients that connect at once send a few each.
const ARRIVALS: usize = 4096;

/// The longest control packet that is looked at, in bytes.
const LONGEST: usize = 2048;

/// Messages in data packets that may wait: pings never do, the rest is rare.
const MESSAGES: usize = 256;

/// A control packet.
pub(crate) struct Arrival {
    pub(crate) from: Endpoint,
    pub(crate) stream: Option<u64>,
    pub(crate) bytes: Box<[u8]>,
}

/// The queue between the data plane and control.
pub(crate) struct Inbox {
    arrivals: Mutex<VecDeque<Arrival>>,
    messages: Mutex<VecDeque<(u32, Box<[u8]>)>>,
    /// A set, because a worker may say the same thing for every batch.
    notices: Mutex<HashSet<(u32, Notice)>>,
    closed: Mutex<Vec<u64>>,
    gone: AtomicBool,
    pub(crate) waker: Waker,
}

impl Inbox {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            arrivals: Mutex::default(),
            messages: Mutex::default(),
            notices: Mutex::default(),
            closed: Mutex::default(),
            gone: AtomicBool::new(false),
            waker: Waker::new()?,
        })
    }

    pub(crate) fn next_arrival(&self) -> Option<Arrival> {
        lock(&self.arrivals).pop_front()
    }

    pub(crate) fn next_message(&self) -> Option<(u32, Box<[u8]>)> {
        lock(&self.messages).pop_front()
    }

    pub(crate) fn take_notices(&self) -> HashSet<(u32, Notice)> {
        std::mem::take(&mut lock(&self.notices))
    }

    /// Streams that have ended.
    pub(crate) fn take_closed(&self) -> Vec<u64> {
        std::mem::take(&mut lock(&self.closed))
    }

    pub(crate) fn device_is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }
}

impl AsFd for Inbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}

impl Control for Inbox {
    fn datagram(&self, from: Endpoint, stream: Option<u64>, bytes: &[u8]) -> bool {
        if bytes.len() > LONGEST {
            return false;
        }
        let mut arrivals = lock(&self.arrivals);
        if arrivals.len() >= ARRIVALS {
            return false;
        }
        arrivals.push_back(Arrival {
            from,
            stream,
            bytes: bytes.into(),
        });
        let first = arrivals.len() == 1;
        drop(arrivals);
        if first {
            self.waker.wake();
        }
        true
    }

    fn message(&self, peer: u32, bytes: &[u8]) {
        let mut messages = lock(&self.messages);
        if messages.len() < MESSAGES && bytes.len() <= LONGEST {
            messages.push_back((peer, bytes.into()));
            self.waker.wake();
        }
    }

    fn notify(&self, peer: u32, notice: Notice) {
        // Timers look at the peers by themselves.
        if notice == Notice::Active {
            return;
        }
        let mut notices = lock(&self.notices);
        let first = notices.is_empty();
        notices.insert((peer, notice));
        drop(notices);
        if first {
            self.waker.wake();
        }
    }

    fn stream_closed(&self, stream: u64) {
        lock(&self.closed).push(stream);
        self.waker.wake();
    }

    fn device_gone(&self) {
        self.gone.store(true, Ordering::Release);
        self.waker.wake();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that can panic runs under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
