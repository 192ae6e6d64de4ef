//! Random bytes for initialisation vectors: unpredictable, and cheap enough to have 16 of them for every packet.

use core::cell::RefCell;

use zeroize::{Zeroize, Zeroizing};

use crate::random;

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
pub(crate) fn with<R>(f: impl FnOnce(&mut dyn FnMut(&mut [u8])) -> R) -> R {
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

    #[test]
    fn never_repeats_and_is_not_zero() {
        let mut seen = HashSet::new();
        super::with(|fill| {
            for _ in 0..10_000 {
                let mut bytes = [0; 16];
                fill(&mut bytes);
                assert_ne!(bytes, [0; 16]);
                assert!(seen.insert(bytes));
            }
        });
        let other = std::thread::spawn(|| {
            let mut bytes = [0; 16];
            super::with(|fill| fill(&mut bytes));
            bytes
        });
        assert!(seen.insert(other.join().unwrap()));
    }
}
