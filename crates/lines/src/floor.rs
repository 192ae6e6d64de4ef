//! The floor: the latest time that this host has certainly reached, kept on file for clocks that go back.
//!
//! A router's clock stops while it is off, and begins each run in the past. Two things need a clock nevertheless. A
//! WireGuard peer accepts a handshake only if its stamp is later than the last one, so every run starts its stamps
//! above the floor on file ([`Floor`]). And a certificate that is not valid yet by the clock may be valid by the
//! floor ([`earliest`]).
//!
//! One file serves all processes of a host, as they share one clock. The floor is written ahead of use, so that a
//! power cut loses nothing, and therefore seldom.

use crate::places;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How far ahead of use the floor is written, and so the least time between two writes of a process whose clock runs.
/// After a power cut, peers may refuse another program with the same key for as long.
pub const AHEAD: Duration = Duration::from_secs(600);

/// How far ahead of use the floor is written while stamps follow it and not the clock: each stamp is some 17 ms later
/// than the last.
const STEPS_AHEAD: Duration = Duration::from_secs(2);

/// How long after its build a program believes the floor on file: ten years.
const TRUSTED: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Size of a slot in the file, in bytes: a flash block, so that a broken-off write leaves the other slot intact.
const PLACE: usize = 4096;

/// First line of a slot, with the version of the format.
const HEAD: &str = "millrace clock 1";

/// Decides when to write the floor. No message may leave before the floor for its stamp is written.
#[derive(Clone, Copy, Debug)]
pub struct Floor {
    /// The clock floor that this process last wrote to its file.
    kept: SystemTime,
}

impl Default for Floor {
    fn default() -> Self {
        Self {
            kept: SystemTime::UNIX_EPOCH,
        }
    }
}

impl Floor {
    /// Takes the stamp `used`, which is about to be sent while the clock shows `wall`. Returns the floor to write
    /// before that, if any.
    pub fn use_up(&mut self, used: SystemTime, wall: SystemTime) -> Option<SystemTime> {
        if used <= self.kept {
            return None;
        }
        let follows_clock = used <= wall + STEPS_AHEAD;
        let ahead = if follows_clock { AHEAD } else { STEPS_AHEAD };
        self.kept = used + ahead;
        Some(self.kept)
    }
}

/// The floor's file.
#[derive(Debug)]
pub struct FloorFile {
    path: PathBuf,
    file: File,
    /// The floor that this process wrote last.
    written: Option<u64>,
    /// The floor on file that another process wrote, and may rely on.
    others: u64,
    /// A write has failed, and the log says so.
    failed: bool,
}

impl FloorFile {
    /// Opens this host's file, and returns it with its floor; 1970 where there is none. Opened once, as the process
    /// may drop the privileges that this needs.
    #[must_use]
    pub fn open() -> (Option<Self>, SystemTime) {
        let path = path();
        match Self::at(&path) {
            Ok((file, floor)) => (Some(file), floor),
            Err(error) => {
                let words = format!(
                    "{}: {error}; if the clock goes back before the next start, peers may refuse handshakes",
                    path.display()
                );
                // With a clock that runs, nothing is lost.
                match host::machine::clock_is_set(SystemTime::now()) {
                    true => log::debug!("{words}"),
                    false => log::warn!("{words}"),
                }
                (None, SystemTime::UNIX_EPOCH)
            }
        }
    }

    /// Opens the floor's file at any path.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn at(path: &Path) -> io::Result<(Self, SystemTime)> {
        let file = places::open(path)?;
        let (_, floor) = locked(&file, File::lock, newest).or_else(|error| match error.kind() {
            ErrorKind::InvalidData => {
                log::warn!(
                    "{} is damaged and ignored; until the clock is set, peers may refuse handshakes",
                    path.display()
                );
                Ok((0, 0))
            }
            _ => Err(error),
        })?;
        let file = Self {
            path: path.to_owned(),
            file,
            written: None,
            others: 0,
            failed: false,
        };
        Ok((file, SystemTime::UNIX_EPOCH + Duration::from_nanos(floor)))
    }

    /// Writes a floor, and waits until it is on the disk. A higher floor of another process stays. A failure is
    /// logged once.
    pub fn raise(&mut self, floor: SystemTime) {
        let floor = nanos(floor);
        // At least one more than the floor found, which shows that two processes rely on it.
        self.write(|found, _| Some(floor.max(found.saturating_add(1))));
    }

    /// Ends a process that used stamps up to `used`: lowers the floor to that, unless another process has raised it
    /// since.
    pub fn end(&mut self, used: SystemTime) {
        let used = nanos(used).max(self.others);
        self.write(|found, written| (Some(found) == written && used < found).then_some(used));
    }

    fn write(&mut self, decide: impl Fn(u64, Option<u64>) -> Option<u64>) {
        let written = locked(&self.file, File::lock, |file| {
            let (number, found) = newest(file).or_else(|error| match error.kind() {
                ErrorKind::InvalidData => Ok((0, 0)),
                _ => Err(error),
            })?;
            let others = if Some(found) == self.written {
                0
            } else {
                found
            };
            let Some(floor) = decide(found, self.written) else {
                return Ok((None, others));
            };
            let number = number.wrapping_add(1);
            let (place, at) = places::emit(HEAD, number, &format!("{floor}\n"), PLACE);
            file.write_all_at(&place, at)?;
            file.sync_data()?;
            Ok((Some(floor), others))
        });
        match written {
            Ok((floor, others)) => {
                self.others = self.others.max(others);
                self.written = floor.or(self.written);
                self.failed = false;
            }
            Err(error) => {
                if !std::mem::replace(&mut self.failed, true) {
                    let path = self.path.display();
                    log::warn!(
                        "{path}: {error}; if the clock goes back, peers may refuse handshakes"
                    );
                }
            }
        }
    }
}

/// The time by which to judge a certificate when the clock shows an earlier one: the build's, or that of the floor on
/// file. Makes no file and logs nothing.
#[must_use]
pub fn earliest() -> SystemTime {
    judged_by(on_file(), host::machine::built())
}

/// The time that this host's clock has reached, by the floor on file; 1970 where there is none.
#[must_use]
pub fn on_file() -> SystemTime {
    let floor = File::open(path()).and_then(|file| locked(&file, File::lock_shared, newest));
    // The floor on file may be ahead of the time by that much.
    let floor = Duration::from_nanos(floor.map_or(0, |(_, floor)| floor)).saturating_sub(AHEAD);
    SystemTime::UNIX_EPOCH + floor
}

/// Path of the floor's file.
#[must_use]
pub fn path() -> PathBuf {
    places::directory().join("clock")
}

/// Chooses the floor or the build's time. A floor too late for this build comes from a clock that ran ahead; no
/// certificate is judged by it, as valid ones would look expired. (Stamps still exceed it: peers may have seen later
/// ones.)
fn judged_by(floor: SystemTime, built: SystemTime) -> SystemTime {
    match floor > built + TRUSTED {
        true => built,
        false => floor.max(built),
    }
}

/// The floor in the newest intact slot. A floor in the far future is rejected.
fn newest(file: &File) -> io::Result<(u64, u64)> {
    let (number, text) = places::newest(file, HEAD, PLACE)?;
    let floor = match text.trim() {
        "" => 0,
        text => text.parse().map_err(|_| ErrorKind::InvalidData)?,
    };
    if floor > u64::MAX / 2 {
        return Err(ErrorKind::InvalidData.into());
    }
    Ok((number, floor))
}

/// Calls `f` while the file has the lock that `lock` takes.
fn locked<T>(
    file: &File,
    lock: fn(&File) -> io::Result<()>,
    f: impl FnOnce(&File) -> io::Result<T>,
) -> io::Result<T> {
    lock(file)?;
    let result = f(file);
    file.unlock()?;
    result
}

fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    let since = since.unwrap_or_default().as_nanos();
    u64::try_from(since).map_or(u64::MAX / 2, |it| it.min(u64::MAX / 2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn at(secs: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(secs)
    }

    #[test]
    fn it_is_written_seldom_and_ahead_of_use() {
        let mut floor = Floor::default();
        let writes: Vec<u64> = (0..3600)
            .filter(|second| {
                let now = at(1_800_000_000 + second);
                let kept = floor.use_up(now, now);
                assert!(kept.is_none_or(|it| it > now));
                kept.is_some()
            })
            .collect();
        assert_eq!(writes.len(), 6, "{writes:?}");
        // A clock that is set forward is followed at once; one that is behind the stamps needs little.
        let now = at(1_900_000_000);
        assert_eq!(floor.use_up(now, now), Some(now + AHEAD));
        let later = now + AHEAD + Duration::from_millis(17);
        assert_eq!(floor.use_up(later, at(0)), Some(later + STEPS_AHEAD));
    }

    #[test]
    fn a_clock_that_ran_ahead_judges_no_certificate() {
        let built = at(1_800_000_000);
        assert_eq!(judged_by(at(0), built), built);
        let year = Duration::from_secs(365 * 24 * 3600);
        assert_eq!(judged_by(built + year, built), built + year);
        assert_eq!(judged_by(built + 30 * year, built), built);
    }

    #[test]
    fn what_was_written_is_found_and_only_raised() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("made/clock");
        let (mut one, found) = FloorFile::at(&path).unwrap();
        assert_eq!(found, at(0));
        one.raise(at(1000));
        let (mut two, found) = FloorFile::at(&path).unwrap();
        assert_eq!(found, at(1000));
        // A lower floor changes nothing, and the first process's end does not take the higher one back.
        two.raise(at(900));
        one.end(at(500));
        let found = FloorFile::at(&path).unwrap().1;
        assert!(found > at(1000) && found < at(1001), "{found:?}");
        // When the second process ends, the floor on which the first may rely stays.
        two.end(at(700));
        assert_eq!(FloorFile::at(&path).unwrap().1, at(1000));
        // A process that is alone leaves exactly what it used.
        let (mut three, _) = FloorFile::at(&path).unwrap();
        three.raise(at(3000));
        three.end(at(2400));
        assert_eq!(FloorFile::at(&path).unwrap().1, at(2400));
    }

    /// Wherever a write breaks off, the previous floor stays.
    #[test]
    fn a_power_cut_costs_that_write_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("clock");
        let (mut file, _) = FloorFile::at(&path).unwrap();
        file.raise(at(1000));
        file.raise(at(2000));
        let before = fs::read(&path).unwrap();
        file.raise(at(3000));
        let after = fs::read(&path).unwrap();
        let changed: Vec<usize> = (0..after.len())
            .filter(|&byte| before.get(byte) != after.get(byte))
            .collect();
        for cut in changed {
            let mut torn = after[..cut].to_vec();
            torn.extend_from_slice(before.get(cut..).unwrap_or_default());
            fs::write(&path, torn).unwrap();
            let found = FloorFile::at(&path).unwrap().1;
            assert!(found == at(2000) || found == at(3000), "{cut}: {found:?}");
        }
        fs::write(&path, vec![0xff; 100]).unwrap();
        let (mut file, found) = FloorFile::at(&path).unwrap();
        assert_eq!(found, at(0));
        file.raise(at(5000));
        assert_eq!(FloorFile::at(&path).unwrap().1, at(5000));
    }
}
