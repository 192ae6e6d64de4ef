//! What a command prints for people, and how far a long one is.

#![forbid(unsafe_code)]

mod output;
mod progress;

pub use output::{line, note, note_text, say, text};
pub use progress::{Progress, rough};
