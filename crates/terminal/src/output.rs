//! What the program prints for people. The reader may have seen enough (`| head -1`), and that
//! is no fault: `print!` would panic.

use std::fmt::Display;
use std::io::{self, Write};

/// Prints a line on standard output, for a command that does nothing else: where the reader has gone
/// the process ends, quietly and with success.
pub fn line(text: impl Display) {
    end_unless_read(writeln!(io::stdout(), "{text}"));
}

/// As [`line()`], for a text with its own ends of lines.
pub fn text(text: impl Display) {
    let mut out = io::stdout();
    end_unless_read(write!(out, "{text}").and_then(|()| out.flush()));
}

/// Says something on standard output beside other work, which goes on where the reader has gone.
pub fn say(text: impl Display) {
    let mut out = io::stdout();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// Says something on standard error. Work goes on where the reader has gone.
pub fn note(text: impl Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// As [`note`], without an end of line.
pub fn note_text(text: impl Display) {
    let _ = write!(io::stderr(), "{text}");
}

fn end_unless_read(written: io::Result<()>) {
    match written {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => {
            note(format_args!("millrace: standard output: {error}"));
            std::process::exit(1);
        }
    }
}
