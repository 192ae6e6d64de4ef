//! Small files that are written while the power may fail: two places, written in turn.
//!
//! A place has a number and a sum over its text: whatever moment the power fails in, one of them is whole. The file is opened
//! once, so that a process that has given up its rights can go on writing, and is never longer than two places. (What may be
//! put beside itself and renamed is written by `host::written_file::replace`.)

use crypto::blake2s;
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use std::fmt::Write as _;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Where files stay over a reboot; and where they do on routers, whose `/var` is in memory.
const DIRECTORY: &str = "/var/lib/millrace";
const DIRECTORY_OF_ROUTERS: &str = "/etc/millrace";

/// Where files of this program stay over a reboot.
pub(crate) fn directory() -> &'static Path {
    let var = statfs("/var/lib").or_else(|_| statfs("/var"));
    let in_memory = var.is_ok_and(|it| it.filesystem_type() == TMPFS_MAGIC);
    Path::new(match in_memory {
        true => DIRECTORY_OF_ROUTERS,
        false => DIRECTORY,
    })
}

/// Opens a file of places for this user only; it and its directory are made if they are not there.
///
/// # Errors
/// The kernel's error, and `InvalidInput` for a path that is no regular file.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let directory = path.parent();
    if let Some(directory) = directory {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o755).create(directory)?;
    }
    let is_new = !path.exists();
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).mode(0o600);
    let file = host::written_file::open(path, &mut options)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "is no file"));
    }
    if let Some(directory) = directory.filter(|_| is_new) {
        // The name, too, is to be there after a power cut.
        let _ = File::open(directory).and_then(|it| it.sync_all());
    }
    Ok(file)
}

/// Reads both places of this many bytes. Returns the newest that is whole; an error where there is something, and nothing of
/// it is whole.
///
/// # Errors
/// The kernel's error, and `InvalidData`.
pub(crate) fn newest(mut file: &File, head: &str, place: usize) -> io::Result<(u64, String)> {
    file.seek(SeekFrom::Start(0))?;
    let mut bytes = Vec::new();
    file.take(2 * place as u64).read_to_end(&mut bytes)?;
    let places = bytes.chunks(place).filter_map(|place| parse(head, place));
    let newest = places.max_by_key(|(number, _)| *number);
    match newest {
        Some((number, text)) => Ok((number, text.to_owned())),
        None if bytes.is_empty() => Ok((0, String::new())),
        None => Err(ErrorKind::InvalidData.into()),
    }
}

/// A place of this many bytes, and where in the file it belongs.
pub(crate) fn emit(head: &str, number: u64, text: &str, place: usize) -> (Vec<u8>, u64) {
    let mut whole = format!("{head} {number}\n{text}");
    let sum = sum(&whole);
    // To a string: cannot fail.
    let _ = writeln!(whole, "{sum}");
    let mut bytes = whole.into_bytes();
    bytes.resize(place, b'\n');
    (bytes, number % 2 * place as u64)
}

/// The number and the text of a place; `None` if it is not whole.
fn parse<'a>(head: &str, place: &'a [u8]) -> Option<(u64, &'a str)> {
    let text = std::str::from_utf8(place).ok()?.trim_end_matches('\n');
    let (body, told) = text.rsplit_once('\n')?;
    let body = text.get(..=body.len())?;
    if sum(body) != told {
        return None;
    }
    let (first, rest) = body.split_once('\n')?;
    let number = first.strip_prefix(head)?.trim_start().parse().ok()?;
    Some((number, rest))
}

/// Against what a broken write leaves, not against people.
fn sum(text: &str) -> String {
    let hash = blake2s::hash(&[text.as_bytes()]);
    hash.iter().take(8).fold(String::new(), |mut sum, byte| {
        let _ = write!(sum, "{byte:02x}");
        sum
    })
}
