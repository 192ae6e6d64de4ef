//! Slow work (scripts, password hashes, TLS handshakes) on worker threads.
//!
//! The control loop submits a piece of work and continues. When it is done, the loop is woken and collects the result.
//! Threads start with the first work and end when none is left, so a server without scripts has none.
//!
//! Each piece of work has a *key*. Keys take turns, and a key's work that may never end cannot occupy every thread, so
//! one source cannot starve the others. Waiting work can be cancelled.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fmt, io, thread};

use thiserror::Error;

/// Stack of a worker thread, in bytes; hashing and waiting need little of it.
const STACK: usize = 256 << 10;

/// Reason for refusing work.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum BusyError {
    /// The whole queue is full.
    #[error("{waiting} scripts or password checks wait already; the oldest must end first")]
    Full { waiting: usize },
    /// This key has used up its share of the queue.
    #[error(
        "{waiting} scripts or password checks of its address wait already; the oldest must end first"
    )]
    Share { waiting: usize },
    /// No thread can be started.
    #[error("no thread for a script or password check: {0}")]
    Thread(#[from] io::Error),
}

/// Number, limits and priority of the worker threads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crew {
    /// Name of each thread.
    pub(crate) name: &'static str,
    /// Maximum number of jobs that run at once.
    pub(crate) threads: usize,
    /// Maximum number of jobs of one key that run at once.
    pub(crate) share: usize,
    /// Maximum number of waiting jobs; one key may use half.
    pub(crate) waiting: usize,
    /// The threads' nice value; `None` for the process's.
    pub(crate) nice: Option<i32>,
    /// How long an idle thread stays. If not zero, `share` must equal `threads`, or work could wait beside an idle
    /// thread.
    pub(crate) linger: Duration,
    /// Drops the threads' capabilities, because they read strangers' data.
    pub(crate) confined: bool,
}

pub(crate) type Work<T> = Box<dyn FnOnce() -> T + Send>;
type Wake = Box<dyn Fn() + Send + Sync>;

/// Waiting work of one key, in order.
struct Queue<K, I, T> {
    key: K,
    work: VecDeque<(I, Work<T>)>,
}

struct State<K, I, T> {
    /// Non-empty queues, ordered by turn.
    queues: VecDeque<Queue<K, I, T>>,
    /// Keys of the work in progress.
    running: Vec<K>,
    done: Vec<(I, T)>,
    threads: usize,
    /// Number of idle threads.
    idle: usize,
}

struct Shared<K, I, T> {
    state: Mutex<State<K, I, T>>,
    wake: Wake,
    crew: Crew,
    /// Wakes an idle thread for new work.
    work: Condvar,
}

/// Runs work of one kind, each piece with an identity of type `I`. A single thread does a key's work in the order of
/// submission.
pub(crate) struct Background<K, I, T> {
    shared: Arc<Shared<K, I, T>>,
}

impl<K, I, T> State<K, I, T> {
    fn waiting(&self) -> usize {
        self.queues.iter().map(|queue| queue.work.len()).sum()
    }
}

impl<K: PartialEq, I, T> State<K, I, T> {
    fn waiting_of(&self, key: &K) -> usize {
        let queue = self.queues.iter().find(|queue| queue.key == *key);
        queue.map_or(0, |queue| queue.work.len())
    }

    fn queue(&mut self, key: K) -> &mut Queue<K, I, T> {
        let at = self.queues.iter().position(|queue| queue.key == key);
        let at = at.unwrap_or_else(|| {
            let work = VecDeque::new();
            self.queues.push_back(Queue { key, work });
            self.queues.len() - 1
        });
        &mut self.queues[at]
    }

    /// Takes the next piece of work, from a key with fewer than `share` running. The key's turn is then over.
    fn take(&mut self, share: usize) -> Option<(K, I, Work<T>)>
    where
        K: Copy,
    {
        let free = |queue: &Queue<K, I, T>| {
            self.running.iter().filter(|it| **it == queue.key).count() < share
        };
        let at = self.queues.iter().position(free)?;
        let mut queue = self.queues.remove(at)?;
        let (id, work) = queue.work.pop_front()?;
        let key = queue.key;
        if !queue.work.is_empty() {
            self.queues.push_back(queue);
        }
        self.running.push(key);
        Some((key, id, work))
    }
}

impl<K, I, T> fmt::Debug for Background<K, I, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.lock();
        f.debug_struct("Background")
            .field("waiting", &state.waiting())
            .field("done", &state.done.len())
            .field("threads", &state.threads)
            .finish()
    }
}

impl<K, I, T> Shared<K, I, T> {
    fn lock(&self) -> MutexGuard<'_, State<K, I, T>> {
        // Work runs outside the lock, so a panic cannot leave the state inconsistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K, I, T> Background<K, I, T>
where
    K: Copy + PartialEq + Send + 'static,
    I: PartialEq + Send + 'static,
    T: Send + 'static,
{
    /// Starts without threads. They call `wake` after each piece of work.
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
        }
    }

    /// Submits work for `key`. [`Self::take_done`] returns `id` with the result.
    ///
    /// # Errors
    /// The queue is full or no thread can be started; the work is dropped.
    pub(crate) fn submit(
        &self,
        key: K,
        id: I,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<(), BusyError> {
        let submitted = self.offer(key, id, Box::new(work));
        submitted.map_err(|(busy, _)| busy)
    }

    /// Like [`Self::submit`], but an error returns the work.
    pub(crate) fn offer(&self, key: K, id: I, work: Work<T>) -> Result<(), (BusyError, Work<T>)> {
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
                // A running thread will take the work.
                Err(_) if state.threads > 0 => {}
                Err(error) => return Err((error.into(), work)),
            }
        }
        state.queue(key).work.push_back((id, work));
        Ok(())
    }

    /// Cancels work that has not begun.
    pub(crate) fn cancel(&self, id: &I) {
        let mut state = self.shared.lock();
        for queue in &mut state.queues {
            queue.work.retain(|(at, _)| at != id);
        }
        state.queues.retain(|queue| !queue.work.is_empty());
    }

    /// Returns the results since the last call.
    pub(crate) fn take_done(&self) -> Vec<(I, T)> {
        std::mem::take(&mut self.shared.lock().done)
    }
}

fn serve<K: Copy + PartialEq, I, T>(shared: &Shared<K, I, T>) {
    let crew = shared.crew;
    if let Some(nice) = crew.nice {
        // On failure the work runs at normal priority.
        let _ = netio::process::set_nice(nice);
    }
    if crew.confined {
        host::privileges::confine_this_thread();
    }
    while let Some((key, id, work)) = next(shared) {
        let result = work();
        let mut state = shared.lock();
        if let Some(at) = state.running.iter().position(|it| *it == key) {
            state.running.swap_remove(at);
        }
        state.done.push((id, result));
        drop(state);
        (shared.wake)();
    }
}

/// Takes the next piece of work for a thread; `None` ends the thread.
fn next<K: Copy + PartialEq, I, T>(shared: &Shared<K, I, T>) -> Option<(K, I, Work<T>)> {
    let Crew { share, linger, .. } = shared.crew;
    let mut state = shared.lock();
    let next = state.take(share);
    if next.is_some() || linger.is_zero() {
        // Counts the thread out under the lock that guards the queues, so a later submission sees it gone. Work of a
        // key that has its share waits for a thread with that key's work.
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
