//! Shared code of the tests of candidates: numbers, and every candidate of every table that this machine has. A
//! candidate that is added to a table is tested without a change here.

pub(super) use crate::implementations::*;
pub(super) use crate::packet_aead::AeadAlgorithm;
pub(super) use crate::{Digest, TAG_LEN};

/// Pseudo-random numbers, the same for the same seed.
pub(super) struct Numbers(pub(super) u64);

impl Numbers {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number less than `end`.
    pub(super) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub(super) fn fill(&mut self, bytes: &mut [u8]) {
        for bytes in bytes.chunks_mut(8) {
            bytes.copy_from_slice(&self.next().to_le_bytes()[..bytes.len()]);
        }
    }
}

/// A candidate's name, with a key.
pub(super) type Named<K> = (&'static str, Box<K>);

pub(super) fn aeads(algorithm: AeadAlgorithm, key: &[u8]) -> Vec<Named<dyn AeadImplementation>> {
    let with_key = |of: &Candidate<MakeAead>| Some((of.name, (of.make)(algorithm, key)?));
    AEADS.iter().filter_map(with_key).collect()
}

pub(super) fn cbcs(key: &[u8]) -> Vec<Named<dyn CbcImplementation>> {
    let with_key = |of: &Candidate<table::MakeCbc>| Some((of.name, (of.make)(key)?));
    CBCS.iter().filter_map(with_key).collect()
}

pub(super) fn macs(digest: Digest, key: &[u8]) -> Vec<Named<dyn MacImplementation>> {
    let Some(key) = Hmac::new(digest, key) else {
        return Vec::new();
    };
    let with_key = |of: &Candidate<MakeMac>| Some((of.name, (of.make)(&key)?));
    MACS.iter().filter_map(with_key).collect()
}
