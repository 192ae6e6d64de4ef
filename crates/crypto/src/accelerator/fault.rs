//! An accelerator for tests that follows a script: it works, or fails as drivers do.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::job::{Accelerator, Fault, Job, Outcome, Session};
use super::task::{Direction, Task};
use crate::implementations::{
    AeadImplementation, AwsLcAead, AwsLcAes, CbcImplementation, Chain, Place,
};
use crate::packet_aead::AeadAlgorithm;

/// The fate of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Injected {
    /// The job is done.
    #[default]
    Nothing,
    /// The job is refused with `EIO`, half done.
    Error,
    /// The job is done, but reports so many bytes fewer than it wrote.
    Short,
    /// The job never comes back, and its memory keeps changing.
    Stall,
    /// The device vanishes.
    Vanish,
    /// The job reports a genuine packet as forged.
    Reject,
    /// The job is refused as with [`Error`](Self::Error). As long as the session lives, all other jobs report success
    /// but do nothing.
    Derail,
    /// The job is done, and reports a forged packet as genuine.
    Accept,
    /// The job does nothing, and reports nothing.
    Silence,
}

/// The fate of each job, in the order in which jobs come; jobs after the last are done.
#[derive(Default)]
struct Script {
    faults: Vec<Injected>,
    next: usize,
    /// The number of jobs done, for tests that check that there were any.
    done: usize,
    /// Bytes of text in those jobs.
    bytes: usize,
    /// Whether stalled driver threads must end.
    over: bool,
    /// Whether sessions wait for `over` before they close.
    hangs_on: bool,
}

/// Accelerator that fails as its script says.
#[derive(Clone, Default)]
pub(crate) struct Faulty {
    script: Arc<(Mutex<Script>, Condvar)>,
}

impl Faulty {
    pub(crate) fn new(faults: &[Injected]) -> Self {
        let faulty = Self::default();
        faulty.lock().faults = faults.to_vec();
        faulty
    }

    /// How many jobs the accelerator has done.
    pub(crate) fn done(&self) -> usize {
        self.lock().done
    }

    /// How many bytes of text the done jobs had.
    pub(crate) fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// Makes sessions wait for a vanished device when they close, too.
    pub(crate) fn hang_on(&self) {
        self.lock().hangs_on = true;
    }

    /// Lets stalled driver threads continue.
    pub(crate) fn end(&self) {
        self.lock().over = true;
        self.script.1.notify_all();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Script> {
        self.script.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> Injected {
        let mut script = self.lock();
        let fault = script.faults.get(script.next).copied();
        script.next += 1;
        fault.unwrap_or_default()
    }

    fn stall(&self) {
        let mut script = self.lock();
        while !script.over {
            script = self
                .script
                .1
                .wait(script)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Accelerator for Faulty {
    fn name(&self) -> &'static str {
        "a faulty accelerator"
    }

    fn open(&self, task: Task, key: &[u8]) -> Result<Box<dyn Session>, Fault> {
        let code = match task {
            Task::AesCbc => Code::Cbc(Box::new(AwsLcAes::new(key))),
            Task::AesGcm => Code::Aead(AwsLcAead::new(
                match key.len() {
                    16 => AeadAlgorithm::Aes128Gcm,
                    24 => AeadAlgorithm::Aes192Gcm,
                    _ => AeadAlgorithm::Aes256Gcm,
                },
                key,
            )),
            Task::ChaCha20Poly1305 => {
                Code::Aead(AwsLcAead::new(AeadAlgorithm::ChaCha20Poly1305, key))
            }
        };
        Ok(Box::new(FaultySession {
            accelerator: self.clone(),
            code,
            derailed: false,
        }))
    }
}

enum Code {
    Cbc(Box<AwsLcAes>),
    Aead(AwsLcAead),
}

struct FaultySession {
    accelerator: Faulty,
    code: Code,
    derailed: bool,
}

impl FaultySession {
    fn work(&self, memory: &mut [u8], job: &Job) -> Outcome {
        let done = Outcome::Done(job.output().len());
        match &self.code {
            Code::Cbc(aes) => {
                let mut chain = [&job.nonce[..], &memory[job.text()]].concat();
                let chains = [Chain::new(&(16..chain.len()), 16)];
                match job.direction {
                    Direction::Encrypt => aes.encrypt(&mut chain, &chains),
                    Direction::Decrypt => aes.decrypt(&mut chain, &chains),
                }
                memory[job.text()].copy_from_slice(&chain[16..]);
                done
            }
            Code::Aead(aead) => {
                let mut nonce = [0; 12];
                nonce.copy_from_slice(&job.nonce[..12]);
                let places = [Place {
                    aad: job.aad(),
                    text: job.text(),
                    tag: job.text().end,
                    nonce,
                }];
                let mut authentic = [true];
                match job.direction {
                    Direction::Encrypt => aead.seal(memory, &places),
                    Direction::Decrypt => aead.open(memory, &places, &mut authentic),
                }
                if authentic[0] { done } else { Outcome::Forged }
            }
        }
    }
}

impl Drop for FaultySession {
    fn drop(&mut self) {
        if self.accelerator.lock().hangs_on {
            self.accelerator.stall();
        }
    }
}

impl Session for FaultySession {
    fn driver(&self) -> &str {
        "faulty"
    }

    fn run(&mut self, memory: &mut [u8], jobs: &mut [Job]) -> Result<(), Fault> {
        for job in jobs {
            if self.derailed {
                memory[job.body()].fill(0xde);
                job.outcome = Outcome::Done(job.output().len());
                continue;
            }
            let fault = self.accelerator.next();
            job.outcome = match fault {
                Injected::Nothing => {
                    let mut script = self.accelerator.lock();
                    script.done += 1;
                    script.bytes += job.text().len();
                    drop(script);
                    self.work(memory, job)
                }
                Injected::Error => {
                    memory[job.body()].fill(0xe5);
                    Outcome::Failed(5)
                }
                Injected::Short => match self.work(memory, job) {
                    Outcome::Done(len) => Outcome::Done(len - 1),
                    other => other,
                },
                Injected::Stall => {
                    memory[job.body()].fill(0x57);
                    self.accelerator.stall();
                    memory.fill(0x58);
                    Outcome::Done(job.output().len())
                }
                Injected::Vanish => {
                    memory.fill(0x59);
                    return Err(Fault::Unsupported);
                }
                Injected::Derail => {
                    self.derailed = true;
                    Outcome::Failed(5)
                }
                Injected::Reject => Outcome::Forged,
                Injected::Accept => match self.work(memory, job) {
                    Outcome::Forged => Outcome::Done(job.output().len()),
                    other => other,
                },
                Injected::Silence => Outcome::Pending,
            };
        }
        Ok(())
    }
}
