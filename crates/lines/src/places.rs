//! Small files that survive a power cut during a write: two slots, written in turn.
//!
//! A slot has a number and a checksum of its text: whenever the power fails, one slot is intact. The file is opened
//! once, so that a process without privileges can still write it, and is never longer than two slots.
//! (`host::written_file::replace` writes files that can be replaced by renaming.)

use crypto::blake2s;
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use std::fmt::Write as _;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Directory of files that survive a reboot; then the one for routers, whose `/var` is in memory.
const DIRECTORY: &str = "/var/lib/millrace";
const DIRECTORY_OF_ROUTERS: &str = "/etc/millrace";

/// Directory where this program's files survive a reboot.
pub fn directory() -> &'static Path {
    let var = statfs("/var/lib").or_else(|_| statfs("/var"));
    let in_memory = var.is_ok_and(|it| it.filesystem_type() == TMPFS_MAGIC);
    Path::new(match in_memory {
        true => DIRECTORY_OF_ROUTERS,
        false => DIRECTORY,
    })
}

/// Opens a file of slots, readable for this user only. Makes the file and its directory if they are missing.
///
/// # Errors
/// The kernel's error, and `InvalidInput` for a path that is not a regular file.
pub fn open(path: &Path) -> io::Result<File> {
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
        // Makes the file's name survive a power cut too.
        let _ = File::open(directory).and_then(|it| it.sync_all());
    }
    Ok(file)
}

/// Reads both slots of `place` bytes. Returns the newest intact one, or an error if the file has content but no
/// intact slot.
///
/// # Errors
/// The kernel's error, and `InvalidData`.
pub fn newest(mut file: &File, head: &str, place: usize) -> io::Result<(u64, String)> {
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

/// Formats a slot of `place` bytes. Also returns its offset in the file.
pub fn emit(head: &str, number: u64, text: &str, place: usize) -> (Vec<u8>, u64) {
    let mut whole = format!("{head} {number}\n{text}");
    let sum = sum(&whole);
    // Writing to a string cannot fail.
    let _ = writeln!(whole, "{sum}");
    let mut bytes = whole.into_bytes();
    bytes.resize(place, b'\n');
    (bytes, number % 2 * place as u64)
}

/// The number and the text of a slot; `None` if it is damaged.
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

/// A checksum against broken-off writes, not against attackers.
fn sum(text: &str) -> String {
    crypto::hex(&blake2s::hash(&[text.as_bytes()])[..8])
}
