//! Keeps a copy of the last valid settings beside their file, including the interfaces' lists. With it the guard holds
//! despite an error in either.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use config::guard::Guard;

/// The path of the copy.
pub(crate) fn path_of(file: &Path) -> PathBuf {
    let mut name = OsString::from(file);
    name.push(".valid");
    PathBuf::from(name)
}

/// Writes the copy, unless it is up to date. Settings that guard nothing have no copy.
pub(super) fn keep(guard: &Guard, file: &Path) {
    if guard.is_empty() {
        return forget(file);
    }
    let path = path_of(file);
    if Guard::read_kept(&path).is_ok_and(|kept| kept == *guard) {
        return;
    }
    // The guard works without the copy.
    if let Err(error) = write_text(&guard.to_kept(), &path, 0o600) {
        log::debug!("{}: {error}", path.display());
    }
}

/// Removes the copy, so that a later error does not bring back old settings.
pub(super) fn forget(file: &Path) {
    let path = path_of(file);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            log::warn!("{}: {error}", path.display());
        }
        _ => {}
    }
}

/// Reads the copy.
pub(super) fn read(file: &Path) -> Option<Guard> {
    let kept = Guard::read_kept(&path_of(file)).ok()?;
    kept.fault().is_none().then_some(kept)
}

/// Writes settings to a file, atomically.
pub(super) fn write(guard: &Guard, path: &Path, mode: u32) -> io::Result<()> {
    write_text(&guard.to_toml(), path, mode)
}

/// Writes a text to a file, atomically.
pub(crate) fn write_text(text: &str, path: &Path, mode: u32) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    host::written_file::replace(path, text.as_bytes(), mode)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn the_copy_is_of_the_last_that_were_good() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("guard.toml");
        assert_eq!(read(&file), None);
        let mut guard = Guard::default();
        guard.lan = vec!["br-lan".to_owned()];
        keep(&guard, &file);
        assert_eq!(read(&file), Some(guard.clone()));
        guard.table = 99;
        let list = config::guard::Listed {
            interface: "office".to_owned(),
            device: "mr-office".to_owned(),
            lan: vec!["br-guest".to_owned()],
        };
        let (guard, _) = guard.with_lists(&[list], &[]);
        keep(&guard, &file);
        assert_eq!(read(&file), Some(guard));
        let path = directory.path().join("guard.toml.valid");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::write(&path, "lan = []").unwrap();
        assert_eq!(read(&file), None);
        keep(&Guard::default(), &file);
        assert!(!path.exists());
    }
}
