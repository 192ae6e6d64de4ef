//! Finds what a firmware leaves on the table: ELF files, root file systems and firmware images, judged for a chip.
//!
//! The way of one file, each step a module:
//!
//! [`unpack`] finds the files in an image (nothing is run, nothing is written), [`elf`] reads the facts of
//! each, [`role`] says what the file is and how much of a tunnel's time it has, [`soc`] what the chip could
//! do, [`judge`] compares the two, and [`report`] says it, the most worth fixing first.
//!
//! No network code, and nothing unsafe: everything that is read here may come from a stranger.

#![forbid(unsafe_code)]

pub mod dtb;
pub mod elf;
pub mod examine;
pub mod facts;
pub mod finding;
pub mod judge;
mod live;
pub mod report;
pub mod role;
pub mod soc;
pub mod unpack;
pub mod verdict;

pub use examine::{Audit, AuditError, Chosen, audit, audit_watched};
pub use live::{LiveAudit, live};
