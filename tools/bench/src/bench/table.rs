//! Markdown tables that are also readable in a terminal.

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
}
