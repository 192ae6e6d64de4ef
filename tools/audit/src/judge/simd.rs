//! NEON in 32-bit ARM: whether the file has it, and whether the compiler generated it.

use super::Case;
use crate::facts::{ArmAttributes, Facts, Spread};
use crate::verdict::Verdict;

/// Maximum number of instructions of a class that count as data among the code.
pub(super) const NOISE: u64 = 8;
/// Minimum number of instructions in which an option's own instructions would show.
pub(super) const ENOUGH: u64 = 2000;

/// [`NOISE`] for large files: among 678 000 instructions of ARMv5TE, 43 looked like those of v7.
pub(super) fn noise(facts: &Facts) -> u64 {
    NOISE.max(facts.counts.instructions / 5000)
}

/// Whether the file is so small, and the count so low, that the counted words may be code or data.
pub(super) fn few(facts: &Facts, counted: u64) -> bool {
    counted > 0 && counted <= NOISE && facts.counts.instructions <= ENOUGH
}

pub(super) fn judge(case: &mut Case<'_>, facts: &Facts, attributes: Option<&ArmAttributes>) {
    if !case.knows("neon") {
        return;
    }
    let tag = attributes.and_then(|a| a.simd_arch).unwrap_or(0);
    let counted = facts.counts.neon;
    // Ciphers check for NEON at run time: their NEON code is harmless on chips without NEON, and the main
    // use of NEON on others.
    let ciphers = case.role.has_ciphers();
    if !case.soc.core.neon {
        if ciphers || counted <= noise(facts) {
            if attributes.is_none() && !ciphers && few(facts, counted) {
                case.unknown(format!("{counted} words look like NEON, and may be data"));
            }
            return;
        }
        match told(&facts.neon, tag) {
            Some(true) => case.fault(
                Verdict::WrongAbi,
                format!("{counted} NEON instructions, and the chip has none"),
            ),
            Some(false) => case.note(format!(
                "{} are all of its NEON, in assembly: it has to look for NEON before it uses that",
                share(facts)
            )),
            None => case.unknown(format!(
                "{}: whether they are ever run on a chip without NEON",
                share(facts)
            )),
        }
        return;
    }
    let fault = if ciphers && counted > noise(facts) {
        Verdict::TooGeneric
    } else {
        Verdict::NoSimd
    };
    let all = facts.counts.instructions;
    if ciphers && counted <= noise(facts) {
        // The judge of ciphers reports this, with further evidence.
        return;
    }
    match attributes {
        // Assembly that enables NEON contains some; a tag without NEON code comes from a compiler.
        Some(_) if counted == 0 && tag != 0 => return,
        Some(_) if counted <= noise(facts) && tag == 0 => {
            case.fault(fault, "no Tag_Advanced_SIMD_arch and no NEON instruction");
            return;
        }
        None if counted <= noise(facts) && all > ENOUGH => {
            case.fault(fault, format!("no NEON among {all} instructions"));
            return;
        }
        None if counted == 0 => {
            case.unknown(format!(
                "no NEON among {all} instructions, which are too few to conclude from"
            ));
            return;
        }
        _ => {}
    }
    if attributes.is_some() && tag == 0 {
        case.fault(
            fault,
            format!(
                "no Tag_Advanced_SIMD_arch: {} are all of its NEON, in assembly",
                share(facts)
            ),
        );
        return;
    }
    match told(&facts.neon, tag) {
        Some(true) => {}
        // A static program contains code of the C library, which others built.
        Some(false) if facts.is_static && !ciphers => case.unknown(format!(
            "{}: a static program, and much of it is the C library's",
            share(facts)
        )),
        Some(false) => {
            let names = match facts.neon.names.as_slice() {
                [] => String::new(),
                names => format!(" ({})", names.join(", ")),
            };
            let by = if tag != 0 {
                "Tag_Advanced_SIMD_arch is set by assembly only"
            } else {
                "its NEON is in assembly only"
            };
            case.fault(
                fault,
                format!(
                    "{by}, the compiler was not told of NEON: {}{names}{}",
                    share(facts),
                    low(&facts.neon)
                ),
            );
        }
        None if ciphers => case.note(format!(
            "{}: of the C in it nothing tells whether the compiler was told of NEON",
            share(facts)
        )),
        None => case.unknown(format!(
            "{}: too few places to tell whether the compiler made them or they are assembly",
            share(facts)
        )),
    }
}

/// Whether the compiler had NEON enabled; `None` if nothing shows it.
///
/// Linkers keep the largest value of a tag, so one assembly file makes a whole library look like NEON. Two
/// signs tell. Compilers put NEON into functions all over a library; and NEON implies 32 registers, of
/// which compilers use the upper ones first. The first sign alone is not enough: in a library of ciphers in
/// C, GCC 12 with `-mfpu=neon` put NEON into 5 functions of 100 at -O2, and into one of 200 at -Os.
pub(super) fn told(spread: &Spread, tag: u64) -> Option<bool> {
    match (registers(spread), confined(spread)) {
        (Registers::ThirtyTwo, _) | (_, false) => Some(true),
        (Registers::Sixteen, true) => Some(false),
        // NEON with fused multiply-add comes from a compiler: assembly for run-time choice requests plain NEON.
        (Registers::Unknown, true) if tag >= 2 => Some(true),
        (Registers::Unknown, true) => None,
    }
}

/// Whether NEON is in so few places that it may be assembly.
fn confined(spread: &Spread) -> bool {
    match (spread.functions, spread.with_neon, spread.all) {
        (_, 0, _) => false,
        (true, with, all) => with * 10 <= all || with == 1,
        (false, with, all) if all >= 16 => with * 10 <= all,
        _ => false,
    }
}

/// Describes the registers in use, which show that the compiler had sixteen.
fn low(spread: &Spread) -> String {
    match (registers(spread), spread.high_elsewhere) {
        (Registers::Sixteen, 0) => format!(
            "; elsewhere {} instructions of double precision, none of them on D16 to D31",
            spread.doubles_elsewhere
        ),
        (Registers::Sixteen, high) => format!(
            "; elsewhere {} instructions of double precision, {high} of them on D16 to D31",
            spread.doubles_elsewhere
        ),
        _ => String::new(),
    }
}

fn share(facts: &Facts) -> String {
    let places = if facts.neon.functions {
        "functions"
    } else {
        "pieces of 4 KiB"
    };
    format!(
        "{} NEON instructions of {}, in {} of {} {places}",
        facts.counts.neon, facts.counts.instructions, facts.neon.with_neon, facts.neon.all
    )
}

/// Number of registers that the compiler could use, judged by code without NEON.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Registers {
    Sixteen,
    ThirtyTwo,
    /// Hardly any double precision.
    Unknown,
}

pub(super) fn registers(spread: &Spread) -> Registers {
    let (doubles, high) = (spread.doubles_elsewhere, spread.high_elsewhere);
    // With symbols, data does not count, so one instruction suffices.
    let least = if spread.functions { 1 } else { NOISE };
    if high >= least && high * 4 >= doubles {
        Registers::ThirtyTwo
    } else if doubles >= 2 * least && high * 16 <= doubles {
        Registers::Sixteen
    } else {
        Registers::Unknown
    }
}
