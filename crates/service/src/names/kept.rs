//! The file of the last addresses that were good: each is one at which the other end has proved itself. It is written when
//! a name is new, and when an address of one is; then at most each ten minutes, for it is on flash as a rule.

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

/// Writes down the address at which the other end has proved itself, where that is worth it.
pub(crate) fn keep(name: &str, address: IpAddr) {
    let directory = places::directory();
    if let Err(error) = keep_in(directory, name, address) {
        // A process without rights, or a read-only system: it is looked up at the next start.
        log::debug!("{}: {error}", directory.join(FILE).display());
    }
}

/// The last addresses of a name that were good.
pub(super) fn last(name: &str) -> Vec<IpAddr> {
    read(places::directory()).get(name).to_vec()
}

fn keep_in(directory: &Path, name: &str, address: IpAddr) -> io::Result<()> {
    // No name, and what stands in a file of this host.
    if name.parse::<IpAddr>().is_ok() || address.is_loopback() {
        return Ok(());
    }
    // Of two processes that write at once the later one counts.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut kept = read(directory);
    let path = directory.join(FILE);
    let is_young = || {
        let modified = fs::metadata(&path).and_then(|it| it.modified());
        let age = modified.ok().and_then(|it| it.elapsed().ok());
        age.is_some_and(|age| age < PAUSE)
    };
    match kept.change(name, &[address]) {
        Change::None => return Ok(()),
        Change::Moved if is_young() => return Ok(()),
        Change::Moved | Change::New => {
            // Earlier addresses were good as well, and may be so again.
            let all = [&[address], kept.get(name)].concat();
            kept.put(name, &all);
        }
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
        keep_in(&directory, "a.example", ip(1)).unwrap();
        let text = || fs::read_to_string(directory.join(FILE)).unwrap();
        assert_eq!(text(), "a.example 192.0.2.1\n");
        // Moved, a moment after the file was written.
        keep_in(&directory, "a.example", ip(2)).unwrap();
        keep_in(&directory, "b.example", IpAddr::from([127, 0, 0, 1])).unwrap();
        keep_in(&directory, "192.0.2.1", ip(1)).unwrap();
        assert_eq!(text(), "a.example 192.0.2.1\n");
        keep_in(&directory, "b.example", ip(5)).unwrap();
        let age = || {
            let old = std::time::SystemTime::now() - 2 * PAUSE;
            let file = File::options().write(true).open(directory.join(FILE));
            file.unwrap().set_modified(old).unwrap();
        };
        age();
        keep_in(&directory, "a.example", ip(2)).unwrap();
        assert_eq!(
            text(),
            "b.example 192.0.2.5\na.example 192.0.2.2 192.0.2.1\n"
        );
        // Both are known: nothing new.
        age();
        keep_in(&directory, "a.example", ip(1)).unwrap();
        assert!(text().ends_with("192.0.2.2 192.0.2.1\n"));
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        // A file that is none is as one that is not there.
        fs::write(directory.join(FILE), [0xff; 64]).unwrap();
        assert!(read(&directory).get("a.example").is_empty());
    }
}
