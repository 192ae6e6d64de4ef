//! The verdicts, and how much each matters; and the finding about one file.

use std::str::FromStr;

use crate::role::Role;

/// The verdict on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verdict {
    /// Code for another machine or byte order, or with instructions that the chip lacks: the file does not
    /// run, or crashes.
    WrongAbi,
    /// Ciphers in plain C, where the library has assembly for the chip.
    NoAsmCrypto,
    /// 32-bit code on a 64-bit core, which uses the core's AES instructions less well than 64-bit code.
    ThirtyTwoOn64,
    /// No NEON, although the chip has it.
    NoSimd,
    /// Floating point in software, although the chip has a unit for it.
    SoftFloat,
    /// Ciphers compiled for size.
    SizeOptimised,
    /// Division by a library function, although the chip has divide instructions.
    SoftwareDivide,
    /// Built for an older architecture or a lesser unit than the chip's.
    TooGeneric,
    /// The file is as good as the chip allows.
    Fine,
    /// The file lacks the deciding fact, or the table does not have it for the chip.
    CannotTell,
}

/// Error: the text names no verdict.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no such verdict: {0} (there are: {known})", known = Verdict::ALL.map(Verdict::word).join(" "))]
pub struct NoVerdict(pub String);

impl Verdict {
    /// All verdicts, the gravest first.
    pub const ALL: [Self; 10] = [
        Self::WrongAbi,
        Self::NoAsmCrypto,
        Self::ThirtyTwoOn64,
        Self::NoSimd,
        Self::SoftFloat,
        Self::SizeOptimised,
        Self::SoftwareDivide,
        Self::TooGeneric,
        Self::Fine,
        Self::CannotTell,
    ];

    /// The verdict's name in reports.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::WrongAbi => "wrong-abi",
            Self::NoAsmCrypto => "no-asm-crypto",
            Self::ThirtyTwoOn64 => "32-bit-on-64",
            Self::NoSimd => "no-simd",
            Self::SoftFloat => "soft-float",
            Self::SizeOptimised => "size-optimised",
            Self::SoftwareDivide => "software-divide",
            Self::TooGeneric => "too-generic",
            Self::Fine => "fine",
            Self::CannotTell => "cannot-tell",
        }
    }

    /// One sentence on what the verdict means.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        match self {
            Self::WrongAbi => "built for another machine, or with instructions that the chip lacks",
            Self::NoAsmCrypto => {
                "ciphers in plain C, although the library has assembly for the chip"
            }
            Self::ThirtyTwoOn64 => "32-bit code on a 64-bit core that has AES instructions",
            Self::NoSimd => "does not use NEON, which the chip has",
            Self::SoftFloat => "floating point in software, although the chip has a unit for it",
            Self::SizeOptimised => "code that packets pass is compiled for size",
            Self::SoftwareDivide => {
                "divides by a library function, although the chip has the instruction"
            }
            Self::TooGeneric => "built for an older or lesser chip",
            Self::Fine => "nothing to gain",
            Self::CannotTell => "what would tell is not in the file",
        }
    }

    /// Whether a repair could gain something.
    #[must_use]
    pub fn is_worth_fixing(self) -> bool {
        !matches!(self, Self::Fine | Self::CannotTell)
    }

    /// Weight of the verdict in a file of full heat, for ranking findings.
    #[must_use]
    pub fn weight(self) -> u32 {
        match self {
            Self::WrongAbi => 12,
            Self::NoAsmCrypto => 10,
            Self::ThirtyTwoOn64 => 8,
            Self::NoSimd => 6,
            Self::SoftFloat => 4,
            Self::SizeOptimised => 3,
            Self::SoftwareDivide | Self::TooGeneric => 2,
            Self::Fine | Self::CannotTell => 0,
        }
    }
}

impl FromStr for Verdict {
    type Err = NoVerdict;

    fn from_str(word: &str) -> Result<Self, NoVerdict> {
        Self::ALL
            .into_iter()
            .find(|verdict| verdict.word() == word)
            .ok_or_else(|| NoVerdict(word.to_owned()))
    }
}

/// The expected gain of a repair, as a range with its source: a measurement of another box or program, no
/// promise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gain {
    /// The part that becomes faster.
    pub what: &'static str,
    /// How many times as fast at least.
    pub low: f32,
    /// How many times as fast at most.
    pub high: f32,
    /// Who measured it, on what.
    pub source: &'static str,
}

/// The finding about one file.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The file's path in its own file system.
    pub path: String,
    /// The way to that file system in the image; empty for directories and bare files.
    pub origin: String,
    /// The role of the file in a tunnel.
    pub role: Role,
    /// The verdicts, the gravest first; at least one.
    pub verdicts: Vec<Verdict>,
    /// The facts behind the verdicts, and where each was read.
    pub evidence: Vec<String>,
    /// Compiler options that fit the chip, or kernel configuration lines. Empty if nothing needs to change.
    pub flags: String,
    /// The steps of the repair.
    pub steps: Vec<String>,
    /// The gain. `None` if nothing needs to change, or no measurement is known.
    pub gain: Option<Gain>,
}

impl Finding {
    /// Whether one of the verdicts is worth fixing.
    #[must_use]
    pub fn is_worth_fixing(&self) -> bool {
        self.verdicts
            .iter()
            .any(|verdict| verdict.is_worth_fixing())
    }

    /// Position in a report: a larger rank means more to gain.
    #[must_use]
    pub fn rank(&self) -> u32 {
        // In a file without ciphers, NEON gains no more than the other options.
        let ciphers = self.role.has_ciphers() || self.role.heat() == Role::CryptoModule.heat();
        let weight = self
            .verdicts
            .iter()
            .map(|verdict| match verdict {
                Verdict::NoSimd if !ciphers => Verdict::TooGeneric.weight(),
                verdict => verdict.weight(),
            })
            .max()
            .unwrap_or(0);
        // Of two equally hot files, the one with more faults ranks first.
        weight * self.role.heat()
            + self.verdicts.iter().filter(|v| v.is_worth_fixing()).count() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_back_and_nothing_else_is() {
        for verdict in Verdict::ALL {
            assert_eq!(verdict.word().parse(), Ok(verdict));
            assert_eq!(verdict.is_worth_fixing(), verdict.weight() > 0);
        }
        assert!(
            "finest"
                .parse::<Verdict>()
                .unwrap_err()
                .to_string()
                .contains("wrong-abi")
        );
    }
}
