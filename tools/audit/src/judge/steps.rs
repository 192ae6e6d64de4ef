//! The steps of a repair, in the build systems that firmware is made with.

use super::Subject;
use crate::facts::Kind;
use crate::role::Role;
use crate::soc::{Isa, Soc};
use crate::verdict::Verdict;

pub(super) fn of(
    verdicts: &[Verdict],
    role: Role,
    soc: &Soc,
    subject: &Subject,
    flags: &str,
) -> Vec<String> {
    let has = |verdict| verdicts.contains(&verdict);
    let mut steps = Vec::new();
    let mut add = |step: String| steps.push(step);
    if !verdicts.iter().any(|verdict| verdict.is_worth_fixing()) {
        return steps;
    }
    if matches!(subject, Subject::KernelConfig(_) | Subject::KernelWords(_)) {
        if has(Verdict::ThirtyTwoOn64) {
            add(
                "Kernel: ARCH=arm64 with an AArch64 compiler; 32-bit programs still run on it."
                    .to_owned(),
            );
        }
        if flags.starts_with("CONFIG_") {
            add(format!(
                "Kernel: {flags} (OpenWrt: in target/linux/*/config-*, or by `make kernel_menuconfig`)."
            ));
        } else if has(Verdict::WrongAbi) {
            add("Use the kernel configuration of this chip's own OpenWrt target.".to_owned());
        }
        return steps;
    }
    if matches!(role, Role::WireGuard | Role::CryptoModule | Role::Module) && is_module(subject) {
        module(verdicts, flags, &mut add);
        return steps;
    }
    if has(Verdict::ThirtyTwoOn64) {
        add(format!(
            "Build for AArch64: {}. OpenWrt: a target with ARCH:=aarch64{}.",
            soc.core.gcc,
            arch(soc)
        ));
    } else if has(Verdict::WrongAbi) {
        add(format!(
            "Build with a tool chain for the chip: {}.",
            soc.core.gcc
        ));
    }
    let wide = has(Verdict::ThirtyTwoOn64);
    if has(Verdict::NoSimd) && !has(Verdict::NoAsmCrypto) && role == Role::Libcrypto && !wide {
        add("OpenSSL omits its NEON code if the compiler builds for less than ARMv7 (__ARM_MAX_ARCH__); the options \
             below include it."
            .to_owned());
    }
    if has(Verdict::NoAsmCrypto) {
        add(match role {
            Role::Libcrypto => "OpenSSL: configure without `no-asm`, for a target with assembly (linux-armv4, \
                                linux-aarch64, linux-mips32), not for linux-generic32 or linux-generic64. OpenWrt: \
                                CONFIG_OPENSSL_WITH_ASM=y."
                .to_owned(),
            Role::MbedTls if soc.core.aes => "Mbed TLS 3.4 or later for 64 bits, with MBEDTLS_AESCE_C; or OpenSSL, with \
                                         its assembly for every ARM."
                .to_owned(),
            Role::MbedTls => "Mbed TLS has no assembly for this chip's ciphers; use OpenSSL, which has.".to_owned(),
            Role::WolfSsl => "wolfSSL: configure with --enable-armasm. OpenWrt: the package libwolfsslcpu-crypto; in \
                              22.03 CONFIG_WOLFSSL_HAS_CPU_CRYPTO=y. On AArch64 it then needs AES instructions."
                .to_owned(),
            _ => "Build with the library's assembly.".to_owned(),
        });
    }
    if has(Verdict::SizeOptimised) {
        add(match role {
            Role::Libcrypto | Role::Libssl => {
                "OpenSSL: -O2 or -O3 instead of -Os, without -DOPENSSL_SMALL_FOOTPRINT. OpenWrt: \
                 CONFIG_OPENSSL_OPTIMIZE_SPEED=y, CONFIG_OPENSSL_SMALL_FOOTPRINT off."
                    .to_owned()
            }
            _ => "-O2 instead of -Os.".to_owned(),
        });
    }
    let options = [
        Verdict::NoSimd,
        Verdict::SoftFloat,
        Verdict::SoftwareDivide,
        Verdict::TooGeneric,
    ];
    if options.into_iter().any(has) && !has(Verdict::WrongAbi) && !has(Verdict::ThirtyTwoOn64) {
        add(format!("Compiler: {flags}."));
        if flags.contains("-mfloat-abi=softfp") {
            add("-mfloat-abi=softfp keeps the calling convention of the libraries around it; -mfloat-abi=hard if \
                 everything is rebuilt; never -mfloat-abi=soft, which disables NEON and the floating-point unit."
                .to_owned());
        }
        if matches!(soc.core.isa, Isa::Armv7 | Isa::Armv8) && flags.contains("-mfpu=") {
            if let Some(variables) = openwrt(flags) {
                add(format!(
                    "OpenWrt: {variables} in the target's Makefile or target.mk."
                ));
            }
            if soc.core.isa == Isa::Armv8 {
                add(format!(
                    "Or build for AArch64, which has twice the registers: {}.",
                    soc.core.gcc
                ));
            }
        }
    }
    steps
}

fn arch(soc: &Soc) -> String {
    soc.openwrt_arch
        .first()
        .map_or_else(String::new, |arch| format!(" ({arch})"))
}

fn is_module(subject: &Subject) -> bool {
    matches!(subject, Subject::Elf(facts) if facts.kind == Kind::Module)
}

/// Adds the steps for a module, whose faults are repaired by rebuilding the whole kernel.
fn module(verdicts: &[Verdict], flags: &str, add: &mut impl FnMut(String)) {
    let has = |verdict| verdicts.contains(&verdict);
    if has(Verdict::WrongAbi) {
        add("Use a kernel for this chip, with its modules.".to_owned());
    }
    if has(Verdict::ThirtyTwoOn64) {
        add(
            "Kernel: ARCH=arm64 with an AArch64 compiler; 32-bit programs still run on it."
                .to_owned(),
        );
    }
    if has(Verdict::SizeOptimised) {
        add("Kernel: CONFIG_CC_OPTIMIZE_FOR_PERFORMANCE=y.".to_owned());
    }
    if has(Verdict::NoSimd) || has(Verdict::NoAsmCrypto) {
        add(format!(
            "Kernel: {flags}, CONFIG_KERNEL_MODE_NEON=y. OpenWrt: kmod-wireguard depends on these modules \
             (kmod-crypto-lib-chacha20, kmod-crypto-lib-poly1305) if the target's kernel has NEON."
        ));
    }
}

/// The two variables of OpenWrt's targets that select the processor. Its 32-bit targets know no ARMv8 units.
fn openwrt(flags: &str) -> Option<String> {
    let value = |option: &str| {
        flags
            .split_whitespace()
            .find_map(|word| word.strip_prefix(option))
    };
    let (cpu, fpu) = (value("-mcpu=")?, value("-mfpu=")?);
    matches!(fpu, "neon" | "neon-vfpv4" | "vfpv3-d16")
        .then(|| format!("CPU_TYPE:={cpu}, CPU_SUBTYPE:={fpu}"))
}
