//! Finds the accelerators of this machine, once a process.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::afalg::AfAlg;
use super::costs::Crossover;
use super::devcrypto::DevCrypto;
use super::job::Accelerator;
use super::measure;
use super::offload::Offload;
use super::pool::Pool;
use super::task::Task;

/// A task that an accelerator does.
pub(crate) struct Offer {
    pub(crate) task: Task,
    pub(crate) pool: Arc<Pool>,
    /// The driver, as the kernel names it.
    pub(crate) driver: String,
    /// The driver and the interface to it, for reports.
    pub(crate) name: &'static str,
    /// The crossovers for encrypting and decrypting, once measured or read from a profile.
    crossovers: Mutex<Option<[Crossover; 2]>>,
}

impl Offer {
    /// Opens a key's sessions; `None` if the accelerator is gone, or has enough keys.
    pub(crate) fn open(&self, key: &[u8]) -> Option<Offload> {
        match Offload::new(&self.pool, self.task, key) {
            Ok(offload) => Some(offload),
            Err(fault) => {
                log::debug!("{}: {fault}; the CPU handles this key", self.name);
                None
            }
        }
    }

    /// The costs in both directions, measured now if that has not been done.
    pub(crate) fn crossovers(&self) -> Option<[Crossover; 2]> {
        let mut crossovers = self.lock();
        if crossovers.is_none() {
            *crossovers = measure::quickly(self);
        }
        *crossovers
    }

    /// Sets the crossovers of a profile.
    pub(crate) fn set_crossovers(&self, crossovers: [Crossover; 2]) {
        *self.lock() = Some(crossovers);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<[Crossover; 2]>> {
        self.crossovers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

static OFFERS: OnceLock<Vec<Offer>> = OnceLock::new();

/// The offers of this machine's accelerators: for each task the first that supports it, `/dev/crypto` before AF_ALG.
/// Without accelerators the search costs almost nothing.
pub(crate) fn offers() -> &'static [Offer] {
    OFFERS.get_or_init(|| {
        let mut offers = Vec::new();
        if let Ok(device) = DevCrypto::open(false) {
            add(&mut offers, Box::new(device));
        }
        if let Some(sockets) = AfAlg::find() {
            add(&mut offers, Box::new(sockets));
        }
        offers
    })
}

/// Installs offers in place of this machine's, for tests with a process of their own. `false` if the search was already
/// done.
#[cfg(test)]
pub(super) fn install(offers: Vec<Offer>) -> bool {
    OFFERS.set(offers).is_ok()
}

/// The offer for a task.
pub(crate) fn offer(task: Task) -> Option<&'static Offer> {
    offers()
        .iter()
        .find(|offer| offer.task == task && offer.pool.is_alive())
}

/// Adds an accelerator's tasks that no earlier one does. Returns the names of tasks that it does wrong.
pub(crate) fn add(offers: &mut Vec<Offer>, accelerator: Box<dyn Accelerator>) -> Vec<&'static str> {
    let mut wrong = Vec::new();
    let mut found = Vec::new();
    for task in Task::ALL {
        if offers.iter().any(|offer| offer.task == task) {
            continue;
        }
        match accelerator.open(task, &measure::key()) {
            Ok(session) => found.push((task, session.driver().to_owned())),
            Err(fault) => log::debug!("{}: {task:?}: {fault}", accelerator.name()),
        }
    }
    if found.is_empty() {
        return wrong;
    }
    let Some(pool) = Pool::new(accelerator) else {
        return wrong;
    };
    for (task, driver) in found {
        // Leaks once for each process and task.
        let name = String::leak(format!("{driver} by {}", pool.name()));
        let offer = Offer {
            task,
            pool: Arc::clone(&pool),
            driver,
            name,
            crossovers: Mutex::new(None),
        };
        if measure::is_right(&offer) {
            offers.push(offer);
        } else {
            log::warn!(
                "{name} does not compute {} as the CPU does, so it is not used",
                task.name()
            );
            wrong.push(name);
        }
    }
    wrong
}
