//! Single ciphers, hashes and signatures on a given back end: for measuring, not for use.
//!
//! [`task`] makes a [`Task`], which does the same work on the same memory each time it runs. The caller measures the
//! time.

mod algorithm;
mod bulk;
mod dsa;
mod public_key;
mod tunnel;

pub use algorithm::{Algorithm, Operation, Task};
pub use tunnel::packet_cipher;

use crate::Backend;

/// Makes the task of one operation on `batch` messages or packets of `bytes` bytes each, with a fresh key. For public
/// keys it is one operation, whatever these numbers are.
///
/// `None` if the algorithm has no such operation, or this machine has no such back end for it.
#[must_use]
pub fn task(
    algorithm: Algorithm,
    operation: Operation,
    backend: Backend,
    batch: usize,
    bytes: usize,
) -> Option<Box<dyn Task>> {
    match algorithm {
        Algorithm::Hash(digest) if operation == Operation::Hash => {
            bulk::hash(digest, backend, batch, bytes)
        }
        Algorithm::Cbc(cipher) => bulk::cbc(cipher, operation, backend, batch, bytes),
        Algorithm::Rc4 if (operation, backend) == (Operation::Encrypt, Backend::Portable) => {
            Some(bulk::rc4(batch, bytes))
        }
        Algorithm::Tunnel(cipher, digest) => {
            tunnel::task((cipher, digest), operation, backend, batch, bytes)
        }
        _ if algorithm.is_public_key() && backend == library() => {
            public_key::task(algorithm, operation)
        }
        _ => None,
    }
}

/// Whether this machine has the back end for the algorithm.
#[must_use]
pub fn is_present(algorithm: Algorithm, backend: Backend) -> bool {
    if algorithm.is_public_key() {
        // Making keys just to find out takes too long.
        return backend == library();
    }
    let first = algorithm.operations().first();
    first.is_some_and(|&operation| task(algorithm, operation, backend, 1, 16).is_some())
}

/// The kind of AWS-LC's code on this machine, which is the only code for signatures.
fn library() -> Backend {
    // The first candidate of each table is the library.
    crate::implementations::MACS
        .first()
        .map_or(Backend::Portable, |library| (library.backend)())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every operation of every algorithm runs with the correct result on each back end that is reported present, and
    /// on no other.
    #[test]
    fn what_is_present_runs() {
        for algorithm in Algorithm::ALL {
            let mut present = 0;
            for backend in Backend::ALL {
                let expected = is_present(algorithm, backend);
                present += usize::from(expected);
                for &operation in algorithm.operations() {
                    for (batch, bytes) in [(1, 16), (5, 100), (70, 9)] {
                        let what = format!("{algorithm} {operation} {backend} {batch} x {bytes}");
                        let task = task(algorithm, operation, backend, batch, bytes);
                        assert_eq!(task.is_some(), expected, "{what}");
                        let Some(mut task) = task else {
                            continue;
                        };
                        for _ in 0..3 {
                            task.prepare();
                            assert!(task.run(), "{what}");
                        }
                        assert!(!task.implementation().is_empty(), "{what}");
                        if algorithm.is_public_key() {
                            break;
                        }
                    }
                }
            }
            assert!(present > 0, "{algorithm}");
        }
    }

    #[test]
    fn operations_that_an_algorithm_has_not_are_refused() {
        let all = [
            Operation::Hash,
            Operation::Encrypt,
            Operation::Decrypt,
            Operation::Seal,
            Operation::Open,
            Operation::Sign,
            Operation::Verify,
            Operation::Agree,
        ];
        for algorithm in Algorithm::ALL {
            for operation in all {
                if algorithm.operations().contains(&operation) {
                    continue;
                }
                let made = Backend::ALL
                    .into_iter()
                    .any(|backend| task(algorithm, operation, backend, 1, 16).is_some());
                assert!(!made, "{algorithm} {operation}");
            }
        }
    }
}
