//! A number of 64 bits that threads share, on every machine. 32-bit MIPS has no 64-bit atomic instructions. There
//! `portable-atomic` uses a lock, which a reader takes only if another thread writes.

#[cfg(not(target_has_atomic = "64"))]
pub use portable_atomic::AtomicU64;
#[cfg(target_has_atomic = "64")]
pub use std::sync::atomic::AtomicU64;
