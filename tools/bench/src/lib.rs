//! The commands that show, measure and compare: `demo`, `bench`, `lab` and `speed`. No router needs them.

#![forbid(unsafe_code)]

#[cfg(feature = "lab")]
pub mod bench;
#[cfg(feature = "lab")]
pub mod demo;
#[cfg(feature = "lab")]
pub mod lab;
#[cfg(feature = "speed")]
pub mod speed;
#[cfg(feature = "lab")]
mod two_lines;
