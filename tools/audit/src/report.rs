//! Reports: text for people, JSON for programs, and SARIF for code forges.

mod json;
mod sarif;
mod text;

pub use json::json;
pub use sarif::{sarif, sarif_of_nothing};
pub use text::{TextOptions, describe, text};
