//! A driver thread: it waits in a driver, so that a worker need not.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use super::job::Work;
use super::job::{Fault, Session};

/// A session that a driver thread shares with the workers that give it jobs. The driver thread holds the lock while it
/// works.
pub(crate) type SessionCell = Arc<Mutex<Box<dyn Session>>>;

/// Stack size in bytes: the thread hardly does more than enter the kernel.
pub(super) const STACK: usize = 64 << 10;

/// The place of a driver thread's work.
enum Slot {
    /// The slot has the work, for any worker to claim.
    Free(Box<Work>),
    /// A worker has the work, and fills or empties it.
    Claimed,
    /// The slot has the work, for the driver thread to do.
    Asked(Box<Work>, SessionCell),
    /// The driver thread is doing the work.
    Running,
    /// The slot has the finished work, for the worker that waits.
    Done(Box<Work>, Result<(), Fault>),
    /// The driver thread is doing the work, and no worker waits any more.
    Abandoned,
    /// There is no work: the driver thread must end.
    End,
}

struct Shared {
    slot: Mutex<Slot>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Slot> {
        // Nothing panics while it holds the lock, so no slot is left half changed.
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, slot: Slot) {
        *self.lock() = slot;
        self.changed.notify_all();
    }
}

/// The workers' end of a driver thread.
pub(crate) struct DriverThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// How waiting for a driver thread ended.
pub(crate) enum Returned {
    /// The jobs are done, and have outcomes.
    Done(Box<Work>),
    /// The accelerator is gone. The driver thread can still work.
    Gone(Box<Work>, Fault),
    /// The driver thread did not answer in time, and is never asked again.
    Stalled,
}

impl DriverThread {
    /// Starts the thread; `None` if the system has no more.
    pub(crate) fn start() -> Option<Self> {
        let shared = Arc::new(Shared {
            slot: Mutex::new(Slot::Free(Work::new())),
            changed: Condvar::new(),
        });
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("accelerator".to_owned())
            .stack_size(STACK)
            .spawn(move || {
                block_signals();
                give_up_capabilities();
                work(&theirs);
            })
            .ok()?;
        Some(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Takes the driver thread's memory, unless another worker has it.
    pub(crate) fn claim(&self) -> Option<Box<Work>> {
        // If the lock is taken, another worker has the driver thread.
        let mut slot = self.shared.slot.try_lock().ok()?;
        if !matches!(*slot, Slot::Free(_)) {
            return None;
        }
        match core::mem::replace(&mut *slot, Slot::Claimed) {
            Slot::Free(work) => Some(work),
            _ => None,
        }
    }

    /// Returns the memory to the driver, used or not, after erasing it.
    pub(crate) fn release(&self, mut work: Box<Work>) {
        work.clear();
        *self.shared.lock() = Slot::Free(work);
    }

    /// Has the driver thread do the jobs with its session of a key.
    pub(crate) fn ask(&self, work: Box<Work>, session: &SessionCell) {
        self.shared.put(Slot::Asked(work, Arc::clone(session)));
    }

    /// Waits until the jobs are done, or until `deadline`.
    pub(crate) fn wait(&self, deadline: Instant) -> Returned {
        let mut slot = self.shared.lock();
        loop {
            match core::mem::replace(&mut *slot, Slot::Claimed) {
                Slot::Done(work, Ok(())) => return Returned::Done(work),
                Slot::Done(work, Err(fault)) => return Returned::Gone(work, fault),
                other => *slot = other,
            }
            let patience = deadline.saturating_duration_since(Instant::now());
            if patience.is_zero() {
                *slot = Slot::Abandoned;
                return Returned::Stalled;
            }
            slot = self
                .shared
                .changed
                .wait_timeout(slot, patience)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

impl Drop for DriverThread {
    fn drop(&mut self) {
        let mut slot = self.shared.lock();
        // A thread inside a driver, perhaps for ever, is left to end by itself.
        let waits = matches!(*slot, Slot::Free(_) | Slot::Claimed | Slot::Done(..));
        *slot = Slot::End;
        drop(slot);
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take()
            && waits
        {
            let _ = thread.join();
        }
    }
}

/// Blocks signals, which could interrupt an operation half done; other threads of the process take them.
fn block_signals() {
    let mut all = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the first call fills the set, which the second reads. The old one is not asked for.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), core::ptr::null_mut());
    }
}

/// Drops the capabilities of this thread: a driver needs none once the device is open. The thread may have started
/// before the other threads dropped theirs. If the system refuses, the thread keeps them.
fn give_up_capabilities() {
    /// `_LINUX_CAPABILITY_VERSION_3` and this thread; two sets of three words, all empty.
    const HEADER: [u32; 2] = [0x2008_0522, 0];
    let mut header = HEADER;
    let none = [0_u32; 6];
    // SAFETY: header and sets are what the call expects of this version. It reads the sets, and writes the header where
    // it does not know the version.
    unsafe { libc::syscall(libc::SYS_capset, header.as_mut_ptr(), none.as_ptr()) };
}

/// The driver thread's loop.
fn work(shared: &Shared) {
    loop {
        let mut slot = shared.lock();
        let (mut work, session) = loop {
            match core::mem::replace(&mut *slot, Slot::Running) {
                Slot::Asked(work, session) => break (work, session),
                Slot::End | Slot::Abandoned => return,
                other => *slot = other,
            }
            slot = shared
                .changed
                .wait(slot)
                .unwrap_or_else(PoisonError::into_inner);
        };
        drop(slot);
        let result = {
            let mut session = session.lock().unwrap_or_else(PoisonError::into_inner);
            let (memory, jobs) = work.parts();
            session.run(memory, jobs)
        };
        // Drop the session before telling the worker, which may be about to erase the key; the session's last owner
        // erases it.
        drop(session);
        let mut slot = shared.lock();
        if !matches!(*slot, Slot::Running) {
            return;
        }
        *slot = Slot::Done(work, result);
        drop(slot);
        shared.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accelerator::job::Job;
    use crate::accelerator::task::Direction;
    use crate::accelerator::task::{Piece, Span};

    /// Reports which signals are blocked in its thread.
    struct Teller(std::sync::mpsc::Sender<Vec<i32>>);

    const SIGNALS: [i32; 4] = [libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGALRM];

    impl Session for Teller {
        fn driver(&self) -> &str {
            "teller"
        }

        fn run(&mut self, _: &mut [u8], _: &mut [Job]) -> Result<(), Fault> {
            let mut blocked = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
            // SAFETY: no set is given, and the one that is in force is written before it is read.
            let blocked = SIGNALS.into_iter().filter(|&signal| unsafe {
                libc::pthread_sigmask(libc::SIG_BLOCK, core::ptr::null(), blocked.as_mut_ptr());
                libc::sigismember(blocked.as_ptr(), signal) == 1
            });
            let _ = self.0.send(blocked.collect());
            Ok(())
        }
    }

    #[test]
    fn what_is_given_back_is_erased() {
        let thread = DriverThread::start().unwrap();
        let mut work = thread.claim().unwrap();
        let text = Span { start: 0, len: 100 };
        let piece = Piece {
            text,
            ..Piece::default()
        };
        assert!(work.push(0, Direction::Encrypt, &piece, &[7; 100]));
        thread.release(work);
        let mut work = thread.claim().unwrap();
        assert!(work.is_empty());
        assert!(work.parts().0.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn signals_are_not_a_lanes() {
        let thread = DriverThread::start().unwrap();
        let (say, hear) = std::sync::mpsc::channel();
        let session: SessionCell = Arc::new(Mutex::new(Box::new(Teller(say))));
        thread.ask(thread.claim().unwrap(), &session);
        assert_eq!(hear.recv().unwrap(), SIGNALS);
    }
}
