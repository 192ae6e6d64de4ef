//! Accelerators: chips beside the CPU that encrypt.
//!
//! ```text
//! worker              driver thread         driver
//! copies packets in
//! hands over      ->  one call for each   ->   encrypts
//! does its share
//! waits           <-  gives back          <-
//! copies packets out
//! ```
//!
//! An accelerator has several [driver threads](thread), so that several operations are under way at once. A driver
//! thread works on a copy. If a driver fails or never comes back, the batch is unchanged, and the CPU encrypts it
//! instead. So no packet is lost. A driver that writes after its worker has stopped waiting writes into memory with no
//! other use. The copies cost a hundredth of a call into the kernel.
//!
//! The search for accelerators runs once ([`found`]), and the [measured](costs) costs decide which packets they get.
//! This process never uses an accelerator again after it has failed.

#[cfg(feature = "accelerators")]
mod afalg;
#[cfg(feature = "accelerators")]
mod ciphers;
mod costs;
#[cfg(feature = "accelerators")]
mod devcrypto;
#[cfg(all(test, feature = "accelerators"))]
mod device_tests;
#[cfg(feature = "accelerators")]
mod drivers;
#[cfg(all(test, feature = "accelerators"))]
mod fault;
#[cfg(feature = "accelerators")]
mod found;
#[cfg(feature = "accelerators")]
mod job;
mod measure;
#[cfg(feature = "accelerators")]
mod offload;
#[cfg(feature = "accelerators")]
mod pool;
#[cfg(all(test, feature = "accelerators"))]
mod tests;
#[cfg(feature = "accelerators")]
mod thread;

#[cfg(feature = "accelerators")]
pub(crate) use ciphers::{aead, cbc};
pub use costs::{Costs, Crossover, Sample};
#[cfg(feature = "accelerators")]
use job::{Job, Outcome};
pub use measure::{Side, Timing, Tuner};

use core::ops::Range;

use crate::select::Algorithm;

/// Whether this build has code for accelerators. If not, nothing looks for one.
pub const BUILT: bool = cfg!(feature = "accelerators");

/// An accelerator's driver for an algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// The task that it does.
    pub task: Task,
    /// The driver, as the kernel names it.
    pub driver: String,
    /// The interface to the driver: `/dev/crypto` or `AF_ALG`.
    pub by: &'static str,
}

/// The accelerators of this machine, at most one for each task. The search runs once a process.
#[must_use]
pub fn devices() -> Vec<Device> {
    #[cfg(feature = "accelerators")]
    {
        let device = |offer: &found::Offer| Device {
            task: offer.task,
            driver: offer.driver.clone(),
            by: offer.pool.name(),
        };
        found::offers().iter().map(device).collect()
    }
    #[cfg(not(feature = "accelerators"))]
    Vec::new()
}

/// Sets the costs of an accelerator and the CPU from a profile, for encrypting and decrypting. `false` if no
/// accelerator does the task. Without this call both are measured, from a few batches, when the first key is made.
pub fn set_crossovers(task: Task, crossovers: [Crossover; 2]) -> bool {
    #[cfg(feature = "accelerators")]
    if let Some(offer) = found::offer(task) {
        offer.set_crossovers(crossovers);
        return true;
    }
    let _ = (task, crossovers);
    false
}

/// Whether an accelerator does the algorithm.
#[cfg(feature = "accelerators")]
pub(crate) fn does(algorithm: Algorithm) -> bool {
    Task::of(algorithm).is_some_and(|task| found::offer(task).is_some())
}

/// The direction of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// Sealing.
    #[default]
    Encrypt,
    /// Opening.
    Decrypt,
}

/// The places of a packet's parts in its memory. A cipher without a tag has an empty one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) aad: Span,
    pub(crate) text: Span,
    pub(crate) tag: Span,
    /// Nonce or initialisation vector: the first bytes, as many as the task needs.
    pub(crate) nonce: [u8; 16],
}

/// A range that is `Copy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) len: usize,
}

impl Span {
    pub(crate) const fn range(self) -> Range<usize> {
        self.start..self.start + self.len
    }
}

impl From<&Range<usize>> for Span {
    fn from(range: &Range<usize>) -> Self {
        Self {
            start: range.start,
            len: range.len(),
        }
    }
}

/// A task of an accelerator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Task {
    /// AES in CBC mode, whole blocks. The initialisation vector is the job's nonce.
    AesCbc,
    /// AES-GCM with a nonce of 12 bytes and a tag of 16 behind the text.
    AesGcm,
    /// ChaCha20-Poly1305 (RFC 8439), likewise.
    ChaCha20Poly1305,
}

impl Task {
    /// All tasks.
    pub const ALL: [Self; 3] = [Self::AesCbc, Self::AesGcm, Self::ChaCha20Poly1305];

    /// The name in profiles and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AesCbc => "aes-cbc",
            Self::AesGcm => "aes-gcm",
            Self::ChaCha20Poly1305 => "chacha20-poly1305",
        }
    }

    /// The task of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|task| task.name() == name)
    }

    /// The accelerator's task for an algorithm, if there is one.
    #[must_use]
    pub const fn of(algorithm: Algorithm) -> Option<Self> {
        match algorithm {
            Algorithm::AesGcm => Some(Self::AesGcm),
            Algorithm::ChaCha20Poly1305 => Some(Self::ChaCha20Poly1305),
            Algorithm::AesCbcEncrypt | Algorithm::AesCbcDecrypt => Some(Self::AesCbc),
            // The CPU hashes many packets at once, and an accelerator would need one more call for each.
            Algorithm::HmacSha1 | Algorithm::HmacSha256 | Algorithm::HmacSha512 => None,
        }
    }

    /// Bytes of nonce or initialisation vector.
    #[cfg(feature = "accelerators")]
    pub(crate) const fn nonce_len(self) -> usize {
        match self {
            Self::AesCbc => 16,
            Self::AesGcm | Self::ChaCha20Poly1305 => 12,
        }
    }

    /// Bytes of tag.
    pub(crate) const fn tag_len(self) -> usize {
        match self {
            Self::AesCbc => 0,
            Self::AesGcm | Self::ChaCha20Poly1305 => crate::TAG_LEN,
        }
    }
}

/// Why an accelerator does not do a task, or does it no longer.
#[cfg(feature = "accelerators")]
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// The kernel has no such algorithm, or no accelerator for it.
    #[error("no accelerator for it")]
    Unsupported,
    /// As many keys as an accelerator may have are in use.
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
#[cfg(feature = "accelerators")]
pub(crate) trait Accelerator: Send + Sync {
    /// The name in logs: `/dev/crypto`.
    fn name(&self) -> &'static str;

    /// Prepares a key for one driver thread.
    fn open(&self, task: Task, key: &[u8]) -> Result<Box<dyn Session>, Fault>;
}

/// One key on one driver thread.
#[cfg(feature = "accelerators")]
pub(crate) trait Session: Send {
    /// The driver that does the work, as the kernel names it.
    fn driver(&self) -> &str;

    /// Does the jobs, in place in `memory`, and sets the outcome of each. Blocks as long as the driver does.
    ///
    /// An error means that the accelerator is gone; the outcomes are then meaningless.
    fn run(&mut self, memory: &mut [u8], jobs: &mut [Job]) -> Result<(), Fault>;
}
