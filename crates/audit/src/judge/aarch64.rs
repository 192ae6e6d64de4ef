//! AArch64 programs and libraries. NEON and floating point are part of every such chip, and no attributes
//! are kept: only instructions tell.

use super::{Case, ciphers};
use crate::facts::Facts;
use crate::verdict::Verdict;

pub(super) fn judge(case: &mut Case<'_>, facts: &Facts) {
    let code = &facts.counts;
    if code.instructions == 0 {
        case.unknown("no code");
        return;
    }
    if case.role.has_ciphers() {
        ciphers::judge(case, facts);
    }
    // Helpers that look for the atomics at run time have them in themselves.
    let outline = facts
        .functions
        .iter()
        .chain(&facts.imports)
        .any(|name| name.starts_with("__aarch64_"));
    if case.soc.lse && code.lse == 0 && code.exclusive > 0 && !outline {
        case.fault(
            Verdict::TooGeneric,
            format!(
                "{} exclusive loads and stores and no atomic of ARMv8.1, which the chip has",
                code.exclusive
            ),
        );
    }
    // Code that looks for them at run time looks for the others as well.
    if !case.soc.lse
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
