//! Random numbers, and comparison in constant time. [`unpredictable`] gives random bytes for initialisation vectors:
//! cheap enough to have 16 of them for every packet.

use core::cell::RefCell;

use subtle::{Choice, ConstantTimeEq};
use zeroize::{Zeroize, Zeroizing};

/// Fills `bytes` from the system's generator.
///
/// This is the kernel's generator, not one of a library in this process. So there is no state to seed on a slow
/// machine, to keep in memory or to repeat after a fork. If the system has none the process ends, for every later key
/// would be insecure.
pub fn random(bytes: &mut [u8]) {
    if let Err(error) = getrandom::fill(bytes) {
        eprintln!("the system gave no random numbers ({error}): cannot make keys, stopping");
        std::process::abort();
    }
}

/// Whether `a` and `b` are equal, in a time that depends on their length only.
#[must_use]
pub fn equal<const N: usize>(a: &[u8; N], b: &[u8; N]) -> bool {
    a.ct_eq(b).into()
}

/// Whether two codes are equal, in a time that does not depend on what is in them.
///
/// Collects differences in words and looks at them once. Comparing byte by byte, each hidden from the optimiser, would
/// take half the time of a small packet.
pub(crate) fn are_equal(a: &[u8], b: &[u8]) -> Choice {
    if a.len() != b.len() {
        return Choice::from(0);
    }
    let (a_words, a_rest) = a.as_chunks::<4>();
    let (b_words, b_rest) = b.as_chunks::<4>();
    let words = a_words.iter().zip(b_words);
    let difference = words.fold(0, |difference, (a, b)| {
        difference | u32::from_ne_bytes(*a) ^ u32::from_ne_bytes(*b)
    });
    let rest = a_rest.iter().zip(b_rest);
    let difference = rest.fold(difference, |difference, (a, b)| {
        difference | u32::from(a ^ b)
    });
    difference.ct_eq(&0)
}

/// Bytes made at a time, of which the first 32 become the next key.
const POOL_LEN: usize = 2048;

/// Bytes given out before the pool is seeded from the system again.
const RESEED: usize = 16 << 20;

/// A ChaCha20 generator with fast key erasure: its state does not reveal earlier output.
struct Pool {
    key: Zeroizing<[u8; 32]>,
    bytes: Zeroizing<[u8; POOL_LEN]>,
    used: usize,
    until_reseed: usize,
}

thread_local! {
    // One for each thread, so that workers never wait for each other.
    static POOL: RefCell<Pool> = RefCell::new(Pool {
        key: Zeroizing::new([0; 32]),
        bytes: Zeroizing::new([0; POOL_LEN]),
        used: POOL_LEN,
        until_reseed: 0,
    });
}

/// Calls `f` with a function that fills slices of at most 64 bytes.
///
/// Do not use it for keys: [`random`](fn@crate::random) makes those. After a fork both processes repeat the values
/// until the next reseeding, which is harmless for initialisation vectors under different keys.
pub fn unpredictable<R>(f: impl FnOnce(&mut dyn FnMut(&mut [u8])) -> R) -> R {
    POOL.with_borrow_mut(|pool| f(&mut |bytes| pool.fill(bytes)))
}

impl Pool {
    fn fill(&mut self, bytes: &mut [u8]) {
        debug_assert!(bytes.len() <= 64);
        if POOL_LEN - self.used < bytes.len() {
            self.refill();
        }
        let pool = &mut self.bytes[self.used..][..bytes.len()];
        bytes.copy_from_slice(pool);
        pool.fill(0);
        self.used += bytes.len();
    }

    fn refill(&mut self) {
        if self.until_reseed < POOL_LEN {
            random(&mut *self.key);
            self.until_reseed = RESEED;
        }
        self.until_reseed -= POOL_LEN;
        self.bytes.zeroize();
        let bytes = self.bytes.as_mut_ptr();
        let nonce = [0; 12];
        // SAFETY: in place is allowed; the pool has POOL_LEN bytes, the key 32, the nonce 12.
        unsafe {
            aws_lc_sys::CRYPTO_chacha_20(
                bytes,
                bytes,
                POOL_LEN,
                self.key.as_ptr(),
                nonce.as_ptr(),
                0,
            );
        }
        self.key.copy_from_slice(&self.bytes[..32]);
        self.bytes[..32].fill(0);
        self.used = 32;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn never_repeats_and_is_not_zero() {
        let mut seen = HashSet::new();
        unpredictable(|fill| {
            for _ in 0..10_000 {
                let mut bytes = [0; 16];
                fill(&mut bytes);
                assert_ne!(bytes, [0; 16]);
                assert!(seen.insert(bytes));
            }
        });
        let other = std::thread::spawn(|| {
            let mut bytes = [0; 16];
            unpredictable(|fill| fill(&mut bytes));
            bytes
        });
        assert!(seen.insert(other.join().unwrap()));
    }
}
