//! AES for batches of packets on ARM: the types that hold keys for the routines in C and assembly (`src/neon/aes_*`).
//!
//! Without the AES instructions, eight blocks are encrypted at once in bit-sliced form ([`BitSliced`],
//! [`BitSlicedGcm`]), which is constant time by its nature. CBC takes the eight from different packets; GCM takes the
//! counter blocks of all packets as one stream. With the instructions, on AArch64, the same work takes fewer of them
//! ([`InstructionsCbc`], [`InstructionsGcm`]). An ARMv8 CPU that runs in 32 bits has the instructions too: there AWS-LC
//! uses them.

mod bitsliced;
#[cfg(target_arch = "arm")]
mod counters;
mod gcm;
#[cfg(target_arch = "aarch64")]
mod instructions;
#[cfg(test)]
mod tests;

pub(crate) use bitsliced::BitSliced;
pub(crate) use gcm::BitSlicedGcm;
#[cfg(target_arch = "aarch64")]
pub(crate) use instructions::{InstructionsCbc, InstructionsGcm};
