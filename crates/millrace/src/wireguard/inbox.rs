//! What workers leave for the control thread: handshake messages and notices, both bounded.

use engine::{Control, Notice};
use netio::poll::Waker;
use netio::udp::Endpoint;
use std::collections::{HashSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use wireguard::message::INITIATION_LEN;

/// Handshake messages that may wait. Each costs up to a tenth of a millisecond to answer on a
/// small core, so more would only be answered too late.
const DATAGRAMS: usize = 1024;

/// Waiting messages from which on the device counts as under load (the kernel's queue is 4,096
/// long and its limit an eighth of that; ours is shorter, and so is the limit).
pub(super) const UNDER_LOAD: usize = DATAGRAMS / 8;

/// A handshake message and where it came from.
#[derive(Clone, Copy)]
pub(super) struct Message {
    pub(super) from: Endpoint,
    bytes: [u8; INITIATION_LEN],
    len: u8,
}

impl Message {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// The queue between the data plane and control.
pub(super) struct Inbox {
    datagrams: Mutex<VecDeque<Message>>,
    /// A set, because a worker may say the same thing for every packet.
    notices: Mutex<HashSet<(u32, Notice)>>,
    gone: std::sync::atomic::AtomicBool,
    pub(super) waker: Waker,
}

impl Inbox {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            datagrams: Mutex::default(),
            notices: Mutex::default(),
            gone: false.into(),
            waker: Waker::new()?,
        })
    }

    /// The next message, and how many wait behind it.
    pub(super) fn next_message(&self) -> Option<(Message, usize)> {
        let mut queue = lock(&self.datagrams);
        let message = queue.pop_front()?;
        Some((message, queue.len()))
    }

    pub(super) fn take_notices(&self) -> HashSet<(u32, Notice)> {
        std::mem::take(&mut lock(&self.notices))
    }

    pub(super) fn device_is_gone(&self) -> bool {
        self.gone.load(std::sync::atomic::Ordering::Acquire)
    }
}

impl AsFd for Inbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}

impl Control for Inbox {
    fn datagram(&self, from: Endpoint, _stream: Option<u64>, bytes: &[u8]) -> bool {
        // No message of the handshake is longer than an initiation.
        if bytes.len() > INITIATION_LEN {
            return false;
        }
        let mut message = Message {
            from,
            bytes: [0; INITIATION_LEN],
            len: bytes.len() as u8,
        };
        message.bytes[..bytes.len()].copy_from_slice(bytes);
        let mut queue = lock(&self.datagrams);
        if queue.len() >= DATAGRAMS {
            return false;
        }
        queue.push_back(message);
        let first = queue.len() == 1;
        drop(queue);
        if first {
            self.waker.wake();
        }
        true
    }

    fn notify(&self, peer: u32, notice: Notice) {
        let mut notices = lock(&self.notices);
        let first = notices.is_empty();
        notices.insert((peer, notice));
        drop(notices);
        if first {
            self.waker.wake();
        }
    }

    fn device_gone(&self) {
        self.gone.store(true, std::sync::atomic::Ordering::Release);
        self.waker.wake();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that can panic runs under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
