//! The file of the last addresses that were good. It is written when a name is new, and when all addresses of one are; then
//! at most each ten minutes, for it is on flash as a rule.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _};
use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use dns::kept::{Change, Kept, TEXT_MAX};

use crate::places;

/// Its name.
const FILE: &str = "endpoints";

/// It is not written again sooner for a name that has moved.
const PAUSE: Duration = Duration::from_secs(600);

/// Writes the addresses of a name down, where that is worth it, and returns them.
pub(crate) fn keep(name: &str, found: Vec<IpAddr>) -> Vec<IpAddr> {
    let directory = places::directory();
    if let Err(error) = keep_in(directory, name, &found) {
        // A process without rights, or a read-only system: it is looked up at the next start.
        log::debug!("{}: {error}", directory.join(FILE).display());
    }
    found
}

/// The last addresses of a name that were good.
pub(super) fn last(name: &str) -> Vec<IpAddr> {
    read(places::directory()).get(name).to_vec()
}

fn keep_in(directory: &Path, name: &str, found: &[IpAddr]) -> io::Result<()> {
    // Names are looked up by threads of their own. Of two tunnels that write at once the later one counts.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut kept = read(directory);
    let path = directory.join(FILE);
    let is_young = || {
        let modified = fs::metadata(&path).and_then(|it| it.modified());
        let age = modified.ok().and_then(|it| it.elapsed().ok());
        age.is_some_and(|age| age < PAUSE)
    };
    match kept.change(name, found) {
        // Nothing, and what stands in a file of this host.
        _ if found.is_empty() || found.iter().any(IpAddr::is_loopback) => return Ok(()),
        Change::None => return Ok(()),
        Change::Moved if is_young() => return Ok(()),
        Change::Moved | Change::New => kept.put(name, found),
    }
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    host::written_file::replace(&path, kept.to_text().as_bytes(), 0o600)
}

fn read(directory: &Path) -> Kept {
    let mut text = String::new();
    let read = File::open(directory.join(FILE))
        .and_then(|file| file.take(TEXT_MAX as u64).read_to_string(&mut text));
    match read {
        Ok(_) => Kept::parse(&text),
        Err(_) => Kept::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_written_for_what_is_new_and_seldom_for_what_moves() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("millrace");
        let ip = |last| IpAddr::from([192, 0, 2, last]);
        keep_in(&directory, "a.example", &[ip(1), ip(2)]).unwrap();
        let text = || fs::read_to_string(directory.join(FILE)).unwrap();
        assert_eq!(text(), "a.example 192.0.2.1 192.0.2.2\n");
        // One of the addresses is known: nothing new.
        keep_in(&directory, "a.example", &[ip(2), ip(3)]).unwrap();
        // Moved, a moment after the file was written.
        keep_in(&directory, "a.example", &[ip(4)]).unwrap();
        keep_in(&directory, "b.example", &[]).unwrap();
        assert_eq!(read(&directory).get("a.example"), [ip(1), ip(2)]);
        keep_in(&directory, "b.example", &[ip(5)]).unwrap();
        let old = std::time::SystemTime::now() - 2 * PAUSE;
        let file = File::options()
            .write(true)
            .open(directory.join(FILE))
            .unwrap();
        file.set_modified(old).unwrap();
        keep_in(&directory, "a.example", &[ip(4)]).unwrap();
        assert_eq!(text(), "b.example 192.0.2.5\na.example 192.0.2.4\n");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        // A file that is none is as one that is not there.
        fs::write(directory.join(FILE), [0xff; 64]).unwrap();
        assert!(read(&directory).get("a.example").is_empty());
    }
}
