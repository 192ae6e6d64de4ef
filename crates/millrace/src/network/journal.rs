//! What has been done to the host, on file, so that a daemon that was killed can be cleaned up
//! after.
//!
//! A step is written **before** it is done: a step in the file may not have happened, one that
//! is not in the file did not. Locks tell a living daemon's file from a dead one's: the kernel
//! drops them however the process ends, and no process number can be taken for another's.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::step::Step;

/// Directory of the journals, one `IFNAME@NAMESPACE.undo` for each interface; empty after a reboot, as the
/// host's state is.
pub(super) const DIRECTORY: &str = "/run/millrace";

/// Largest journal that is read, in bytes; a real one has a few lines.
const SIZE_MAX: u64 = 1 << 20;

/// Longest first line that is looked at, in bytes.
const LINE_MAX: u64 = 256;

/// Why a journal cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum JournalError {
    /// Another process has the interface up.
    #[error("{ifname}: another millrace process has this tunnel up; stop that first")]
    Running {
        /// The interface.
        ifname: String,
    },
    /// The file or its directory.
    #[error("{}: {error}; the tunnel cannot be made without a record of how to undo it", path.display())]
    File {
        /// The journal.
        path: PathBuf,
        /// What the kernel said.
        error: io::Error,
    },
}

/// An open and locked journal.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: Flock<File>,
}

impl Journal {
    /// Opens the journal of an interface, and gives the steps that a dead daemon left in it.
    pub(super) fn open(directory: &Path, ifname: &str) -> Result<(Self, Vec<Step>), JournalError> {
        let path = path_of(directory, ifname);
        let failed = |error| JournalError::File {
            path: path.clone(),
            error,
        };
        fs::create_dir_all(directory).map_err(failed)?;
        let file = loop {
            let file = OpenOptions::new()
                .read(true)
                .append(true)
                .create(true)
                .mode(0o600)
                .open(&path)
                .map_err(failed)?;
            let file = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(
                |(_, errno)| match errno {
                    Errno::EWOULDBLOCK => JournalError::Running {
                        ifname: ifname.to_owned(),
                    },
                    errno => failed(errno.into()),
                },
            )?;
            // Its last owner may have removed it between the two calls.
            if file.metadata().map_err(failed)?.nlink() != 0 {
                break file;
            }
        };
        let steps = read(&file).map_err(failed)?;
        Ok((Self { path, file }, steps))
    }

    /// Writes down that a step is about to be done. Returns what [`Journal::retract`] needs.
    pub(super) fn record(&mut self, step: &Step) -> Result<u64, JournalError> {
        let write = || {
            let mut mark = self.file.metadata()?.len();
            if mark == 0 {
                self.write(&Origin::here())?;
                mark = self.file.metadata()?.len();
            }
            self.write(step)?;
            Ok(mark)
        };
        write().map_err(|error| self.failed(error))
    }

    /// Takes back what was written since a record gave this mark: it was not done.
    pub(super) fn retract(&mut self, mark: u64) -> Result<(), JournalError> {
        self.file.set_len(mark).map_err(|error| self.failed(error))
    }

    fn write(&self, line: &impl Serialize) -> io::Result<()> {
        let mut text = serde_json::to_string(line)?;
        text.push('\n');
        // In one call, so that a line is whole or torn but never mixed with another.
        (&*self.file).write_all(text.as_bytes())
    }

    /// Empties the file: its steps have been undone.
    pub(super) fn clear(&mut self) -> Result<(), JournalError> {
        self.file.set_len(0).map_err(|error| self.failed(error))
    }

    /// Removes the file, which nothing must be undone of any more. A process that may not remove it
    /// any more leaves it empty.
    pub(super) fn remove(mut self) -> Result<(), JournalError> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => self.clear(),
            outcome => outcome.map_err(|error| self.failed(error)),
        }
    }

    /// True when this is the only journal in its directory: no other tunnel of ours is up.
    pub(super) fn is_alone(&self) -> bool {
        self.other_paths().is_empty()
    }

    /// The interfaces of the other journals of this namespace, and what is in these.
    pub(super) fn others(&self) -> (Vec<String>, Vec<Step>) {
        let mut names = Vec::new();
        let mut steps = Vec::new();
        for path in self.other_paths() {
            // Gone meanwhile, or about to go.
            let Ok(file) = File::open(&path) else {
                continue;
            };
            if !Origin::of(&file).is_elsewhere() {
                names.extend(stem(&path));
                steps.extend(read(&file).unwrap_or_default());
            }
        }
        (names, steps)
    }

    fn other_paths(&self) -> Vec<PathBuf> {
        let mut paths = journals(self.path.parent());
        paths.retain(|path| *path != self.path);
        paths
    }

    fn failed(&self, error: io::Error) -> JournalError {
        JournalError::File {
            path: self.path.clone(),
            error,
        }
    }
}

/// The first line of a journal. Interfaces of the same name in two network namespaces have
/// nothing to do with each other, but `/run` is the same for both.
#[derive(Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
struct Origin {
    /// Inode of the namespace, 0 when unknown.
    namespace: u64,
}

impl Origin {
    fn here() -> Self {
        let namespace = fs::metadata("/proc/thread-self/ns/net").map_or(0, |meta| meta.ino());
        Self { namespace }
    }

    fn of(file: &File) -> Self {
        let mut line = String::new();
        let read = BufReader::new(file.take(LINE_MAX)).read_line(&mut line);
        // Whatever it is instead: a journal without an origin.
        let _ = (read, (&*file).rewind());
        serde_json::from_str(&line).unwrap_or_default()
    }

    fn is_elsewhere(&self) -> bool {
        let here = Self::here().namespace;
        ![0, here].contains(&self.namespace) && here != 0
    }
}

/// The interfaces in this network namespace whose journals nobody holds.
pub(super) fn abandoned(directory: &Path) -> Vec<String> {
    let free = |path: &PathBuf| {
        File::open(path).is_ok_and(|file| {
            !Origin::of(&file).is_elsewhere()
                && Flock::lock(file, FlockArg::LockExclusiveNonblock).is_ok()
        })
    };
    let paths = journals(Some(directory)).into_iter().filter(free);
    paths.filter_map(|path| stem(&path)).collect()
}

fn journals(directory: Option<&Path>) -> Vec<PathBuf> {
    let entries = directory.map(fs::read_dir).into_iter().flatten().flatten();
    entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "undo")
        })
        .collect()
}

/// The journal of an interface of this network namespace: others may have interfaces of that name.
pub(super) fn path_of(directory: &Path, ifname: &str) -> PathBuf {
    directory.join(format!("{ifname}@{}.undo", Origin::here().namespace))
}

/// The interface of a journal.
fn stem(path: &Path) -> Option<String> {
    let stem = path.file_stem()?.to_str()?;
    Some(
        stem.rsplit_once('@')
            .map_or(stem, |(name, _)| name)
            .to_owned(),
    )
}

fn read(file: &File) -> io::Result<Vec<Step>> {
    let mut steps = Vec::new();
    for line in BufReader::new(file.take(SIZE_MAX)).lines() {
        let line = line?;
        if serde_json::from_str::<Origin>(&line).is_ok() {
            continue;
        }
        match serde_json::from_str(&line) {
            Ok(step) => steps.push(step),
            // The last line of a daemon that was killed while writing, or of another version.
            Err(error) => log::warn!("a line of the undo journal is passed over: {error}"),
        }
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory of this test's own, removed at its end.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let name = format!("millrace-{name}-{}", std::process::id());
            Self(std::env::temp_dir().join(name))
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn steps_survive_the_process_and_a_torn_line() {
        let scratch = Scratch::new("journal");
        let step = Step::MainRule {
            v6: true,
            priority: 7,
        };
        let (mut journal, left) = Journal::open(&scratch.0, "wg0").unwrap();
        assert!(left.is_empty() && journal.is_alone());
        journal.record(&step).unwrap();
        (&*journal.file).write_all(b"{\"MainRu").unwrap();
        drop(journal);
        let (mut journal, left) = Journal::open(&scratch.0, "wg0").unwrap();
        assert_eq!(left, [step]);
        journal.clear().unwrap();
        drop(journal);
        let (journal, left) = Journal::open(&scratch.0, "wg0").unwrap();
        assert!(left.is_empty());
        journal.remove().unwrap();
        assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 0);
    }

    #[test]
    fn a_living_daemons_journal_is_left_alone() {
        let scratch = Scratch::new("lock");
        let (_held, _) = Journal::open(&scratch.0, "wg0").unwrap();
        let second = Journal::open(&scratch.0, "wg0");
        assert!(matches!(second, Err(JournalError::Running { .. })));
        let (other, _) = Journal::open(&scratch.0, "wg1").unwrap();
        assert!(!other.is_alone());
    }

    #[test]
    fn journals_of_other_namespaces_are_not_ours_to_undo() {
        let scratch = Scratch::new("elsewhere");
        let (held, _) = Journal::open(&scratch.0, "tun0").unwrap();
        let elsewhere = Origin { namespace: 1 };
        let foreign = serde_json::to_string(&elsewhere).unwrap();
        let step = "{\"MainRule\":{\"v6\":false,\"priority\":7}}";
        let write = |name: &str, first: &str| {
            fs::write(scratch.0.join(name), format!("{first}\n{step}\n")).unwrap();
        };
        write("tun1.undo", &foreign);
        write("tun2.undo", "");
        assert_eq!(abandoned(&scratch.0), ["tun2"]);
        let (names, steps) = held.others();
        assert_eq!(
            (names.as_slice(), steps.len()),
            (&["tun2".to_owned()][..], 1)
        );
    }

    #[test]
    fn what_was_not_done_is_taken_back() {
        let scratch = Scratch::new("retract");
        let rule = |priority| Step::MainRule { v6: true, priority };
        let (mut journal, _) = Journal::open(&scratch.0, "wg0").unwrap();
        journal.record(&rule(1)).unwrap();
        let mark = journal.record(&rule(2)).unwrap();
        journal.retract(mark).unwrap();
        journal.record(&rule(3)).unwrap();
        drop(journal);
        let (_, left) = Journal::open(&scratch.0, "wg0").unwrap();
        assert_eq!(left, [rule(1), rule(3)]);
    }
}
