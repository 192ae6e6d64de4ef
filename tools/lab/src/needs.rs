//! Checks what a test needs: a device, a permission, a program, a package.
//!
//! A test whose needs the machine does not meet tests nothing. Cargo prints nothing about a test that returns early,
//! so each such need goes through [`require`], which notes what is missing. Two environment variables add to that:
//!
//! * `MILLRACE_TEST_REQUIRE=all`: whatever is missing fails the test that needs it.
//! * `MILLRACE_TEST_LIST=FILE`: each test adds a line to that file, `PROGRAM: TEST: WHAT IS MISSING`, or for what a
//!   test met (see [`met`]), `PROGRAM: TEST: met WHAT`. `make test` prints both at its end.
//!
//! Without features this crate has nothing else and no dependencies, so that every other crate can use it in its tests.

use std::env;
use std::fmt::{self, Display};
use std::fs::File;
use std::io::Write as _;
use std::panic::Location;
use std::path::Path;
use std::thread;

/// The variable that makes missing needs fail: `all`, or unset.
const REQUIRE: &str = "MILLRACE_TEST_REQUIRE";
/// The variable that names the file for missing needs and for what tests met.
const LIST: &str = "MILLRACE_TEST_LIST";

/// Something that the machine lacks, in words: its name, and how to get it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missing<'a>(pub &'a str);

impl Display for Missing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Returns what a test needs, or notes why it is missing. The test must then return at once.
///
/// ```
/// # fn find(_: &str) -> Result<(), std::io::Error> { Ok(()) }
/// let Some(program) = lab::require(find("wg")) else {
///     return;
/// };
/// # let () = program;
/// ```
///
/// # Panics
/// If the need is missing and `MILLRACE_TEST_REQUIRE` is `all`.
#[track_caller]
pub fn require<T, E: Display>(needed: Result<T, E>) -> Option<T> {
    match needed {
        Ok(value) => Some(value),
        Err(why) => {
            missing(&why.to_string());
            None
        }
    }
}

/// Checks, as [`require`] does, whether something is there; `why` says what is missing and how to get it.
///
/// # Panics
/// Where [`require`] panics.
#[track_caller]
pub fn require_that(is_there: bool, why: &str) -> bool {
    require(is_there.then_some(()).ok_or(Missing(why))).is_some()
}

/// Records a fact that differs between machines, such as the version of a peer.
#[track_caller]
pub fn met(what: &str) {
    note(&format!("met {}", one_line(what)));
}

#[track_caller]
fn missing(why: &str) {
    let why = one_line(why);
    note(&why);
    if env::var_os(REQUIRE).is_some_and(|all| all == "all") {
        panic!("{why} ({REQUIRE} is all)");
    }
}

/// Prints a note, and appends it to the list file if there is one.
#[track_caller]
fn note(what: &str) {
    let line = format!("{}: {}: {what}", program(), test());
    eprintln!("{line}");
    let Some(list) = env::var_os(LIST) else {
        return;
    };
    // A single write, because tests of several processes append at the same time.
    let written = File::options()
        .create(true)
        .append(true)
        .open(Path::new(&list))
        .and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    if let Err(error) = written {
        panic!("{LIST} names {}: {error}", list.display());
    }
}

/// Joins a text into one line, because the list has a line for each note.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The name of the test program, without the hash that Cargo adds.
fn program() -> String {
    let path = env::current_exe().unwrap_or_default();
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    match name.rsplit_once('-') {
        Some((name, hash)) if hash.len() == 16 => name.to_owned(),
        _ => name.into_owned(),
    }
}

/// The name of the test, which is its thread's name; otherwise the source location.
#[track_caller]
fn test() -> String {
    match thread::current().name() {
        Some(name) if name != "main" => name.to_owned(),
        _ => {
            let place = Location::caller();
            format!("{}:{}", place.file(), place.line())
        }
    }
}

#[cfg(test)]
mod tests;
