//! Gains of repairs, from published measurements.

use crate::role::Role;
use crate::soc::{Isa, Soc};
use crate::verdict::{Gain, Verdict};

/// Tunnels, once the build includes OpenSSL's NEON code.
const NEON_CRYPTO: Gain = Gain {
    what: "OpenVPN",
    low: 1.35,
    high: 1.7,
    source: "R9000 and R7500 with NEON code instead of the vendor's, Software & Systems 4/2020, pp. 605-612",
};

/// A packet cipher with AES instructions, compared with one without.
const AES_INSTRUCTIONS: Gain = Gain {
    what: "AES-256-GCM, counted in instructions",
    low: 8.1,
    high: 8.1,
    source: "Millrace on AArch64: 3.2 instructions per byte with AES instructions, 26.3 in NEON; docs/benchmarks/arm-ciphers.md",
};

/// Compiler options alone.
const OPTIONS: Gain = Gain {
    what: "OpenVPN",
    low: 1.1,
    high: 1.15,
    source: "options for Krait and Cortex-A7 instead of Cortex-A9's, Software & Systems 4/2020, pp. 605-612",
};

/// Code outside the tunnel.
const COMPUTING: Gain = Gain {
    what: "computing in C",
    low: 1.15,
    high: 1.9,
    source: "pi and e on IPQ8065 and IPQ4019, tuned against vendor's options, Software & Systems 4/2020, pp. 605-612",
};

/// WireGuard with the kernel's NEON ciphers.
const KERNEL_NEON: Gain = Gain {
    what: "ChaCha20-Poly1305, counted in instructions",
    low: 3.1,
    high: 3.1,
    source: "Millrace on Cortex-A15: 8.0 instructions per byte in NEON, 24.8 without; docs/benchmarks/arm-ciphers.md",
};

/// Gain of a 64-bit kernel.
const WIDE_KERNEL: Gain = Gain {
    what: "WireGuard",
    low: 1.17,
    high: 1.32,
    source: "Raspberry Pi 4 with 32 and with 64 bits, 665 against 777 to 881 Mbit/s; github.com/cyyself/wg-bench",
};

/// OpenSSL compiled for speed instead of size.
const OPTIMISED: Gain = Gain {
    what: "elliptic curves, in handshakes",
    low: 1.2,
    high: 1.5,
    source: "OpenSSL on mipsel and x86, OpenWrt's help for OPENSSL_OPTIMIZE_SPEED",
};

/// OpenSSL's assembly on MIPS.
const MIPS_ASSEMBLY: Gain = Gain {
    what: "SHA-1 and SHA-256",
    low: 1.6,
    high: 1.94,
    source: "OpenSSL 1.1.0i on mipsel, OpenWrt's help for OPENSSL_WITH_ASM",
};

/// The gain of removing the gravest of `verdicts`.
///
/// `uses_aes`: the file already uses the chip's AES instructions.
pub(super) fn of(verdicts: &[Verdict], role: Role, soc: &Soc, uses_aes: bool) -> Option<Gain> {
    let worst = *verdicts.iter().find(|verdict| verdict.is_worth_fixing())?;
    let kernel = matches!(
        role,
        Role::Kernel | Role::KernelConfig | Role::CryptoModule | Role::WireGuard
    );
    let arm = matches!(soc.core.isa, Isa::Armv7 | Isa::Armv8);
    match worst {
        Verdict::NoAsmCrypto | Verdict::ThirtyTwoOn64
            if soc.core.aes
                && soc.is_sure("aes")
                && !uses_aes
                && (role.has_ciphers() || role == Role::KernelConfig) =>
        {
            Some(AES_INSTRUCTIONS)
        }
        Verdict::ThirtyTwoOn64 if role == Role::WireGuard => Some(WIDE_KERNEL),
        Verdict::SizeOptimised if role == Role::Libcrypto => Some(OPTIMISED),
        Verdict::NoAsmCrypto if role == Role::Libcrypto && soc.core.isa == Isa::Mips32r2 => {
            Some(MIPS_ASSEMBLY)
        }
        Verdict::NoAsmCrypto | Verdict::NoSimd if kernel && arm => Some(KERNEL_NEON),
        Verdict::NoAsmCrypto | Verdict::NoSimd | Verdict::SoftFloat
            if role.has_ciphers() && arm =>
        {
            Some(NEON_CRYPTO)
        }
        // `OPTIONS` and `COMPUTING` were measured on chips that divide; `COMPUTING` is mostly division.
        Verdict::NoSimd | Verdict::SoftFloat | Verdict::SoftwareDivide | Verdict::TooGeneric
            if arm && soc.core.divide =>
        {
            if role == Role::OpenVpn || role.has_ciphers() {
                Some(OPTIONS)
            } else {
                let divides = verdicts.contains(&Verdict::SoftwareDivide) && role != Role::Libssl;
                divides.then_some(COMPUTING)
            }
        }
        _ => None,
    }
}
