//! What is being measured just now, on a terminal.

use std::io::{self, IsTerminal as _, Write as _};

/// A line that is overwritten again and again; nothing where nobody watches.
pub(crate) struct Progress {
    on: bool,
    done: usize,
    all: usize,
}

impl Progress {
    /// For so many measurements.
    pub(crate) fn new(all: usize) -> Self {
        Self {
            on: io::stderr().is_terminal(),
            done: 0,
            all,
        }
    }

    /// Begins one.
    pub(crate) fn begin(&mut self, what: &str) {
        self.done += 1;
        if self.on {
            let (done, all) = (self.done, self.all.max(self.done));
            // Who cannot write to a terminal cannot complain to it either.
            let _ = write!(io::stderr(), "\r\x1b[K[{done}/{all}] Doing {what}");
            let _ = io::stderr().flush();
        }
    }

    /// Takes the line away, so that something else can be written.
    pub(crate) fn clear(&self) {
        if self.on {
            let _ = write!(io::stderr(), "\r\x1b[K");
            let _ = io::stderr().flush();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
