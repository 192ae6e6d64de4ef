//! Output for people, and the progress of a long command.

mod output;
mod progress;

pub use output::{escapes, is_up, line, note, note_text, print, say, text};
pub use progress::{Progress, rough};
