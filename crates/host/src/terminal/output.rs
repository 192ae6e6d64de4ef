//! Output for people. A reader that stops early (`| head -1`) is not an error, though `print!` would panic.

use std::ffi::OsStr;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

/// Whether a stream is a terminal that interprets escape sequences; a `dumb` one prints them.
#[must_use]
pub fn escapes(stream: &impl IsTerminal) -> bool {
    let kind = std::env::var_os("TERM");
    stream.is_terminal() && obeys(kind.as_deref())
}

fn obeys(kind: Option<&OsStr>) -> bool {
    kind.is_some_and(|it| !it.is_empty() && it != "dumb")
}

/// Prints a line on standard output, for a command that does nothing else: if the reader has gone, the process ends
/// quietly and with success.
pub fn line(text: impl Display) {
    end_unless_read(writeln!(io::stdout(), "{text}"));
}

/// Prints a text with its own line ends; see [`line()`].
pub fn text(text: impl Display) {
    let mut out = io::stdout();
    end_unless_read(write!(out, "{text}").and_then(|()| out.flush()));
}

/// Prints a text with its own line ends. If the reader has gone, the command continues, for its exit code says more.
///
/// # Errors
/// Standard output cannot be written.
pub fn print(text: impl Display) -> Result<(), String> {
    let mut out = io::stdout();
    match write!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(format!("standard output: {error}"))
        }
        _ => Ok(()),
    }
}

/// Prints a line on standard output beside other work, which continues if the reader has gone.
pub fn say(text: impl Display) {
    let mut out = io::stdout();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// Prints on standard error that the tunnel is up, and which key takes it down.
pub fn is_up(name: impl Display) {
    match io::stderr().is_terminal() {
        true => note(format_args!("{name} is up; Ctrl-C takes it down")),
        false => note(format_args!("{name} is up")),
    }
}

/// Prints a line on standard error. Work continues if the reader has gone.
pub fn note(text: impl Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Prints a note without a line end; see [`note`].
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_terminal_that_obeys_gets_escapes() {
        for (kind, wanted) in [
            (Some("xterm"), true),
            (Some("vt220"), true),
            (Some("dumb"), false),
            (Some(""), false),
            (None, false),
        ] {
            assert_eq!(obeys(kind.map(OsStr::new)), wanted, "{kind:?}");
        }
        let null = std::fs::File::open("/dev/null").unwrap();
        assert!(!escapes(&null));
    }
}
