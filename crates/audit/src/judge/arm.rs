//! 32-bit ARM programs and libraries.

use super::{Case, ciphers};
use crate::facts::{ArmAttributes, Facts, Spread};
use crate::soc::{Isa, Vfp};
use crate::verdict::Verdict;

/// `e_flags`: floating-point arguments in VFP registers.
const FLOAT_HARD: u32 = 0x400;
/// `e_flags`: floating-point arguments in integer registers.
const FLOAT_SOFT: u32 = 0x200;

/// `Tag_CPU_arch`.
const V7: u64 = 10;
const V8: u64 = 14;

/// Instructions of a class below which they are taken for data among the code.
const NOISE: u64 = 8;

pub(super) fn judge(case: &mut Case<'_>, facts: &Facts) {
    wide_core(case, facts);
    let attributes = facts.arm.as_ref();
    if attributes.is_none() {
        case.note("no .ARM.attributes: judged by its instructions alone");
    }
    architecture(case, facts, attributes);
    floats(case, facts, attributes);
    divides(case, facts, attributes);
    simd(case, facts, attributes);
    multiprocessing(case, attributes);
    if case.role.has_ciphers() {
        ciphers::judge(case, facts);
    }
    if attributes.is_none() && facts.counts.instructions == 0 {
        case.unknown("neither attributes nor code");
    }
}

/// 32-bit code on a 64-bit core. What follows is judged for the same core in its 32-bit state.
fn wide_core(case: &mut Case<'_>, facts: &Facts) {
    if case.soc.isa != Isa::Armv8 {
        return;
    }
    if case.soc.aes {
        let reached = if case.role.has_ciphers() && facts.counts.aes > NOISE {
            "; its assembly does use AES instructions in 32-bit state, with half the registers"
        } else {
            ""
        };
        case.fault(
            Verdict::ThirtyTwoOn64,
            format!("32-bit ARM (ELFCLASS32) on {}, which runs AArch64 and has AES instructions{reached}", case.soc.core),
        );
    } else {
        case.note(format!(
            "32-bit ARM on {}, which runs AArch64 but has no AES instructions",
            case.soc.core
        ));
    }
}

fn architecture(case: &mut Case<'_>, facts: &Facts, attributes: Option<&ArmAttributes>) {
    let Some(arch) = attributes.and_then(|a| a.cpu_arch) else {
        let code = facts.counts;
        if attributes.is_none()
            && code.instructions > 2000
            && code.v7 == 0
            && case.soc.isa != Isa::Armv5te
        {
            case.fault(
                Verdict::TooGeneric,
                format!(
                    "none of {} instructions is of ARMv7 (movw, movt, ubfx...)",
                    code.instructions
                ),
            );
        }
        return;
    };
    let name = attributes
        .and_then(|a| a.cpu_name.as_deref())
        .unwrap_or("no name");
    match case.soc.isa {
        Isa::Armv7 | Isa::Armv8 if arch < V7 => case.fault(
            Verdict::TooGeneric,
            format!(
                "Tag_CPU_arch is {} ({name}), the chip is {}",
                version(arch),
                chip_version(case.soc.isa)
            ),
        ),
        Isa::Armv5te if arch >= 6 => case.fault(
            Verdict::WrongAbi,
            format!(
                "Tag_CPU_arch is {} ({name}), the chip is ARMv5TE",
                version(arch)
            ),
        ),
        Isa::Armv7 if arch >= V8 && !case.role.has_ciphers() => case.fault(
            Verdict::WrongAbi,
            format!(
                "Tag_CPU_arch is {} ({name}), the chip is ARMv7",
                version(arch)
            ),
        ),
        _ => {}
    }
}

fn floats(case: &mut Case<'_>, facts: &Facts, attributes: Option<&ArmAttributes>) {
    if !case.knows("vfp") {
        return;
    }
    let code = &facts.counts;
    let fp = attributes.and_then(|a| a.fp_arch).unwrap_or(0);
    let convention = attributes.and_then(|a| a.vfp_args).unwrap_or(0);
    let hard = facts.flags & FLOAT_HARD != 0 || convention == 1;
    let uses_vfp = fp != 0 || code.vfp > NOISE;
    if case.soc.vfp == Vfp::None {
        if hard {
            case.fault(
                Verdict::WrongAbi,
                format!("passes floats in VFP registers (e_flags {:#x}), and the chip has no floating-point unit", facts.flags),
            );
        } else if uses_vfp {
            case.fault(
                Verdict::WrongAbi,
                format!(
                    "{}, and the chip has no floating-point unit",
                    said(fp, code.vfp)
                ),
            );
        }
        return;
    }
    if !uses_vfp {
        let helpers = [
            "__aeabi_fadd",
            "__aeabi_dadd",
            "__aeabi_fmul",
            "__aeabi_dmul",
            "__aeabi_ddiv",
            "__aeabi_i2d",
        ];
        let called: Vec<&str> = helpers.into_iter().filter(|h| names(facts, h)).collect();
        if attributes.is_some() {
            let mut why = "no Tag_FP_arch: floating point in software".to_owned();
            if facts.flags & FLOAT_SOFT != 0 {
                why += &format!(", soft calling convention (e_flags {:#x})", facts.flags);
            }
            if !called.is_empty() {
                why += &format!(", calls {}", called.join(", "));
            }
            case.fault(Verdict::SoftFloat, why);
        } else if !called.is_empty() {
            case.fault(
                Verdict::SoftFloat,
                format!("no VFP instruction, calls {}", called.join(", ")),
            );
        }
        return;
    }
    if !hard && facts.flags & FLOAT_SOFT != 0 {
        case.note(format!(
            "softfp: {}, but floats are passed in integer registers (e_flags {:#x}); costs a tunnel nothing",
            said(fp, code.vfp),
            facts.flags
        ));
    }
    let sixteen = matches!(fp, 2 | 4 | 6) || (fp == 0 && code.vfp > 200 && code.d16_up == 0);
    let (lesser, than) = match case.soc.vfp {
        Vfp::V3 => (sixteen, "VFPv3 with 32 registers"),
        Vfp::V4 => (fp != 0 && fp < 5 || fp == 6, "VFPv4"),
        Vfp::V8 => (fp != 0 && fp < 5 || fp == 6, "at least VFPv4"),
        Vfp::None | Vfp::V3D16 => (false, ""),
    };
    if lesser {
        case.fault(
            Verdict::TooGeneric,
            format!("{}, the chip has {than}", said(fp, code.vfp)),
        );
    }
}

fn said(fp: u64, counted: u64) -> String {
    let name = match fp {
        0 => return format!("{counted} VFP instructions"),
        1 => "VFPv1",
        2 => "VFPv2",
        3 => "VFPv3",
        4 => "VFPv3-D16",
        5 => "VFPv4",
        6 => "VFPv4-D16",
        _ => "FP for ARMv8",
    };
    format!("Tag_FP_arch is {name}")
}

fn divides(case: &mut Case<'_>, facts: &Facts, attributes: Option<&ArmAttributes>) {
    if !case.knows("divide") {
        return;
    }
    let tag = attributes.and_then(|a| a.div_use);
    let arch = attributes.and_then(|a| a.cpu_arch).unwrap_or(0);
    let allowed = tag == Some(2) || (arch >= V8 && tag != Some(1));
    if !case.soc.divide {
        if allowed && facts.counts.divide > NOISE && case.soc.isa != Isa::Armv5te {
            case.fault(
                Verdict::WrongAbi,
                format!(
                    "Tag_DIV_use allows sdiv and udiv, {} are there, and the chip has none",
                    facts.counts.divide
                ),
            );
        }
        return;
    }
    if allowed {
        return;
    }
    let helpers = [
        "__aeabi_idiv",
        "__aeabi_uidiv",
        "__aeabi_idivmod",
        "__aeabi_uidivmod",
    ];
    let called: Vec<&str> = helpers.into_iter().filter(|h| names(facts, h)).collect();
    if !called.is_empty() {
        let from = if attributes.is_some() {
            "Tag_DIV_use is missing, and it"
        } else {
            "it"
        };
        case.fault(
            Verdict::SoftwareDivide,
            format!(
                "{from} calls {}; {} sdiv or udiv in the code",
                called.join(", "),
                facts.counts.divide
            ),
        );
    } else if attributes.is_some() && facts.counts.divide <= NOISE {
        case.fault(
            Verdict::TooGeneric,
            "Tag_DIV_use is missing: built for cores that cannot divide",
        );
    }
}

fn simd(case: &mut Case<'_>, facts: &Facts, attributes: Option<&ArmAttributes>) {
    if !case.knows("neon") {
        return;
    }
    let tag = attributes.and_then(|a| a.simd_arch).unwrap_or(0);
    let counted = facts.counts.neon;
    if !case.soc.neon {
        // Ciphers look for NEON at run time, so that theirs does no harm.
        if tag != 0 && counted > NOISE && !case.role.has_ciphers() && !confined(&facts.neon) {
            case.fault(
                Verdict::WrongAbi,
                format!("{counted} NEON instructions, and the chip has none"),
            );
        }
        return;
    }
    if tag == 0 {
        // Ciphers in assembly that is chosen at run time are judged as ciphers.
        if attributes.is_some() && counted <= NOISE {
            case.fault(
                Verdict::NoSimd,
                "no Tag_Advanced_SIMD_arch and no NEON instruction",
            );
        } else if attributes.is_some() {
            case.fault(
                Verdict::NoSimd,
                format!(
                    "no Tag_Advanced_SIMD_arch: {} are all of its NEON, in assembly",
                    share(facts)
                ),
            );
        } else if facts.counts.instructions > 2000 && counted <= NOISE {
            case.fault(
                Verdict::NoSimd,
                format!("no NEON among {} instructions", facts.counts.instructions),
            );
        }
        return;
    }
    if confined(&facts.neon) {
        let names = match facts.neon.names.as_slice() {
            [] => String::new(),
            names => format!(": {}", names.join(", ")),
        };
        // Ciphers in assembly are what NEON is for; the C around them is generic all the same.
        let verdict = if case.role.has_ciphers() {
            Verdict::TooGeneric
        } else {
            Verdict::NoSimd
        };
        case.fault(
            verdict,
            format!(
                "Tag_Advanced_SIMD_arch is set by assembly alone, the compiler was not told of NEON: {}{names}",
                share(facts)
            ),
        );
    }
}

/// Whether NEON is in so few places that the compiler cannot have been told of it: linkers keep the largest
/// value of a tag, so one file of assembly makes a whole library look like NEON.
fn confined(spread: &Spread) -> bool {
    match (spread.functions, spread.with_neon, spread.all) {
        (_, 0, _) => false,
        (true, with, all) if all >= 3 => with * 10 <= all || with == 1,
        (false, with, all) if all >= 16 => with * 10 <= all,
        _ => false,
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

fn multiprocessing(case: &mut Case<'_>, attributes: Option<&ArmAttributes>) {
    let Some(attributes) = attributes else { return };
    let arch = attributes.cpu_arch.unwrap_or(0);
    let seven = (V7..V8).contains(&arch);
    if case.soc.multiprocessing && seven && attributes.mp_extension.unwrap_or(0) == 0 {
        case.fault(
            Verdict::TooGeneric,
            "Tag_MPextension_use is missing: built for ARMv7 in general (-march=armv7-a), not for this core",
        );
    }
}

/// Whether the file calls, or has in itself, the compiler's helper `name`.
fn names(facts: &Facts, name: &str) -> bool {
    facts.imports.contains(name) || facts.functions.contains(name)
}

fn version(arch: u64) -> String {
    let name = match arch {
        0..=2 => "before v5",
        3 => "v5T",
        4 => "v5TE",
        5 => "v5TEJ",
        6 => "v6",
        7 => "v6KZ",
        8 => "v6T2",
        9 => "v6K",
        10 => "v7",
        11 | 12 => "v6-M",
        13 => "v7E-M",
        14 => "v8-A",
        _ => "newer than v8-A",
    };
    name.to_owned()
}

fn chip_version(isa: Isa) -> &'static str {
    match isa {
        Isa::Armv8 => "ARMv8",
        _ => "ARMv7",
    }
}
