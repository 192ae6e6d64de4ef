//! Compares a file with what the chip can do.

use std::collections::BTreeSet;

use crate::facts::{Facts, Kind, Machine};
use crate::role::Role;
use crate::soc::{Isa, Soc};
use crate::verdict::{Finding, Verdict};

mod arm;
mod ciphers;
mod gain;
mod kernel;
mod module;
mod simd;
mod steps;
#[cfg(test)]
mod tests;

pub use kernel::Words;

/// A file, reduced to what the judges need.
#[derive(Clone, Debug, PartialEq)]
pub enum Subject {
    /// ELF file with its facts.
    Elf(Box<Facts>),
    /// The text of a kernel's configuration.
    KernelConfig(String),
    /// An uncompressed kernel, by the words found in it.
    KernelWords(Words),
}

/// The case of one file, to which the judges add.
struct Case<'a> {
    soc: &'a Soc,
    role: Role,
    verdicts: BTreeSet<Verdict>,
    /// Facts that were read, each with the verdict that follows from it, if any.
    evidence: Vec<(Option<Verdict>, String)>,
    unknown: Vec<String>,
    /// Kernel configuration lines that need to change.
    wanted: Vec<String>,
    /// Whether the file already uses the chip's AES instructions.
    reaches_aes: bool,
}

impl Case<'_> {
    /// Records a fault and its evidence.
    fn fault(&mut self, verdict: Verdict, evidence: impl Into<String>) {
        self.verdicts.insert(verdict);
        self.evidence.push((Some(verdict), evidence.into()));
    }

    /// Records a fact that is not a fault.
    fn note(&mut self, evidence: impl Into<String>) {
        self.evidence.push((None, evidence.into()));
    }

    /// Records a question that cannot be answered, and why.
    fn unknown(&mut self, why: impl Into<String>) {
        self.unknown.push(why.into());
    }

    /// Whether the chip's `fact` is known; if not, records that the question cannot be answered.
    fn knows(&mut self, fact: &str) -> bool {
        let sure = self.soc.is_sure(fact);
        if !sure {
            self.unknown(format!(
                "no public source says what {} has of {fact}",
                self.soc.name
            ));
        }
        sure
    }

    /// Whether the chip is known to have AES instructions.
    fn aes(&self) -> bool {
        self.soc.core.aes && self.soc.is_sure("aes")
    }

    fn is_faulty(&self) -> bool {
        !self.verdicts.is_empty()
    }

    /// Drops all other verdicts on a file that does not run: rebuilding it changes everything else.
    fn only_the_gravest(&mut self) {
        if self.verdicts.contains(&Verdict::WrongAbi) {
            self.verdicts = BTreeSet::from([Verdict::WrongAbi]);
            self.evidence
                .retain(|(of, _)| of.is_none_or(|of| of == Verdict::WrongAbi));
            self.unknown.clear();
            self.wanted.clear();
        }
        // Evidence in the order of the verdicts; facts without a fault come last.
        self.evidence.sort_by_key(|(of, _)| (of.is_none(), *of));
    }
}

/// Judges one file for `soc`.
#[must_use]
pub fn judge(soc: &Soc, path: &str, origin: &str, role: Role, subject: &Subject) -> Finding {
    // A program that contains OpenSSL is also judged as OpenSSL, whatever its name.
    let judged = match subject {
        Subject::Elf(facts)
            if !role.has_ciphers() && facts.kind != Kind::Module && has_openssl(facts) =>
        {
            Role::Libcrypto
        }
        _ => role,
    };
    let mut case = Case {
        soc,
        role: judged,
        verdicts: BTreeSet::new(),
        evidence: Vec::new(),
        unknown: Vec::new(),
        wanted: Vec::new(),
        reaches_aes: matches!(subject, Subject::Elf(facts) if facts.counts.aes > 0),
    };
    match subject {
        Subject::Elf(facts) => elf(&mut case, facts),
        Subject::KernelConfig(text) => kernel::config(&mut case, text),
        Subject::KernelWords(words) => kernel::words(&mut case, words),
    }
    case.only_the_gravest();
    let mut verdicts: Vec<Verdict> = case.verdicts.into_iter().collect();
    if verdicts.is_empty() {
        // A file with unanswered questions is not judged fine.
        verdicts.push(if case.unknown.is_empty() {
            Verdict::Fine
        } else {
            Verdict::CannotTell
        });
    }
    let mut evidence: Vec<String> = case.evidence.into_iter().map(|(_, text)| text).collect();
    if evidence.is_empty() && case.unknown.is_empty() {
        evidence.push(looked_at(subject));
    }
    evidence.extend(
        case.unknown
            .into_iter()
            .map(|why| format!("cannot tell: {why}")),
    );
    let worth = verdicts.iter().any(|verdict| verdict.is_worth_fixing());
    let flags = match (worth, case.wanted.is_empty()) {
        (false, _) => String::new(),
        (true, true) => options(soc, subject, &verdicts),
        (true, false) => case.wanted.join(" "),
    };
    Finding {
        path: path.to_owned(),
        origin: origin.to_owned(),
        role,
        gain: gain::of(&verdicts, judged, soc, case.reaches_aes),
        steps: steps::of(&verdicts, judged, soc, subject, &flags),
        verdicts,
        evidence,
        flags,
    }
}

/// Whether the file contains OpenSSL: its assembly names itself, and it keeps its compiler's command line.
/// (The kernel has taken some of that assembly, with its name.)
fn has_openssl(facts: &Facts) -> bool {
    facts
        .notes
        .iter()
        .any(|note| note.contains("CRYPTOGAMS") || note.starts_with("compiler: "))
}

/// Describes the facts read from a file without faults.
fn looked_at(subject: &Subject) -> String {
    match subject {
        Subject::Elf(facts) => {
            let attributes = match (&facts.arm, &facts.mips) {
                (None, None) => "",
                _ => ", and what its builder said of them",
            };
            format!(
                "{} instructions{attributes}: all fits",
                facts.counts.instructions
            )
        }
        Subject::KernelConfig(_) | Subject::KernelWords(_) => "all fits".to_owned(),
    }
}

/// The compiler options that fit, in the file's own calling convention and without features that the chip
/// is not known to have. A 64-bit core gets 32-bit options where 64 bits gain nothing.
fn options(soc: &Soc, subject: &Subject, verdicts: &[Verdict]) -> String {
    let arm = match subject {
        Subject::Elf(facts) if matches!(facts.machine, Machine::Arm { .. }) => Some(facts),
        _ => None,
    };
    let wide = soc.core.isa == Isa::Armv8 && verdicts.contains(&Verdict::ThirtyTwoOn64);
    let flags = match &soc.core.gcc32 {
        Some(gcc32) if arm.is_some() && soc.core.isa == Isa::Armv8 && !wide => gcc32,
        _ => &soc.core.gcc,
    };
    // Libraries of different calling conventions do not work together.
    let soft = arm.is_some_and(|facts| facts.flags & arm::FLOAT_SOFT != 0)
        && !verdicts.contains(&Verdict::WrongAbi);
    let (unit, aes) = (
        soc.is_sure("vfp") && soc.is_sure("neon"),
        soc.is_sure("aes"),
    );
    let words = flags
        .split_whitespace()
        .filter(|word| unit || !(word.starts_with("-mfpu=") || word.starts_with("-mfloat-abi=")));
    let words = words.map(|word| match word {
        "-mfloat-abi=hard" if soft => "-mfloat-abi=softfp",
        word if !aes => word.trim_end_matches("+crypto"),
        word => word,
    });
    words.collect::<Vec<_>>().join(" ")
}

fn elf(case: &mut Case<'_>, facts: &Facts) {
    if !fits(case.soc, facts.machine) {
        let why = format!(
            "the file is for {}, the chip is {}",
            name_of(facts.machine),
            chip(case.soc)
        );
        case.fault(Verdict::WrongAbi, why);
        return;
    }
    if facts.kind == Kind::Module {
        module::judge(case, facts);
        return;
    }
    match facts.machine {
        Machine::Arm { .. } => arm::judge(case, facts),
        Machine::Aarch64 { .. } => aarch64(case, facts),
        Machine::Mips { .. } => mips(case, facts),
        _ => case.unknown("options that matter leave no trace in files for this machine"),
    }
}

/// Whether the chip can run code for `machine` at all.
fn fits(soc: &Soc, machine: Machine) -> bool {
    match (machine, soc.core.isa) {
        (Machine::Arm { big }, Isa::Armv5te | Isa::Armv7 | Isa::Armv8) => big == soc.big_endian,
        (Machine::Aarch64 { big }, Isa::Armv8) => big == soc.big_endian,
        (Machine::Mips { big, wide: false }, Isa::Mips32r2) => big == soc.big_endian,
        (Machine::Mips { big, .. }, Isa::Mips64OcteonPlus | Isa::Mips64Octeon3) => {
            big == soc.big_endian
        }
        (Machine::PowerPc { wide }, Isa::PowerPcSpe) => !wide,
        _ => false,
    }
}

fn name_of(machine: Machine) -> String {
    let order = |big| if big { ", big-endian" } else { "" };
    match machine {
        Machine::Arm { big } => format!("32-bit ARM{}", order(big)),
        Machine::Aarch64 { big } => format!("AArch64{}", order(big)),
        Machine::Mips { big, wide } => format!(
            "{}-bit MIPS, {}-endian",
            if wide { 64 } else { 32 },
            if big { "big" } else { "little" }
        ),
        Machine::PowerPc { wide } => format!("{}-bit PowerPC", if wide { 64 } else { 32 }),
        Machine::X86 { wide } => (if wide { "x86-64" } else { "x86" }).to_owned(),
        Machine::Other(number) => format!("machine {number} (e_machine)"),
    }
}

fn chip(soc: &Soc) -> String {
    let isa = match soc.core.isa {
        Isa::Armv5te => "ARMv5TE",
        Isa::Armv7 => "ARMv7",
        Isa::Armv8 => "ARMv8, 64 bits",
        Isa::Mips32r2 => "MIPS32 release 2",
        Isa::Mips64OcteonPlus => "MIPS64, Octeon+",
        Isa::Mips64Octeon3 => "MIPS64, Octeon III",
        Isa::PowerPcSpe => "PowerPC e500v2",
    };
    let order = match soc.core.isa {
        Isa::Armv5te | Isa::Armv7 | Isa::Armv8 | Isa::PowerPcSpe => "",
        _ if soc.big_endian => ", big-endian",
        _ => ", little-endian",
    };
    format!("{} ({isa}{order})", soc.core.name)
}

/// Judges AArch64 programs and libraries. Every such chip has NEON and floating point, and files keep no
/// attributes: only instructions tell.
fn aarch64(case: &mut Case<'_>, facts: &Facts) {
    let code = &facts.counts;
    if code.instructions == 0 {
        case.unknown("no code");
        return;
    }
    if case.role.has_ciphers() {
        ciphers::judge(case, facts);
    }
    // Helpers that choose atomics at run time contain the atomics themselves.
    let outline = facts
        .functions
        .iter()
        .chain(&facts.imports)
        .any(|name| name.starts_with("__aarch64_"));
    if case.soc.core.lse && code.lse == 0 && code.exclusive > 0 && !outline {
        case.fault(
            Verdict::TooGeneric,
            format!(
                "{} exclusive loads and stores and no atomic of ARMv8.1, which the chip has",
                code.exclusive
            ),
        );
    }
    // Code that chooses at run time also contains exclusive instructions.
    if !case.soc.core.lse
        && code.lse > code.instructions / 5000
        && code.exclusive == 0
        && case.soc.is_sure("lse")
    {
        case.fault(
            Verdict::WrongAbi,
            format!(
                "{} atomics of ARMv8.1 and none of ARMv8.0, and the chip is ARMv8.0",
                code.lse
            ),
        );
    }
    if !case.is_faulty() && !case.role.has_ciphers() {
        case.note("AArch64 has NEON, floating point and division in every build");
    }
}

/// Judges MIPS programs and libraries.
fn mips(case: &mut Case<'_>, facts: &Facts) {
    let Some(flags) = &facts.mips else {
        case.unknown("neither .MIPS.abiflags nor a level in e_flags");
        return;
    };
    let wide = matches!(
        case.soc.core.isa,
        Isa::Mips64OcteonPlus | Isa::Mips64Octeon3
    );
    if wide && matches!(facts.machine, Machine::Mips { wide: false, .. }) {
        case.fault(Verdict::TooGeneric, "32-bit code on a 64-bit core");
    }
    let said = format!("MIPS{} release {}", flags.isa_level, flags.isa_rev.max(1));
    if flags.isa_level < 32 || flags.isa_rev < 2 {
        case.fault(
            Verdict::TooGeneric,
            format!("built for {said}, the chip is release 2: no rotations, no bit fields"),
        );
    } else if flags.isa_rev >= 6 {
        case.fault(
            Verdict::WrongAbi,
            format!("built for {said}, which is not compatible with the chip's release 2"),
        );
    }
    if wide && flags.isa_ext == 0 {
        case.fault(
            Verdict::TooGeneric,
            "no Octeon instructions (-march=octeon+): the chip's own multiplication and atomics",
        );
    }
    // 1 and 2 are hard float; 5 to 7 are newer kinds of hard float.
    if matches!(flags.fp_abi, 1 | 2 | 5..=7) && case.knows("fpu") && !case.soc.core.fpu {
        case.fault(
            Verdict::WrongAbi,
            "hard floating point on a chip without the unit: each instruction traps into the kernel's emulator",
        );
    }
    if case.role.has_ciphers() {
        ciphers::judge(case, facts);
    }
}
