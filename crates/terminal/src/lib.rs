//! What a command prints for people, and how far a long one is.

#![forbid(unsafe_code)]

mod output;
mod progress;

pub use output::{escapes, is_up, line, note, note_text, say, shown, text};
pub use progress::{Progress, rough};
