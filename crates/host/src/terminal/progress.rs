//! Shows the progress of a long command on a terminal: the current step and the time left.

use std::io::{self, Write as _};
use std::time::{Duration, Instant};

/// Columns of the narrowest supported terminal.
const COLUMNS: usize = 80;
/// Shortest pause between two writes: a serial terminal is slow.
const EVERY: Duration = Duration::from_millis(100);

/// One line on standard error, overwritten again and again. Writes nothing without a terminal, or if the output is
/// for a program.
pub struct Progress {
    on: bool,
    done: usize,
    all: usize,
    start: Instant,
    written: Option<Instant>,
}

impl Progress {
    /// Shows progress over `all` steps; 0 if their number is unknown. `quiet` is for `--json` and the like.
    pub fn new(all: usize, quiet: bool) -> Self {
        Self {
            on: !quiet && super::escapes(&io::stderr()),
            done: 0,
            all,
            start: Instant::now(),
            written: None,
        }
    }

    /// Begins a step, named `what`.
    pub fn begin(&mut self, what: &str) {
        let text = self.line(what, self.start.elapsed());
        self.done += 1;
        self.write(&text);
    }

    /// Shows progress within a step whose length is unknown. Writes at most ten times a second.
    pub fn tell(&mut self, what: &str) {
        if self.written.is_none_or(|last| last.elapsed() >= EVERY) {
            self.write(&format!("{what}, {} s", self.start.elapsed().as_secs()));
        }
    }

    /// Removes the line, so that other text can be written.
    pub fn clear(&mut self) {
        if self.on && self.written.take().is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
            let _ = io::stderr().flush();
        }
    }

    /// The text `[3/40] what (2 min left)`; the time is an estimate from the steps done so far.
    fn line(&self, what: &str, elapsed: Duration) -> String {
        let (number, all) = (self.done + 1, self.all.max(self.done + 1));
        // The estimate needs one finished step.
        let left = match u32::try_from(self.done) {
            Ok(done) if done > 0 => {
                let rest = u32::try_from(all - self.done).unwrap_or(u32::MAX);
                format!(" ({} left)", rough(elapsed / done * rest))
            }
            _ => String::new(),
        };
        let head = format!("[{number}/{all}] ");
        let room = COLUMNS.saturating_sub(head.len() + left.len() + 1);
        let what: String = what.chars().take(room).collect();
        head + &what + &left
    }

    fn write(&mut self, text: &str) {
        if self.on {
            // There is nowhere to report a failed write.
            let _ = write!(io::stderr(), "\r\x1b[K{text}");
            let _ = io::stderr().flush();
            self.written = Some(Instant::now());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

/// A duration, rounded as an estimate should be.
pub fn rough(time: Duration) -> String {
    match time.as_secs() {
        0..=99 => format!("{} s", time.as_secs().max(1)),
        seconds => format!("{} min", seconds.div_ceil(60)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_that_of_the_steps_so_far() {
        let mut progress = Progress::new(5, true);
        assert_eq!(progress.line("first", Duration::ZERO), "[1/5] first");
        progress.begin("first");
        progress.begin("second");
        let line = progress.line("third", Duration::from_secs(20));
        assert_eq!(line, "[3/5] third (30 s left)");
        let line = progress.line("third", Duration::from_secs(400));
        assert_eq!(line, "[3/5] third (10 min left)");
    }

    #[test]
    fn a_line_fits_80_columns_and_more_steps_than_announced_are_no_fault() {
        let mut progress = Progress::new(1, true);
        progress.begin("first");
        let line = progress.line(&"long ".repeat(40), Duration::from_secs(7));
        assert_eq!(line.len(), COLUMNS - 1);
        assert!(line.starts_with("[2/2] long") && line.ends_with(" (7 s left)"));
    }
}
