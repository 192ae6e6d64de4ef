//! Routines for ARM with NEON: assembly for ARMv7, C with intrinsics for AArch64, both compiled by the build script.

mod chacha20;
mod chacha20_poly1305;
pub(crate) mod checksum;
#[cfg(all(test, target_arch = "arm"))]
pub(crate) mod memory;
mod poly1305;

pub(crate) use chacha20::first_blocks;
pub(crate) use chacha20_poly1305::ChaCha20Poly1305;
