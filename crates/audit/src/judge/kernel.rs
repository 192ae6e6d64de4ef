//! Kernels: by their configuration where it is at hand, or else by the words that are in them.

use super::Case;
use crate::soc::{Isa, Vfp};
use crate::verdict::Verdict;
use std::collections::HashMap;

/// Ciphers of a tunnel in the kernel, each with the names that its option has had.
struct Wanted {
    what: &'static str,
    options: &'static [&'static str],
}

/// What 32-bit kernels have for NEON.
const NEON_CIPHERS: [Wanted; 5] = [
    Wanted {
        what: "ChaCha20",
        options: &[
            "CONFIG_CRYPTO_CHACHA20_NEON",
            "CONFIG_CRYPTO_LIB_CHACHA_ARCH",
        ],
    },
    Wanted {
        what: "Poly1305",
        options: &[
            "CONFIG_CRYPTO_POLY1305_ARM",
            "CONFIG_CRYPTO_LIB_POLY1305_ARCH",
        ],
    },
    Wanted {
        what: "Curve25519",
        options: &[
            "CONFIG_CRYPTO_CURVE25519_NEON",
            "CONFIG_CRYPTO_LIB_CURVE25519_ARCH",
        ],
    },
    Wanted {
        what: "AES-CTR, CBC and XTS",
        options: &["CONFIG_CRYPTO_AES_ARM_BS"],
    },
    Wanted {
        what: "SHA-256",
        options: &["CONFIG_CRYPTO_SHA256_ARM", "CONFIG_CRYPTO_LIB_SHA256_ARCH"],
    },
];

/// What 64-bit kernels have for NEON and the AES instructions.
const WIDE_CIPHERS: [Wanted; 3] = [
    Wanted {
        what: "ChaCha20",
        options: &[
            "CONFIG_CRYPTO_CHACHA20_NEON",
            "CONFIG_CRYPTO_LIB_CHACHA_ARCH",
        ],
    },
    Wanted {
        what: "Poly1305",
        options: &[
            "CONFIG_CRYPTO_POLY1305_NEON",
            "CONFIG_CRYPTO_LIB_POLY1305_ARCH",
        ],
    },
    Wanted {
        what: "SHA-256",
        options: &[
            "CONFIG_CRYPTO_SHA256_ARM64",
            "CONFIG_CRYPTO_LIB_SHA256_ARCH",
        ],
    },
];

/// What 64-bit kernels have for the AES instructions.
const AES_CIPHERS: [Wanted; 2] = [
    Wanted {
        what: "AES",
        options: &["CONFIG_CRYPTO_AES_ARM64_CE_BLK"],
    },
    Wanted {
        what: "AES-GCM",
        options: &["CONFIG_CRYPTO_GHASH_ARM64_CE"],
    },
];

/// Judges the text of `.config`.
pub(super) fn config(case: &mut Case<'_>, text: &str) {
    let options: HashMap<&str, &str> = text
        .lines()
        .filter(|line| line.starts_with("CONFIG_"))
        .filter_map(|line| line.trim_end().split_once('='))
        .collect();
    if options.is_empty() {
        case.unknown("no line is an option of a kernel");
        return;
    }
    let on = |option: &str| matches!(options.get(option), Some(&("y" | "m")));
    if let Some(version) = text.lines().find(|line| line.starts_with("# Linux/")) {
        case.note(version.trim_start_matches("# ").to_owned());
    }
    let soc = case.soc;
    let arm = matches!(soc.isa, Isa::Armv5te | Isa::Armv7 | Isa::Armv8);
    if arm != (on("CONFIG_ARM") || on("CONFIG_ARM64")) {
        case.fault(
            Verdict::WrongAbi,
            format!("the configuration is not for {}", super::chip(soc)),
        );
        return;
    }
    if on("CONFIG_CC_OPTIMIZE_FOR_SIZE") {
        want(case, "CONFIG_CC_OPTIMIZE_FOR_PERFORMANCE=y");
        case.fault(
            Verdict::SizeOptimised,
            "CONFIG_CC_OPTIMIZE_FOR_SIZE=y: the network stack is compiled for size",
        );
    }
    if soc.cores > 1 && !on("CONFIG_SMP") {
        want(case, "CONFIG_SMP=y");
        case.fault(
            Verdict::TooGeneric,
            format!("CONFIG_SMP is not set: one of {} cores works", soc.cores),
        );
    }
    if on("CONFIG_ARM64") {
        if soc.isa != Isa::Armv8 {
            case.fault(
                Verdict::WrongAbi,
                format!("CONFIG_ARM64=y, the chip is {}", super::chip(soc)),
            );
            return;
        }
        missing(case, &WIDE_CIPHERS, on, Verdict::NoSimd, "NEON");
        if soc.aes {
            missing(
                case,
                &AES_CIPHERS,
                on,
                Verdict::NoAsmCrypto,
                "AES instructions",
            );
        }
    } else if on("CONFIG_ARM") {
        if soc.isa == Isa::Armv8 && soc.aes {
            case.fault(
                Verdict::ThirtyTwoOn64,
                format!("CONFIG_ARM=y, a 32-bit kernel on {}", soc.core),
            );
        }
        narrow(case, on);
    }
    let tunnels: Vec<&str> = [
        ("CONFIG_TUN", "tun"),
        ("CONFIG_WIREGUARD", "WireGuard"),
        ("CONFIG_OVPN", "OpenVPN"),
    ]
    .into_iter()
    .filter(|(option, _)| on(option))
    .map(|(_, name)| name)
    .collect();
    case.note(if tunnels.is_empty() {
        "no tunnel in the kernel: neither tun nor WireGuard".to_owned()
    } else {
        format!("has {}", tunnels.join(", "))
    });
}

/// A 32-bit ARM kernel.
fn narrow(case: &mut Case<'_>, on: impl Fn(&str) -> bool) {
    let soc = case.soc;
    if soc.isa != Isa::Armv5te && !on("CONFIG_CPU_V7") && !on("CONFIG_CPU_32v7") {
        case.fault(
            Verdict::TooGeneric,
            "CONFIG_CPU_V7 is not set: a kernel for ARMv6 or older",
        );
    }
    if soc.vfp != Vfp::None && !on("CONFIG_VFP") {
        want(case, "CONFIG_VFP=y");
        case.fault(
            Verdict::SoftFloat,
            "CONFIG_VFP is not set: programs cannot use the floating-point unit",
        );
    }
    if soc.divide && soc.isa == Isa::Armv7 && !on("CONFIG_ARM_PATCH_IDIV") {
        want(case, "CONFIG_ARM_PATCH_IDIV=y");
        case.fault(
            Verdict::SoftwareDivide,
            "CONFIG_ARM_PATCH_IDIV is not set: the kernel divides in software",
        );
    }
    if !soc.neon {
        return;
    }
    if !on("CONFIG_NEON") {
        want(case, "CONFIG_NEON=y");
        want(case, "CONFIG_KERNEL_MODE_NEON=y");
        case.fault(
            Verdict::NoSimd,
            "CONFIG_NEON is not set: neither programs nor the kernel can use NEON",
        );
        return;
    }
    if !on("CONFIG_KERNEL_MODE_NEON") {
        want(case, "CONFIG_KERNEL_MODE_NEON=y");
        case.fault(
            Verdict::NoSimd,
            "CONFIG_KERNEL_MODE_NEON is not set: the kernel's ciphers cannot use NEON",
        );
    }
    missing(case, &NEON_CIPHERS, on, Verdict::NoAsmCrypto, "NEON");
}

fn missing(
    case: &mut Case<'_>,
    wanted: &[Wanted],
    on: impl Fn(&str) -> bool,
    verdict: Verdict,
    by: &str,
) {
    let absent: Vec<&Wanted> = wanted
        .iter()
        .filter(|w| !w.options.iter().any(|option| on(option)))
        .collect();
    if absent.is_empty() {
        return;
    }
    let list = |part: fn(&Wanted) -> &'static str| {
        absent
            .iter()
            .map(|w| part(w))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let (what, options) = (list(|w| w.what), list(|w| w.options[0]));
    for absent in &absent {
        case.wanted.push(format!("{}=m", absent.options[0]));
    }
    case.fault(
        verdict,
        format!("not set: {options}: no {by} for {what} in the kernel"),
    );
}

fn want(case: &mut Case<'_>, line: &str) {
    case.wanted.push(line.to_owned());
}

/// What was found in a kernel without its configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words {
    /// `Linux version ...`, to the end of the line.
    pub version: Option<String>,
    /// Words of [`WORDS`](Words::SOUGHT) that are there.
    pub found: Vec<&'static str>,
}

impl Words {
    /// What is looked for: names of drivers and functions that stay in kernels whose symbols are gone.
    pub const SOUGHT: [&'static str; 9] = [
        "kernel_neon_begin",
        "chacha20-neon",
        "xchacha20-neon",
        "poly1305-neon",
        "aes-arm-bs",
        "ecb-aes-neonbs",
        "ecb-aes-ce",
        "gcm-aes-ce",
        "__aeabi_uidiv",
    ];

    /// Looks for them in `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let version = memchr::memmem::find(bytes, b"Linux version ").map(|at| {
            let line = &bytes[at..bytes.len().min(at + 240)];
            let end = line
                .iter()
                .position(|byte| *byte < b' ')
                .unwrap_or(line.len());
            String::from_utf8_lossy(&line[..end]).into_owned()
        });
        let found = Self::SOUGHT
            .into_iter()
            .filter(|word| memchr::memmem::find(bytes, word.as_bytes()).is_some())
            .collect();
        Self { version, found }
    }
}

/// Judges a kernel by its words. Their absence proves nothing: drivers may be modules.
pub(super) fn words(case: &mut Case<'_>, words: &Words) {
    match &words.version {
        Some(version) => case.note(version.clone()),
        None => case.unknown("no \"Linux version\" in it"),
    }
    if words.found.is_empty() {
        case.unknown("no word in it tells how it was configured (CONFIG_IKCONFIG would keep its configuration in it)");
    } else {
        case.note(format!("has {}", words.found.join(", ")));
        let neon = words.found.iter().any(|word| word.contains("neon"));
        if case.soc.neon && !neon {
            case.unknown("no driver with NEON in its name: modules may have them");
        }
    }
}
