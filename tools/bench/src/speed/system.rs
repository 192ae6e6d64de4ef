//! `millrace speed --system`: memory, pi and e, the tests by which a paper on routers judged compiler options.
//!
//! Software & Systems 4/2020, pp. 605-612, gives times on two routers, each with the vendor's build and with tuned
//! options. Its programs are not known for certain. The tests for pi and e use the algorithms of widely known small
//! programs with as many digits. The paper does not describe its memory test, so the one here is our own.
//!
//! The memory test writes one block, copies it into another with a change, and reads the copy.
//!
//! The digits of pi and e are computed with small integers and a division at every step. Both write a number in places of different bases. Each step multiplies all places by ten (or ten thousand), from
//! the last to the first, with a carry. The carry out of the first place is the next decimal digit (or four). The
//! compiler does not know the bases, so it cannot replace the divisions; without a division instruction, each is a
//! call. crates/crypto/tools/flags/system.c is the same in C.

use std::collections::TryReserveError;
use std::hint::black_box;
use std::io::{self, Write as _};

use host::terminal::Progress;
use table::Row;

use crate::speed::measure::Clock;
use crate::speed::options::Options;
use crate::speed::{Machine, SpeedError};

mod table;

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
            (Self::E, _) => hash(&digits_of_e(black_box(E_PLACES))) == E_SUM,
            _ => (0..PI_TIMES).all(|_| hash(&digits_of_pi(black_box(PI_DIGITS))) == PI_SUM),
        };
        let seconds = from.seconds();
        Ok(is_right.then_some(seconds))
    }
}

/// Runs all tests and prints the results; returns true if every result was correct.
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
                host::terminal::note(format_args!("millrace: {}: a wrong result", test.name()));
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

/// Difference between adjacent words, so that no two words are equal.
const STEP: u32 = 0x9e37_79b1;

/// Change of a copied word; a plain copy would become a call of the C library.
const CHANGE: u32 = 0x5bd1_e995;

/// Two blocks of 32-bit words.
struct Blocks {
    from: Vec<u32>,
    to: Vec<u32>,
}

impl Blocks {
    /// Allocates blocks of `words` words and touches every page.
    fn new(words: usize) -> Result<Self, TryReserveError> {
        let block = || {
            let mut block = Vec::new();
            block.try_reserve_exact(words)?;
            block.resize(words, 1);
            Ok::<_, TryReserveError>(block)
        };
        Ok(Self {
            from: block()?,
            to: block()?,
        })
    }

    /// Runs `rounds` rounds of three passes and returns the sum of all words read.
    fn rounds(&mut self, rounds: u32) -> u32 {
        let mut sum = 0_u32;
        for round in 0..rounds {
            let mut value = round;
            for word in &mut self.from {
                *word = value;
                value = value.wrapping_add(STEP);
            }
            // Keeps the compiler from merging passes: each must go through all of the memory.
            let from = black_box(&self.from);
            for (to, from) in self.to.iter_mut().zip(from) {
                *to = from.wrapping_add(CHANGE);
            }
            for word in black_box(&self.to) {
                sum = sum.wrapping_add(*word);
            }
        }
        sum
    }

    /// Computes the result of [`Self::rounds`] without using memory.
    fn expected(&self, rounds: u32) -> u32 {
        let (words, rounds) = (self.from.len() as u64, u64::from(rounds));
        let places = words * words.saturating_sub(1) / 2 * rounds;
        let turns = rounds * rounds.saturating_sub(1) / 2 * words;
        let sum = places
            .wrapping_mul(u64::from(STEP))
            .wrapping_add(turns)
            .wrapping_add((words * rounds).wrapping_mul(u64::from(CHANGE)));
        // Sums are modulo 2^32.
        sum as u32
    }
}

/// Places for four digits of pi: log2(10000) rounded up, because each place adds one bit.
const PI_PLACES: usize = 14;

/// Returns `digits` digits of pi, the 3 included; `digits` is a multiple of four.
///
/// pi = 2 + 1/3 (2 + 2/5 (2 + 3/7 (2 + ...))). With 2400 digits, everything fits 32 bits.
fn digits_of_pi(digits: usize) -> Vec<u8> {
    let mut places = vec![2000_u32; digits / 4 * PI_PLACES];
    let mut out = Vec::with_capacity(digits);
    let mut held = 0;
    while !places.is_empty() {
        let (mut carry, mut place) = (0, places.len() as u32);
        for slot in places.iter_mut().rev() {
            let (value, base) = (carry * place + *slot * 10_000, 2 * place - 1);
            *slot = value % base;
            carry = value / base;
            place -= 1;
        }
        let four = held + carry / 10_000;
        held = carry % 10_000;
        out.extend([1000, 100, 10, 1].map(|unit| b'0' + (four / unit % 10) as u8));
        places.truncate(places.len() - PI_PLACES);
    }
    out
}

/// Returns the digits of e after the point, nine fewer than places, because the last ones are inexact.
///
/// e - 2 = 1/2! + 1/3! + ...: places with the bases 2, 3, 4 and so on, all with the digit 1.
fn digits_of_e(places: usize) -> Vec<u8> {
    // The first place stands for 1/2!.
    let mut slots = vec![1_u32; places.saturating_sub(2)];
    let digits = places.saturating_sub(9);
    let mut out = Vec::with_capacity(digits);
    for _ in 0..digits {
        let (mut carry, mut base) = (0, slots.len() as u32 + 1);
        for slot in slots.iter_mut().rev() {
            let value = 10 * *slot + carry;
            *slot = value % base;
            carry = value / base;
            base -= 1;
        }
        out.push(b'0' + carry as u8);
        slots.pop();
    }
    out
}

/// Computes the 32-bit FNV-1a hash, to check digits.
fn hash(digits: &[u8]) -> u32 {
    digits.iter().fold(0x811c_9dc5, |sum, &digit| {
        (sum ^ u32::from(digit)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::speed::system::{E_PLACES, E_SUM, PI_DIGITS, PI_SUM};

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

    #[test]
    fn what_is_read_is_what_was_written_and_changed() {
        for (words, rounds) in [(0, 3), (1, 1), (1, 4), (1000, 0), (4096, 3), (100_003, 10)] {
            let mut blocks = Blocks::new(words).unwrap();
            let sum = blocks.rounds(rounds);
            assert_eq!(
                sum,
                blocks.expected(rounds),
                "{words} words, {rounds} rounds"
            );
        }
        let mut two = Blocks::new(2).unwrap();
        assert_eq!(two.rounds(1), STEP.wrapping_add(CHANGE.wrapping_mul(2)));
    }

    #[test]
    fn memory_that_no_machine_has_is_refused() {
        assert!(Blocks::new(usize::MAX / 4).is_err());
    }

    /// A number from 0 to below 10^9: the integer part, then groups of nine decimals.
    #[derive(Clone)]
    struct Long(Vec<u64>);

    const GROUP: u64 = 1_000_000_000;

    impl Long {
        fn new(whole: u64, digits: usize) -> Self {
            let mut groups = vec![0; digits / 9 + 4];
            groups[0] = whole;
            Self(groups)
        }

        fn divide(&mut self, by: u64) {
            let mut rest = 0;
            for group in &mut self.0 {
                let value = rest * GROUP + *group;
                *group = value / by;
                rest = value % by;
            }
        }

        fn multiply(&mut self, by: u64) {
            let mut carry = 0;
            for group in self.0.iter_mut().rev() {
                let value = *group * by + carry;
                *group = value % GROUP;
                carry = value / GROUP;
            }
        }

        fn add(&mut self, other: &Self) {
            let mut carry = 0;
            for (group, more) in self.0.iter_mut().zip(&other.0).rev() {
                let value = *group + more + carry;
                *group = value % GROUP;
                carry = value / GROUP;
            }
        }

        fn subtract(&mut self, other: &Self) {
            let mut borrow = 0;
            for (group, less) in self.0.iter_mut().zip(&other.0).rev() {
                let value = *group + GROUP - less - borrow;
                *group = value % GROUP;
                borrow = 1 - value / GROUP;
            }
        }

        fn is_zero(&self) -> bool {
            self.0.iter().all(|&group| group == 0)
        }

        /// Formats the integer part and `digits` decimals.
        fn text(&self, digits: usize) -> String {
            let behind: String = self.0[1..].iter().map(|one| format!("{one:09}")).collect();
            format!("{}{}", self.0[0], &behind[..digits])
        }
    }

    /// arctan(1 / x) = 1/x - 1/3x^3 + 1/5x^5 - ...
    fn arctangent(x: u64, digits: usize) -> Long {
        let (mut power, mut sum) = (Long::new(1, digits), Long::new(0, digits));
        power.divide(x);
        for turn in 0.. {
            if power.is_zero() {
                break;
            }
            let mut term = power.clone();
            term.divide(2 * turn + 1);
            match turn % 2 {
                0 => sum.add(&term),
                _ => sum.subtract(&term),
            }
            power.divide(x * x);
        }
        sum
    }

    /// Machin's formula: pi = 16 arctan(1/5) - 4 arctan(1/239).
    #[test]
    fn pi_is_what_another_formula_gives() {
        let mut wanted = arctangent(5, PI_DIGITS);
        wanted.multiply(4);
        wanted.subtract(&arctangent(239, PI_DIGITS));
        wanted.multiply(4);
        let wanted = wanted.text(PI_DIGITS - 1);
        assert!(wanted.starts_with("314159265358979323846264338327950288419716939937510"));
        let digits = digits_of_pi(PI_DIGITS);
        assert_eq!(String::from_utf8(digits.clone()).unwrap(), wanted);
        assert_eq!(hash(&digits), PI_SUM);
    }

    #[test]
    fn e_is_what_the_sum_of_its_terms_gives() {
        let digits = digits_of_e(E_PLACES);
        let (mut term, mut wanted) = (Long::new(1, E_PLACES), Long::new(0, E_PLACES));
        for next in 1.. {
            if term.is_zero() {
                break;
            }
            wanted.add(&term);
            term.divide(next);
        }
        let wanted = wanted.text(digits.len());
        assert!(wanted.starts_with("271828182845904523536028747135266249775724709369995"));
        assert_eq!(String::from_utf8(digits.clone()).unwrap(), wanted[1..]);
        assert_eq!(hash(&digits), E_SUM);
    }

    #[test]
    fn few_digits_are_right_too() {
        assert_eq!(digits_of_pi(4), b"3141");
        assert_eq!(digits_of_pi(12), b"314159265358");
        assert_eq!(digits_of_e(20), b"71828182845");
        assert_eq!(digits_of_e(3), b"");
        assert_eq!(digits_of_pi(0), b"");
    }

    #[test]
    fn the_sum_is_that_of_fnv() {
        // From the published test suite of FNV-1a.
        assert_eq!(hash(b""), 0x811c_9dc5);
        assert_eq!(hash(b"a"), 0xe40c_292c);
        assert_eq!(hash(b"foobar"), 0xbf9c_f968);
    }
}
