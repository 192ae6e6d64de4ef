//! Reports that owners of routers send in (`millrace doctor --report`): a reader that refuses what is not exactly a
//! report, and the page "Figures from real routers". The program `millrace-reports` checks and shows them.
//!
//! The tests of this module keep `docs/report.schema.json` and `docs/benchmarks/routers.md` up to date:
//! `MILLRACE_WRITE=1 cargo test -p millrace-tools --lib reports` writes both.

mod page;
mod read;

pub use page::page;
pub use read::{ReadError, files, read, read_file};

/// The JSON Schema of reports, as `docs/report.schema.json` has it.
#[must_use]
pub fn schema() -> String {
    // A value can always be written.
    let text = serde_json::to_string_pretty(&report::schema()).unwrap_or_default();
    text + "\n"
}

#[cfg(test)]
mod tests;
