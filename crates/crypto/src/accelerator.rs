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
//! An accelerator has several [driver threads](thread), so that several operations run at once. A driver
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
mod task;
#[cfg(all(test, feature = "accelerators"))]
mod tests;
#[cfg(feature = "accelerators")]
mod thread;

#[cfg(feature = "accelerators")]
pub(crate) use ciphers::{aead, cbc};
pub use costs::{Costs, Crossover, Sample};
pub use measure::{Side, Timing, Tuner};
pub use task::{Direction, Task};

#[cfg(feature = "accelerators")]
use crate::algorithm::Algorithm;

/// Whether this build has code for accelerators. If not, nothing looks for one.
pub const BUILT: bool = cfg!(feature = "accelerators");

/// An accelerator's driver for an algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// The task that the accelerator does.
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
