//! AES for batches of packets on ARM: kernels in C and assembly (`src/neon/aes_*`), and what holds their keys.
//!
//! Without the AES instructions, eight blocks are encrypted at once in bit-sliced form ([`BitSliced`]), which is constant time by
//! its nature. CBC takes the eight from different packets.

mod bitsliced;
mod schedule;
#[cfg(test)]
mod tests;

pub(crate) use bitsliced::BitSliced;
