//! 32-bit ARM programs and libraries.

use super::simd::{self, ENOUGH, NOISE, Registers, few, noise, registers};
use super::{Case, ciphers};
use crate::facts::{ArmAttributes, Facts};
use crate::soc::{Isa, Vfp};
use crate::verdict::Verdict;

/// `e_flags`: floating-point arguments in VFP registers.
const FLOAT_HARD: u32 = 0x400;
/// `e_flags`: floating-point arguments in integer registers.
pub(super) const FLOAT_SOFT: u32 = 0x200;

/// `Tag_CPU_arch`.
const V7: u64 = 10;
const V8: u64 = 14;

pub(super) fn judge(case: &mut Case<'_>, facts: &Facts) {
    wide_core(case, facts);
    let attributes = facts.arm.as_ref();
    if attributes.is_none() {
        case.note("no .ARM.attributes: judged by its instructions only");
    }
    architecture(case, facts, attributes);
    floats(case, facts, attributes);
    divides(case, facts, attributes);
    simd::judge(case, facts, attributes);
    multiprocessing(case, attributes);
    if case.role.has_ciphers() {
        ciphers::judge(case, facts);
    }
    if attributes.is_none() && facts.counts.instructions == 0 {
        case.unknown("neither attributes nor code");
    }
}

/// Reports 32-bit code on a 64-bit core. The later checks judge the file for that core in its 32-bit state.
fn wide_core(case: &mut Case<'_>, facts: &Facts) {
    if case.soc.core.isa != Isa::Armv8 {
        return;
    }
    if case.aes() {
        let reached = if case.role.has_ciphers() && facts.counts.aes > NOISE {
            "; its assembly does use them in 32-bit state, with half the registers"
        } else {
            ""
        };
        case.fault(
            Verdict::ThirtyTwoOn64,
            format!("32-bit ARM (ELFCLASS32), but the chip runs AArch64 and has AES instructions{reached}"),
        );
    } else {
        case.note("32-bit ARM; the chip runs AArch64, too, but has no AES instructions that only AArch64 could use");
    }
}

fn architecture(case: &mut Case<'_>, facts: &Facts, attributes: Option<&ArmAttributes>) {
    let Some(arch) = attributes.and_then(|a| a.cpu_arch) else {
        if attributes.is_none() {
            architecture_by_code(case, facts);
        }
        return;
    };
    let name = attributes
        .and_then(|a| a.cpu_name.as_deref())
        .unwrap_or("no name");
    match case.soc.core.isa {
        Isa::Armv7 | Isa::Armv8 if arch < V7 => case.fault(
            Verdict::TooGeneric,
            format!(
                "Tag_CPU_arch is {} ({name}), but the chip is {}",
                version(arch),
                chip_version(case.soc.core.isa)
            ),
        ),
        Isa::Armv5te if arch >= 6 => case.fault(
            Verdict::WrongAbi,
            format!(
                "Tag_CPU_arch is {} ({name}), but the chip is ARMv5TE",
                version(arch)
            ),
        ),
        Isa::Armv7 if arch >= V8 && !case.role.has_ciphers() => case.fault(
            Verdict::WrongAbi,
            format!(
                "Tag_CPU_arch is {} ({name}), but the chip is ARMv7",
                version(arch)
            ),
        ),
        _ => {}
    }
}

fn architecture_by_code(case: &mut Case<'_>, facts: &Facts) {
    let (all, v7, v8) = (facts.counts.instructions, facts.counts.v7, facts.counts.v8);
    // Ciphers check at run time for the instructions that they use.
    if case.soc.core.isa != Isa::Armv8 && !case.role.has_ciphers() && v8 > 0 {
        if few(facts, v8) {
            case.unknown(format!(
                "{v8} words look like ldaex, stlex or vsel of ARMv8, but may be data"
            ));
        } else if v8 > noise(facts) {
            case.fault(
                Verdict::WrongAbi,
                format!(
                    "{v8} instructions of ARMv8 (ldaex, stlex, vsel...), but the chip is older"
                ),
            );
        }
    }
    if case.soc.core.isa == Isa::Armv5te {
        if v7 > noise(facts) {
            case.fault(
                Verdict::WrongAbi,
                format!(
                    "{v7} instructions of ARMv7 (movw, movt, ubfx...), but the chip is ARMv5TE"
                ),
            );
        }
    } else if all > ENOUGH && v7 * ENOUGH < all {
        case.fault(
            Verdict::TooGeneric,
            format!("{v7} of {all} instructions are of ARMv7 (movw, movt, ubfx...): built for an older chip"),
        );
    } else if v7 == 0 {
        case.unknown(format!(
            "no instruction of ARMv7 among {all}, which are too few for a verdict"
        ));
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
    let helpers = [
        "__aeabi_fadd",
        "__aeabi_dadd",
        "__aeabi_fmul",
        "__aeabi_dmul",
        "__aeabi_ddiv",
        "__aeabi_i2d",
    ];
    let called: Vec<&str> = helpers.into_iter().filter(|h| names(facts, h)).collect();
    let much = code.vfp > noise(facts);
    if case.soc.core.vfp == Vfp::None {
        if hard {
            case.fault(
                Verdict::WrongAbi,
                format!(
                    "passes floats in VFP registers (e_flags {:#x}), but the chip has no floating-point unit",
                    facts.flags
                ),
            );
        } else if much || (fp != 0 && code.vfp > 0) {
            case.fault(
                Verdict::WrongAbi,
                format!(
                    "{}, but the chip has no floating-point unit",
                    said(fp, code.vfp)
                ),
            );
        } else if attributes.is_none() && few(facts, code.vfp) {
            case.unknown(format!("{} words look like VFP, but may be data", code.vfp));
        }
        return;
    }
    // LLVM with soft-float names the unit although it does not use it.
    let software = !much && !called.is_empty();
    if software || !much && fp == 0 {
        let calls = format!("calls {}", called.join(", "));
        if attributes.is_some() && fp == 0 {
            let mut why = "no Tag_FP_arch: floating point in software".to_owned();
            if facts.flags & FLOAT_SOFT != 0 {
                why += &format!(", soft calling convention (e_flags {:#x})", facts.flags);
            }
            if software {
                why += &format!(", {calls}");
            }
            case.fault(Verdict::SoftFloat, why);
        } else if software {
            let used = match code.vfp {
                0 => "no VFP instruction".to_owned(),
                some => format!("{some} VFP instructions"),
            };
            case.fault(Verdict::SoftFloat, format!("{used}, {calls}"));
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
    if let Some(more) = beyond(case.soc.core.vfp, fp, facts) {
        case.fault(Verdict::WrongAbi, more);
        return;
    }
    let by_code = attributes.is_none() && registers(&facts.neon) == Registers::Sixteen;
    let sixteen = matches!(fp, 2 | 4 | 6) || by_code;
    let (lesser, than) = match case.soc.core.vfp {
        Vfp::V3 => (sixteen, "VFPv3 with 32 registers"),
        Vfp::V4 => (fp != 0 && fp < 5 || sixteen, "VFPv4"),
        Vfp::V8 => (fp != 0 && fp < 5 || sixteen, "at least VFPv4"),
        Vfp::None | Vfp::V3D16 => (false, ""),
    };
    if lesser {
        let said = if by_code {
            format!(
                "none of {} double-precision instructions uses D16 or above",
                facts.neon.doubles_elsewhere
            )
        } else {
            said(fp, code.vfp)
        };
        case.fault(
            Verdict::TooGeneric,
            format!("{said}, but the chip has {than}"),
        );
    }
}

/// Describes the file's VFP instructions that the chip lacks.
fn beyond(unit: Vfp, fp: u64, facts: &Facts) -> Option<String> {
    let old = matches!(unit, Vfp::V3D16 | Vfp::V3);
    let fma = facts.counts.fma;
    if old && fma > if fp >= 5 { 0 } else { noise(facts) } {
        return Some(format!(
            "{fma} fused multiply-adds of VFPv4, but the chip has VFPv3"
        ));
    }
    let high = facts.neon.high_elsewhere;
    let many = registers(&facts.neon) == Registers::ThirtyTwo;
    (unit == Vfp::V3D16 && many).then(|| {
        format!("{high} instructions on the registers D16 to D31, which the chip does not have")
    })
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
    let counted = facts.counts.divide;
    if !case.soc.core.divide {
        let said = match attributes {
            Some(_) if allowed && counted > 0 => "Tag_DIV_use allows sdiv and udiv; ",
            None if counted > noise(facts) => "sdiv and udiv: ",
            None if few(facts, counted) => {
                case.unknown(format!(
                    "{counted} words look like sdiv or udiv, but may be data"
                ));
                return;
            }
            _ => return,
        };
        if case.soc.core.isa != Isa::Armv5te {
            case.fault(
                Verdict::WrongAbi,
                format!("{said}the file has {counted}, but the chip has none"),
            );
        }
        return;
    }
    if allowed || (attributes.is_none() && counted > noise(facts)) {
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
                "{from} calls {}; {counted} sdiv or udiv in the code",
                called.join(", "),
            ),
        );
    } else if attributes.is_some() && counted <= noise(facts) {
        case.fault(
            Verdict::TooGeneric,
            "Tag_DIV_use is missing: built for cores that cannot divide",
        );
    } else if attributes.is_none() && counted == 0 {
        case.unknown("neither sdiv nor a call to __aeabi_idiv shows whether it may use the divide instruction");
    }
}

fn multiprocessing(case: &mut Case<'_>, attributes: Option<&ArmAttributes>) {
    let Some(attributes) = attributes else { return };
    let arch = attributes.cpu_arch.unwrap_or(0);
    let seven = (V7..V8).contains(&arch);
    if case.soc.core.multiprocessing && seven && attributes.mp_extension.unwrap_or(0) == 0 {
        case.fault(
            Verdict::TooGeneric,
            "Tag_MPextension_use is missing: built for ARMv7 in general (-march=armv7-a), not for this core",
        );
    }
}

/// Whether the file imports or contains the compiler's helper `name`.
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
