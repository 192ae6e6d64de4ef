//! Files that are rewritten while others read them: status and leases.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io};

use host::written_file;

/// Mode of a new file, as in stock: clients' names and addresses are private.
const MODE: u32 = 0o600;

/// A status or lease file that is rewritten periodically.
#[derive(Debug)]
pub(crate) struct PeriodicFile {
    path: PathBuf,
    period: Duration,
    next: Instant,
}

impl PeriodicFile {
    /// Makes a file that is due at once, and then every `period`.
    pub(crate) fn new(path: PathBuf, period: Duration, now: Instant) -> Self {
        Self {
            path,
            period,
            next: now,
        }
    }

    /// When the file is due next.
    pub(crate) const fn next_deadline(&self) -> Instant {
        self.next
    }

    /// Writes the file if it is due. Returns whether it was.
    ///
    /// # Errors
    /// The file cannot be written; the next attempt follows after the period.
    pub(crate) fn write_if_due(
        &mut self,
        now: Instant,
        text: impl FnOnce() -> String,
    ) -> io::Result<bool> {
        if now < self.next {
            return Ok(false);
        }
        self.next = now + self.period;
        self.write(&text())?;
        Ok(true)
    }

    /// Writes the file now: at the end, or on request.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write(&self, text: &str) -> io::Result<()> {
        write(&self.path, text, written_file::replace_for_now)
    }
}

/// Replaces a file so that readers see the old or the new text, never a part. Writes in place if the directory is not
/// writable (after dropping privileges) or the path is a device.
///
/// # Errors
/// Both ways failed.
#[cfg(any(feature = "server", test))]
pub(crate) fn write_atomically(path: &Path, text: &str) -> io::Result<()> {
    write(path, text, written_file::replace)
}

fn write(
    path: &Path,
    text: &str,
    replace: fn(&Path, &[u8], u32) -> io::Result<()>,
) -> io::Result<()> {
    let regular = fs::symlink_metadata(path).map_or(true, |data| data.is_file());
    if regular && replace(path, text.as_bytes(), MODE).is_ok() {
        return Ok(());
    }
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(MODE);
    written_file::open(path, &mut options)?.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_when_it_is_time() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("status");
        let start = Instant::now();
        let mut file = PeriodicFile::new(path.clone(), Duration::from_secs(10), start);
        assert!(file.write_if_due(start, || "a".to_owned()).unwrap());
        let early = start + Duration::from_secs(9);
        assert!(!file.write_if_due(early, || "b".to_owned()).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "a");
        assert!(
            file.write_if_due(file.next_deadline(), || "c".to_owned())
                .unwrap()
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), "c");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_new_file_is_its_owners_and_an_old_one_keeps_its_mode() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("status");
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        write_atomically(&path, "a").unwrap();
        assert_eq!(mode(), 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        write_atomically(&path, "b").unwrap();
        assert_eq!(mode(), 0o644);
    }

    #[test]
    fn what_is_no_file_is_written_in_place() {
        write_atomically(Path::new("/dev/null"), "x").unwrap();
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("target");
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&target, &link).unwrap();
        write_atomically(&link, "x").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&target).unwrap(), "x");
    }
}
