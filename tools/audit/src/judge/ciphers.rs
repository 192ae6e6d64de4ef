//! Libraries of ciphers: whether they contain their assembly.

use super::Case;
use super::simd::told;
use crate::facts::{Facts, Machine};
use crate::role::Role;
use crate::verdict::Verdict;

/// NEON instructions that a library with assembly far exceeds, and one without hardly reaches.
const ASSEMBLY: u64 = 300;

pub(super) fn judge(case: &mut Case<'_>, facts: &Facts) {
    for note in facts.notes.iter().filter(|note| is_version(note)) {
        case.note(format!("says \"{note}\""));
    }
    let modules = facts
        .notes
        .iter()
        .filter(|note| note.contains("CRYPTOGAMS") || note.contains("Mike Hamburg"))
        .count();
    if modules > 0 {
        case.note(format!(
            "it contains the name strings of {modules} OpenSSL assembly modules"
        ));
    }
    options(case, facts);
    match facts.machine {
        Machine::Arm { .. } if case.soc.core.neon => neon(case, facts, modules),
        // Without NEON, OpenSSL still has assembly for the integer unit, which compilers do not match.
        Machine::Arm { .. } if case.role == Role::Libcrypto && modules == 0 => {
            case.fault(
                Verdict::NoAsmCrypto,
                "it contains no name string of an assembly module",
            );
        }
        Machine::Aarch64 { .. } if case.aes() => {
            if facts.counts.aes == 0 {
                let why = format!(
                    "no AES instructions, which the chip has, among {}",
                    facts.counts.instructions
                );
                case.fault(Verdict::NoAsmCrypto, why);
            } else {
                case.note(format!(
                    "{} AES and {} PMULL instructions",
                    facts.counts.aes, facts.counts.pmull
                ));
            }
        }
        Machine::Aarch64 { .. }
            if case.role == Role::Libcrypto && modules == 0 && facts.counts.aes == 0 =>
        {
            case.fault(
                Verdict::NoAsmCrypto,
                "it contains no name string of an assembly module and no AES instruction",
            );
        }
        Machine::Mips { .. } if case.role == Role::Libcrypto && modules == 0 => {
            case.fault(
                Verdict::NoAsmCrypto,
                "it contains no name string of an assembly module",
            );
        }
        _ => {}
    }
}

/// Judges 32-bit ARM with NEON. A compiler with NEON enabled makes hundreds of NEON instructions of ciphers
/// in C too.
fn neon(case: &mut Case<'_>, facts: &Facts, modules: usize) {
    let counted = facts.counts.neon;
    let tag = facts.arm.as_ref().and_then(|arm| arm.simd_arch);
    let assembled = told(&facts.neon, tag.unwrap_or(0)) == Some(false);
    if counted < ASSEMBLY || (modules == 0 && case.role == Role::Libcrypto) {
        let rest = if modules == 0 {
            "no name string of an assembly module"
        } else {
            "its assembly is for the integer unit"
        };
        // libsodium has no assembly for ARM that could be missing: its NEON is the compiler's.
        let soname = facts.soname.as_deref().unwrap_or_default();
        let verdict = if modules == 0 && !soname.starts_with("libsodium") {
            Verdict::NoAsmCrypto
        } else {
            Verdict::NoSimd
        };
        let bytes = facts.text;
        case.fault(
            verdict,
            format!("{counted} NEON instructions in {bytes} bytes of code, and {rest}"),
        );
    } else if modules > 0 || assembled {
        case.note(format!(
            "{counted} NEON instructions in all: its ciphers are in assembly"
        ));
    } else {
        case.unknown(format!(
            "{counted} NEON instructions: whether these are assembly ciphers or compiled C"
        ));
    }
}

/// Reads the compiler's command line, which OpenSSL keeps.
fn options(case: &mut Case<'_>, facts: &Facts) {
    for note in facts
        .notes
        .iter()
        .filter(|note| note.starts_with("compiler: "))
    {
        let words: Vec<&str> = note.split_whitespace().collect();
        let has = |option: &str| words.contains(&option);
        if has("-DOPENSSL_NO_ASM") {
            case.fault(
                Verdict::NoAsmCrypto,
                "its compiler line has -DOPENSSL_NO_ASM: configured with no-asm",
            );
        }
        // The last of several `-O` options counts.
        let level = words
            .iter()
            .rev()
            .find(|word| word.starts_with("-O") && word.len() <= 6);
        if let Some(level @ (&"-Os" | &"-Oz")) = level {
            case.fault(
                Verdict::SizeOptimised,
                format!("its compiler line has {level}: optimised for size"),
            );
        }
        if has("-DOPENSSL_SMALL_FOOTPRINT") {
            case.fault(
                Verdict::SizeOptimised,
                "its compiler line has -DOPENSSL_SMALL_FOOTPRINT: smaller tables and loops that are not unrolled",
            );
        }
    }
}

fn is_version(note: &str) -> bool {
    [
        "OpenSSL ",
        "mbed TLS ",
        "Mbed TLS ",
        "wolfSSL ",
        "LibreSSL ",
        "BoringSSL",
    ]
    .iter()
    .any(|name| note.starts_with(name))
}
