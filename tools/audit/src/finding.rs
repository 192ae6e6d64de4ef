//! The finding about one file.

use crate::role::Role;
use crate::verdict::Verdict;

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
