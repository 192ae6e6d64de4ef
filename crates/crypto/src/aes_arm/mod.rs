//! AES for batches of packets on ARM: routines in C and assembly (`src/neon/aes_*`), and what holds their keys.
//!
//! Without the AES instructions, eight blocks are encrypted at once in bit-sliced form ([`BitSliced`], [`BitSlicedGcm`]), which is
//! constant time by its nature. CBC takes the eight from different packets; GCM takes the counter blocks of all packets as one
//! stream. With the instructions, on AArch64, it is the same in fewer of them ([`InstructionsCbc`], [`InstructionsGcm`]). A CPU of
//! ARMv8 that runs in 32 bits has them too: there AWS-LC uses them.

mod bitsliced;
#[cfg(target_arch = "arm")]
mod counters;
mod gcm;
#[cfg(target_arch = "aarch64")]
mod instructions;
mod schedule;
#[cfg(test)]
mod tests;

pub(crate) use bitsliced::BitSliced;
pub(crate) use gcm::BitSlicedGcm;
#[cfg(target_arch = "aarch64")]
pub(crate) use instructions::{InstructionsCbc, InstructionsGcm};
