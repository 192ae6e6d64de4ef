//! Kernel modules. Kernels are built without floating point on every chip, so its absence says nothing.

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
    if case.soc.core.isa == Isa::Armv8 && case.aes() && matches!(facts.machine, Machine::Arm { .. })
    {
        case.fault(
            Verdict::ThirtyTwoOn64,
            "a 32-bit kernel's module, but the chip runs AArch64",
        );
    }
    let narrow = matches!(facts.machine, Machine::Arm { .. });
    let magic = value("vermagic");
    if narrow && let Some(why) = other_kernel(case.soc.core.isa, magic, facts) {
        case.fault(Verdict::WrongAbi, why);
    }
    let hot = matches!(case.role, Role::CryptoModule | Role::WireGuard);
    let goals = facts.arm.as_ref().and_then(|a| a.optimization_goals);
    if hot && matches!(goals, Some(3 | 4)) {
        case.fault(
            Verdict::SizeOptimised,
            "Tag_ABI_optimization_goals is size (-Os)",
        );
    }
    ciphers(case, facts, value("depends"), magic);
    match magic {
        "" => case.note("a kernel module"),
        magic => case.note(format!("vermagic {magic}")),
    }
}

/// Why a 32-bit kernel that loads this module does not run on the chip: an ARMv5 kernel cannot handle
/// ARMv7's caches and page tables, nor the reverse. `vermagic` names the architecture; the attributes show
/// only the most demanding assembly.
fn other_kernel(isa: Isa, magic: &str, facts: &Facts) -> Option<String> {
    let arch = facts.arm.as_ref().and_then(|arm| arm.cpu_arch).unwrap_or(0);
    let said = magic.split(' ').find(|word| word.starts_with("ARMv"));
    let (old, what) = match said {
        Some(word) => (
            matches!(word, "ARMv4" | "ARMv5" | "ARMv6"),
            format!("vermagic says {word}"),
        ),
        None if arch == 0 => return None,
        None => (
            arch < 10,
            "Tag_CPU_arch is ".to_owned() + if arch < 10 { "below v7" } else { "v7" },
        ),
    };
    match (isa, old) {
        (Isa::Armv5te, false) => Some(format!(
            "{what}: a kernel for ARMv7, but the chip is ARMv5TE"
        )),
        (Isa::Armv7 | Isa::Armv8, true) => Some(format!(
            "{what}: a kernel for older chips, which does not start on ARMv7"
        )),
        _ => None,
    }
}

/// Judges the libraries of WireGuard's ciphers, whose dependencies name the code that they call.
fn ciphers(case: &mut Case<'_>, facts: &Facts, depends: &str, magic: &str) {
    let name = facts
        .modinfo
        .iter()
        .find(|(key, _)| key == "name")
        .map_or("", |(_, name)| name.as_str());
    let simd = case.soc.core.neon || case.soc.core.isa == Isa::Armv8;
    // From Linux 6.16 on libchacha contains its own NEON code, and the dependency says nothing.
    if name != "libchacha20poly1305" || !simd || version(magic).is_some_and(|v| v >= (6, 16)) {
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
        let poly = match facts.machine {
            Machine::Aarch64 { .. } => "CONFIG_CRYPTO_POLY1305_NEON=m",
            _ => "CONFIG_CRYPTO_POLY1305_ARM=m",
        };
        case.wanted
            .extend(["CONFIG_CRYPTO_CHACHA20_NEON=m", poly].map(str::to_owned));
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

/// Parses the version in `6.1.0-50-armmp SMP mod_unload ARMv7 p2v8` and similar texts.
fn version(magic: &str) -> Option<(u32, u32)> {
    let mut parts = magic.split(['.', '-', ' ']);
    let mut number = || parts.next()?.parse().ok();
    Some((number()?, number()?))
}
