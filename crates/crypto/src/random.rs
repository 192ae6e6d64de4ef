//! Random numbers, and comparison in constant time.

use subtle::ConstantTimeEq;

/// Fills `bytes` from the system's generator.
///
/// This is the kernel's generator, not one of a library in this process. So there is no state to seed on a slow
/// machine, to keep in memory or to repeat after a fork. If the system has none the process ends, for every later key
/// would be insecure.
pub fn random(bytes: &mut [u8]) {
    if let Err(error) = getrandom::fill(bytes) {
        eprintln!("no random numbers from the system ({error}): cannot make keys, stopping");
        std::process::abort();
    }
}

/// Whether `a` and `b` are equal, in a time that depends on their length only.
#[must_use]
pub fn equal<const N: usize>(a: &[u8; N], b: &[u8; N]) -> bool {
    a.ct_eq(b).into()
}
