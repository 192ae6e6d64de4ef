//! Jobs: copies of packets that an accelerator processes, and the interface to devices that do them.

use core::ops::Range;

use super::task::{Direction, Piece, Task};

/// The outcome of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// No outcome yet.
    #[default]
    Pending,
    /// The job is done, and wrote this many bytes behind the associated data.
    Done(usize),
    /// The tag does not match the packet.
    Forged,
    /// The driver refused the job, with this `errno`.
    Failed(i32),
}

/// An operation on a driver thread's memory: `associated data, text, tag`, one behind the other.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Job {
    pub(crate) direction: Direction,
    pub(crate) nonce: [u8; 16],
    /// First byte of the associated data.
    start: usize,
    aad_len: usize,
    text_len: usize,
    tag_len: usize,
    pub(crate) outcome: Outcome,
}

impl Job {
    /// The range of the associated data.
    pub(crate) const fn aad(&self) -> Range<usize> {
        self.start..self.start + self.aad_len
    }

    /// The range of the text, without tag.
    pub(crate) const fn text(&self) -> Range<usize> {
        self.start + self.aad_len..self.start + self.aad_len + self.text_len
    }

    /// The range of text and tag.
    pub(crate) const fn body(&self) -> Range<usize> {
        self.start + self.aad_len..self.start + self.aad_len + self.text_len + self.tag_len
    }

    /// The range of the input: everything, without the tag when encrypting.
    pub(crate) fn input(&self) -> Range<usize> {
        match self.direction {
            Direction::Encrypt => self.start..self.text().end,
            Direction::Decrypt => self.start..self.body().end,
        }
    }

    /// The range of the output, behind the associated data.
    pub(crate) fn output(&self) -> Range<usize> {
        match self.direction {
            Direction::Encrypt => self.body(),
            Direction::Decrypt => self.text(),
        }
    }
}

/// The alignment of a text in bytes: a cache line on all machines with accelerators. Most drivers transfer whole lines,
/// and refuse or copy text that begins elsewhere.
const ALIGN: usize = 64;

/// Bytes of a driver thread's memory: a whole batch with its tags and gaps.
const MEMORY: usize = 96 << 10;

/// Maximum jobs of a driver thread at once: a whole chunk.
pub(crate) const JOBS: usize = 64;

/// Memory for copies of packets, and the jobs on it.
pub(crate) struct Work {
    memory: Box<[u8]>,
    /// Bytes of `memory` before the first aligned byte.
    skew: usize,
    used: usize,
    jobs: [Job; JOBS],
    /// The index of each job's piece.
    pieces: [usize; JOBS],
    count: usize,
}

impl Work {
    pub(crate) fn new() -> Box<Self> {
        let memory = vec![0; MEMORY + ALIGN].into_boxed_slice();
        let skew = memory.as_ptr().align_offset(ALIGN);
        Box::new(Self {
            memory,
            skew,
            used: skew,
            jobs: [Job::default(); JOBS],
            pieces: [0; JOBS],
            count: 0,
        })
    }

    /// Forgets the jobs, and erases all copied input and output.
    pub(crate) fn clear(&mut self) {
        let used = &mut self.memory[self.skew..self.used];
        used.fill(0);
        zeroize::optimization_barrier(used);
        self.used = self.skew;
        self.count = 0;
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Copies a piece in, as the job of packet `index`; `false` if there is no room.
    pub(crate) fn push(
        &mut self,
        index: usize,
        direction: Direction,
        piece: &Piece,
        from: &[u8],
    ) -> bool {
        let aad_len = piece.aad.len;
        // Drivers touch the text most, so it begins a cache line.
        let text = (self.used - self.skew + aad_len).next_multiple_of(ALIGN) + self.skew;
        let end = text + piece.text.len + piece.tag.len;
        if self.count == JOBS || end > self.memory.len() {
            return false;
        }
        let job = Job {
            direction,
            nonce: piece.nonce,
            start: text - aad_len,
            aad_len,
            text_len: piece.text.len,
            tag_len: piece.tag.len,
            outcome: Outcome::Pending,
        };
        self.memory[job.aad()].copy_from_slice(&from[piece.aad.range()]);
        self.memory[job.text()].copy_from_slice(&from[piece.text.range()]);
        if direction == Direction::Decrypt {
            self.memory[job.text().end..end].copy_from_slice(&from[piece.tag.range()]);
        }
        self.jobs[self.count] = job;
        self.pieces[self.count] = index;
        self.count += 1;
        self.used = end;
        true
    }

    /// The memory and the jobs in it.
    pub(crate) fn parts(&mut self) -> (&mut [u8], &mut [Job]) {
        (&mut self.memory, &mut self.jobs[..self.count])
    }

    /// The packet index of each job, and the job with its outcome.
    pub(crate) fn results(&self) -> impl Iterator<Item = (usize, &Job)> {
        self.pieces.iter().copied().zip(&self.jobs[..self.count])
    }

    /// Copies a job's output to the packet's own place.
    pub(crate) fn copy_out(&self, job: &Job, piece: &Piece, to: &mut [u8]) {
        to[piece.text.range()].copy_from_slice(&self.memory[job.text()]);
        if job.direction == Direction::Encrypt {
            to[piece.tag.range()].copy_from_slice(&self.memory[job.text().end..job.body().end]);
        }
    }
}

impl Drop for Work {
    /// Erases the memory here too: a driver thread that was abandoned keeps it to the end.
    fn drop(&mut self) {
        self.clear();
    }
}

/// Why an accelerator does not do a task, or does it no longer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// The kernel has no such algorithm, or no accelerator for it.
    #[error("no accelerator for it")]
    Unsupported,
    /// The accelerator holds as many keys as it may.
    #[error("it has enough keys")]
    Crowded,
    /// The driver runs on the CPU: our own code is faster without the detour.
    #[error("{0} is software")]
    Software(String),
    /// The system's error.
    #[error("{what}: {why}")]
    System {
        /// The call that failed.
        what: &'static str,
        /// The error of the call.
        why: std::io::Error,
    },
}

/// A device, or an interface to one.
pub(crate) trait Accelerator: Send + Sync {
    /// The name in logs: `/dev/crypto`.
    fn name(&self) -> &'static str;

    /// Prepares a key for one driver thread.
    fn open(&self, task: Task, key: &[u8]) -> Result<Box<dyn Session>, Fault>;
}

/// One key on one driver thread.
pub(crate) trait Session: Send {
    /// The driver that does the work, as the kernel names it.
    fn driver(&self) -> &str;

    /// Does the jobs, in place in `memory`, and sets the outcome of each. Blocks as long as the driver does.
    ///
    /// An error means that the accelerator is gone; the outcomes are then meaningless.
    fn run(&mut self, memory: &mut [u8], jobs: &mut [Job]) -> Result<(), Fault>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accelerator::task::Span;

    #[test]
    fn what_is_cleared_leaves_nothing() {
        let from = [7; 300];
        let span = |start, len| Span { start, len };
        let piece = Piece {
            aad: span(0, 9),
            text: span(9, 200),
            tag: span(209, 16),
            nonce: [1; 16],
        };
        let mut work = Work::new();
        for direction in [Direction::Encrypt, Direction::Decrypt, Direction::Encrypt] {
            assert!(work.push(0, direction, &piece, &from));
        }
        // Works like a driver.
        let (memory, jobs) = work.parts();
        for job in jobs {
            memory[job.output()].fill(9);
        }
        work.clear();
        assert!(work.memory.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn full_memory_refuses_and_texts_begin_cache_lines() {
        let from = vec![7; 20_000];
        let piece = Piece {
            aad: Span { start: 3, len: 8 },
            text: Span {
                start: 11,
                len: 9_000,
            },
            tag: Span {
                start: 9_011,
                len: 16,
            },
            nonce: [1; 16],
        };
        let mut work = Work::new();
        let taken = (0..JOBS)
            .take_while(|&index| work.push(index, Direction::Decrypt, &piece, &from))
            .count();
        assert_eq!(taken, MEMORY / 9_088);
        let (memory, jobs) = work.parts();
        for job in jobs {
            assert!(memory[job.text()].as_ptr().addr().is_multiple_of(ALIGN));
            assert_eq!(memory[job.input()], [7; 9_024]);
        }
        work.clear();
        let small = Piece {
            text: Span { start: 0, len: 1 },
            ..Piece::default()
        };
        let taken = (0..=JOBS)
            .take_while(|&index| work.push(index, Direction::Encrypt, &small, &from))
            .count();
        assert_eq!(taken, JOBS);
    }
}
