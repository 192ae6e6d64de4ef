//! What the CPU has, where the standard library does not say.

/// Whether the CPU has NEON, as the kernel tells (`AT_HWCAP`, bit 12). AArch64 always has.
#[cfg(any(target_arch = "arm", target_arch = "aarch64"))]
pub(crate) fn has_neon() -> bool {
    #[cfg(target_arch = "aarch64")]
    return true;
    #[cfg(target_arch = "arm")]
    {
        unsafe extern "C" {
            fn getauxval(kind: core::ffi::c_ulong) -> core::ffi::c_ulong;
        }
        const AT_HWCAP: core::ffi::c_ulong = 16;
        // SAFETY: a function of the C library that reads what the kernel has left at the start of the process.
        unsafe { getauxval(AT_HWCAP) & (1 << 12) != 0 }
    }
}
