//! The wanted data plane of a tunnel that can be moved, and the present one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The wish for one of two data planes, with its reason. The management port and pushed options set it; the data planes
/// read it.
#[derive(Debug)]
pub struct Wish {
    kernel: AtomicBool,
    seals: AtomicBool,
    /// A refusal by the kernel ends the session, and does not change the wish.
    required: bool,
    why: Mutex<String>,
}

impl Wish {
    /// Wishes for the kernel, or for user space.
    #[must_use]
    pub fn new(kernel: bool, why: &str) -> Self {
        Self {
            kernel: AtomicBool::new(kernel),
            seals: AtomicBool::new(false),
            required: false,
            why: Mutex::new(why.to_owned()),
        }
    }

    /// Wishes for the kernel. If the kernel refuses a session, the session ends with an error.
    #[must_use]
    pub fn required(why: &str) -> Self {
        Self {
            required: true,
            ..Self::new(true, why)
        }
    }

    /// Wishes for the kernel, or for user space. The next keys fulfil it.
    pub fn set(&self, kernel: bool, why: &str) {
        why.clone_into(&mut self.words());
        self.kernel.store(kernel, Ordering::Relaxed);
    }

    /// Whether the kernel is to move the packets.
    pub fn is_for_kernel(&self) -> bool {
        self.kernel.load(Ordering::Relaxed)
    }

    /// Whether the kernel seals the packets at present.
    pub fn is_in_kernel(&self) -> bool {
        self.seals.load(Ordering::Relaxed)
    }

    /// The reason for the wish.
    pub fn why(&self) -> String {
        self.words().clone()
    }

    /// Whether a refusal by the kernel ends the session.
    pub fn is_required(&self) -> bool {
        self.required
    }

    /// Gives up the wish for the kernel, which has refused for this reason. Returns false, and changes nothing, if the
    /// kernel is required.
    pub fn refuse(&self, why: &str) -> bool {
        let may_leave = !(self.required && self.is_for_kernel());
        if may_leave {
            self.leave_kernel(why);
        }
        may_leave
    }

    /// Gives up the wish for the kernel, as a feature needs user space for this reason.
    pub(crate) fn leave_kernel(&self, why: &str) {
        if self.is_for_kernel() {
            // The remedy in a refusal is for `kind = "kernel"`.
            let why = why.split(';').next().unwrap_or_default();
            log::warn!("Data plane: this program moves the packets ({why})");
            self.set(false, why);
        }
    }

    /// Notes whether the kernel seals from now on. Returns whether that has changed.
    pub(crate) fn seals(&self, kernel: bool) -> bool {
        self.seals.swap(kernel, Ordering::Relaxed) != kernel
    }

    fn words(&self) -> MutexGuard<'_, String> {
        self.why.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
