//! The accelerators of this machine, found once a process.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::afalg::AfAlg;
use super::costs::Crossover;
use super::devcrypto::DevCrypto;
use super::measure;
use super::offload::Offload;
use super::pool::Pool;
use super::{Accelerator, Task};

/// A task that an accelerator does.
pub(crate) struct Offer {
    pub(crate) task: Task,
    pub(crate) pool: Arc<Pool>,
    /// The driver, as the kernel names it.
    pub(crate) driver: String,
    /// Driver and the way to it, for reports.
    pub(crate) name: &'static str,
    /// For encrypting and decrypting, once they were measured or read from a profile.
    crossovers: Mutex<Option<[Crossover; 2]>>,
}

impl Offer {
    /// A key's sessions; `None` if the accelerator is gone, or has enough keys.
    pub(crate) fn open(&self, key: &[u8]) -> Option<Offload> {
        match Offload::new(&self.pool, self.task, key) {
            Ok(offload) => Some(offload),
            Err(fault) => {
                log::debug!("{}: {fault}; the CPU has this key", self.name);
                None
            }
        }
    }

    /// The costs in both directions, measured now unless they were before.
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

/// The offers of this machine's accelerators: for each task the first that does it, `/dev/crypto` before AF_ALG.
/// Looking costs nothing worth mentioning where there is none.
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

/// For tests with a process of their own: these instead of this machine's. `false` if they were looked for already.
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

/// Adds what the accelerator does and none before it. Returns the names of what it does wrong.
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
        // Once a process and task.
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
                "{name} does not compute {} as the CPU does, and is not used",
                task.name()
            );
            wrong.push(name);
        }
    }
    wrong
}
