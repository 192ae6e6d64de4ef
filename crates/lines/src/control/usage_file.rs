//! Keeps the bytes that lines have carried in this month in a file.
//!
//! The file has two slots, written in turn, each with a number and a checksum of its text: whenever the power fails,
//! one slot is intact. The file is opened once, so that a process without privileges can still write it, and is
//! never longer than two slots. Writes do not wait for the disk, so the traffic of the last half minute may be lost.

use super::{Doubt, LineUsage};
use crate::places;
use host::privileges;
use nix::fcntl::{Flock, FlockArg};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// Size of a slot, in bytes: enough for 16 lines with the longest names.
const PLACE: usize = 2048;

/// First line of a slot, with the version of the format.
const HEAD: &str = "millrace uplinks 1";

/// The file of one tunnel.
#[derive(Debug)]
pub struct UsageFile {
    path: PathBuf,
    /// The locked file: no other process counts for the same tunnel meanwhile.
    file: Flock<File>,
    /// Number of the last written slot.
    number: u64,
    /// A write has failed, and the log says so.
    failed: bool,
}

impl UsageFile {
    /// Opens the file of the tunnel with this name and reads it. The file is given to `user`, if any, to whom this
    /// process will drop its privileges, so that a reload can open it again. If it cannot be opened, the log says so,
    /// and counting starts from zero.
    pub fn of(tunnel: &str, user: Option<&str>) -> (Option<Self>, Vec<LineUsage>) {
        let opened = Self::open(places::directory(), tunnel);
        let failed = |error| {
            log::warn!("{error}; what uplinks carry in this month is forgotten at the end");
        };
        match opened.map_err(failed) {
            Ok((file, usage)) => {
                if let Some(user) = user
                    && let Err(error) = privileges::give_away(&file.path, Some(user), None)
                {
                    // The file already belongs to that user, who runs this process; or another check refuses the
                    // start.
                    log::debug!("{}: {error}", file.path.display());
                }
                (Some(file), usage)
            }
            Err(()) => (None, Vec::new()),
        }
    }

    /// Opens the file in any directory, which is made if it is missing.
    ///
    /// # Errors
    /// The kernel's error, with the file's name; `WouldBlock` if another process has locked the file.
    fn open(directory: &Path, tunnel: &str) -> io::Result<(Self, Vec<LineUsage>)> {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.=+".contains(letter);
        let name: String = tunnel
            .chars()
            .map(|letter| if plain(letter) { letter } else { '_' })
            .collect();
        let path = directory.join(format!("{name}.uplinks"));
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
        let file = places::open(path)?;
        let file =
            Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| error)?;
        let newest = places::newest(&file, HEAD, PLACE);
        let newest = newest.and_then(|(number, text)| {
            let usage = parse(&text).ok_or(ErrorKind::InvalidData)?;
            Ok((number, usage))
        });
        let (number, usage) = match newest {
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                let place = path.display();
                log::warn!(
                    "{place} is damaged: what uplinks have carried in this month is not known, and counted from nothing"
                );
                (0, Vec::new())
            }
            newest => newest?,
        };
        let file = Self {
            path: path.to_owned(),
            file,
            number,
            failed: false,
        };
        Ok((file, usage))
    }

    /// Writes the usage of the lines. A failure is logged once.
    pub fn write(&mut self, usage: &[LineUsage]) {
        let number = self.number.wrapping_add(1);
        let (place, at) = places::emit(HEAD, number, &emit(usage), PLACE);
        let written = self.file.write_all_at(&place, at);
        if let Err(error) = &written
            && !self.failed
        {
            let path = self.path.display();
            log::warn!(
                "{path}: {error}; what uplinks carry from now on may be forgotten at the end"
            );
        }
        self.failed = written.is_err();
        if written.is_ok() {
            self.number = number;
        }
    }
}

/// Formats the usage, one row of text for each line of the tunnel.
fn emit(usage: &[LineUsage]) -> String {
    let mut text = String::new();
    for usage in usage {
        let month = usage.month;
        let month = month.map_or_else(|| "-".to_owned(), |month| month.to_string());
        // Writing to a string cannot fail.
        let _ = write!(text, "{} {month} {}", usage.name, usage.used);
        if let Some(Doubt { month, hours }) = usage.doubt {
            let _ = write!(text, " {month} {hours}");
        }
        text.push('\n');
    }
    text
}

/// Parses the text of [`emit`]; `None` if it is invalid.
fn parse(text: &str) -> Option<Vec<LineUsage>> {
    let usage = text.lines().map(|line| {
        let mut words = line.split(' ');
        let (name, month, used) = (words.next()?, words.next()?, words.next()?);
        let month = match month {
            "-" => None,
            month => Some(month.parse().ok()?),
        };
        // Usually absent.
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
    usage.collect()
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
        let place = directory.join("office.uplinks");
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
        let length = fs::metadata(directory.join("office.uplinks"))
            .unwrap()
            .len();
        assert_eq!(length, 2 * PLACE as u64);
        assert_eq!(UsageFile::open(&directory, "../../x").unwrap().1, []);
        assert!(directory.join(".._.._x.uplinks").exists());
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
        let (place, _) = places::emit(HEAD, u64::MAX, &emit(&all), PLACE);
        assert_eq!(place.len(), PLACE);
        assert_eq!(parse(&emit(&all)), Some(all));
    }

    /// After a broken-off write the earlier usage is known; a file with two damaged slots is ignored.
    #[test]
    fn a_broken_write_costs_that_write_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("office.uplinks");
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
        // The third write went to the second slot.
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
