//! A set of lines.

use crate::{LINES_MAX, LineId};

/// A set of lines on which a packet is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineSet(u16);
const _: () = assert!(LINES_MAX <= u16::BITS as usize);

impl LineSet {
    /// The empty set.
    pub const EMPTY: Self = Self(0);

    /// A set of this line only.
    #[must_use]
    pub const fn of(line: LineId) -> Self {
        Self::EMPTY.with(line)
    }

    /// Returns the set with `line` added.
    #[must_use]
    pub const fn with(self, line: LineId) -> Self {
        if line.index() < LINES_MAX {
            Self(self.0 | 1 << line.0)
        } else {
            self
        }
    }

    /// Whether the set contains the line.
    #[must_use]
    pub const fn contains(self, line: LineId) -> bool {
        line.index() < LINES_MAX && self.0 & 1 << line.0 != 0
    }

    /// The number of lines in the set.
    #[must_use]
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The line with the lowest number.
    #[must_use]
    pub fn first(self) -> Option<LineId> {
        (!self.is_empty()).then(|| LineId(self.0.trailing_zeros() as u8))
    }
}

impl Iterator for LineSet {
    type Item = LineId;

    fn next(&mut self) -> Option<LineId> {
        let first = self.first()?;
        self.0 &= self.0 - 1;
        Some(first)
    }
}

impl FromIterator<LineId> for LineSet {
    fn from_iter<I: IntoIterator<Item = LineId>>(lines: I) -> Self {
        lines.into_iter().fold(Self::EMPTY, Self::with)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_in() {
        let lines = [LineId(0), LineId(3), LineId(15)];
        let set: LineSet = lines.into_iter().collect();
        assert_eq!((set.len(), set.first()), (3, Some(LineId(0))));
        assert!(set.contains(LineId(3)) && !set.contains(LineId(4)));
        assert_eq!(set.collect::<Vec<_>>(), lines);
        assert_eq!(LineSet::EMPTY.with(LineId(16)), LineSet::EMPTY);
        assert!(!LineSet::EMPTY.contains(LineId(200)));
    }
}
