//! An accelerator for tests, which does what it is told: works, or fails in one of the ways in which drivers do.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::{Accelerator, Direction, Fault, Job, Outcome, Session, Task};
use crate::implementations::{
    AeadImplementation, AwsLcAead, AwsLcAes, CbcImplementation, Chain, Place,
};
use crate::packet_aead::AeadAlgorithm;

/// The fate of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Injected {
    /// It is done.
    #[default]
    Nothing,
    /// It is refused with `EIO`, half done.
    Error,
    /// It is done, and says that it wrote so many bytes less.
    Short,
    /// It never comes back, and what it was working on changes all the while.
    Stall,
    /// The device is gone.
    Vanish,
    /// A genuine packet is called forged.
    Reject,
    /// It is refused as with [`Error`](Self::Error), and so long as the session lives all others are called done, and are
    /// not.
    Derail,
    /// It is done, and a forged packet is called genuine.
    Accept,
    /// Nothing is done, and nothing is said.
    Silence,
}

/// The fate of each job, in the order in which jobs come; jobs after the last are done.
#[derive(Default)]
struct Script {
    faults: Vec<Injected>,
    next: usize,
    /// Jobs done, for tests that want to know that there were any.
    done: usize,
    /// Bytes of their texts.
    bytes: usize,
    /// Stalled driver threads end.
    over: bool,
    /// Sessions do not close before that.
    hangs_on: bool,
}

/// The accelerator.
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

    /// How many jobs it has done.
    pub(crate) fn done(&self) -> usize {
        self.lock().done
    }

    /// How many bytes of text these had.
    pub(crate) fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// Sessions wait for a device that is gone when they close, too.
    pub(crate) fn hang_on(&self) {
        self.lock().hangs_on = true;
    }

    /// Lets stalled driver threads go on.
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
