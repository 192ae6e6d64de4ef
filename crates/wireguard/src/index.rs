//! The indices by which peers address our handshakes and keys.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use plane::PeerId;

/// The owner of each index in use: a handshake or a key.
#[derive(Debug, Default)]
pub(crate) struct IndexTable {
    owners: HashMap<u32, PeerId>,
}

impl IndexTable {
    /// Takes an unused index for `owner` from `draw`, which is random so that an index tells nothing about others.
    pub(crate) fn assign(&mut self, owner: PeerId, mut draw: impl FnMut() -> u32) -> u32 {
        // A million peers have four indices each at most, so a draw is free with a probability beyond 0.999.
        loop {
            if let Entry::Vacant(entry) = self.owners.entry(draw()) {
                let index = *entry.key();
                entry.insert(owner);
                return index;
            }
        }
    }

    pub(crate) fn owner(&self, index: u32) -> Option<PeerId> {
        self.owners.get(&index).copied()
    }

    pub(crate) fn release(&mut self, index: u32) {
        self.owners.remove(&index);
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.owners.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drawn_index_that_is_taken_is_drawn_again() {
        let mut table = IndexTable::default();
        let mut draws = [7, 7, 7, 9].into_iter();
        assert_eq!(table.assign(PeerId(1), || draws.next().unwrap()), 7);
        assert_eq!(table.assign(PeerId(2), || draws.next().unwrap()), 9);
        assert_eq!(table.owner(7), Some(PeerId(1)));
        table.release(7);
        assert_eq!((table.owner(7), table.len()), (None, 1));
    }
}
