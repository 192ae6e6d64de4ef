//! The trail of one line: samples of the numbers that it had delivered at earlier times.

/// Number of samples in a trail.
const PLACES: usize = 64;

/// Numbers in ascending order, each with the time when it came, at least `step` apart in time.
#[derive(Clone, Debug)]
struct Track {
    step: u64,
    places: [(u64, u64); PLACES],
    /// The number of entries put in so far.
    count: usize,
}

impl Track {
    const fn new(step: u64) -> Self {
        Self {
            step,
            places: [(0, 0); PLACES],
            count: 0,
        }
    }

    fn push(&mut self, number: u64, at: u64) {
        if let Some((_, last)) = self.newest()
            && at < last + self.step
        {
            return;
        }
        self.places[self.count % PLACES] = (number, at);
        self.count += 1;
    }

    fn newest(&self) -> Option<(u64, u64)> {
        let last = self.count.checked_sub(1)?;
        Some(self.places[last % PLACES])
    }

    fn oldest(&self) -> Option<(u64, u64)> {
        let first = self.count.saturating_sub(PLACES);
        (first < self.count).then(|| self.places[first % PLACES])
    }

    /// When this number or a greater one came first: the latest time that is possible.
    fn first_from(&self, number: u64) -> Option<u64> {
        self.search(number)
            .map(|(_, at)| self.places[at % PLACES].1)
    }

    /// When this number or a greater one came first, if numbers come at an even rate. Numbers between two entries came
    /// within a step of the former.
    fn estimate_from(&self, number: u64) -> Option<u64> {
        let (first, low) = self.search(number)?;
        let (next, at) = self.places[low % PLACES];
        if low == first || next == number {
            return Some(at);
        }
        let (last, from) = self.places[(low - 1) % PLACES];
        let until = at.min(from + self.step);
        let part = u128::from(until - from) * u128::from(number - last) / u128::from(next - last);
        Some(from + part as u64)
    }

    /// The greatest number that had come by this time; `None` if the trail does not reach back so far.
    fn number_at(&self, at: u64) -> Option<u64> {
        let first = self.count.saturating_sub(PLACES);
        let (mut low, mut high) = (first, self.count);
        while low < high {
            let middle = low.midpoint(high);
            if self.places[middle % PLACES].1 <= at {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        (low > first).then(|| self.places[(low - 1) % PLACES].0)
    }

    /// The index of the oldest entry, and of the first with this number or a greater one.
    fn search(&self, number: u64) -> Option<(usize, usize)> {
        let first = self.count.saturating_sub(PLACES);
        let (mut low, mut high) = (first, self.count);
        let end = high;
        while low < high {
            let middle = low.midpoint(high);
            if self.places[middle % PLACES].0 < number {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        (low < end).then_some((first, low))
    }
}

/// The times at which a line had delivered its numbers: exact for the last, within a quarter of a millisecond for a
/// while back. For more than a second back they are within a few milliseconds at an even rate, 20 ms at any.
#[derive(Clone, Debug)]
pub(super) struct Trail {
    greatest: Option<(u64, u64)>,
    fine: Track,
    coarse: Track,
}

impl Trail {
    pub(super) const fn new() -> Self {
        Self {
            greatest: None,
            fine: Track::new(250),
            coarse: Track::new(20_000),
        }
    }

    /// Records that the line has delivered this number, at this time in microseconds.
    pub(super) fn push(&mut self, number: u64, at: u64) {
        if self
            .greatest
            .is_some_and(|(greatest, _)| number <= greatest)
        {
            return;
        }
        self.greatest = Some((number, at));
        self.fine.push(number, at);
        self.coarse.push(number, at);
    }

    /// The greatest number that the line had delivered by this time, or a slightly smaller one; `None` if unknown.
    #[inline]
    pub(super) fn number_at(&self, at: u64) -> Option<u64> {
        match self.greatest {
            Some((greatest, since)) if since <= at => Some(greatest),
            _ => self
                .fine
                .number_at(at)
                .or_else(|| self.coarse.number_at(at)),
        }
    }

    /// When the line first delivered this number or a greater one; `None` if it has not.
    #[inline]
    pub(super) fn first_from(&self, number: u64) -> Option<u64> {
        let (greatest, at) = self.greatest?;
        if greatest < number {
            return None;
        }
        let covered = self
            .fine
            .oldest()
            .is_some_and(|(oldest, _)| oldest < number || self.fine.count <= PLACES);
        let found = if covered {
            self.fine.first_from(number)
        } else {
            self.coarse.estimate_from(number)
        };
        Some(found.unwrap_or(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_time_of_a_number_is_found_again() {
        let mut trail = Trail::new();
        assert_eq!(trail.first_from(0), None);
        for number in 0..2000_u64 {
            trail.push(number, number * 1000);
        }
        assert_eq!(trail.first_from(2000), None);
        assert_eq!(trail.first_from(1999), Some(1_999_000));
        assert_eq!(trail.first_from(1950), Some(1_950_000));
        let found = trail.first_from(1000).unwrap();
        assert!((999_000..=1_001_000).contains(&found), "{found}");
    }

    #[test]
    fn the_number_of_a_time_is_found_again() {
        let mut trail = Trail::new();
        assert_eq!(trail.number_at(1_000_000), None);
        for number in 0..2000_u64 {
            trail.push(number, 1000 + number * 1000);
        }
        assert_eq!(trail.number_at(0), None, "too long ago");
        assert_eq!(trail.number_at(1_990_500), Some(1989));
        assert_eq!(trail.number_at(9_000_000), Some(1999));
        let coarse = trail.number_at(1_500_000).unwrap();
        assert!((1479..=1499).contains(&coarse), "{coarse}");
    }

    #[test]
    fn numbers_that_go_back_change_nothing() {
        let mut trail = Trail::new();
        trail.push(5, 10_000);
        trail.push(3, 20_000);
        assert_eq!(trail.first_from(3), Some(10_000));
        assert_eq!(trail.first_from(6), None);
    }
}
