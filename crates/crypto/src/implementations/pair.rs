//! The implementations of one key.

use std::sync::Arc;

use super::{AEADS, AeadImplementation, CBCS, CbcImplementation, Hmac, MACS, MacImplementation};
use crate::implementations::Backend;
use crate::packet_aead::AeadAlgorithm;
use crate::select::{self, Algorithm, Picked};

/// An implementation for batches and one for few packets: the fastest for many packets in parallel may not be the
/// fastest for one.
pub(crate) struct Pair<K: ?Sized> {
    many: Arc<K>,
    few: Arc<K>,
}

/// Number of packets from which they count as a batch.
const MANY: usize = 4;

impl<K: ?Sized> Pair<K> {
    /// Makes the picked implementations with `make`. Picking has found each on this machine, but an accelerator may
    /// have vanished since, or have no key left.
    fn make(picked: Picked, make: impl Fn(usize) -> Option<Box<K>>) -> Option<Self> {
        let one = |index| make(index).map(Arc::from);
        let many = one(picked.many)?;
        let few = match picked.few == picked.many {
            true => Arc::clone(&many),
            false => one(picked.few)?,
        };
        Some(Self { many, few })
    }

    /// Makes a pair of one implementation for everything.
    #[cfg(any(test, feature = "accelerators"))]
    pub(crate) fn only(implementation: Box<K>) -> Self {
        let many = Arc::from(implementation);
        Self {
            few: Arc::clone(&many),
            many,
        }
    }

    /// The implementation for this many packets.
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
    /// Makes an AEAD; `None` if this machine has no candidate of that kind. The key must have the algorithm's length.
    pub(crate) fn aead(
        backend: Option<Backend>,
        algorithm: AeadAlgorithm,
        key: &[u8],
    ) -> Option<Self> {
        // An accelerator may have been removed, or cannot make a key: then it is not a candidate.
        let picked = select::pick(algorithm.family(), backend);
        match picked.and_then(|of| Self::make(of, |index| (AEADS[index].make)(algorithm, key))) {
            Some(pair) => Some(pair),
            None if backend.is_none() => Self::aead_on_cpu(algorithm, key),
            // A caller that requests one kind gets no other.
            None => None,
        }
    }

    /// Like [`aead`](Self::aead), but on the CPU instead of an accelerator.
    pub(crate) fn aead_sparing(
        backend: Option<Backend>,
        algorithm: AeadAlgorithm,
        key: &[u8],
    ) -> Option<Self> {
        let picked = select::pick_sparing(algorithm.family(), backend)?;
        Self::make(picked, |index| (AEADS[index].make)(algorithm, key))
    }

    /// Makes an AEAD that runs on the CPU.
    pub(crate) fn aead_on_cpu(algorithm: AeadAlgorithm, key: &[u8]) -> Option<Self> {
        let picked = select::pick_on_cpu(algorithm.family());
        Self::make(picked, |index| (AEADS[index].make)(algorithm, key))
    }
}

impl Pair<dyn CbcImplementation> {
    /// Makes the pairs for encrypting and for decrypting. `None` if this machine has no candidate of that kind. The key
    /// must have 16, 24 or 32 bytes.
    pub(crate) fn cbc(backend: Option<Backend>, key: &[u8]) -> Option<(Self, Self)> {
        let make = |index: usize| (CBCS[index].make)(key);
        let encrypting = select::pick(Algorithm::AesCbcEncrypt, backend);
        let decrypting = select::pick(Algorithm::AesCbcDecrypt, backend);
        let picked = encrypting.zip(decrypting);
        match picked.and_then(|(encrypting, decrypting)| Self::both(encrypting, decrypting, make)) {
            Some(both) => Some(both),
            // The CPU computes instead, as with AEADs.
            None if backend.is_none() => Self::cbc_on_cpu(key),
            None => None,
        }
    }

    /// Makes the pairs for encrypting and decrypting on the CPU.
    pub(crate) fn cbc_on_cpu(key: &[u8]) -> Option<(Self, Self)> {
        let encrypting = select::pick_on_cpu(Algorithm::AesCbcEncrypt);
        let decrypting = select::pick_on_cpu(Algorithm::AesCbcDecrypt);
        Self::both(encrypting, decrypting, |index| (CBCS[index].make)(key))
    }

    /// Uses one pair for both directions if the same was picked: an accelerator has few sessions.
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
    /// Makes an HMAC; `None` if this machine has no candidate of that kind.
    pub(crate) fn mac(backend: Option<Backend>, key: &Hmac) -> Option<Self> {
        let picked = match Algorithm::of_digest(key.digest()) {
            Some(algorithm) => select::pick(algorithm, backend)?,
            // The other digests have one candidate.
            None => Picked::FIRST,
        };
        Self::make(picked, |index| (MACS[index].make)(key))
    }
}
