//! Features of the CPU, for cases where the standard library does not detect them, or detects more than we want to use.

/// Whether the CPU has NEON, as the kernel tells (`AT_HWCAP`, bit 12). AArch64 always has.
#[cfg(any(target_arch = "arm", target_arch = "aarch64"))]
#[inline]
pub(crate) fn has_neon() -> bool {
    #[cfg(target_arch = "aarch64")]
    return true;
    #[cfg(target_arch = "arm")]
    {
        use core::sync::atomic::{AtomicU8, Ordering};
        // Cached, as it is consulted for every packet: 0 means unknown, 1 no, 2 yes.
        static KNOWN: AtomicU8 = AtomicU8::new(0);
        let known = KNOWN.load(Ordering::Relaxed);
        if known != 0 {
            return known == 2;
        }
        unsafe extern "C" {
            fn getauxval(kind: core::ffi::c_ulong) -> core::ffi::c_ulong;
        }
        const AT_HWCAP: core::ffi::c_ulong = 16;
        // SAFETY: `getauxval` only reads values that the kernel left at the start of the process.
        let has = unsafe { getauxval(AT_HWCAP) & (1 << 12) != 0 };
        KNOWN.store(1 + u8::from(has), Ordering::Relaxed);
        has
    }
}

/// Whether the CPU has instructions for AES and for multiplication without carry.
#[cfg(target_arch = "aarch64")]
pub(crate) fn has_aes() -> bool {
    std::arch::is_aarch64_feature_detected!("aes")
        && std::arch::is_aarch64_feature_detected!("pmull")
        && hidden() & (ARMV8_AES | ARMV8_PMULL) == 0
}

/// Whether the CPU has instructions for SHA-1 and SHA-256; the standard library detects both under one name.
#[cfg(target_arch = "aarch64")]
pub(crate) fn has_sha() -> bool {
    std::arch::is_aarch64_feature_detected!("sha2") && hidden() & (ARMV8_SHA1 | ARMV8_SHA256) == 0
}

// Bits of AWS-LC's OPENSSL_armcap, openssl/arm_arch.h.
#[cfg(target_arch = "aarch64")]
const ARMV8_AES: u32 = 1 << 2;
#[cfg(target_arch = "aarch64")]
const ARMV8_SHA1: u32 = 1 << 3;
#[cfg(target_arch = "aarch64")]
const ARMV8_SHA256: u32 = 1 << 4;
#[cfg(target_arch = "aarch64")]
const ARMV8_PMULL: u32 = 1 << 5;

/// Features that the environment's `OPENSSL_armcap` hides. AWS-LC obeys that variable, and so do we: a chip without AES
/// instructions can be tried on one that has them, or in an emulator that cannot leave them out.
#[cfg(target_arch = "aarch64")]
fn hidden() -> u32 {
    static HIDDEN: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    *HIDDEN.get_or_init(|| {
        let value = std::env::var("OPENSSL_armcap").ok();
        value.map_or(0, |value| hidden_by(&value))
    })
}

/// `~BITS` removes features, `|BITS` adds them (which we ignore), `BITS` sets them all.
#[cfg(any(target_arch = "aarch64", test))]
fn hidden_by(value: &str) -> u32 {
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    match (value.strip_prefix('~'), value.strip_prefix('|')) {
        (Some(bits), _) => number(bits).unwrap_or(0),
        (None, Some(_)) => 0,
        (None, None) => number(value).map_or(0, |bits| !bits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hidden_is_read_as_aws_lc_reads_it() {
        assert_eq!(hidden_by("~0x3c"), 0x3c);
        assert_eq!(hidden_by("~60"), 60);
        assert_eq!(hidden_by("|0x3c"), 0);
        assert_eq!(hidden_by("0x1"), !1);
        assert_eq!(hidden_by("nonsense"), 0);
    }
}
