//! Names for the numbers by which processors identify themselves.

/// Cores by implementer and part, as `/proc/cpuinfo` shows them (sources: Linux' `arch/arm64/include/asm/cputype.h`
/// and `arch/arm/include/asm/cputype.h`, util-linux' `lscpu-arm.c`).
const CORES: [(u32, u32, &str); 36] = [
    (0x41, 0x926, "ARM926EJ-S"),
    (0x41, 0xb76, "ARM1176JZF-S"),
    (0x41, 0xc05, "Cortex-A5"),
    (0x41, 0xc07, "Cortex-A7"),
    (0x41, 0xc08, "Cortex-A8"),
    (0x41, 0xc09, "Cortex-A9"),
    (0x41, 0xc0d, "Cortex-A12"),
    (0x41, 0xc0e, "Cortex-A17"),
    (0x41, 0xc0f, "Cortex-A15"),
    (0x41, 0xd03, "Cortex-A53"),
    (0x41, 0xd04, "Cortex-A35"),
    (0x41, 0xd05, "Cortex-A55"),
    (0x41, 0xd07, "Cortex-A57"),
    (0x41, 0xd08, "Cortex-A72"),
    (0x41, 0xd09, "Cortex-A73"),
    (0x41, 0xd0a, "Cortex-A75"),
    (0x41, 0xd0b, "Cortex-A76"),
    (0x41, 0xd0c, "Neoverse N1"),
    (0x41, 0xd0d, "Cortex-A77"),
    (0x41, 0xd40, "Neoverse V1"),
    (0x41, 0xd41, "Cortex-A78"),
    (0x41, 0xd46, "Cortex-A510"),
    (0x41, 0xd47, "Cortex-A710"),
    (0x41, 0xd48, "Cortex-X2"),
    (0x41, 0xd49, "Neoverse N2"),
    (0x42, 0x00f, "Brahma B15"),
    (0x42, 0x100, "Brahma B53"),
    (0x51, 0x00f, "Scorpion"),
    (0x51, 0x02d, "Scorpion"),
    (0x51, 0x04d, "Krait"),
    (0x51, 0x06f, "Krait"),
    (0x56, 0x131, "Feroceon 88FR131"),
    (0x56, 0x581, "PJ4 or PJ4B"),
    (0x56, 0x584, "PJ4B-MP"),
    (0x69, 0x693, "XScale"),
    (0x43, 0x0a1, "ThunderX"),
];

/// `AT_HWCAP` of 32-bit ARM, from bit 0 (Linux' `arch/arm/include/uapi/asm/hwcap.h`).
const ARM: [&str; 23] = [
    "swp", "half", "thumb", "26bit", "fastmult", "fpa", "vfp", "edsp", "java", "iwmmxt", "crunch",
    "thumbee", "neon", "vfpv3", "vfpv3d16", "tls", "vfpv4", "idiva", "idivt", "vfpd32", "lpae",
    "evtstrm", "fphp",
];
/// `AT_HWCAP2` of 32-bit ARM, from bit 0.
const ARM2: [&str; 5] = ["aes", "pmull", "sha1", "sha2", "crc32"];
/// `AT_HWCAP` of AArch64, from bit 0 (Linux' `arch/arm64/include/uapi/asm/hwcap.h`).
const AARCH64: [&str; 23] = [
    "fp", "asimd", "evtstrm", "aes", "pmull", "sha1", "sha2", "crc32", "atomics", "fphp",
    "asimdhp", "cpuid", "asimdrdm", "jscvt", "fcma", "lrcpc", "dcpop", "sha3", "sm3", "sm4",
    "asimddp", "sha512", "sve",
];

/// The name of a core.
pub(super) fn name(implementer: u32, part: u32) -> Option<&'static str> {
    CORES
        .iter()
        .find(|(i, p, _)| (*i, *p) == (implementer, part))
        .map(|(_, _, name)| *name)
}

/// Names of the bits of `AT_HWCAP` and `AT_HWCAP2` of ARM, as `/proc/cpuinfo` spells them.
pub(super) fn capabilities(wide: bool, hwcap: u64, hwcap2: u64) -> Vec<&'static str> {
    let (first, second): (&[&str], &[&str]) = if wide { (&AARCH64, &[]) } else { (&ARM, &ARM2) };
    let set = |names: &[&'static str], bits: u64| -> Vec<&'static str> {
        names
            .iter()
            .enumerate()
            .filter(|(bit, _)| bits >> bit & 1 == 1)
            .map(|(_, name)| *name)
            .collect()
    };
    [set(first, hwcap), set(second, hwcap2)].concat()
}
