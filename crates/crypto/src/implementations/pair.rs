//! The implementations of one key.

use std::sync::Arc;

use super::{AEADS, AeadImplementation, CBCS, CbcImplementation, MACS, MacImplementation, MacKey};
use crate::backend::Backend;
use crate::packet_aead::AeadAlgorithm;
use crate::select::{self, Algorithm, Picked};

/// An implementation for batches and one for few packets: the fastest for many side by side need not be the fastest for
/// one.
pub(crate) struct Pair<K: ?Sized> {
    many: Arc<K>,
    few: Arc<K>,
}

/// Packets from which on they are a batch.
const MANY: usize = 4;

impl<K: ?Sized> Pair<K> {
    /// The implementations that were picked, made by `make`. Picking has tried each on this machine, and found that it is
    /// there; an accelerator may have vanished since, or have as many keys as it can.
    fn make(picked: Picked, make: impl Fn(usize) -> Option<Box<K>>) -> Option<Self> {
        let one = |index| make(index).map(Arc::from);
        let many = one(picked.many)?;
        let few = match picked.few == picked.many {
            true => Arc::clone(&many),
            false => one(picked.few)?,
        };
        Some(Self { many, few })
    }

    /// One implementation for all.
    #[cfg(any(test, feature = "accelerators"))]
    pub(crate) fn only(implementation: Box<K>) -> Self {
        let many = Arc::from(implementation);
        Self {
            few: Arc::clone(&many),
            many,
        }
    }

    /// The implementation for so many packets.
    pub(crate) fn of(&self, packets: usize) -> &K {
        if packets >= MANY {
            &self.many
        } else {
            &self.few
        }
    }

    /// The implementation for batches.
    pub(crate) fn many(&self) -> &K {
        &self.many
    }
}

impl<K: ?Sized> Clone for Pair<K> {
    fn clone(&self) -> Self {
        Self {
            many: Arc::clone(&self.many),
            few: Arc::clone(&self.few),
        }
    }
}

impl Pair<dyn AeadImplementation> {
    /// `None` if there is no candidate of that kind on this machine. The key has the algorithm's length.
    pub(crate) fn aead(
        backend: Option<Backend>,
        algorithm: AeadAlgorithm,
        key: &[u8],
    ) -> Option<Self> {
        // An accelerator that is gone is no candidate, if it never was one, or makes no key.
        let picked = select::pick(algorithm.family(), backend);
        match picked.and_then(|of| Self::make(of, |index| (AEADS[index].make)(algorithm, key))) {
            Some(pair) => Some(pair),
            None if backend.is_none() => Self::aead_on_cpu(algorithm, key),
            // A caller that asks for one kind is told the truth.
            None => None,
        }
    }

    /// An AEAD as of [`aead`](Self::aead), but on the CPU where that would be an accelerator.
    pub(crate) fn aead_sparing(
        backend: Option<Backend>,
        algorithm: AeadAlgorithm,
        key: &[u8],
    ) -> Option<Self> {
        let picked = select::pick_sparing(algorithm.family(), backend)?;
        Self::make(picked, |index| (AEADS[index].make)(algorithm, key))
    }

    /// Of those that run on the CPU.
    pub(crate) fn aead_on_cpu(algorithm: AeadAlgorithm, key: &[u8]) -> Option<Self> {
        let picked = select::pick_on_cpu(algorithm.family());
        Self::make(picked, |index| (AEADS[index].make)(algorithm, key))
    }
}

impl Pair<dyn CbcImplementation> {
    /// For encrypting and for decrypting. `None` if there is no candidate of that kind on this machine. The key has 16, 24
    /// or 32 bytes.
    pub(crate) fn cbc(backend: Option<Backend>, key: &[u8]) -> Option<(Self, Self)> {
        let make = |index: usize| (CBCS[index].make)(key);
        let encrypting = select::pick(Algorithm::AesCbcEncrypt, backend);
        let decrypting = select::pick(Algorithm::AesCbcDecrypt, backend);
        let picked = encrypting.zip(decrypting);
        match picked.and_then(|(encrypting, decrypting)| Self::both(encrypting, decrypting, make)) {
            Some(both) => Some(both),
            // The CPU computes it, as with AEADs.
            None if backend.is_none() => Self::cbc_on_cpu(key),
            None => None,
        }
    }

    /// Of those that run on the CPU.
    pub(crate) fn cbc_on_cpu(key: &[u8]) -> Option<(Self, Self)> {
        let encrypting = select::pick_on_cpu(Algorithm::AesCbcEncrypt);
        let decrypting = select::pick_on_cpu(Algorithm::AesCbcDecrypt);
        Self::both(encrypting, decrypting, |index| (CBCS[index].make)(key))
    }

    /// One pair for both, where that is what was picked: an accelerator has few sessions.
    fn both(
        encrypting: Picked,
        decrypting: Picked,
        make: impl Fn(usize) -> Option<Box<dyn CbcImplementation>>,
    ) -> Option<(Self, Self)> {
        let pair = Self::make(encrypting, &make)?;
        let other = match decrypting == encrypting {
            true => pair.clone(),
            false => Self::make(decrypting, &make)?,
        };
        Some((pair, other))
    }
}

impl Pair<dyn MacImplementation> {
    /// `None` if there is no candidate of that kind on this machine.
    pub(crate) fn mac(backend: Option<Backend>, key: &MacKey) -> Option<Self> {
        let picked = match Algorithm::of_digest(key.hmac().digest()) {
            Some(algorithm) => select::pick(algorithm, backend)?,
            // The others have one.
            None => Picked::FIRST,
        };
        Self::make(picked, |index| (MACS[index].make)(key))
    }
}
