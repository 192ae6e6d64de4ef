//! Shows the results of the contenders side by side.

use std::fmt::Write as _;
use std::time::Duration;

use crate::bench::table::{Table, number};

/// A size of file to download.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub name: &'static str,
    pub bytes: u64,
}

/// A page, a picture, an update. Processor time is compared for the last one.
pub(super) const SIZES: [Size; 3] = [
    Size {
        name: "10 kB",
        bytes: 10_000,
    },
    Size {
        name: "200 kB",
        bytes: 200_000,
    },
    Size {
        name: "10 MB",
        bytes: 10_000_000,
    },
];

/// The downloads of one size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Download {
    pub bits_per_second: f64,
    pub requests_per_second: f64,
    /// Processor seconds per gigabyte at the branch and the office.
    pub cpu: Option<[f64; 2]>,
}

/// The results of one contender.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Outcome {
    pub name: &'static str,
    /// One entry for each size, in the order of [`SIZES`].
    pub downloads: Vec<Download>,
    pub ping: Duration,
    /// Memory in RAM of the branch's and the office's program, in bytes.
    pub rss: Option<[u64; 2]>,
}

impl Outcome {
    /// Makes an outcome without results yet.
    pub(super) fn of(name: &'static str) -> Self {
        Self {
            name,
            downloads: Vec::new(),
            ping: Duration::ZERO,
            rss: None,
        }
    }
}

/// The table, with a column for each contender so that it fits a terminal.
pub(super) fn table(outcomes: &[Outcome]) -> Table {
    let names = outcomes.iter().map(|outcome| outcome.name);
    let mut table = Table::new(std::iter::once("").chain(names));
    let mut row = |name: String, figure: &dyn Fn(&Outcome) -> Option<f64>| {
        let cells = outcomes
            .iter()
            .map(|outcome| figure(outcome).map_or_else(|| "–".to_owned(), number));
        table.row(std::iter::once(name).chain(cells));
    };
    for (place, size) in SIZES.iter().enumerate() {
        row(format!("files of {}: Mbit/s", size.name), &|outcome| {
            Some(outcome.downloads.get(place)?.bits_per_second / 1e6)
        });
        row(format!("files of {}: requests/s", size.name), &|outcome| {
            Some(outcome.downloads.get(place)?.requests_per_second)
        });
    }
    for (place, end) in ["branch", "office"].iter().enumerate() {
        row(format!("tunnel at the {end}: CPU s/GB"), &|outcome| {
            Some(outcome.downloads.last()?.cpu?[place])
        });
    }
    for (place, end) in ["branch", "office"].iter().enumerate() {
        row(format!("tunnel at the {end}: RSS, MB"), &|outcome| {
            Some(outcome.rss?[place] as f64 / 1e6)
        });
    }
    row("ping: mean, us".to_owned(), &|outcome| {
        Some(outcome.ping.as_secs_f64() * 1e6)
    });
    table
}

/// The limits of a table's figures, in lines that stand above it.
pub(super) fn caveats() -> String {
    let mut text = "One machine carried both routers, the web server, the device and the uplink:\n\
                    only the ratios hold elsewhere. One short run is rough: see `millrace bench`.\n"
        .to_owned();
    if cfg!(debug_assertions) {
        text += "THIS IS A DEBUG BUILD: the figures of millrace are meaningless.\n";
    }
    // `make demo` sets it.
    if option_env!("MILLRACE_PROFILE") == Some("demo") {
        text += "This millrace was compiled quickly: a release needs less processor time,\n\
                 and about 40 % less memory.\n";
    }
    text
}

/// Explains the rows of the tables.
pub(super) fn words() -> String {
    format!(
        "Files were downloaded over 8 reused connections, and every byte was checked. CPU\ns/GB is the processor time \
         (user and system) of the tunnel's process at each end\nper 1e9 bytes, with files of {}.\n",
        SIZES[SIZES.len() - 1].name
    )
}

/// Compares Millrace with its rival in one sentence; empty without a rival.
pub(super) fn compared(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    let [_, ours, theirs] = outcomes else {
        return text;
    };
    let (Some(a), Some(b)) = (ours.downloads.last(), theirs.downloads.last()) else {
        return text;
    };
    let _ = write!(
        text,
        "Big files: {} was {} times as fast as {}",
        ours.name,
        number(a.bits_per_second / b.bits_per_second.max(1.0)),
        theirs.name
    );
    if let (Some([a0, a1]), Some([b0, b1])) = (a.cpu, b.cpu) {
        let share = (a0 + a1) / (b0 + b1).max(1e-9);
        let _ = write!(
            text,
            ",\nwith {} times its processor time per byte",
            number(share)
        );
    }
    text + ".\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(name: &'static str, rate: f64, cpu: Option<[f64; 2]>) -> Outcome {
        Outcome {
            downloads: vec![
                Download {
                    bits_per_second: rate,
                    requests_per_second: rate / 1e6,
                    cpu,
                };
                SIZES.len()
            ],
            ping: Duration::from_micros(123),
            rss: cpu.map(|_| [6_000_000, 7_000_000]),
            ..Outcome::of(name)
        }
    }

    #[test]
    fn the_table_has_a_column_for_each_way() {
        let outcomes = [
            outcome("direct", 1e10, None),
            outcome("millrace", 4e9, Some([1.0, 1.0])),
            outcome("wireguard-go", 2e9, Some([3.0, 5.0])),
        ];
        let text = table(&outcomes).render();
        let row = |name: &str| {
            let line = text.lines().find(|line| line.contains(name)).unwrap();
            let cells = line.split('|').skip(2).map(str::trim);
            cells.filter(|cell| !cell.is_empty()).collect::<Vec<_>>()
        };
        assert_eq!(row("direct"), ["direct", "millrace", "wireguard-go"]);
        assert_eq!(row("10 MB: Mbit/s"), ["10000", "4000", "2000"]);
        assert_eq!(row("office: CPU"), ["–", "1.00", "5.00"]);
        assert_eq!(row("branch: RSS"), ["–", "6.00", "6.00"]);
        assert_eq!(row("ping"), ["123", "123", "123"]);
        let width = text.lines().next().unwrap().chars().count();
        assert!(width <= 80 && text.lines().all(|line| line.chars().count() == width));
        let said = compared(&outcomes);
        assert!(said.contains("millrace was 2.00 times as fast as wireguard-go,\nwith 0.25 times"));
    }

    #[test]
    fn without_a_rival_nothing_is_compared() {
        let outcomes = [
            outcome("direct", 1e10, None),
            outcome("millrace", 4e9, Some([1.0, 1.0])),
        ];
        assert_eq!(compared(&outcomes), "");
    }
}
