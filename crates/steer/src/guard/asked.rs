//! The record of the guard's settings in force, until `off` or the next boot.
//!
//! It tells a process that sets the guard again whether the guard shall still be on, and `reload` whether the user has
//! said `off`. The kernel's chains and rules hold without it.

use std::path::Path;

use config::guard::Guard;

use crate::guard::GuardError;
use crate::guard::networks::Known;
use crate::guard::record::{self, Record};

/// The name of the record's file.
const NAME: &str = "guard";

/// The record's text after `off`.
const LET_GO: &str = "# off\n";

/// The record, locked.
#[derive(Debug)]
pub(crate) struct Asked(Record);

impl Asked {
    /// Waits for the lock.
    pub(crate) fn lock() -> Result<Self, GuardError> {
        Record::lock(NAME).map(Self)
    }

    /// The settings in force, if the guard shall be on.
    pub(crate) fn read(&self) -> Option<Guard> {
        guard_of(&self.0.read()?)
    }

    /// The known networks and ports of the LAN.
    pub(crate) fn known(&self) -> Known {
        Known::of_text(&self.0.read().unwrap_or_default())
    }

    /// Records the settings of a guard that is on, with the known parts of the LAN.
    pub(crate) fn write(&self, guard: &Guard, known: &Known) -> Result<(), GuardError> {
        self.0.write(&(known.text() + &guard.to_kept()))
    }

    /// Records that the user has switched the guard off.
    pub(crate) fn let_go(&self) -> Result<(), GuardError> {
        self.0.write(LET_GO)
    }

    /// Removes the record.
    pub(crate) fn remove(&self) -> Result<(), GuardError> {
        self.0.remove()
    }
}

/// Waits until no process is setting the guard; see [`record::settle`].
pub(crate) fn settle() -> impl Sized {
    record::settle(NAME)
}

/// The settings in force, without waiting for the lock.
pub(crate) fn peek() -> Option<Guard> {
    guard_of(&record::peek(NAME)?)
}

/// The known networks and ports of the LAN, without waiting for the lock.
pub(crate) fn peek_known() -> Known {
    Known::of_text(&record::peek(NAME).unwrap_or_default())
}

/// Whether the user has switched the guard off, and nobody has switched it on since.
pub(crate) fn is_let_go() -> bool {
    record::peek(NAME).is_some_and(|text| text == LET_GO)
}

fn guard_of(text: &str) -> Option<Guard> {
    if text == LET_GO {
        return None;
    }
    Guard::from_kept(text, Path::new(record::DIRECTORY))
        .map_err(|error| log::warn!("{error}"))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::fixture::guard;
    use crate::guard::record::path_of;
    use netio::process::netns_inode;
    use std::fs;

    fn lock_in(directory: &Path) -> Result<Asked, GuardError> {
        Record::lock_in(directory, NAME).map(Asked)
    }

    #[test]
    fn what_was_asked_for_is_known_until_it_is_taken_back() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("millrace");
        let asked = lock_in(&directory).unwrap();
        assert_eq!(asked.read(), None);
        let known = Known {
            networks: vec![(crate::guard::fixture::ip("192.168.1.0"), 24)],
            ports: vec!["lan1".to_owned()],
            indices: vec![(5, "br-lan".to_owned())],
        };
        asked.write(&guard(), &known).unwrap();
        assert_eq!((asked.read(), asked.known()), (Some(guard()), known));
        // Each network namespace has a record of its own.
        let inode = netns_inode().unwrap();
        assert!(directory.join(format!("guard@{inode}.toml")).exists());
        asked.let_go().unwrap();
        assert_eq!(asked.read(), None);
        for _ in 0..2 {
            asked.remove().unwrap();
            assert_eq!(asked.read(), None);
        }
    }

    #[test]
    fn a_record_of_another_boot_is_none() {
        let place = tempfile::tempdir().unwrap();
        let asked = lock_in(place.path()).unwrap();
        asked.write(&guard(), &Known::default()).unwrap();
        let path = path_of(place.path(), NAME, "toml");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replacen("# boot ", "# boot 0", 1)).unwrap();
        assert_eq!(asked.read(), None);
    }

    #[test]
    fn what_cannot_be_recorded_is_an_error() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        fs::write(&file, "").unwrap();
        let error = lock_in(&file).unwrap_err();
        assert!(matches!(error, GuardError::Record { .. }), "{error}");
    }
}
