//! Saying what was found: to people, to programs, and to those who collect findings.

mod json;
mod sarif;
mod text;

pub use json::json;
pub use sarif::{sarif, sarif_of_nothing};
pub use text::{TextOptions, describe, text};
