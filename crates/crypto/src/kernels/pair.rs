//! The kernels of one key.

use std::sync::Arc;

use super::{AEADS, AeadKernel, CBCS, CbcKernel, MACS, MacKernel, MacKey};
use crate::backend::Backend;
use crate::packet_aead::AeadAlgorithm;
use crate::select::{self, Algorithm, Picked};

/// A kernel for batches and one for few packets: what is fastest for many side by side need not be so for one alone.
pub(crate) struct Pair<K: ?Sized> {
    many: Arc<K>,
    few: Arc<K>,
}

/// Packets from which on they are a batch.
const MANY: usize = 4;

impl<K: ?Sized> Pair<K> {
    /// The kernels that were picked, made by `make`. Picking has tried each on this machine; should an accelerator have
    /// vanished since, the first candidate of each table, which is always there, takes its place.
    fn make(picked: Picked, make: impl Fn(usize) -> Option<Box<K>>) -> Option<Self> {
        let one = |index| make(index).or_else(|| make(0)).map(Arc::from);
        let many = one(picked.many)?;
        let few = match picked.few == picked.many {
            true => Arc::clone(&many),
            false => one(picked.few)?,
        };
        Some(Self { many, few })
    }

    /// One kernel for all, to test it.
    #[cfg(test)]
    pub(crate) fn only(kernel: Box<K>) -> Self {
        let many = Arc::from(kernel);
        Self {
            few: Arc::clone(&many),
            many,
        }
    }

    /// The kernel for so many packets.
    pub(crate) fn of(&self, packets: usize) -> &K {
        if packets >= MANY {
            &self.many
        } else {
            &self.few
        }
    }

    /// The kernel for batches.
    pub(crate) fn many(&self) -> &K {
        &self.many
    }
}

impl Pair<dyn AeadKernel> {
    /// `None` if there is no candidate of that kind on this machine. The key has the algorithm's length.
    pub(crate) fn aead(
        backend: Option<Backend>,
        algorithm: AeadAlgorithm,
        key: &[u8],
    ) -> Option<Self> {
        let picked = select::pick(algorithm.family(), backend)?;
        Self::make(picked, |index| (AEADS[index].make)(algorithm, key))
    }
}

impl Pair<dyn CbcKernel> {
    /// For encrypting and for decrypting. `None` if there is no candidate of that kind on this machine. The key has 16, 24
    /// or 32 bytes.
    pub(crate) fn cbc(backend: Option<Backend>, key: &[u8]) -> Option<(Self, Self)> {
        let make = |index: usize| (CBCS[index].make)(key);
        let encrypting = select::pick(Algorithm::AesCbcEncrypt, backend)?;
        let decrypting = select::pick(Algorithm::AesCbcDecrypt, backend)?;
        Some((Self::make(encrypting, make)?, Self::make(decrypting, make)?))
    }
}

impl Pair<dyn MacKernel> {
    /// `None` if there is no candidate of that kind on this machine.
    pub(crate) fn mac(backend: Option<Backend>, key: &MacKey) -> Option<Self> {
        let picked = match Algorithm::of_digest(key.hmac().digest()) {
            Some(algorithm) => select::pick(algorithm, backend)?,
            // MD5: there is one.
            None => Picked::FIRST,
        };
        Self::make(picked, |index| (MACS[index].make)(key))
    }
}
