//! A number of 64 bits that threads share, on every machine. 32-bit MIPS has no instructions for one: there a lock of
//! `portable-atomic`'s stands in for them, which a reader does not take unless someone writes.

#[cfg(not(target_has_atomic = "64"))]
pub use portable_atomic::AtomicU64;
#[cfg(target_has_atomic = "64")]
pub use std::sync::atomic::AtomicU64;
