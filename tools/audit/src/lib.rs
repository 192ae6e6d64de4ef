//! Finds performance that a firmware wastes: judges ELF files, root file systems and firmware images for a
//! chip.
//!
//! Each file passes these modules:
//!
//! [`unpack`] finds the files in an image; it runs nothing and writes nothing. [`elf`] reads each file's
//! facts. [`role`] says what the file is and how much of a tunnel's time it takes. [`soc`] knows what the
//! chip can do, [`judge`] compares the two, and [`report`] writes the result, the most worth fixing first.
//!
//! The crate has no network code and no unsafe code: everything that it reads may come from a stranger.

#![forbid(unsafe_code)]

mod bytes;
pub mod dtb;
pub mod elf;
pub mod examine;
pub mod facts;
pub mod judge;
mod live;
pub mod report;
pub mod role;
pub mod soc;
pub mod unpack;
pub mod verdict;

pub use examine::{Audit, AuditError, Chosen, audit};
pub use live::{LiveAudit, live};
