//! What lines have carried in this month, on file.
//!
//! A file has two places, which are written in turn, each with a number and a sum over its text: whatever moment the power
//! fails in, one of them is whole. It is opened once, so that a process that has given up its rights can go on writing, and
//! is never longer than two places. It is not waited for until it is on the disk: what the last half minute has carried
//! may be forgotten.

use super::{Doubt, LineUsage};
use crypto::blake2s;
use host::privileges;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use std::fmt::Write as _;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Bytes of a place: more than 16 lines with the longest names need.
const PLACE: usize = 2048;

/// What a place begins with, and its version.
const HEAD: &str = "millrace lines 1";

/// Where files stay over a reboot; and where they do on routers, whose `/var` is in memory.
const DIRECTORY: &str = "/var/lib/millrace";
const DIRECTORY_OF_ROUTERS: &str = "/etc/millrace";

/// The file of one tunnel.
#[derive(Debug)]
pub(crate) struct UsageFile {
    path: PathBuf,
    /// No other process counts for the same tunnel meanwhile.
    file: Flock<File>,
    /// The number of the place that was written last.
    number: u64,
    /// A write has failed, and that was said.
    failed: bool,
}

impl UsageFile {
    /// The file of the tunnel of this name, and what is in it; it is given to the user, if any, that this process will
    /// become, so that it can be opened anew after a signal to begin again. Where there can be none the log says so, and it
    /// is counted from nothing.
    pub(crate) fn of(tunnel: &str, user: Option<&str>) -> (Option<Self>, Vec<LineUsage>) {
        let directory = state_directory();
        let opened = Self::open(&directory, tunnel);
        let failed = |error| {
            log::warn!("{error}; what lines carry in this month is forgotten at the end");
        };
        match opened.map_err(failed) {
            Ok((file, usage)) => {
                if let Some(user) = user
                    && let Err(error) = privileges::give_away(&file.path, Some(user), None)
                {
                    // It is that user's, and this process is no other any more; or the start is refused for it elsewhere.
                    log::debug!("{}: {error}", file.path.display());
                }
                (Some(file), usage)
            }
            Err(()) => (None, Vec::new()),
        }
    }

    /// The same in any directory, which is made if there is none.
    ///
    /// # Errors
    /// What the kernel says, with the file's name; `WouldBlock` where another process has the file.
    fn open(directory: &Path, tunnel: &str) -> io::Result<(Self, Vec<LineUsage>)> {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.=+".contains(letter);
        let name: String = tunnel
            .chars()
            .map(|letter| if plain(letter) { letter } else { '_' })
            .collect();
        let path = directory.join(format!("{name}.lines"));
        let named = |error: io::Error| {
            let place = path.display();
            let words = match error.kind() {
                ErrorKind::WouldBlock => format!("{place}: another tunnel named {name} has it"),
                _ => format!("{place}: {error}"),
            };
            io::Error::new(error.kind(), words)
        };
        Self::open_at(&path).map_err(named)
    }

    fn open_at(path: &Path) -> io::Result<(Self, Vec<LineUsage>)> {
        if let Some(directory) = path.parent() {
            let mut builder = DirBuilder::new();
            builder.recursive(true).mode(0o755).create(directory)?;
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).mode(0o600);
        let file = host::written_file::open(path, &mut options)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(ErrorKind::InvalidInput, "is no file"));
        }
        let file =
            Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| error)?;
        let mut bytes = Vec::new();
        (&*file).take(2 * PLACE as u64).read_to_end(&mut bytes)?;
        let places = bytes.chunks(PLACE).filter_map(parse);
        let newest = places.max_by_key(|(number, _)| *number);
        if newest.is_none() && !bytes.is_empty() {
            let place = path.display();
            log::warn!(
                "{place} is damaged: what lines have carried in this month is not known, and counted from nothing"
            );
        }
        let (number, usage) = newest.unwrap_or_default();
        let file = Self {
            path: path.to_owned(),
            file,
            number,
            failed: false,
        };
        Ok((file, usage))
    }

    /// Writes what lines have carried. What cannot be written is told once.
    pub(crate) fn write(&mut self, usage: &[LineUsage]) {
        let number = self.number.wrapping_add(1);
        let place = emit(number, usage);
        let at = number % 2 * PLACE as u64;
        let written = self.file.write_all_at(&place, at);
        if let Err(error) = &written
            && !self.failed
        {
            let path = self.path.display();
            log::warn!("{path}: {error}; what lines carry from now on may be forgotten at the end");
        }
        self.failed = written.is_err();
        if written.is_ok() {
            self.number = number;
        }
    }
}

/// Where what is to outlive a reboot is.
pub(crate) fn state_directory() -> PathBuf {
    let var = statfs("/var/lib").or_else(|_| statfs("/var"));
    let in_memory = var.is_ok_and(|it| it.filesystem_type() == TMPFS_MAGIC);
    Path::new(match in_memory {
        true => DIRECTORY_OF_ROUTERS,
        false => DIRECTORY,
    })
    .to_owned()
}

/// A place: its head, a line of text for each line of the tunnel, and the sum over both.
fn emit(number: u64, usage: &[LineUsage]) -> Vec<u8> {
    let mut text = format!("{HEAD} {number}\n");
    for usage in usage {
        let month = usage.month;
        let month = month.map_or_else(|| "-".to_owned(), |month| month.to_string());
        // To a string: cannot fail.
        let _ = write!(text, "{} {month} {}", usage.name, usage.used);
        if let Some(Doubt { month, hours }) = usage.doubt {
            let _ = write!(text, " {month} {hours}");
        }
        text.push('\n');
    }
    let _ = writeln!(text, "{}", sum(&text));
    let mut place = text.into_bytes();
    place.resize(PLACE, b'\n');
    place
}

/// What is in a place; `None` if it is not whole.
fn parse(place: &[u8]) -> Option<(u64, Vec<LineUsage>)> {
    let text = std::str::from_utf8(place).ok()?.trim_end_matches('\n');
    let (body, told) = text.rsplit_once('\n')?;
    let body = text.get(..=body.len())?;
    if sum(body) != told {
        return None;
    }
    let mut lines = body.lines();
    let number = lines
        .next()?
        .strip_prefix(HEAD)?
        .trim_start()
        .parse()
        .ok()?;
    let usage = lines.map(|line| {
        let mut words = line.split(' ');
        let (name, month, used) = (words.next()?, words.next()?, words.next()?);
        let month = match month {
            "-" => None,
            month => Some(month.parse().ok()?),
        };
        // Not there as a rule.
        let doubt = match (words.next(), words.next()) {
            (Some(month), Some(hours)) => Some(Doubt {
                month: month.parse().ok()?,
                hours: hours.parse().ok()?,
            }),
            _ => None,
        };
        Some(LineUsage {
            name: name.to_owned(),
            month,
            used: used.parse().ok()?,
            doubt,
        })
    });
    Some((number, usage.collect::<Option<_>>()?))
}

/// Against what a broken write leaves, not against people.
fn sum(text: &str) -> String {
    let hash = blake2s::hash(&[text.as_bytes()]);
    hash.iter().take(8).fold(String::new(), |mut sum, byte| {
        let _ = write!(sum, "{byte:02x}");
        sum
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn usage(used: u64) -> Vec<LineUsage> {
        let line = |name: &str, month: Option<&str>| LineUsage {
            name: name.to_owned(),
            month: month.map(|month| month.parse().unwrap()),
            used,
            doubt: None,
        };
        let doubt = Some(Doubt {
            month: "2036-02".parse().unwrap(),
            hours: 5,
        });
        let doubted = LineUsage {
            doubt,
            ..line("lte-2", Some("2026-11"))
        };
        vec![line("lte", Some("2026-11")), line("dsl-2", None), doubted]
    }

    #[test]
    fn what_was_written_last_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path().join("made");
        let (mut file, found) = UsageFile::open(&directory, "office").unwrap();
        assert_eq!(found, []);
        let locked = UsageFile::open(&directory, "office").unwrap_err();
        assert_eq!(locked.kind(), ErrorKind::WouldBlock);
        let place = directory.join("office.lines");
        let place = place.display();
        assert_eq!(
            locked.to_string(),
            format!("{place}: another tunnel named office has it")
        );
        for used in 1..6 {
            file.write(&usage(used));
        }
        drop(file);
        let (mut file, found) = UsageFile::open(&directory, "office").unwrap();
        assert_eq!(found, usage(5));
        file.write(&usage(u64::MAX));
        drop(file);
        let found = UsageFile::open(&directory, "office").unwrap().1;
        assert_eq!(found, usage(u64::MAX));
        let length = fs::metadata(directory.join("office.lines")).unwrap().len();
        assert_eq!(length, 2 * PLACE as u64);
        assert_eq!(UsageFile::open(&directory, "../../x").unwrap().1, []);
        assert!(directory.join(".._.._x.lines").exists());
    }

    #[test]
    fn a_place_has_room_for_all_lines() {
        let longest = LineUsage {
            name: "n".repeat(32),
            month: Some("9999-12".parse().unwrap()),
            used: u64::MAX,
            doubt: Some(Doubt {
                month: "9999-12".parse().unwrap(),
                hours: u8::MAX,
            }),
        };
        let all = vec![longest; config::lines::LINES_MAX];
        let place = emit(u64::MAX, &all);
        assert_eq!(place.len(), PLACE);
        assert_eq!(parse(&place), Some((u64::MAX, all)));
    }

    /// Whatever is left of a write that was broken off, what was there before it is still known; and of a file that is
    /// damaged as a whole nothing is believed.
    #[test]
    fn a_broken_write_costs_that_write_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("office.lines");
        let (mut file, _) = UsageFile::open(directory.path(), "office").unwrap();
        file.write(&usage(1));
        file.write(&usage(2));
        file.write(&usage(3));
        drop(file);
        let whole = fs::read(&path).unwrap();
        let broken = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = whole.clone();
            change(&mut bytes);
            fs::write(&path, bytes).unwrap();
            UsageFile::open(directory.path(), "office").unwrap().1
        };
        assert_eq!(broken(&|_| ()), usage(3));
        // The third write was to the second place.
        for at in 0..58 {
            let found = broken(&|bytes| bytes[PLACE + at] ^= 1);
            assert_eq!(found, usage(2), "byte {at}");
            let cut = broken(&|bytes| bytes.truncate(PLACE + at));
            assert_eq!(cut, usage(2), "cut at {at}");
        }
        assert_eq!(broken(&|bytes| bytes.fill(0xff)), []);
        assert_eq!(broken(&|bytes| bytes.truncate(10)), []);
        let (mut file, found) = UsageFile::open(directory.path(), "office").unwrap();
        assert_eq!(found, []);
        file.write(&usage(7));
        drop(file);
        assert_eq!(
            UsageFile::open(directory.path(), "office").unwrap().1,
            usage(7)
        );
    }
}
