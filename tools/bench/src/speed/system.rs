//! `millrace speed --system`: memory, pi and e, the tests by which a paper on routers judged compiler options.
//!
//! Software & Systems 4/2020, pp. 605-612, gives times on two routers, each with the vendor's build and with tuned
//! options. Its programs are not known for certain. The tests for pi and e use the algorithms of widely known small
//! programs with as many digits. The paper does not describe its memory test, so the one here is our own.

mod memory;
mod spigot;
mod table;

use std::collections::TryReserveError;
use std::hint::black_box;
use std::io::{self, Write as _};

use super::clock::Clock;
use super::options::Options;
use super::{Machine, SpeedError};
use memory::Blocks;
use table::Row;
use terminal::Progress;

/// Digits of pi, as in the paper.
const PI_DIGITS: usize = 2400;
const PI_TIMES: u32 = 10;
const E_PLACES: usize = 9009;

/// FNV-1a hash of the digits; the unit tests compute them by other formulas.
const PI_SUM: u32 = 0x633d_781f;
const E_SUM: u32 = 0xba24_4759;

/// Words in each of the two blocks, 16 MiB: more than a router's caches, less than its memory.
const MEMORY_WORDS: usize = 4 << 20;
const MEMORY_ROUNDS: u32 = 10;

/// Number of runs, of which the best counts; one with `--quick`.
const RUNS: usize = 3;

/// The tests, in the order of the paper's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Test {
    Memory,
    Pi,
    E,
}

impl Test {
    const ALL: [Self; 3] = [Self::Memory, Self::Pi, Self::E];

    /// The test's name in JSON.
    const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Pi => "pi",
            Self::E => "e",
        }
    }

    /// The test's title in the table.
    const fn title(self) -> &'static str {
        match self {
            Self::Memory => "memory, 2 x 16 MiB x 10",
            Self::Pi => "pi, 2400 digits x 10",
            Self::E => "e, 9009 digits",
        }
    }

    /// The paper's seconds: IPQ8065 vendor and tuned, IPQ4019 vendor and tuned.
    const fn published(self) -> [f64; 4] {
        match self {
            Self::Memory => [0.49, 0.43, 1.94, 1.63],
            Self::Pi => [2.88, 1.50, 3.61, 3.12],
            Self::E => [2.41, 1.43, 4.04, 3.38],
        }
    }

    /// Whether the paper's seconds are, as far as known, for the same work.
    const fn is_comparable(self) -> bool {
        !matches!(self, Self::Memory)
    }

    /// Seconds of one run; `None` if the result is wrong.
    fn seconds(self) -> Result<Option<f64>, TryReserveError> {
        let mut blocks = match self {
            Self::Memory => Some(Blocks::new(MEMORY_WORDS)?),
            Self::Pi | Self::E => None,
        };
        let from = Clock::Thread.now();
        // The result is checked and the amount of work hidden from the compiler, so that it can remove nothing.
        let is_right = match (self, &mut blocks) {
            (Self::Memory, Some(blocks)) => {
                let rounds = black_box(MEMORY_ROUNDS);
                blocks.rounds(rounds) == blocks.expected(rounds)
            }
            (Self::E, _) => spigot::sum(&spigot::e(black_box(E_PLACES))) == E_SUM,
            _ => (0..PI_TIMES).all(|_| spigot::sum(&spigot::pi(black_box(PI_DIGITS))) == PI_SUM),
        };
        let seconds = from.seconds();
        Ok(is_right.then_some(seconds))
    }
}

/// Runs all tests and prints the results; returns true if every result was right.
pub(super) fn run(options: &Options) -> Result<bool, SpeedError> {
    let runs = if options.quick { 1 } else { RUNS };
    let mut progress = Progress::new(Test::ALL.len() * runs, options.json);
    let mut rows = Vec::new();
    let mut good = true;
    for test in Test::ALL {
        let mut best: Option<f64> = None;
        for _ in 0..runs {
            progress.begin(test.title());
            let Some(seconds) = test.seconds()? else {
                progress.clear();
                terminal::note(format_args!("millrace: {}: a wrong result", test.name()));
                good = false;
                best = None;
                break;
            };
            best = Some(best.map_or(seconds, |best| best.min(seconds)));
        }
        let Some(seconds) = best else { continue };
        let row = Row {
            test,
            seconds,
            runs,
        };
        if options.json {
            progress.clear();
            let mut out = io::stdout().lock();
            row.write(&mut out)?;
            out.flush()?;
        }
        rows.push(row);
    }
    progress.clear();
    if !options.json {
        let mut out = io::stdout().lock();
        write!(out, "{}\n\n{}", Machine::this().show(), table::show(&rows))?;
        out.flush()?;
    }
    Ok(good)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_test_comes_out_right() {
        for test in Test::ALL {
            let seconds = test.seconds().unwrap();
            assert!(seconds.is_some_and(f64::is_finite), "{}", test.name());
        }
    }

    /// According to the paper, options alone bring 14 to 92 % on a Krait, 16 to 20 % on a Cortex-A7.
    #[test]
    fn the_published_times_are_those_of_the_paper() {
        let ratios = Test::ALL.map(|test| {
            let [krait, krait_tuned, a7, a7_tuned] = test.published();
            [krait / krait_tuned, a7 / a7_tuned].map(|ratio| (ratio * 100.0).round() as u32)
        });
        assert_eq!(ratios, [[114, 119], [192, 116], [169, 120]]);
    }
}
