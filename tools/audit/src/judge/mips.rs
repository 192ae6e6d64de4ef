//! MIPS programs and libraries.

use super::{Case, ciphers};
use crate::facts::{Facts, Machine};
use crate::soc::Isa;
use crate::verdict::Verdict;

pub(super) fn judge(case: &mut Case<'_>, facts: &Facts) {
    let Some(flags) = &facts.mips else {
        case.unknown("neither .MIPS.abiflags nor a level in e_flags");
        return;
    };
    let wide = matches!(case.soc.isa, Isa::Mips64OcteonPlus | Isa::Mips64Octeon3);
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
    if matches!(flags.fp_abi, 1 | 2 | 5..=7) && case.knows("fpu") && !case.soc.fpu {
        case.fault(
            Verdict::WrongAbi,
            "hard floating point on a chip without the unit: each instruction traps into the kernel's emulator",
        );
    }
    if case.role.has_ciphers() {
        ciphers::judge(case, facts);
    }
}
