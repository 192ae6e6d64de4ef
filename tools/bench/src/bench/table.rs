//! Markdown tables that are also readable in a terminal, and the figures in them: statistics for a handful of
//! repetitions.

use std::fmt::Write as _;

/// A table. The first column holds names; the others hold figures, aligned to the right, or words.
#[derive(Debug, Clone, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    words: bool,
}

impl Table {
    /// Makes a table of figures with these headings.
    pub(crate) fn new<S: Into<String>>(headings: impl IntoIterator<Item = S>) -> Self {
        let mut table = Self::default();
        table.row(headings);
        table
    }

    /// Makes a table of words with these headings.
    pub(crate) fn of_words<S: Into<String>>(headings: impl IntoIterator<Item = S>) -> Self {
        let mut table = Self::new(headings);
        table.words = true;
        table
    }

    /// Adds a row.
    pub(crate) fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Whether the table has no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.len() < 2
    }

    /// Formats the table with aligned columns.
    pub(crate) fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let cell = |row: &Vec<String>, column| row.get(column).cloned().unwrap_or_default();
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                let cells = self.rows.iter().map(|row| cell(row, column));
                cells
                    .map(|text| text.chars().count())
                    .max()
                    .unwrap_or(0)
                    .max(3)
            })
            .collect();
        let mut text = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            for (column, &width) in widths.iter().enumerate() {
                let cell = cell(row, column);
                text += &match column {
                    0 => format!("| {cell:<width$} "),
                    _ if self.words => format!("| {cell:<width$} "),
                    _ => format!("| {cell:>width$} "),
                };
            }
            text += "|\n";
            if number == 0 {
                for (column, &width) in widths.iter().enumerate() {
                    let dashes = "-".repeat(width);
                    text += &match column {
                        0 => format!("| {dashes} "),
                        _ if self.words => format!("| {dashes} "),
                        // In Markdown this colon aligns the column to the right.
                        _ => format!("| {}: ", &dashes[1..]),
                    };
                }
                text += "|\n";
            }
        }
        text
    }
}

/// The targets, the measured values, and whether they suffice.
#[derive(Debug, Default)]
pub(crate) struct Verdicts(Vec<[String; 4]>);

impl Verdicts {
    /// Adds a target of at least `wanted`.
    pub(crate) fn at_least(&mut self, what: String, wanted: f64, value: f64) {
        let words = format!(">= {}", number(wanted));
        self.row(what, words, value, value >= wanted);
    }

    /// Adds a target of at most `wanted`.
    pub(crate) fn at_most(&mut self, what: String, wanted: f64, value: f64) {
        let words = format!("<= {}", number(wanted));
        self.row(what, words, value, value <= wanted);
    }

    /// Adds a target: its name, the limit in words, the measured value, and whether it suffices.
    pub(crate) fn row(&mut self, what: String, wanted: String, value: f64, met: bool) {
        let verdict = if met { "PASS" } else { "short" };
        self.0
            .push([what, wanted, number(value), verdict.to_owned()]);
    }

    /// Formats the table of all targets.
    pub(crate) fn render(&self) -> String {
        let mut table = Table::of_words(["target", "wanted", "measured", "verdict"]);
        for row in &self.0 {
            table.row(row);
        }
        table.render()
    }
}

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
    fn columns_are_aligned_by_characters() {
        let mut table = Table::new(["who", "1–2"]);
        assert!(table.is_empty());
        table.row(["millrace", "10 (9–11)"]);
        table.row(["x"]);
        let expected = "\
| who      |       1–2 |
| -------- | --------: |
| millrace | 10 (9–11) |
| x        |           |
";
        assert_eq!(table.render(), expected);
        let mut table = Table::of_words(["tool", "here"]);
        table.row(["wg", "/usr/bin/wg"]);
        assert!(
            table
                .render()
                .ends_with("| ---- | ----------- |\n| wg   | /usr/bin/wg |\n")
        );
    }

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
