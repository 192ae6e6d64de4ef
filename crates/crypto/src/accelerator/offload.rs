//! A key on an accelerator: batches go out to its driver threads and come back.

use core::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::Instant;

use super::job::{JOBS, Outcome, Work};
use super::piece::{Direction, Piece};
use super::pool::{Pool, Sessions};
use super::thread::{Returned, STACK};
use super::{Fault, Task};

/// Driver threads of a submission: as many as a pool ever has.
const MAX_THREADS: usize = 8;

/// An accelerator's result for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is where it belongs.
    Done,
    /// Its tag is wrong, says the accelerator. The packet is as it was.
    Forged,
    /// It is as it was, and the CPU's to do.
    Undone,
}

/// A key with a session in every driver thread.
pub(crate) struct Offload {
    pool: Arc<Pool>,
    sessions: Sessions,
}

/// A batch under way. It must be [collected](Offload::collect): nothing else gives the driver threads back.
pub(crate) struct Submission {
    threads: [bool; MAX_THREADS],
    /// Packets that found room are the first so many.
    pub(crate) taken: usize,
}

impl Offload {
    /// Opens the sessions.
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

    /// Whether batches can still be sent.
    pub(crate) fn is_alive(&self) -> bool {
        self.pool.is_alive()
    }

    /// Copies packets to the driver threads that are free and starts these. Packets from [`Submission::taken`] on found no room.
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
        // In turn, so that long and short packets spread evenly.
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

    /// Waits for the batch, copies what was done to where it belongs and tells of each packet that was taken. The pieces are
    /// those that it was submitted with, and the memory has not changed where they are.
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
                    // A driver is not believed after it has failed: its state is not known.
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

    /// Never to use the accelerator again.
    pub(crate) fn give_up(&self, why: core::fmt::Arguments<'_>) {
        self.pool.give_up(self.driver(), why);
    }
}

impl Drop for Offload {
    fn drop(&mut self) {
        self.pool.forget_key();
        // A driver whose device is gone may wait for it for ever, closing too (virtio_crypto does). Only a thread of their
        // own may hang there. If the system has no thread left, the kernel closes them when the process ends.
        let cells = ManuallyDrop::new(core::mem::take(&mut self.sessions.cells));
        let _ = std::thread::Builder::new()
            .name("accelerator".to_owned())
            .stack_size(STACK)
            .spawn(|| drop(ManuallyDrop::into_inner(cells)));
    }
}
