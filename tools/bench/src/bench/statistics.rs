//! Statistics for a handful of repetitions.

use std::fmt::Write as _;

/// The minimum, median and maximum of some values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub min: f64,
    pub median: f64,
    pub max: f64,
}

impl Spread {
    /// Returns the spread; `None` without values.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|v| v.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let (&min, &max) = (values.first()?, values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            f64::midpoint(values[middle - 1], values[middle])
        };
        Some(Self { min, median, max })
    }

    /// Formats as `median (min–max)`, or as the only value, with `suffix` after the median.
    pub(crate) fn show(&self, suffix: &str) -> String {
        let mut text = format!("{}{suffix}", number(self.median));
        if self.min < self.max {
            let _ = write!(text, " ({}–{})", number(self.min), number(self.max));
        }
        text
    }
}

/// Formats a number with about three significant digits.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Values by repetition.
pub(crate) type Series = Vec<(u32, f64)>;

/// The ratio of `ours` to `theirs` in each repetition, so that a noisy minute for both cancels out. Repetitions in
/// which either is missing or zero are left out.
pub(crate) fn ratios(ours: &Series, theirs: &Series) -> Vec<f64> {
    let reference = |repetition| {
        let found = theirs.iter().find(|(number, _)| *number == repetition);
        found.map(|(_, value)| *value).filter(|value| *value > 0.0)
    };
    ours.iter()
        .filter_map(|(repetition, value)| Some(value / reference(*repetition)?))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_numbers() {
        let odd = Spread::of([3.0, 1.0, 2.0]).unwrap();
        assert_eq!((odd.min, odd.median, odd.max), (1.0, 2.0, 3.0));
        assert_eq!(Spread::of([4.0, 1.0]).unwrap().median, 2.5);
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([f64::NAN]), None);
        assert_eq!(Spread::of([7.0]).unwrap().show("x"), "7.00x");
        assert_eq!(odd.show(""), "2.00 (1.00–3.00)");
    }

    #[test]
    fn ratios_pair_what_was_measured_in_the_same_repetition() {
        let ours = vec![(0, 200.0), (1, 100.0), (2, 50.0), (3, 1.0)];
        let theirs = vec![(2, 100.0), (0, 100.0), (1, 50.0), (3, 0.0)];
        assert_eq!(ratios(&ours, &theirs), [2.0, 2.0, 0.5]);
        assert!(ratios(&ours, &Vec::new()).is_empty());
    }

    #[test]
    fn numbers_have_three_digits_that_count() {
        for (value, text) in [
            (0.0, "0.00"),
            (1.234, "1.23"),
            (12.345, "12.3"),
            (99.96, "100"),
            (23_456.7, "23457"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}
