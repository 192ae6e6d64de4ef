//! The file of endpoint addresses that last worked: the other end has authenticated at each. A new name is written at
//! once, a new address of a known name at most every ten minutes, as the file usually lies on flash.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _};
use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use host::names::kept::{Change, Kept, TEXT_MAX};

use crate::places;

/// Name of the file.
const FILE: &str = "endpoints";

/// Minimum time between two writes for names that have moved.
const PAUSE: Duration = Duration::from_secs(600);

/// Stores the address at which the other end has authenticated, if that is worth a write.
pub fn keep(name: &str, address: IpAddr) {
    let directory = places::directory();
    if let Err(error) = keep_in(directory, name, address) {
        // The process has no privileges, or the system is read-only: the next start looks the name up.
        log::debug!("{}: {error}", directory.join(FILE).display());
    }
}

/// The last working addresses of a name.
pub(super) fn last(name: &str) -> Vec<IpAddr> {
    read(places::directory()).get(name).to_vec()
}

fn keep_in(directory: &Path, name: &str, address: IpAddr) -> io::Result<()> {
    // An address is not a name, and loopback addresses come from a file of this host.
    if name.parse::<IpAddr>().is_ok() || address.is_loopback() {
        return Ok(());
    }
    // Of two concurrent writes of this process, the later one counts.
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
            // Earlier addresses worked as well, and may work again.
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
        // The name has moved, a moment after the file was written.
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
        // Both addresses are known, so nothing is new.
        age();
        keep_in(&directory, "a.example", ip(1)).unwrap();
        assert!(text().ends_with("192.0.2.2 192.0.2.1\n"));
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        // An invalid file counts as missing.
        fs::write(directory.join(FILE), [0xff; 64]).unwrap();
        assert!(read(&directory).get("a.example").is_empty());
    }
}
