//! The tables, in the layout of `openssl speed`.

use std::fmt::Write as _;

use crypto::Backend;
use crypto::primitives::{Algorithm, Operation};
use crypto::select::Choice;

use super::figure::{By, Figure};

/// The references for ratios; each by its block with the fewest packets at a time.
const REFERENCES: [(By, &str); 2] = [
    (By::Millrace(Backend::Portable), "x portable"),
    (By::OpenSsl, "x openssl"),
];

/// Sizes with ratios: a voice packet and a full packet, or the nearest measured sizes.
const RATIO_BYTES: [usize; 2] = [64, 1408];

/// All results, for readers.
pub(super) fn tables(figures: &[Figure]) -> String {
    let mut text = String::new();
    bulk(&mut text, figures);
    public_keys(&mut text, figures);
    tunnels(&mut text, figures, true);
    text
}

/// The table of `--quick`: the figures that matter to a tunnel, in 80 columns.
pub(super) fn first_look(figures: &[Figure]) -> String {
    let mut text = String::new();
    tunnels(&mut text, figures, false);
    text.trim_start().to_owned()
}

fn bulk(text: &mut String, figures: &[Figure]) {
    let bulk: Vec<&Figure> = figures.iter().filter(|one| one.bytes != 0).collect();
    if bulk.is_empty() {
        return;
    }
    *text += "The 'numbers' are in 1000s of bytes per second processed.\n";
    let mut sizes: Vec<usize> = bulk.iter().map(|one| one.bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let mut blocks: Vec<(By, usize)> = bulk.iter().map(|one| (one.by, one.batch)).collect();
    blocks.sort_unstable();
    blocks.dedup();
    let width = bulk.iter().map(|one| row_name(one).len()).max();
    let table = Bulk {
        references: REFERENCES
            .into_iter()
            // Blocks are sorted, so the first has the fewest packets at a time.
            .filter_map(|(by, title)| Some((*blocks.iter().find(|one| one.0 == by)?, title)))
            .collect(),
        ratios: ratio_sizes(&sizes),
        width: width.unwrap_or(0).max(13),
        figures: bulk,
        sizes,
    };
    for block in blocks {
        table.block(text, block);
    }
}

/// The measured sizes nearest to [`RATIO_BYTES`].
fn ratio_sizes(sizes: &[usize]) -> Vec<usize> {
    let mut found: Vec<usize> = RATIO_BYTES
        .iter()
        .filter_map(|wanted| {
            sizes
                .iter()
                .copied()
                .min_by_key(|size| size.abs_diff(*wanted))
        })
        .collect();
    found.dedup();
    found
}

fn row_name(figure: &Figure) -> String {
    match figure.operation {
        // Hashing is the only operation, so its name is left out.
        Operation::Hash => figure.algorithm.to_string(),
        operation => format!("{} {operation}", figure.algorithm),
    }
}

/// Figures of symmetric algorithms at all message sizes.
struct Bulk<'a> {
    figures: Vec<&'a Figure>,
    sizes: Vec<usize>,
    references: Vec<((By, usize), &'static str)>,
    /// Sizes whose ratios are shown.
    ratios: Vec<usize>,
    /// Width of the first column.
    width: usize,
}

impl Bulk<'_> {
    fn find(&self, like: &Figure, by: By, batch: usize, bytes: usize) -> Option<&Figure> {
        let same = |one: &&&Figure| {
            let what = (one.algorithm, one.operation) == (like.algorithm, like.operation);
            what && (one.by, one.batch, one.bytes) == (by, batch, bytes)
        };
        self.figures.iter().find(same).copied()
    }

    /// The ratio columns of a block: the reference and the size of each. No block is compared with itself.
    fn ratio_columns(&self, block: (By, usize)) -> Vec<((By, usize), &'static str, usize)> {
        let others = self
            .references
            .iter()
            // OpenSSL is a reference only.
            .filter(|(to, _)| *to != block && block.0 != By::OpenSsl);
        others
            .flat_map(|&(to, title)| self.ratios.iter().map(move |&bytes| (to, title, bytes)))
            .collect()
    }

    fn block(&self, text: &mut String, block: (By, usize)) {
        let (by, batch) = block;
        let columns = self.ratio_columns(block);
        let packets = match batch {
            1 => "one packet at a time".to_owned(),
            _ => format!("{batch} packets at a time"),
        };
        let _ = writeln!(text, "\n{}, {packets}", by.name());
        let mut line = format!("{:<1$}", "type", self.width);
        for bytes in &self.sizes {
            let _ = write!(line, "{:>13}", format!("{bytes} bytes"));
        }
        let mut shown = "";
        for (_, title, bytes) in &columns {
            let head = format!("{bytes} B");
            if *title == shown {
                let _ = write!(line, "{head:>8}");
            } else {
                let _ = write!(line, "  {title} {head:>8}");
            }
            shown = title;
        }
        let _ = writeln!(text, "{line}");

        let mut done: Vec<(Algorithm, Operation)> = Vec::new();
        for figure in &self.figures {
            let what = (figure.algorithm, figure.operation);
            if (figure.by, figure.batch) != block || done.contains(&what) {
                continue;
            }
            done.push(what);
            let mut line = format!("{:<1$}", row_name(figure), self.width);
            for &bytes in &self.sizes {
                match self.find(figure, by, batch, bytes) {
                    Some(one) => _ = write!(line, " {:>11.2}k", one.rate / 1000.0),
                    None => _ = write!(line, "{:>13}", "-"),
                }
            }
            let mut shown = "";
            for &(reference, title, bytes) in &columns {
                if title != shown {
                    // Indent the sizes to align them behind the title.
                    let _ = write!(line, "{:1$}", "", title.len() + 3);
                }
                shown = title;
                let ours = self.find(figure, by, batch, bytes);
                let theirs = self.find(figure, reference.0, reference.1, bytes);
                let _ = write!(line, "{:>8}", ratio(ours, theirs));
            }
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }
}

/// One figure as a multiple of another; empty if one is missing.
fn ratio(ours: Option<&Figure>, theirs: Option<&Figure>) -> String {
    match (ours, theirs) {
        (Some(ours), Some(theirs)) if theirs.rate > 0.0 => {
            format!("{:.2}x", ours.rate / theirs.rate)
        }
        _ => String::new(),
    }
}

fn public_keys(text: &mut String, figures: &[Figure]) {
    let keys: Vec<&Figure> = figures.iter().filter(|one| one.bytes == 0).collect();
    let find = |algorithm, by, operation| {
        let same =
            |one: &&&Figure| (one.algorithm, one.by, one.operation) == (algorithm, by, operation);
        keys.iter().find(same).copied()
    };
    let mut agreeing = None;
    for operations in [
        &[Operation::Sign, Operation::Verify][..],
        &[Operation::Agree],
    ] {
        let mut done: Vec<(Algorithm, By)> = Vec::new();
        for figure in keys
            .iter()
            .filter(|one| operations.contains(&one.operation))
        {
            let what = (figure.algorithm, figure.by);
            if done.contains(&what) {
                continue;
            }
            done.push(what);
            let heads = match operations {
                [_, _] => ["sign", "verify", "sign/s", "verify/s"].as_slice(),
                _ => ["op", "op/s"].as_slice(),
            };
            if agreeing.replace(operations.len()) != Some(operations.len()) {
                let _ = write!(text, "\n{:22}", "");
                for head in heads {
                    let _ = write!(text, "{head:>11}");
                }
                text.push('\n');
            }
            let rates: Vec<Option<&Figure>> = operations
                .iter()
                .map(|&operation| find(what.0, what.1, operation))
                .collect();
            let name = format!("{} {}", what.0, what.1.name());
            let _ = write!(text, "{name:<22}");
            for rate in &rates {
                match rate {
                    Some(one) => _ = write!(text, "{:>10.6}s", 1.0 / one.rate),
                    None => _ = write!(text, "{:>11}", "-"),
                }
            }
            for rate in &rates {
                match rate {
                    Some(one) => _ = write!(text, "{:>11.1}", one.rate),
                    None => _ = write!(text, "{:>11}", "-"),
                }
            }
            if what.1 != By::OpenSsl {
                let ratios = operations
                    .iter()
                    .zip(&rates)
                    .filter_map(|(&operation, ours)| {
                        let theirs = find(what.0, By::OpenSsl, operation)?;
                        Some(ratio(*ours, Some(theirs)))
                    });
                let ratios: Vec<String> = ratios.collect();
                if !ratios.is_empty() {
                    let _ = write!(text, "  x openssl {}", ratios.join(" "));
                }
            }
            text.push('\n');
        }
    }
}

/// Writes the table of tunnels. `wide` adds the back ends' names, beyond column 80.
fn tunnels(text: &mut String, figures: &[Figure], wide: bool) {
    let best = |algorithm: Algorithm, operation: Operation| {
        figures
            .iter()
            .filter(|one| (one.algorithm, one.operation) == (algorithm, operation))
            .filter(|one| one.all.is_some())
            .max_by(|a, b| a.rate.total_cmp(&b.rate))
    };
    let Some(first) = figures.iter().find(|one| one.all.is_some()) else {
        return;
    };
    let threads = first.all.map_or(1, |(threads, _)| threads);
    let cores = match threads {
        1 => "1 core".to_owned(),
        _ => format!("{threads} cores"),
    };
    let packets = match first.batch {
        1 => "one at a time".to_owned(),
        batch => format!("{batch} at a time"),
    };
    let _ = writeln!(
        text,
        "\nMbit/s of payload that the ciphers would let through,{}in packets of {} bytes, {packets}, by the fastest back end",
        if wide { ' ' } else { '\n' },
        first.bytes
    );
    let _ = writeln!(
        text,
        "{:<24}{:>14}{:>14}{:>14}{:>14}{}",
        "tunnel cipher",
        "seal, 1 core",
        format!("seal, {cores}"),
        "open, 1 core",
        format!("open, {cores}"),
        if wide { "  back ends" } else { "" },
    );
    let mut done: Vec<Algorithm> = Vec::new();
    for figure in figures.iter().filter(|one| one.all.is_some()) {
        if done.contains(&figure.algorithm) {
            continue;
        }
        done.push(figure.algorithm);
        let both = [Operation::Seal, Operation::Open].map(|one| best(figure.algorithm, one));
        let mut line = format!("{:<24}", figure.algorithm.to_string());
        for one in both {
            let rates = one.and_then(|one| Some((one.rate, one.all?.1)));
            match rates {
                Some((one, all)) => {
                    let _ = write!(line, "{:>14}{:>14}", megabits(one), megabits(all));
                }
                None => _ = write!(line, "{:>14}{:>14}", "-", "-"),
            }
        }
        let mut names: Vec<&str> = both.iter().flatten().map(|one| one.by.name()).collect();
        names.dedup();
        if wide {
            let _ = write!(line, "  {}", names.join(", "));
        }
        let _ = writeln!(text, "{line}");
    }
}

/// The implementations that tunnels of this process would use.
pub(super) fn choices(choices: &[Choice]) -> String {
    let mut text = format!(
        "\n{:<24}{:<16}{:<20}{}\n",
        "tunnels here run on", "back end", "in batches", "a packet alone"
    );
    for one in choices {
        let name = one.algorithm.name();
        let _ = writeln!(
            text,
            "{name:<24}{:<16}{:<20}{}",
            one.backend.name(),
            one.many,
            one.few
        );
    }
    text
}

/// Converts bytes to megabits, with one decimal for small numbers.
fn megabits(bytes: f64) -> String {
    let value = bytes * 8.0 / 1e6;
    match value {
        _ if value < 99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_look_fits_a_screen() {
        let mut figures = Vec::new();
        for algorithm in Algorithm::ALL.into_iter().filter(|one| one.is_tunnel()) {
            for operation in [Operation::Seal, Operation::Open] {
                let mut one = figure(&algorithm.to_string(), operation, (SIMD, 32), 1408, 4e9);
                one.all = Some((16, 6.4e10));
                figures.push(one);
            }
        }
        let text = first_look(&figures);
        assert!(text.lines().count() <= 23, "{text}");
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    }

    const PORTABLE: By = By::Millrace(Backend::Portable);
    const SIMD: By = By::Millrace(Backend::Simd);

    fn figure(
        name: &str,
        operation: Operation,
        (by, batch): (By, usize),
        bytes: usize,
        rate: f64,
    ) -> Figure {
        Figure {
            algorithm: Algorithm::from_name(name).unwrap(),
            operation,
            by,
            batch,
            bytes,
            rate,
            all: None,
            implementation: String::new(),
        }
    }

    /// Published figures of a router, vendor's build and tuned build, in place of measured ones.
    #[test]
    fn blocks_of_bulk_with_ratios_at_the_side() {
        let seal = |by, bytes, rate| {
            let mut one = figure("aes-256-gcm", Operation::Seal, by, bytes, rate);
            one.all = (by == (SIMD, 32) && bytes == 1408).then_some((2, 1.9 * rate));
            one
        };
        let sha1 = |by, bytes, rate| figure("sha1", Operation::Hash, by, bytes, rate);
        let figures = [
            sha1((PORTABLE, 1), 64, 54_213_540.0),
            sha1((PORTABLE, 1), 1408, 168_700_400.0),
            sha1((SIMD, 1), 64, 67_717_400.0),
            sha1((SIMD, 1), 1408, 296_394_750.0),
            seal((SIMD, 1), 64, 1e6),
            seal((SIMD, 32), 64, 2e6),
            seal((SIMD, 32), 1408, 3.5e6),
            seal((By::OpenSsl, 1), 64, 1e6),
            seal((By::OpenSsl, 1), 1408, 7e6),
        ];
        let expected = "\
The 'numbers' are in 1000s of bytes per second processed.

portable, one packet at a time
type                 64 bytes   1408 bytes  x openssl     64 B  1408 B
sha1                54213.54k   168700.40k

simd, one packet at a time
type                 64 bytes   1408 bytes  x portable     64 B  1408 B  x openssl     64 B  1408 B
sha1                67717.40k   296394.75k                1.25x   1.76x
aes-256-gcm seal     1000.00k            -                                            1.00x

simd, 32 packets at a time
type                 64 bytes   1408 bytes  x portable     64 B  1408 B  x openssl     64 B  1408 B
aes-256-gcm seal     2000.00k     3500.00k                                            2.00x   0.50x

openssl, one packet at a time
type                 64 bytes   1408 bytes
aes-256-gcm seal     1000.00k     7000.00k

Mbit/s of payload that the ciphers would let through, in packets of 1408 bytes, 32 at a time, by the fastest back end
tunnel cipher             seal, 1 core seal, 2 cores  open, 1 core open, 2 cores  back ends
aes-256-gcm                       28.0          53.2             -             -  simd
";
        let text = tables(&figures);
        assert_eq!(text, expected, "\n{text}");
    }

    #[test]
    fn ratios_are_to_the_smallest_batch_that_there_is() {
        let sha1 = |by, rate| figure("sha1", Operation::Hash, by, 1408, rate);
        let figures = [
            sha1((PORTABLE, 8), 1e6),
            sha1((PORTABLE, 32), 2e6),
            sha1((SIMD, 8), 3e6),
        ];
        let text = tables(&figures);
        let ratios: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("sha1"))
            .map(|line| line.split_whitespace().nth(2).unwrap_or("none"))
            .collect();
        assert_eq!(ratios, ["none", "2.00x", "3.00x"], "{text}");
    }

    #[test]
    fn public_keys_as_openssl_shows_them() {
        let one = |name, operation, by, rate| figure(name, operation, (by, 1), 0, rate);
        let figures = [
            one("rsa2048", Operation::Sign, SIMD, 114.7),
            one("rsa2048", Operation::Verify, SIMD, 4709.8),
            one("rsa2048", Operation::Sign, By::OpenSsl, 27.4),
            one("rsa2048", Operation::Verify, By::OpenSsl, 908.0),
            one("dsa2048", Operation::Sign, SIMD, 424.1),
            one("x25519", Operation::Agree, SIMD, 38_193.75),
        ];
        let expected = "
                             sign     verify     sign/s   verify/s
rsa-2048 simd           0.008718s  0.000212s      114.7     4709.8  x openssl 4.19x 5.19x
rsa-2048 openssl        0.036496s  0.001101s       27.4      908.0
dsa-2048 simd           0.002358s          -      424.1          -

                               op       op/s
x25519 simd             0.000026s    38193.8
";
        let text = tables(&figures);
        assert_eq!(text, expected, "\n{text}");
        assert_eq!(tables(&[]), "");
    }

    #[test]
    fn what_is_chosen_is_named() {
        let choice = Choice {
            algorithm: crypto::select::Algorithm::AesCbcEncrypt,
            backend: Backend::Simd,
            many: "aes-ni",
            few: "aws-lc",
        };
        let expected = "
tunnels here run on     back end        in batches          a packet alone
aes-cbc-encrypt         simd            aes-ni              aws-lc
";
        assert_eq!(choices(&[choice]), expected);
    }

    #[test]
    fn ratios_are_of_the_nearest_sizes() {
        assert_eq!(ratio_sizes(&[16, 64, 256, 1024, 1408, 8192]), [64, 1408]);
        assert_eq!(ratio_sizes(&[16, 2048]), [16, 2048]);
        assert_eq!(ratio_sizes(&[1500]), [1500]);
        assert_eq!(ratio_sizes(&[]), [0; 0]);
    }
}
