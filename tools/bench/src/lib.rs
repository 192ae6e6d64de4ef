//! The commands that show, measure and compare: `demo`, `bench`, `lab` and `speed`; packages, which only the build makes;
//! and reports that owners of routers send in. No router needs them.

#![forbid(unsafe_code)]

#[cfg(feature = "lab")]
pub mod bench;
#[cfg(feature = "lab")]
pub mod demo;
#[cfg(feature = "lab")]
pub mod lab;
#[cfg(feature = "packages")]
pub mod packages;
#[cfg(feature = "reports")]
pub mod reports;
#[cfg(feature = "speed")]
pub mod speed;
#[cfg(feature = "lab")]
mod two_lines;
