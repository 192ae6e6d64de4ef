//! AArch64 programs and libraries. Every such chip has NEON and floating point, and files keep no
//! attributes: only instructions tell.

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
    // Helpers that choose atomics at run time contain the atomics themselves.
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
    // Code that chooses at run time also contains exclusive instructions.
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
