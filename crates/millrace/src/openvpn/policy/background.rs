//! Work that takes its time (scripts, password hashes), on threads of its own.
//!
//! The control loop hands in a piece of work and goes on; when it is done, the loop is woken and
//! collects what came of it. Threads are made when there is work, and go when there is none left,
//! so that a server that runs no scripts has none.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, io, thread};

use thiserror::Error;

/// Stack of a worker thread, in bytes; hashing and waiting need little of it.
const STACK: usize = 256 << 10;

/// Why work was not taken.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum BusyError {
    /// As much work waits as may wait.
    #[error("{waiting} scripts or password checks wait already; the oldest must end first")]
    Full { waiting: usize },
    /// No thread can be had.
    #[error("no thread for a script or password check: {0}")]
    Thread(#[from] io::Error),
}

type Work<T> = Box<dyn FnOnce() -> T + Send>;
type Wake = Box<dyn Fn() + Send + Sync>;

struct State<T> {
    waiting: VecDeque<(u64, Work<T>)>,
    done: Vec<(u64, T)>,
    threads: usize,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    wake: Wake,
}

/// Runs work of one kind. With one thread it is done in the order in which it was handed in.
pub(crate) struct Background<T> {
    shared: Arc<Shared<T>>,
    threads_max: usize,
    waiting_max: usize,
    next: u64,
}

impl<T> fmt::Debug for Background<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.lock();
        f.debug_struct("Background")
            .field("waiting", &state.waiting.len())
            .field("done", &state.done.len())
            .field("threads", &state.threads)
            .finish()
    }
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // Work runs outside the lock, so what it guards is whole even after a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Send + 'static> Background<T> {
    /// At most `threads_max` pieces of work at once and `waiting_max` behind them. `wake` is called
    /// on another thread whenever something is done.
    pub(crate) fn new(
        threads_max: usize,
        waiting_max: usize,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let state = State {
            waiting: VecDeque::new(),
            done: Vec::new(),
            threads: 0,
        };
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                wake: Box::new(wake),
            }),
            threads_max: threads_max.max(1),
            waiting_max,
            next: 0,
        }
    }

    /// Hands in work. The number comes back from [`Self::take_done`] with what the work returned.
    ///
    /// # Errors
    /// Too much is waiting, or no thread can be had; the work was not and will not be done.
    pub(crate) fn submit(
        &mut self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<u64, BusyError> {
        let number = self.next;
        let mut state = self.shared.lock();
        let waiting = state.waiting.len();
        if waiting >= self.waiting_max {
            return Err(BusyError::Full { waiting });
        }
        state.waiting.push_back((number, Box::new(work)));
        if state.threads < self.threads_max {
            let shared = Arc::clone(&self.shared);
            let started = thread::Builder::new()
                .name("script".to_owned())
                .stack_size(STACK)
                .spawn(move || serve(&shared));
            match started {
                Ok(_) => state.threads += 1,
                // A thread that runs already will come to it.
                Err(_) if state.threads > 0 => {}
                Err(error) => {
                    state.waiting.pop_back();
                    return Err(error.into());
                }
            }
        }
        drop(state);
        self.next += 1;
        Ok(number)
    }

    /// What was done since the last call.
    pub(crate) fn take_done(&self) -> Vec<(u64, T)> {
        std::mem::take(&mut self.shared.lock().done)
    }
}

fn serve<T>(shared: &Shared<T>) {
    loop {
        let next = {
            let mut state = shared.lock();
            let next = state.waiting.pop_front();
            if next.is_none() {
                // Under the same lock as the look at the queue: whoever hands in work after this
                // sees that there is one thread less.
                state.threads -= 1;
            }
            next
        };
        let Some((number, work)) = next else { return };
        let result = work();
        shared.lock().done.push((number, result));
        (shared.wake)();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// A pool with a channel that hears when something is done.
    fn pool(threads: usize, waiting: usize) -> (Background<u32>, mpsc::Receiver<()>) {
        let (sender, receiver) = mpsc::channel();
        let wake = move || {
            let _ = sender.send(());
        };
        (Background::new(threads, waiting, wake), receiver)
    }

    fn collect(
        pool: &Background<u32>,
        woken: &mpsc::Receiver<()>,
        count: usize,
    ) -> Vec<(u64, u32)> {
        let mut done = Vec::new();
        while done.len() < count {
            woken.recv().unwrap();
            done.extend(pool.take_done());
        }
        done
    }

    #[test]
    fn one_thread_keeps_the_order() {
        let (mut pool, woken) = pool(1, 100);
        let numbers: Vec<u64> = (0..50).map(|n| pool.submit(move || n).unwrap()).collect();
        let done = collect(&pool, &woken, 50);
        assert_eq!(done, numbers.into_iter().zip(0..50).collect::<Vec<_>>());
        // The thread has gone or will take more: either way the next is done.
        pool.submit(|| 7).unwrap();
        assert_eq!(collect(&pool, &woken, 1)[0].1, 7);
    }

    #[test]
    fn slow_work_does_not_hold_up_the_rest() {
        let (mut pool, woken) = pool(2, 10);
        let (release, held) = mpsc::channel::<()>();
        let slow = pool
            .submit(move || {
                let _ = held.recv();
                1
            })
            .unwrap();
        let quick = pool.submit(|| 2).unwrap();
        assert_eq!(collect(&pool, &woken, 1), [(quick, 2)]);
        drop(release);
        assert_eq!(collect(&pool, &woken, 1), [(slow, 1)]);
    }

    #[test]
    fn what_waits_is_bounded() {
        let (mut pool, woken) = pool(1, 2);
        let (release, held) = mpsc::channel::<()>();
        let (began, running) = mpsc::channel();
        pool.submit(move || {
            let _ = began.send(());
            let _ = held.recv();
            0
        })
        .unwrap();
        running.recv().unwrap();
        pool.submit(|| 1).unwrap();
        pool.submit(|| 2).unwrap();
        let error = pool.submit(|| 3).unwrap_err();
        assert!(matches!(error, BusyError::Full { waiting: 2 }), "{error}");
        drop(release);
        assert_eq!(collect(&pool, &woken, 3).len(), 3);
    }
}
