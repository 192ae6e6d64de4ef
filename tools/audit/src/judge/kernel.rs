//! Judges kernels by their configuration if it is at hand, else by the words in their binary.

use super::Case;
use crate::soc::{Isa, Vfp};
use crate::verdict::Verdict;
use std::collections::HashMap;

/// A version of Linux.
type Version = (u32, u32);

/// Optimised code for one of a tunnel's ciphers.
struct Code {
    what: &'static str,
    /// The option that switches the code on.
    option: &'static str,
    /// The first version of Linux that has the code.
    since: Version,
    /// Library option that replaces `option`: since Linux 6.16, 6.17 or 6.18, depending on the library. Users cannot
    /// set it: it is on where the library and `CONFIG_KERNEL_MODE_NEON` are.
    later: Option<&'static str>,
    user: User,
}

/// The kernel component that uses a cipher.
#[derive(Clone, Copy, PartialEq, Eq)]
enum User {
    /// ChaCha20-Poly1305: WireGuard, above all.
    ChaCha,
    /// WireGuard's handshakes.
    Curve,
    /// AES and what goes with it: IPsec, OpenVPN's data channel, and programs through AF_ALG.
    Aes,
}

impl User {
    /// Options of which at least one is on if the kernel uses the cipher.
    fn options(self) -> &'static [&'static str] {
        match self {
            Self::ChaCha => &[
                "CONFIG_WIREGUARD",
                "CONFIG_OVPN",
                "CONFIG_CRYPTO_LIB_CHACHA20POLY1305",
                "CONFIG_CRYPTO_CHACHA20POLY1305",
            ],
            Self::Curve => &["CONFIG_WIREGUARD", "CONFIG_CRYPTO_LIB_CURVE25519"],
            Self::Aes => &[
                "CONFIG_INET_ESP",
                "CONFIG_INET6_ESP",
                "CONFIG_OVPN",
                "CONFIG_CRYPTO_USER_API_SKCIPHER",
                "CONFIG_CRYPTO_USER_API_AEAD",
            ],
        }
    }
}

/// NEON code for ciphers in 32-bit kernels.
const NEON_CIPHERS: [Code; 5] = [
    Code {
        what: "ChaCha20",
        option: "CONFIG_CRYPTO_CHACHA20_NEON",
        since: (4, 11),
        later: Some("CONFIG_CRYPTO_LIB_CHACHA_ARCH"),
        user: User::ChaCha,
    },
    Code {
        what: "Poly1305",
        option: "CONFIG_CRYPTO_POLY1305_ARM",
        since: (5, 5),
        later: Some("CONFIG_CRYPTO_LIB_POLY1305_ARCH"),
        user: User::ChaCha,
    },
    Code {
        what: "Curve25519",
        option: "CONFIG_CRYPTO_CURVE25519_NEON",
        since: (5, 5),
        later: Some("CONFIG_CRYPTO_LIB_CURVE25519_ARCH"),
        user: User::Curve,
    },
    Code {
        what: "AES-CTR, CBC and XTS",
        option: "CONFIG_CRYPTO_AES_ARM_BS",
        since: (3, 13),
        later: None,
        user: User::Aes,
    },
    Code {
        what: "SHA-256",
        option: "CONFIG_CRYPTO_SHA256_ARM",
        since: (4, 1),
        later: Some("CONFIG_CRYPTO_LIB_SHA256_ARCH"),
        user: User::Aes,
    },
];

/// NEON code for ciphers in 64-bit kernels. There is none for Curve25519.
const WIDE_CIPHERS: [Code; 3] = [
    Code {
        what: "ChaCha20",
        option: "CONFIG_CRYPTO_CHACHA20_NEON",
        since: (4, 11),
        later: Some("CONFIG_CRYPTO_LIB_CHACHA_ARCH"),
        user: User::ChaCha,
    },
    Code {
        what: "Poly1305",
        option: "CONFIG_CRYPTO_POLY1305_NEON",
        since: (5, 5),
        later: Some("CONFIG_CRYPTO_LIB_POLY1305_ARCH"),
        user: User::ChaCha,
    },
    Code {
        what: "SHA-256",
        option: "CONFIG_CRYPTO_SHA256_ARM64",
        since: (4, 10),
        later: Some("CONFIG_CRYPTO_LIB_SHA256_ARCH"),
        user: User::Aes,
    },
];

/// Code with AES instructions for ciphers in 64-bit kernels. The second includes GCM since 4.14.
const AES_CIPHERS: [Code; 2] = [
    Code {
        what: "AES",
        option: "CONFIG_CRYPTO_AES_ARM64_CE_BLK",
        since: (3, 16),
        later: None,
        user: User::Aes,
    },
    Code {
        what: "AES-GCM",
        option: "CONFIG_CRYPTO_GHASH_ARM64_CE",
        since: (3, 16),
        later: None,
        user: User::Aes,
    },
];

/// Version from which the libraries set the options of ChaCha20, Poly1305 and Curve25519; users cannot.
const BY_ITSELF: Version = (6, 16);

/// Judges the text of `.config`.
pub(super) fn config(case: &mut Case<'_>, text: &str) {
    let options: HashMap<&str, &str> = text
        .lines()
        .filter(|line| line.starts_with("CONFIG_"))
        .filter_map(|line| line.trim_end().split_once('='))
        .collect();
    if options.is_empty() {
        case.unknown("no line is a kernel option");
        return;
    }
    let on = |option: &str| matches!(options.get(option), Some(&("y" | "m")));
    let head = text.lines().find(|line| line.starts_with("# Linux/"));
    if let Some(head) = head {
        case.note(head.trim_start_matches("# ").to_owned());
    }
    let version = head.and_then(version);
    let soc = case.soc;
    let arm = soc.core.isa.is_arm();
    let mips = matches!(
        soc.core.isa,
        Isa::Mips32r2 | Isa::Mips64OcteonPlus | Isa::Mips64Octeon3
    );
    if mips && on("CONFIG_MIPS") && on("CONFIG_CPU_BIG_ENDIAN") != soc.big_endian {
        case.fault(
            Verdict::WrongAbi,
            format!("the byte order is wrong: the chip is {}", super::chip(soc)),
        );
        return;
    }
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
            format!(
                "CONFIG_SMP is not set: only one of {} cores is used",
                soc.cores
            ),
        );
    }
    if on("CONFIG_ARM64") {
        if soc.core.isa != Isa::Armv8 {
            case.fault(
                Verdict::WrongAbi,
                format!("CONFIG_ARM64=y, but the chip is {}", super::chip(soc)),
            );
            return;
        }
        missing(case, &WIDE_CIPHERS, version, on, Verdict::NoSimd, "NEON");
        if case.aes() {
            missing(
                case,
                &AES_CIPHERS,
                version,
                on,
                Verdict::NoAsmCrypto,
                "AES instructions",
            );
        }
    } else if on("CONFIG_ARM") {
        if soc.core.isa == Isa::Armv8 && case.aes() {
            case.fault(
                Verdict::ThirtyTwoOn64,
                format!(
                    "CONFIG_ARM=y: a 32-bit kernel on a 64-bit core{}",
                    if on("CONFIG_CRYPTO_AES_ARM_CE") {
                        "; it does reach the AES instructions (CONFIG_CRYPTO_AES_ARM_CE)"
                    } else {
                        ""
                    }
                ),
            );
            case.reaches_aes = on("CONFIG_CRYPTO_AES_ARM_CE");
        }
        narrow(case, version, on);
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
        "the kernel has no tunnel driver: neither tun nor WireGuard".to_owned()
    } else {
        format!("has {}", tunnels.join(", "))
    });
}

/// Judges a 32-bit ARM kernel.
fn narrow(case: &mut Case<'_>, version: Option<Version>, on: impl Fn(&str) -> bool) {
    let soc = case.soc;
    let seven = on("CONFIG_CPU_V7") || on("CONFIG_CPU_32v7");
    if soc.core.isa != Isa::Armv5te && !seven {
        want(case, "CONFIG_CPU_V7=y");
        case.fault(
            Verdict::WrongAbi,
            "CONFIG_CPU_V7 is not set: a kernel for older chips, which does not start on this one",
        );
    }
    let five = ["CONFIG_CPU_FEROCEON", "CONFIG_CPU_ARM926T"];
    if soc.core.isa == Isa::Armv5te && !five.into_iter().any(&on) {
        want(case, "CONFIG_CPU_FEROCEON=y");
        case.fault(
            Verdict::WrongAbi,
            "CONFIG_CPU_FEROCEON is not set: a kernel for later chips, which does not start on this one",
        );
    }
    if soc.core.vfp != Vfp::None && !on("CONFIG_VFP") {
        want(case, "CONFIG_VFP=y");
        case.fault(
            Verdict::SoftFloat,
            "CONFIG_VFP is not set: programs cannot use the floating-point unit",
        );
    }
    let can_patch = version.is_none_or(|version| version >= (4, 5));
    if soc.core.divide && soc.core.isa == Isa::Armv7 && can_patch && !on("CONFIG_ARM_PATCH_IDIV") {
        want(case, "CONFIG_ARM_PATCH_IDIV=y");
        case.fault(
            Verdict::SoftwareDivide,
            "CONFIG_ARM_PATCH_IDIV is not set: the kernel divides in software",
        );
    }
    if !soc.core.neon {
        return;
    }
    if !on("CONFIG_NEON") {
        want(case, "CONFIG_NEON=y");
        want(case, "CONFIG_KERNEL_MODE_NEON=y");
        case.fault(
            Verdict::NoSimd,
            "CONFIG_NEON is not set: neither programs nor the kernel can use NEON",
        );
    } else if !on("CONFIG_KERNEL_MODE_NEON") {
        want(case, "CONFIG_KERNEL_MODE_NEON=y");
        case.fault(
            Verdict::NoSimd,
            "CONFIG_KERNEL_MODE_NEON is not set: the kernel's ciphers cannot use NEON",
        );
    }
    missing(
        case,
        &NEON_CIPHERS,
        version,
        on,
        Verdict::NoAsmCrypto,
        "NEON",
    );
}

/// Parses the version in `Linux/arm 5.4.213 Kernel Configuration` and similar heads.
fn version(head: &str) -> Option<Version> {
    let mut parts = head.split_whitespace().nth(2)?.split('.');
    let mut number = || parts.next()?.parse().ok();
    Some((number()?, number()?))
}

fn missing(
    case: &mut Case<'_>,
    wanted: &[Code],
    version: Option<Version>,
    on: impl Fn(&str) -> bool,
    verdict: Verdict,
    by: &str,
) {
    let used = |code: &&Code| code.user.options().iter().any(|option| on(option));
    let here = |code: &&Code| version.is_none_or(|version| version >= code.since);
    let off = |code: &&Code| !on(code.option) && !code.later.is_some_and(&on);
    let absent: Vec<&Code> = wanted
        .iter()
        .filter(|code| used(code) && off(code))
        .collect();
    let (can, cannot): (Vec<&Code>, Vec<&Code>) = absent.into_iter().partition(here);
    let list = |codes: &[&Code], part: fn(&Code) -> &'static str| {
        codes.iter().map(|c| part(c)).collect::<Vec<_>>().join(", ")
    };
    if let (false, Some((major, minor))) = (cannot.is_empty(), version) {
        case.note(format!(
            "Linux {major}.{minor} has no code in {by} for {}; a newer kernel has",
            list(&cannot, |c| c.what)
        ));
    }
    if can.is_empty() {
        return;
    }
    for code in &can {
        let automatic = code.later.is_some() && version.is_some_and(|version| version >= BY_ITSELF);
        let line = if automatic {
            "CONFIG_KERNEL_MODE_NEON=y".to_owned()
        } else {
            format!("{}=m", code.option)
        };
        if !case.wanted.contains(&line) {
            case.wanted.push(line);
        }
    }
    case.fault(
        verdict,
        format!(
            "not set: {}: the kernel's {} in plain C, not in {by}",
            list(&can, |c| c.option),
            list(&can, |c| c.what)
        ),
    );
}

fn want(case: &mut Case<'_>, line: &str) {
    case.wanted.push(line.to_owned());
}

/// A word that every 32-bit ARM kernel contains, and no other kernel.
const NARROW: &str = "__aeabi_uidiv";

/// Texts found in a kernel whose configuration is not at hand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words {
    /// `Linux version ...`, to the end of the line.
    pub version: Option<String>,
    /// The words of [`SOUGHT`](Words::SOUGHT) that the kernel contains.
    pub found: Vec<&'static str>,
}

impl Words {
    /// Texts to search for: names of drivers and functions that stay in stripped kernels.
    pub const SOUGHT: [&'static str; 9] = [
        "kernel_neon_begin",
        "chacha20-neon",
        "xchacha20-neon",
        "poly1305-neon",
        "aes-arm-bs",
        "ecb-aes-neonbs",
        "ecb-aes-ce",
        "gcm-aes-ce",
        NARROW,
    ];

    /// Searches `bytes` for these texts.
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

/// Judges a kernel by its words. A missing word proves nothing: drivers may be modules.
pub(super) fn words(case: &mut Case<'_>, words: &Words) {
    match &words.version {
        Some(version) => case.note(version.clone()),
        None => case.unknown("it contains no \"Linux version\""),
    }
    if words.found.contains(&NARROW) {
        // A function that compilers call only in 32-bit ARM code.
        if !case.soc.core.isa.is_arm() {
            let why = format!(
                "a kernel for 32-bit ARM, but the chip is {}",
                super::chip(case.soc)
            );
            case.fault(Verdict::WrongAbi, why);
            return;
        }
        if case.soc.core.isa == Isa::Armv8 && case.aes() {
            case.fault(
                Verdict::ThirtyTwoOn64,
                "a kernel for 32-bit ARM on a 64-bit core",
            );
        }
    }
    if !words.found.is_empty() {
        case.note(format!("has {}", words.found.join(", ")));
    }
    case.unknown(
        "which options it was built with: it does not contain its configuration (CONFIG_IKCONFIG), and drivers may be \
         modules",
    );
}
