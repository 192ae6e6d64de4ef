//! Kernel modules. Kernels are built without floating point whatever the chip has, so that its absence
//! tells nothing here.

use super::Case;
use crate::facts::{Facts, Machine};
use crate::role::Role;
use crate::soc::Isa;
use crate::verdict::Verdict;

pub(super) fn judge(case: &mut Case<'_>, facts: &Facts) {
    let value = |key: &str| {
        facts
            .modinfo
            .iter()
            .find(|(k, _)| k == key)
            .map_or("", |(_, v)| v.as_str())
    };
    if case.soc.isa == Isa::Armv8 && case.soc.aes && matches!(facts.machine, Machine::Arm { .. }) {
        case.fault(
            Verdict::ThirtyTwoOn64,
            format!("a 32-bit kernel's module on {}", case.soc.core),
        );
    }
    if let Some(attributes) = &facts.arm {
        if attributes.cpu_arch.is_some_and(|arch| arch < 10) && case.soc.isa != Isa::Armv5te {
            case.fault(Verdict::TooGeneric, "Tag_CPU_arch is below v7");
        }
        let hot = matches!(case.role, Role::CryptoModule | Role::WireGuard);
        if hot && matches!(attributes.optimization_goals, Some(3 | 4)) {
            case.fault(
                Verdict::SizeOptimised,
                "Tag_ABI_optimization_goals is size (-Os)",
            );
        }
    }
    ciphers(case, facts, value("depends"));
    match value("vermagic") {
        "" => case.note("a kernel module"),
        magic => case.note(format!("vermagic {magic}")),
    }
}

/// The libraries of WireGuard's ciphers say which code they call.
fn ciphers(case: &mut Case<'_>, facts: &Facts, depends: &str) {
    let name = facts
        .modinfo
        .iter()
        .find(|(key, _)| key == "name")
        .map_or("", |(_, name)| name.as_str());
    let simd = case.soc.neon || case.soc.isa == Isa::Armv8;
    if name != "libchacha20poly1305" || !simd {
        return;
    }
    let parts: Vec<&str> = depends.split(',').collect();
    let any = |wanted: &[&str]| {
        parts
            .iter()
            .any(|part| wanted.contains(&part.replace('_', "-").as_str()))
    };
    if any(&["chacha-neon"]) {
        case.note(format!("depends on {depends}: ChaCha20 in NEON"));
    } else if any(&["libchacha", "chacha-generic"]) {
        case.wanted.extend(
            [
                "CONFIG_CRYPTO_CHACHA20_NEON=m",
                "CONFIG_CRYPTO_POLY1305_ARM=m",
            ]
            .map(str::to_owned),
        );
        case.fault(
            Verdict::NoSimd,
            format!("depends on {depends}: ChaCha20 in plain C, not chacha-neon"),
        );
    } else {
        case.unknown(format!(
            "depends on \"{depends}\": the ciphers are built into the kernel"
        ));
    }
}
