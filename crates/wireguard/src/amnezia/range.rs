//! Ranges of values from which each use draws one.

use core::fmt;
use core::str::FromStr;

use crypto::unpredictable;

use super::Fault;

/// A range of values, both ends included. As text it is `n` or `a-b`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range<T> {
    /// The least value.
    pub lo: T,
    /// The greatest value, at least `lo`.
    pub hi: T,
}

impl Range<u16> {
    /// The range; `default` alone if it is 0, which stands for WireGuard's value.
    pub(super) fn or_default(self, default: u16) -> Range<u32> {
        let Self { lo, hi } = match self {
            Self { lo: 0, hi: 0 } => Self::one(default),
            set => set,
        };
        Range {
            lo: lo.into(),
            hi: hi.into(),
        }
    }
}

impl<T: Copy + PartialOrd> Range<T> {
    /// The range that holds one value.
    #[must_use]
    pub const fn one(value: T) -> Self {
        Self {
            lo: value,
            hi: value,
        }
    }

    /// Whether the range holds `value`.
    #[inline]
    pub fn contains(&self, value: T) -> bool {
        self.lo <= value && value <= self.hi
    }

    /// Whether the two ranges have a value in common.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.lo <= other.hi && other.lo <= self.hi
    }
}

impl<T: Copy + Into<u32>> Range<T> {
    /// Number of values.
    pub fn width(&self) -> u64 {
        let (lo, hi): (u32, u32) = (self.lo.into(), self.hi.into());
        u64::from(hi - lo) + 1
    }

    /// A random value of the range.
    #[must_use]
    pub fn draw(&self) -> u32 {
        unpredictable(|fill| self.draw_with(fill))
    }

    /// A random value of the range, from the generator that fills slices.
    #[inline]
    pub(crate) fn draw_with(&self, fill: &mut dyn FnMut(&mut [u8])) -> u32 {
        let (lo, width) = (self.lo.into(), self.width());
        if width == 1 {
            return lo;
        }
        let mut bytes = [0; 4];
        fill(&mut bytes);
        // The product is below 2^64, and its upper half below `width`.
        lo + ((u64::from(u32::from_le_bytes(bytes)) * width) >> 32) as u32
    }
}

impl<T: TryFrom<u64> + PartialOrd + Copy> FromStr for Range<T> {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        let (lo, hi) = text.split_once('-').unwrap_or((text, text));
        let (lo, hi) = (
            decimal(lo).ok_or(Fault::Range)?,
            decimal(hi).ok_or(Fault::Range)?,
        );
        match lo <= hi {
            true => Ok(Self { lo, hi }),
            false => Err(Fault::Backwards),
        }
    }
}

/// Parses a decimal number. White space around it and nothing else is accepted.
pub(super) fn decimal<T: TryFrom<u64>>(text: &str) -> Option<T> {
    let text = text.trim();
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let value: u64 = digits.then(|| text.parse().ok()).flatten()?;
    T::try_from(value).ok()
}

impl<T: fmt::Display + PartialEq> fmt::Display for Range<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.lo == self.hi {
            true => self.lo.fmt(f),
            false => write!(f, "{}-{}", self.lo, self.hi),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_range_is_refused() {
        for text in [
            "", "-", "1-", "-1", "a", "1-2-3", "+1", "3-70000", "65536", "0x10", "1 2",
        ] {
            assert_eq!(text.parse::<Range<u16>>(), Err(Fault::Range), "{text}");
        }
        assert_eq!("5-4".parse::<Range<u16>>(), Err(Fault::Backwards));
        assert_eq!("3 - 7".parse::<Range<u16>>(), Ok(Range { lo: 3, hi: 7 }));
    }

    proptest! {
        #[test]
        fn a_range_reads_back_and_draws_its_own_values(a: u32, b: u32) {
            let range = Range { lo: a.min(b), hi: a.max(b) };
            prop_assert_eq!(range.to_string().parse(), Ok(range));
            for byte in [0, 0x7f, 0xff] {
                prop_assert!(range.contains(range.draw_with(&mut |bytes| bytes.fill(byte))));
            }
        }
    }

    #[test]
    fn both_ends_are_drawn() {
        let range = Range { lo: 10_u32, hi: 13 };
        assert_eq!(range.draw_with(&mut |bytes| bytes.fill(0)), 10);
        assert_eq!(range.draw_with(&mut |bytes| bytes.fill(0xff)), 13);
        let all = Range {
            lo: 0,
            hi: u32::MAX,
        };
        assert_eq!(all.draw_with(&mut |bytes| bytes.fill(0xff)), u32::MAX);
    }
}
