//! What to do about a finding, in the build systems that firmware is made with.

use super::Subject;
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
        add("Kernel: set the lines named above in the target's config (OpenWrt: target/linux/*/config-*, or \
             `make kernel_menuconfig`) and build it anew."
            .to_owned());
        if has(Verdict::ThirtyTwoOn64) {
            add("Kernel: ARCH=arm64 with an AArch64 compiler.".to_owned());
        }
        return steps;
    }
    if has(Verdict::ThirtyTwoOn64) {
        add(format!(
            "Build for AArch64: {}. OpenWrt: a target with ARCH:=aarch64{}.",
            soc.gcc,
            arch(soc)
        ));
    } else if has(Verdict::WrongAbi) {
        add(format!(
            "Build with a tool chain for the chip: {}.",
            soc.gcc
        ));
    }
    if has(Verdict::NoSimd) && !has(Verdict::NoAsmCrypto) && role == Role::Libcrypto {
        add("OpenSSL leaves its NEON code out where the compiler builds for less than ARMv7 (__ARM_MAX_ARCH__): the \
             options below bring it in."
            .to_owned());
    }
    if has(Verdict::NoAsmCrypto) {
        add(match role {
            Role::Libcrypto => "OpenSSL: configure without `no-asm`, for a target with assembly (linux-armv4, \
                                linux-aarch64, linux-mips32), not for linux-generic32 or linux-generic64. OpenWrt: CONFIG_OPENSSL_WITH_ASM=y."
                .to_owned(),
            Role::MbedTls => "Mbed TLS 3.5 or later with MBEDTLS_AESCE_C and MBEDTLS_HAVE_ASM, or OpenSSL, which has \
                              assembly for every ARM."
                .to_owned(),
            Role::WolfSsl => "wolfSSL: configure with --enable-armasm (OpenWrt: WOLFSSL_HAS_CPU_CRYPTO).".to_owned(),
            Role::WireGuard | Role::CryptoModule => {
                "Kernel: the modules with NEON (OpenWrt: kmod-crypto-lib-chacha20, kmod-crypto-lib-poly1305), \
                 CONFIG_KERNEL_MODE_NEON=y."
                    .to_owned()
            }
            _ => "Build with the library's assembly.".to_owned(),
        });
    }
    if has(Verdict::SizeOptimised) {
        add(match role {
            Role::Libcrypto | Role::Libssl => {
                "OpenSSL: -O2 or -O3 in the place of -Os, without -DOPENSSL_SMALL_FOOTPRINT. OpenWrt: \
                 CONFIG_OPENSSL_OPTIMIZE_SPEED=y, CONFIG_OPENSSL_SMALL_FOOTPRINT off."
                    .to_owned()
            }
            Role::WireGuard | Role::CryptoModule => "Kernel: CONFIG_CC_OPTIMIZE_FOR_PERFORMANCE=y.".to_owned(),
            _ => "-O2 in the place of -Os.".to_owned(),
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
        if matches!(soc.isa, Isa::Armv7 | Isa::Armv8) && flags.contains("-mfpu=") {
            add(format!(
                "OpenWrt: {} in the target's Makefile.",
                openwrt(flags)
            ));
            if has(Verdict::SoftFloat) {
                add("To keep working with libraries of the soft calling convention that cannot be built anew: \
                     -mfloat-abi=softfp, never -mfloat-abi=soft, which gives NEON and the floating-point unit away."
                    .to_owned());
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

/// The two variables of OpenWrt's targets that say what is compiled for.
fn openwrt(flags: &str) -> String {
    let value = |option: &str| {
        flags
            .split_whitespace()
            .find_map(|word| word.strip_prefix(option))
            .map(str::to_owned)
    };
    let cpu = value("-mcpu=")
        .or_else(|| value("-march="))
        .unwrap_or_else(|| "?".to_owned());
    match value("-mfpu=") {
        Some(fpu) => format!("CPU_TYPE:={cpu}, CPU_SUBTYPE:={fpu}"),
        None => format!("CPU_TYPE:={cpu}, no CPU_SUBTYPE"),
    }
}
