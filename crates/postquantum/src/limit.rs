//! A token bucket for offers.

use std::time::{Duration, Instant};

/// Time in which one more offer is allowed.
const SPACING: Duration = Duration::from_secs(5);
/// Offers at once.
const BURST: u32 = 3;

/// Offers of one peer, in one direction. The bucket is full at first.
#[derive(Debug, Default)]
pub(crate) struct Limit {
    /// When the bucket is full again.
    full: Option<Instant>,
}

impl Limit {
    /// Takes a token, or says when there is one.
    pub(crate) fn take(&mut self, now: Instant) -> Result<(), Instant> {
        let full = self.full.filter(|at| *at > now).unwrap_or(now);
        let empty = now + SPACING * (BURST - 1);
        if full > empty {
            return Err(now + full.saturating_duration_since(empty));
        }
        self.full = Some(full + SPACING);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_at_once_then_one_in_five_seconds() {
        let start = Instant::now();
        let mut limit = Limit::default();
        for _ in 0..3 {
            assert_eq!(limit.take(start), Ok(()));
        }
        let next = start + SPACING;
        assert_eq!(limit.take(start), Err(next));
        assert_eq!(limit.take(start + SPACING / 2), Err(next));
        assert_eq!(limit.take(next), Ok(()));
        assert_eq!(limit.take(next), Err(next + SPACING));
        let later = start + SPACING * 20;
        let taken = (0..9).filter(|_| limit.take(later).is_ok());
        assert_eq!(taken.count(), 3);
    }
}
