//! The verdicts, and how much each matters.

use std::str::FromStr;

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
