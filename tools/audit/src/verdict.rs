//! The verdicts, and how much each matters; and the finding about one file.

use std::str::FromStr;

use crate::role::Role;

/// Defines the verdicts, the gravest first, each with its word, its weight and its meaning.
macro_rules! verdicts {
    ($($(#[$doc:meta])* $name:ident = $word:literal, $weight:literal, $meaning:literal;)*) => {
        /// The verdict on a file.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Verdict {
            $($(#[$doc])* $name,)*
        }

        impl Verdict {
            /// All verdicts, the gravest first.
            pub const ALL: [Self; [$($weight),*].len()] = [$(Self::$name),*];

            /// The verdict's name in reports.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }

            /// One sentence on what the verdict means.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$name => $meaning,)* }
            }

            /// Weight of the verdict in a file of full heat, for ranking findings.
            #[must_use]
            pub fn weight(self) -> u32 {
                match self { $(Self::$name => $weight,)* }
            }
        }
    };
}

verdicts! {
    /// Code for another machine or byte order, or with instructions that the chip lacks: the file does not
    /// run, or crashes.
    WrongAbi = "wrong-abi", 12, "built for another machine, or with instructions that the chip lacks";
    /// Ciphers in plain C, where the library has assembly for the chip.
    NoAsmCrypto = "no-asm-crypto", 10, "ciphers in plain C, although the library has assembly for the chip";
    /// 32-bit code on a 64-bit core, which uses the core's AES instructions less well than 64-bit code.
    ThirtyTwoOn64 = "32-bit-on-64", 8, "32-bit code on a 64-bit core that has AES instructions";
    /// No NEON, although the chip has it.
    NoSimd = "no-simd", 6, "does not use NEON, which the chip has";
    /// Floating point in software, although the chip has a unit for it.
    SoftFloat = "soft-float", 4, "floating point in software, although the chip has a unit for it";
    /// Ciphers compiled for size.
    SizeOptimised = "size-optimised", 3, "code that packets pass is compiled for size";
    /// Division by a library function, although the chip has divide instructions.
    SoftwareDivide = "software-divide", 2, "divides by a library function, although the chip has the instruction";
    /// Built for an older architecture or a lesser unit than the chip's.
    TooGeneric = "too-generic", 2, "built for an older or lesser chip";
    /// The file is as good as the chip allows.
    Fine = "fine", 0, "nothing to gain";
    /// The file lacks the deciding fact, or the table does not have it for the chip.
    CannotTell = "cannot-tell", 0, "the file does not contain enough to decide";
}

/// Error: the text names no verdict.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown verdict {0}; known ones: {known}", known = Verdict::ALL.map(Verdict::word).join(" "))]
pub struct NoVerdict(pub String);

impl Verdict {
    /// Whether a repair could gain something.
    #[must_use]
    pub fn is_worth_fixing(self) -> bool {
        self.weight() > 0
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
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Gain {
    /// The part that becomes faster.
    pub what: &'static str,
    /// Minimum: how many times as fast the part becomes.
    pub low: f32,
    /// Maximum: how many times as fast the part becomes.
    pub high: f32,
    /// Who measured the gain, and on what.
    pub source: &'static str,
}

/// The finding about one file.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The file's path in its own file system.
    pub path: String,
    /// The containers that lead to that file system in the image; empty for directories and bare files.
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
