//! A key on an accelerator: batches go out to its driver threads and come back.

use core::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::Instant;

use super::job::Fault;
use super::job::{JOBS, Outcome, Work};
use super::pool::{Pool, Sessions};
use super::task::Task;
use super::thread::{Returned, STACK};
use crate::accelerator::task::{Direction, Piece};

/// Maximum driver threads of a submission: as many as a pool ever has.
const MAX_THREADS: usize = 8;

/// An accelerator's result for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The packet is done, in its own place.
    Done,
    /// The accelerator found the tag wrong. The packet is unchanged.
    Forged,
    /// The packet is unchanged, and the CPU must do it.
    Undone,
}

/// A key with a session in every driver thread.
pub(crate) struct Offload {
    pool: Arc<Pool>,
    sessions: Sessions,
}

/// An unfinished batch. The caller must [collect](Offload::collect) it: nothing else frees the driver threads.
pub(crate) struct Submission {
    threads: [bool; MAX_THREADS],
    /// The number of packets that found room, from the first.
    pub(crate) taken: usize,
}

impl Offload {
    /// Opens a session of the key in every driver thread.
    pub(crate) fn new(pool: &Arc<Pool>, task: Task, key: &[u8]) -> Result<Self, Fault> {
        let sessions = pool.sessions(task, key)?;
        Ok(Self {
            pool: Arc::clone(pool),
            sessions,
        })
    }

    /// The driver that does the work.
    pub(crate) fn driver(&self) -> &str {
        &self.sessions.driver
    }

    /// Whether the accelerator still takes batches.
    pub(crate) fn is_alive(&self) -> bool {
        self.pool.is_alive()
    }

    /// Copies packets to the driver threads that are free and starts these. Packets from [`Submission::taken`] on found
    /// no room.
    pub(crate) fn submit(
        &self,
        memory: &[u8],
        pieces: &[Piece],
        direction: Direction,
    ) -> Submission {
        let mut submission = Submission {
            threads: [false; MAX_THREADS],
            taken: 0,
        };
        if !self.is_alive() || pieces.is_empty() {
            return submission;
        }
        let mut works: [Option<Box<Work>>; MAX_THREADS] = [const { None }; MAX_THREADS];
        let threads = self.pool.threads();
        let mut claimed = 0;
        for (thread, work) in threads.iter().zip(&mut works) {
            if claimed == pieces.len() {
                break;
            }
            *work = thread.claim();
            claimed += usize::from(work.is_some());
        }
        // Packets go to the threads in turn, so that long and short ones spread evenly.
        let mut free = works.iter_mut().flatten();
        'pieces: for (index, piece) in pieces.iter().enumerate() {
            let mut rounds = 0;
            loop {
                match free.next() {
                    Some(work) => {
                        if work.push(index, direction, piece, memory) {
                            break;
                        }
                        break 'pieces;
                    }
                    None if rounds == 0 => {
                        rounds = 1;
                        free = works.iter_mut().flatten();
                    }
                    None => break 'pieces,
                }
            }
            submission.taken = index + 1;
        }
        for (index, (thread, work)) in threads.iter().zip(works).enumerate() {
            let Some(work) = work else { continue };
            if work.is_empty() {
                thread.release(work);
                continue;
            }
            submission.threads[index] = true;
            thread.ask(work, &self.sessions.cells[index]);
        }
        submission
    }

    /// Waits for the batch, copies results to their packets and reports each taken packet. The caller passes the same
    /// pieces as to `submit`, and must not have changed the memory at their places.
    pub(crate) fn collect(
        &self,
        submission: &Submission,
        memory: &mut [u8],
        pieces: &[Piece],
        verdicts: &mut [Verdict; JOBS],
    ) {
        verdicts[..submission.taken].fill(Verdict::Undone);
        let deadline = Instant::now() + self.pool.patience();
        for (thread, _) in self
            .pool
            .threads()
            .iter()
            .zip(submission.threads)
            .filter(|thread| thread.1)
        {
            match thread.wait(deadline) {
                Returned::Done(work) => {
                    // After a failure the driver's state is unknown, so its later results do not count.
                    let mut failed = false;
                    for (index, job) in work.results() {
                        if failed {
                            break;
                        }
                        verdicts[index] = match job.outcome {
                            Outcome::Done(len) if len == job.output().len() => {
                                work.copy_out(job, &pieces[index], memory);
                                Verdict::Done
                            }
                            Outcome::Forged if job.direction == Direction::Decrypt => {
                                Verdict::Forged
                            }
                            Outcome::Done(len) => {
                                let right = job.output().len();
                                self.give_up(format_args!(
                                    "it returned {len} bytes instead of {right}"
                                ));
                                Verdict::Undone
                            }
                            Outcome::Failed(errno) => {
                                let error = std::io::Error::from_raw_os_error(errno);
                                self.give_up(format_args!("an operation failed: {error}"));
                                Verdict::Undone
                            }
                            Outcome::Forged | Outcome::Pending => {
                                self.give_up(format_args!("it did not do an operation"));
                                Verdict::Undone
                            }
                        };
                        failed = verdicts[index] == Verdict::Undone;
                    }
                    thread.release(work);
                }
                Returned::Gone(work, fault) => {
                    self.give_up(format_args!("it is gone: {fault}"));
                    thread.release(work);
                }
                Returned::Stalled => {
                    let patience = self.pool.patience().as_millis();
                    self.give_up(format_args!("no answer for {patience} ms"));
                }
            }
        }
    }

    /// Stops using the accelerator for good.
    pub(crate) fn give_up(&self, why: core::fmt::Arguments<'_>) {
        self.pool.give_up(self.driver(), why);
    }
}

impl Drop for Offload {
    fn drop(&mut self) {
        self.pool.forget_key();
        // A driver whose device is gone may wait for it for ever, even when closing (virtio_crypto does). So a separate
        // thread closes the sessions. If the system has no thread left, the kernel closes them when the process ends.
        let cells = ManuallyDrop::new(core::mem::take(&mut self.sessions.cells));
        let _ = std::thread::Builder::new()
            .name("accelerator".to_owned())
            .stack_size(STACK)
            .spawn(|| drop(ManuallyDrop::into_inner(cells)));
    }
}
