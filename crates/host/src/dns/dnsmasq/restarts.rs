//! Restarts `dnsmasq`: in the foreground, or on a thread for a loop that must not wait, with pauses after failures.
//!
//! A file that `dnsmasq` has not read has a mark beside it, until a restart after the file's last change has succeeded.
//! The mark is on disk because another process than the file's writer may retry.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{fs, io};

use crate::background;
use crate::dns::dnsmasq::{DnsError, read};
use crate::dns::{LIMIT, find_program, helper};

/// Pause after the first failure, and the longest: each pause is twice as long as the one before.
const PAUSE: Duration = Duration::from_secs(4);
const PAUSE_MAX: Duration = Duration::from_secs(256);

/// Time between two checks of a restart in progress.
const LOOK: Duration = Duration::from_millis(200);

/// Restarts `dnsmasq`, in the foreground or on a thread.
#[derive(Debug, Default)]
pub struct Restarts {
    /// A separate thread waits for each restart.
    aside: bool,
    under_way: Option<JoinHandle<Result<(), DnsError>>>,
    pauses: Pauses,
}

impl Restarts {
    /// Restarts in the foreground: the caller waits for each, and none is skipped.
    #[must_use]
    pub fn at_once() -> Self {
        Self::default()
    }

    /// Restarts on a thread, for a loop: the loop never waits, and calls [`Restarts::ended`] at each turn. After a
    /// failure nothing is tried for a while.
    #[must_use]
    pub fn aside() -> Self {
        Self {
            aside: true,
            ..Self::default()
        }
    }

    /// Whether a restart may be tried now.
    pub(super) fn may(&self) -> bool {
        !self.aside || (self.under_way.is_none() && self.pauses.left(Instant::now()).is_none())
    }

    /// Records a failure, after which nothing is tried for a while.
    pub(super) fn failed(&mut self) {
        self.pauses.failed(Instant::now());
    }

    /// Restarts `dnsmasq` so that it reads the directory, if a restart may be tried now.
    pub(super) fn start(&mut self, directory: &Path, words: &[String]) -> Result<(), DnsError> {
        let (directory, words) = (directory.to_owned(), words.to_vec());
        let start = move || {
            let marked = marked(&directory);
            start_anew(&words)?;
            unmark(&marked);
            Ok(())
        };
        if !self.aside {
            return start();
        }
        if self.may() {
            self.under_way = Some(thread::spawn(start));
        }
        Ok(())
    }

    /// Takes the result of the restart in progress, if that has ended.
    ///
    /// # Errors
    /// The restart failed.
    pub fn ended(&mut self) -> Result<(), DnsError> {
        let ended = self.under_way.take_if(|it| it.is_finished());
        match ended.map(JoinHandle::join) {
            Some(Ok(Ok(()))) => self.pauses = Pauses::default(),
            Some(Ok(Err(error))) => {
                self.failed();
                return Err(error);
            }
            // The thread has panicked and printed why.
            Some(Err(_)) => self.failed(),
            None => {}
        }
        Ok(())
    }

    /// How long the loop may sleep; `None` if no restart is pending.
    #[must_use]
    pub fn wait(&self) -> Option<Duration> {
        match self.under_way {
            Some(_) => Some(LOOK),
            None => self.pauses.left(Instant::now()),
        }
    }
}

/// Pauses after failures.
#[derive(Debug, Default)]
struct Pauses {
    failures: u32,
    until: Option<Instant>,
}

impl Pauses {
    fn failed(&mut self, now: Instant) {
        let pause = PAUSE.saturating_mul(1 << self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        self.until = Some(now + pause.min(PAUSE_MAX));
    }

    /// The remaining pause.
    fn left(&self, now: Instant) -> Option<Duration> {
        let left = self.until?.checked_duration_since(now)?;
        (!left.is_zero()).then_some(left)
    }
}

/// The mark of a file; `dnsmasq` ignores it because of its name.
pub(super) fn mark_of(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!(".{name}.unread"))
}

/// A file that `dnsmasq` has not read, with the texts of its mark and itself when a restart began.
struct Unread {
    mark: PathBuf,
    file: PathBuf,
    texts: [Option<String>; 2],
}

impl Unread {
    fn texts(&self) -> [Option<String>; 2] {
        [&self.mark, &self.file].map(|path| read(path))
    }
}

/// The content of a mark. Each is unique, because a file may be marked again for a change elsewhere.
pub(super) fn token() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    format!("{}\n", now.unwrap_or_default().as_nanos())
}

/// Files that `dnsmasq` has not read.
fn marked(directory: &Path) -> Vec<Unread> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let of = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let name = name.strip_prefix('.')?.strip_suffix(".unread")?;
        let mut unread = Unread {
            mark: entry.path(),
            file: directory.join(name),
            texts: [None, None],
        };
        unread.texts = unread.texts();
        Some(unread)
    };
    entries.filter_map(of).take(64).collect()
}

/// Removes the marks of files that were read. A file that was changed or marked again since the restart began keeps its
/// mark.
fn unmark(marked: &[Unread]) {
    for unread in marked {
        if unread.texts() == unread.texts {
            let _ = fs::remove_file(&unread.mark);
        }
    }
}

/// Whether the host's `dnsmasq` can put addresses into nftables sets, according to its version.
///
/// # Errors
/// The program is missing, cannot be run, or does not end.
pub fn knows_sets() -> Result<bool, DnsError> {
    let program = "dnsmasq";
    let printed = helper::printed(Command::new(program).arg("--version"), LIMIT);
    let printed = printed.and_then(|it| it.ok_or_else(|| io::ErrorKind::TimedOut.into()));
    match printed {
        Ok(version) => Ok(has_sets(&version)),
        Err(error) => Err(DnsError::Run { program, error }),
    }
}

fn has_sets(version: &str) -> bool {
    version
        .split_ascii_whitespace()
        .any(|word| word == "nftset")
}

/// Runs the command that restarts `dnsmasq`.
fn start_anew(words: &[String]) -> Result<(), DnsError> {
    let failed = |reason: String| DnsError::Restart {
        command: words.join(" "),
        reason,
    };
    let Some((program, arguments)) = words.split_first() else {
        return Ok(());
    };
    let path = find_program(program).unwrap_or_else(|| program.into());
    let mut command = Command::new(path);
    command.args(arguments).env_remove(background::CHILD);
    match helper::run(&mut command, "", LIMIT) {
        Ok(Some((status, _))) if status.success() => Ok(()),
        Ok(Some((status, message))) => Err(failed(match message.lines().next() {
            Some(line) => format!("{status}: {}", line.trim()),
            None => status.to_string(),
        })),
        Ok(None) => Err(failed(format!(
            "did not end in {} seconds",
            LIMIT.as_secs()
        ))),
        Err(error) => Err(failed(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::dns::dnsmasq::Dnsmasq;

    /// A `dnsmasq` whose restart runs this shell text.
    fn dnsmasq(directory: &Path, start: &str) -> Dnsmasq {
        let words = ["sh", "-c", start].map(str::to_owned).to_vec();
        Dnsmasq::at(directory.to_owned()).restarted_by(words)
    }

    fn finish(restarts: &mut Restarts) -> Result<(), DnsError> {
        while restarts
            .under_way
            .as_ref()
            .is_some_and(|it| !it.is_finished())
        {
            thread::yield_now();
        }
        restarts.ended()
    }

    #[test]
    fn pauses_double_to_a_bound_and_end() {
        let now = Instant::now();
        let mut pauses = Pauses::default();
        assert_eq!(pauses.left(now), None);
        for seconds in [4, 8, 16, 32, 64, 128, 256, 256] {
            pauses.failed(now);
            let pause = Duration::from_secs(seconds);
            assert_eq!(pauses.left(now), Some(pause));
            assert_eq!(pauses.left(now + pause), None);
        }
    }

    #[test]
    fn a_start_that_fails_is_not_tried_at_each_event_and_is_told_once() {
        let place = tempfile::tempdir().unwrap();
        let start = format!("echo >>{}/tries; exit 1", place.path().display());
        let it = dnsmasq(place.path(), &start);
        let mut restarts = Restarts::aside();
        it.again("a.conf", &mut restarts).unwrap();
        assert!(finish(&mut restarts).is_err());
        for _ in 0..20 {
            it.again("a.conf", &mut restarts).unwrap();
            finish(&mut restarts).unwrap();
        }
        let tries = fs::read_to_string(place.path().join("tries")).unwrap();
        assert_eq!(tries.lines().count(), 1);
        assert!(restarts.wait().is_some_and(|it| it <= PAUSE));
        assert!(!it.has_read("a.conf"));
    }

    #[test]
    fn a_start_under_way_is_enough_for_what_it_reads() {
        let place = tempfile::tempdir().unwrap();
        let tries = place.path().join("tries");
        let it = dnsmasq(place.path(), &format!("echo >>{}", tries.display()));
        fs::write(place.path().join("a.conf"), "one\n").unwrap();
        let mut restarts = Restarts::aside();
        it.again("a.conf", &mut restarts).unwrap();
        while !it.has_read("a.conf") {
            thread::yield_now();
        }
        // The loop has seen that `dnsmasq` read the file, but has not called `ended` yet.
        it.set("a.conf", "one\n", &mut restarts).unwrap();
        finish(&mut restarts).unwrap();
        it.set("a.conf", "one\n", &mut restarts).unwrap();
        finish(&mut restarts).unwrap();
        assert!(it.has_read("a.conf"));
        assert_eq!(fs::read_to_string(tries).unwrap().lines().count(), 1);
    }

    #[test]
    fn a_loop_does_not_wait_for_a_start_and_what_changes_meanwhile_is_not_read() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path();
        let (gate, file) = (directory.join("gate"), directory.join("a.conf"));
        nix::unistd::mkfifo(&gate, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let it = dnsmasq(directory, &format!("read it <{}", gate.display()));
        fs::write(&file, "one\n").unwrap();
        let mut restarts = Restarts::aside();
        // The restart cannot end before the gate is opened: this would hang if `again` waited.
        it.again("a.conf", &mut restarts).unwrap();
        assert!(!it.has_read("a.conf") && !restarts.may());
        // The child has read the file before it opens the gate.
        let mut open = fs::OpenOptions::new().write(true).open(&gate).unwrap();
        fs::write(&file, "two\n").unwrap();
        open.write_all(b"go\n").unwrap();
        drop(open);
        finish(&mut restarts).unwrap();
        assert!(!it.has_read("a.conf"), "what was read is the first one");
        // The text is unchanged, but it names new content.
        it.again("a.conf", &mut restarts).unwrap();
        let mut open = fs::OpenOptions::new().write(true).open(&gate).unwrap();
        it.again("a.conf", &mut restarts).unwrap();
        open.write_all(b"go\n").unwrap();
        drop(open);
        finish(&mut restarts).unwrap();
        assert!(!it.has_read("a.conf"), "it was marked again meanwhile");
        let it = dnsmasq(directory, "exit 0");
        it.again("a.conf", &mut Restarts::at_once()).unwrap();
        assert!(it.has_read("a.conf"));
    }

    #[test]
    fn a_dnsmasq_without_sets_is_known_by_its_options() {
        assert!(has_sets("Compile time options: IPv6 ipset nftset auth"));
        assert!(!has_sets("Compile time options: IPv6 ipset no-nftset auth"));
        assert!(!has_sets("Compile time options: IPv6 no-ipset auth"));
    }
}
