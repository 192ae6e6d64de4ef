//! The finding about one file.

use crate::role::Role;
use crate::verdict::Verdict;

/// The gain by a repair, as a range with its source. Never a promise: other boxes, other programs.
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
    /// The verdicts, the gravest first; never none.
    pub verdicts: Vec<Verdict>,
    /// The facts that were read, and where.
    pub evidence: Vec<String>,
    /// Options of the compiler that fit the chip, or lines of the kernel's configuration. Empty where
    /// nothing is to be changed.
    pub flags: String,
    /// The steps of the repair.
    pub steps: Vec<String>,
    /// The gain. `None` where nothing is to be changed, or no measurement is known.
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

    /// Where it stands in a report: the larger, the more is to be won.
    #[must_use]
    pub fn rank(&self) -> u32 {
        // Where no ciphers are, NEON is worth what the other options are.
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
        // Of two files that are equally hot, the one with more faults.
        weight * self.role.heat()
            + self.verdicts.iter().filter(|v| v.is_worth_fixing()).count() as u32
    }
}
