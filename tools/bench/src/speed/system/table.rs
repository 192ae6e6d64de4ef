//! The results beside the paper's, as a table or as JSON.

use std::env::consts::ARCH;
use std::fmt::Write as _;
use std::io::{self, Write};

use serde::Serialize;

use super::Test;

/// Headings of the columns with published times.
const COLUMNS: [&str; 4] = ["R7800 vendor", "R7800 tuned", "RBK50 vendor", "RBK50 tuned"];

/// Explains the figures and their limits.
const MEANING: &str = "\
Seconds of processor time of one thread, the best of the runs, for this build of Millrace. Beside them the times of
Software & Systems 4/2020, pp. 605-612, and how many times as fast this is: NETGEAR R7800 (IPQ8065, Krait at 1.7 GHz)
and Orbi RBK50 (IPQ4019, Cortex-A7 at 710 MHz), with the vendor's build, and with options that fit the processor.
What programs the article ran is not known for certain: pi and e are here what the widely known ones for so many
digits do.

pi and e divide at every step by a number that the compiler cannot know. ARMv7 has an instruction for that in
Cortex-A7, Cortex-A15 and Krait and none in Cortex-A9; a build for all of ARMv7 calls a routine instead, and here it
shows. Times differ with the processor, its clock and the program's options together: to judge only options, compare
two builds on one router, or count instructions (docs/benchmarks/arm-flags.md). There is no floating point and no cipher in it.

memory writes 16 MiB, copies them with a change and reads the copy, ten times. What the article's test of memory does
is not known: its times stand here for completeness and are no comparison.
";

/// The result of one test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Row {
    pub test: Test,
    /// Seconds of the best run.
    pub seconds: f64,
    pub runs: usize,
}

/// A line of `--json`.
#[derive(Serialize)]
struct Line {
    test: &'static str,
    seconds: f64,
    runs: usize,
    target: &'static str,
    /// Whether the published seconds are, as far as known, for the same work.
    comparable: bool,
    ipq8065_vendor_seconds: f64,
    ipq8065_tuned_seconds: f64,
    ipq4019_vendor_seconds: f64,
    ipq4019_tuned_seconds: f64,
}

impl Row {
    /// Writes the row as a line of JSON.
    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let [krait, krait_tuned, a7, a7_tuned] = self.test.published();
        let line = Line {
            test: self.test.name(),
            // The clock is no more precise than a millionth of a second.
            seconds: (self.seconds * 1e6).round() / 1e6,
            runs: self.runs,
            target: ARCH,
            comparable: self.test.is_comparable(),
            ipq8065_vendor_seconds: krait,
            ipq8065_tuned_seconds: krait_tuned,
            ipq4019_vendor_seconds: a7,
            ipq4019_tuned_seconds: a7_tuned,
        };
        serde_json::to_writer(&mut *out, &line)?;
        writeln!(out)
    }
}

/// Formats all rows as a table.
pub(super) fn show(rows: &[Row]) -> String {
    let mut text = format!("{:<24}{:>10}", "", "here");
    for column in COLUMNS {
        let _ = write!(text, "{column:>17}");
    }
    text.push('\n');
    for row in rows {
        let _ = write!(text, "{:<24}{:>8.3} s", row.test.title(), row.seconds);
        for published in row.test.published() {
            let ratio = match row.test.is_comparable() {
                // Avoids a division by zero.
                true => format!("{:.1}x", published / row.seconds.max(1e-6)),
                false => String::new(),
            };
            let _ = write!(text, "{published:>8.2} s{ratio:>7}");
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    format!("{text}\n{MEANING}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: [Row; 2] = [
        Row {
            test: Test::Memory,
            seconds: 0.0123,
            runs: 3,
        },
        Row {
            test: Test::Pi,
            seconds: 0.15,
            runs: 3,
        },
    ];

    #[test]
    fn the_papers_times_stand_beside_and_memory_is_not_compared() {
        let text = show(&ROWS);
        let expected = "                              here     R7800 vendor      R7800 tuned     RBK50 vendor      RBK50 tuned
memory, 2 x 16 MiB x 10    0.012 s    0.49 s           0.43 s           1.94 s           1.63 s
pi, 2400 digits x 10       0.150 s    2.88 s  19.2x    1.50 s  10.0x    3.61 s  24.1x    3.12 s  20.8x
";
        assert!(text.starts_with(expected), "\n{text}");
        assert!(text.ends_with(MEANING));
    }

    #[test]
    fn a_line_says_what_it_is_of_and_whether_it_compares() {
        let mut text = Vec::new();
        for row in ROWS {
            row.write(&mut text).unwrap();
        }
        let expected = format!(
            "{{\"test\":\"memory\",\"seconds\":0.0123,\"runs\":3,\"target\":\"{ARCH}\",\"comparable\":false,\
             \"ipq8065_vendor_seconds\":0.49,\"ipq8065_tuned_seconds\":0.43,\"ipq4019_vendor_seconds\":1.94,\
             \"ipq4019_tuned_seconds\":1.63}}\n\
             {{\"test\":\"pi\",\"seconds\":0.15,\"runs\":3,\"target\":\"{ARCH}\",\"comparable\":true,\
             \"ipq8065_vendor_seconds\":2.88,\"ipq8065_tuned_seconds\":1.5,\"ipq4019_vendor_seconds\":3.61,\
             \"ipq4019_tuned_seconds\":3.12}}\n"
        );
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }
}
