//! Keeps the ids to acknowledge, and those acknowledged lately.

use crate::packet::AckList;

/// Acknowledgements that are due, and the latest ones sent, which are repeated as long as there is room: an
/// acknowledgement that is lost costs the peer a timeout, and repeating it costs four bytes.
#[derive(Clone, Debug, Default)]
pub struct Acks {
    /// The acknowledgements that are due, the oldest first.
    due: AckList,
    /// The ids sent last, in the order of the latest packet.
    recent: AckList,
}

impl Acks {
    /// Nothing to acknowledge.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes that `id` came. If eight are due it is left out: the peer will send its message again.
    pub fn push(&mut self, id: u32) {
        if !self.due.as_slice().contains(&id) {
            self.due.push(id);
        }
    }

    /// Whether any are due.
    #[must_use]
    pub fn is_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// The ids for the next packet: those that are due, oldest first, then others sent lately, at most `most` in all.
    /// [`AckList::MAX_WITH_MESSAGE`] for a packet with a message, [`AckList::MAX`] for one without; to a peer without a
    /// wrap and without the exporter, never more than the former (SoftEther drops such packets).
    ///
    /// Ids that do not fit stay due.
    pub fn take(&mut self, most: usize) -> AckList {
        let due = self.due.as_slice();
        let (now, later) = due.split_at(most.min(due.len()));
        let repeated = self.recent.as_slice().iter().filter(|id| !now.contains(id));
        let recent: AckList = now.iter().chain(repeated).copied().collect();
        let later = later.iter().copied().collect();
        self.recent = recent;
        self.due = later;
        self.recent.as_slice().iter().take(most).copied().collect()
    }

    /// Bytes that acknowledgements take in a packet with a message, if it is sent now.
    #[must_use]
    pub fn wire_len(&self) -> usize {
        let count = self.due.as_slice().len() + self.recent.as_slice().len();
        (0..count.min(AckList::MAX_WITH_MESSAGE) as u32)
            .collect::<AckList>()
            .wire_len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latest_are_repeated() {
        let mut acks = Acks::new();
        assert!(acks.take(4).is_empty());
        for (id, expected) in [
            (0, &[0][..]),
            (1, &[1, 0]),
            (2, &[2, 1, 0]),
            (3, &[3, 2, 1, 0]),
            (4, &[4, 3, 2, 1]),
        ] {
            acks.push(id);
            assert!(acks.is_due());
            assert_eq!(acks.take(4).as_slice(), expected);
            assert!(!acks.is_due());
        }
        assert_eq!(acks.take(8).as_slice(), [4, 3, 2, 1, 0]);
    }

    #[test]
    fn one_that_comes_again_comes_to_the_front() {
        let mut acks = Acks::new();
        (0..3).for_each(|id| acks.push(id));
        assert_eq!(acks.take(4).as_slice(), [0, 1, 2]);
        acks.push(2);
        acks.push(2);
        assert_eq!(acks.take(4).as_slice(), [2, 0, 1]);
    }

    #[test]
    fn what_does_not_fit_stays_due() {
        let mut acks = Acks::new();
        (0..20).for_each(|id| acks.push(id));
        assert_eq!(acks.take(4).as_slice(), [0, 1, 2, 3]);
        assert!(acks.is_due());
        assert_eq!(acks.take(4).as_slice(), [4, 5, 6, 7]);
        assert!(!acks.is_due());
        assert_eq!(acks.take(8).as_slice(), [4, 5, 6, 7, 0, 1, 2, 3]);
        assert_eq!(acks.wire_len(), 1 + 4 * 4 + 8);
        assert_eq!(Acks::new().wire_len(), 1);
    }
}
