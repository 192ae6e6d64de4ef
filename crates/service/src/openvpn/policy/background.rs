//! Work that takes its time (scripts, password hashes, TLS handshakes), on threads of its own.
//!
//! The control loop hands in a piece of work and goes on; when it is done, the loop is woken and
//! collects what came of it. Threads are made when there is work, and go when there is none left,
//! so that a server that runs no scripts has none.
//!
//! Work is handed in under a *key*: keys take turns, and none of work that may never end has every thread, so that one source
//! of it cannot starve the others. What waits can be taken back.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fmt, io, thread};

use thiserror::Error;

/// Stack of a worker thread, in bytes; hashing and waiting need little of it.
const STACK: usize = 256 << 10;

/// Why work was not taken.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum BusyError {
    /// The queue of all keys is full.
    #[error("{waiting} scripts or password checks wait already; the oldest must end first")]
    Full { waiting: usize },
    /// This key has used up its share of the queue.
    #[error(
        "{waiting} scripts or password checks of its address wait already; the oldest must end first"
    )]
    Share { waiting: usize },
    /// No thread can be had.
    #[error("no thread for a script or password check: {0}")]
    Thread(#[from] io::Error),
}

/// Number, limits and priority of the worker threads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crew {
    /// Name of each thread.
    pub(crate) name: &'static str,
    /// Pieces of work that are done at once, at most.
    pub(crate) threads: usize,
    /// Pieces of one key's work that are done at once, at most.
    pub(crate) share: usize,
    /// Pieces of work that wait, at most; one key has half of the places.
    pub(crate) waiting: usize,
    /// The nice value of the threads, where it is not that of the process.
    pub(crate) nice: Option<i32>,
    /// How long a thread without work stays. Then `share` must be all threads, or work may wait beside one.
    pub(crate) linger: Duration,
    /// The threads read what strangers send: they have no capabilities.
    pub(crate) confined: bool,
}

pub(crate) type Work<T> = Box<dyn FnOnce() -> T + Send>;
type Wake = Box<dyn Fn() + Send + Sync>;

/// Waiting work of one key, in order.
struct Queue<K, T> {
    key: K,
    work: VecDeque<(u64, Work<T>)>,
}

struct State<K, T> {
    /// None is empty. The first one's turn is next.
    queues: VecDeque<Queue<K, T>>,
    /// The keys of what is being done.
    running: Vec<K>,
    done: Vec<(u64, T)>,
    threads: usize,
    /// Threads that wait for work.
    idle: usize,
}

struct Shared<K, T> {
    state: Mutex<State<K, T>>,
    wake: Wake,
    crew: Crew,
    /// There is work for one that is idle.
    work: Condvar,
}

/// Runs work of one kind. With one thread the work of a key is done in the order in which it was handed in.
pub(crate) struct Background<K, T> {
    shared: Arc<Shared<K, T>>,
    next: u64,
}

impl<K, T> State<K, T> {
    fn waiting(&self) -> usize {
        self.queues.iter().map(|queue| queue.work.len()).sum()
    }
}

impl<K: PartialEq, T> State<K, T> {
    fn waiting_of(&self, key: &K) -> usize {
        let queue = self.queues.iter().find(|queue| queue.key == *key);
        queue.map_or(0, |queue| queue.work.len())
    }

    fn queue(&mut self, key: K) -> &mut Queue<K, T> {
        let at = self.queues.iter().position(|queue| queue.key == key);
        let at = at.unwrap_or_else(|| {
            let work = VecDeque::new();
            self.queues.push_back(Queue { key, work });
            self.queues.len() - 1
        });
        &mut self.queues[at]
    }

    /// The next piece of work, of a key that has fewer than `share` running. The key's turn is over with it.
    fn take(&mut self, share: usize) -> Option<(K, u64, Work<T>)>
    where
        K: Copy,
    {
        let free = |queue: &Queue<K, T>| {
            self.running.iter().filter(|it| **it == queue.key).count() < share
        };
        let at = self.queues.iter().position(free)?;
        let mut queue = self.queues.remove(at)?;
        let (number, work) = queue.work.pop_front()?;
        let key = queue.key;
        if !queue.work.is_empty() {
            self.queues.push_back(queue);
        }
        self.running.push(key);
        Some((key, number, work))
    }
}

impl<K, T> fmt::Debug for Background<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.lock();
        f.debug_struct("Background")
            .field("waiting", &state.waiting())
            .field("done", &state.done.len())
            .field("threads", &state.threads)
            .finish()
    }
}

impl<K, T> Shared<K, T> {
    fn lock(&self) -> MutexGuard<'_, State<K, T>> {
        // Work runs outside the lock, so what it guards is whole even after a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Copy + PartialEq + Send + 'static, T: Send + 'static> Background<K, T> {
    /// No thread yet. `wake` is called on another thread whenever something is done.
    pub(crate) fn new(crew: Crew, wake: impl Fn() + Send + Sync + 'static) -> Self {
        let state = State {
            queues: VecDeque::new(),
            running: Vec::new(),
            done: Vec::new(),
            threads: 0,
            idle: 0,
        };
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                wake: Box::new(wake),
                crew,
                work: Condvar::new(),
            }),
            next: 0,
        }
    }

    /// Hands in work for `key`. The number comes back from [`Self::take_done`] with what the work returned.
    ///
    /// # Errors
    /// Too much is waiting, or no thread can be had; the work was not and will not be done.
    pub(crate) fn submit(
        &mut self,
        key: K,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<u64, BusyError> {
        let submitted = self.offer(key, Box::new(work));
        submitted.map_err(|(busy, _)| busy)
    }

    /// Like [`Self::submit`], but an error gives the work back.
    pub(crate) fn offer(&mut self, key: K, work: Work<T>) -> Result<u64, (BusyError, Work<T>)> {
        let number = self.next;
        let crew = self.shared.crew;
        let mut state = self.shared.lock();
        let waiting = state.waiting();
        let of_key = state.waiting_of(&key);
        if of_key >= crew.waiting.div_ceil(2) {
            return Err((BusyError::Share { waiting: of_key }, work));
        }
        if waiting >= crew.waiting {
            return Err((BusyError::Full { waiting }, work));
        }
        // A woken thread counts as idle until it takes its work.
        if state.idle > waiting {
            self.shared.work.notify_one();
        } else if state.threads < crew.threads.max(1) {
            let shared = Arc::clone(&self.shared);
            let started = thread::Builder::new()
                .name(crew.name.to_owned())
                .stack_size(STACK)
                .spawn(move || serve(&shared));
            match started {
                Ok(_) => state.threads += 1,
                // A thread that runs already will come to it.
                Err(_) if state.threads > 0 => {}
                Err(error) => return Err((error.into(), work)),
            }
        }
        state.queue(key).work.push_back((number, work));
        self.next += 1;
        Ok(number)
    }

    /// Takes work back that has not begun. What has begun goes on to its end.
    pub(crate) fn cancel(&self, number: u64) {
        let mut state = self.shared.lock();
        for queue in &mut state.queues {
            queue.work.retain(|(at, _)| *at != number);
        }
        state.queues.retain(|queue| !queue.work.is_empty());
    }

    /// Returns the results since the last call.
    pub(crate) fn take_done(&self) -> Vec<(u64, T)> {
        std::mem::take(&mut self.shared.lock().done)
    }
}

fn serve<K: Copy + PartialEq, T>(shared: &Shared<K, T>) {
    let crew = shared.crew;
    if let Some(nice) = crew.nice {
        // Where it is refused the work is as important as all else.
        let _ = netio::priority::set_nice(nice);
    }
    if crew.confined {
        host::privileges::confine_this_thread();
    }
    while let Some((key, number, work)) = next(shared) {
        let result = work();
        let mut state = shared.lock();
        if let Some(at) = state.running.iter().position(|it| *it == key) {
            state.running.swap_remove(at);
        }
        state.done.push((number, result));
        drop(state);
        (shared.wake)();
    }
}

/// Takes the next piece of work for a thread; `None` ends the thread.
fn next<K: Copy + PartialEq, T>(shared: &Shared<K, T>) -> Option<(K, u64, Work<T>)> {
    let Crew { share, linger, .. } = shared.crew;
    let mut state = shared.lock();
    let next = state.take(share);
    if next.is_some() || linger.is_zero() {
        // Under the same lock as the look at the queues: a caller that hands in work after this sees that there is one
        // thread less. Work of a key that has its share waits for a thread that does that key's.
        state.threads -= usize::from(next.is_none());
        return next;
    }
    state.idle += 1;
    let mut taken = None;
    let waited = shared.work.wait_timeout_while(state, linger, |state| {
        taken = state.take(share);
        taken.is_none()
    });
    let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
    state.idle -= 1;
    state.threads -= usize::from(taken.is_none());
    taken
}

#[cfg(test)]
mod tests;
