//! The work of ML-KEM, on a thread of its own.

use ::postquantum::{Job, Outcome, Task};
use netio::poll::Waker;
use plane::{PeerId, lock};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::thread;

/// Maximum number of encapsulations that wait, for all peers together: peers ask for them.
const ENCAPSULATIONS_MAX: usize = 256;

/// Bytes of the stack of the thread that computes.
const STACK: usize = 256 << 10;

/// The thread that computes, which lives as long as there is work.
#[derive(Debug)]
pub(super) struct Computer {
    work: Arc<Mutex<Work>>,
    /// Fires when there is an outcome.
    wake: Arc<Waker>,
}

#[derive(Debug, Default)]
struct Work {
    jobs: VecDeque<(PeerId, Job)>,
    outcomes: VecDeque<(PeerId, Outcome)>,
    /// Encapsulations among the jobs.
    encapsulations: usize,
    is_running: bool,
}

impl Work {
    fn next(&mut self) -> Option<(PeerId, Job)> {
        let next = self.jobs.pop_front();
        self.is_running = next.is_some();
        if let Some((_, job)) = &next {
            self.encapsulations -= usize::from(is_encapsulation(job));
        }
        next
    }

    /// Ends all jobs without a result.
    fn refuse(&mut self) {
        while let Some((peer, job)) = self.next() {
            self.outcomes.push_back((peer, job.refuse()));
        }
    }
}

const fn is_encapsulation(job: &Job) -> bool {
    matches!(job.task, Task::Encapsulate(_))
}

impl Computer {
    pub(super) fn new(wake: Arc<Waker>) -> Self {
        Self {
            work: Arc::default(),
            wake,
        }
    }

    /// Begins a job. Its outcome says that it was refused if too many wait.
    pub(super) fn begin(&self, peer: PeerId, job: Job) {
        let mut work = lock(&self.work);
        if is_encapsulation(&job) {
            if work.encapsulations >= ENCAPSULATIONS_MAX {
                work.outcomes.push_back((peer, job.refuse()));
                return self.wake.wake();
            }
            work.encapsulations += 1;
        }
        work.jobs.push_back((peer, job));
        if work.is_running {
            return;
        }
        work.is_running = true;
        let (shared, wake) = (Arc::clone(&self.work), Arc::clone(&self.wake));
        let thread = thread::Builder::new().name("ml-kem".to_owned());
        let started = thread.stack_size(STACK).spawn(move || {
            // The thread reads keys that peers have sent.
            host::privileges::confine_this_thread();
            // The lock must not be held while a job runs.
            let next = || lock(&shared).next();
            while let Some((peer, job)) = next() {
                let outcome = job.run();
                lock(&shared).outcomes.push_back((peer, outcome));
                wake.wake();
            }
        });
        if let Err(error) = started {
            log::warn!("cannot start a thread for post-quantum keys: {error}");
            work.refuse();
            self.wake.wake();
        }
    }

    /// The outcome of a job, if one has ended.
    pub(super) fn next(&self) -> Option<(PeerId, Outcome)> {
        lock(&self.work).outcomes.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netio::poll::Poller;
    use std::time::Duration;

    fn job(task: Task) -> Job {
        Job { id: [7; 16], task }
    }

    #[test]
    fn jobs_are_done_and_wake_the_loop() {
        let wake = Arc::new(Waker::new().unwrap());
        let poller = Poller::new().unwrap();
        poller.add(&*wake, 0).unwrap();
        let computer = Computer::new(Arc::clone(&wake));
        for peer in [1, 2] {
            computer.begin(PeerId(peer), job(Task::Generate));
        }
        let mut peers = Vec::new();
        while peers.len() < 2 {
            let ready = poller.wait(Some(Duration::from_secs(60))).unwrap();
            assert_eq!(ready.iter().count(), 1, "no outcome within a minute");
            wake.clear();
            peers.extend(
                std::iter::from_fn(|| computer.next()).map(|(peer, outcome)| {
                    assert!(outcome.result.is_ok());
                    peer.0
                }),
            );
        }
        assert_eq!(peers, [1, 2]);
    }

    #[test]
    fn encapsulations_beyond_the_limit_are_refused() {
        let computer = Computer::new(Arc::new(Waker::new().unwrap()));
        // No thread takes jobs away.
        lock(&computer.work).is_running = true;
        let asked = || job(Task::Encapsulate(Box::new([0; 1184])));
        for peer in 0..ENCAPSULATIONS_MAX as u32 + 2 {
            computer.begin(PeerId(peer), asked());
        }
        computer.begin(PeerId(0), job(Task::Generate));
        let refused = std::iter::from_fn(|| computer.next());
        let refused: Vec<u32> = refused.map(|(peer, _)| peer.0).collect();
        assert_eq!(refused, [256, 257]);
        let mut work = lock(&computer.work);
        assert_eq!(work.jobs.len(), 257, "our own work always waits");
        assert!(work.next().is_some());
        drop(work);
        computer.begin(PeerId(9), asked());
        assert!(computer.next().is_none());
    }
}
