//! Files that a configuration names to be written: status, leases, process number, log.
//!
//! Their directories may be ones that others write to. A link that another user has made there
//! would have root write to its target.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::unistd::Uid;

/// Opens a file as `options` say. A link is followed if this user or root has made it.
///
/// # Errors
/// `PermissionDenied` for a link of another user, and what the kernel says.
pub fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let path = place(path)?;
    // A FIFO in its place is not waited for.
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    options.custom_flags(flags.bits()).open(path)
}

/// Where the path leads, links being followed that may be.
fn place(path: &Path) -> io::Result<PathBuf> {
    match fs::symlink_metadata(path) {
        Ok(data) if data.is_symlink() => {
            if data.uid() != 0 && data.uid() != Uid::effective().as_raw() {
                return Err(io::Error::new(
                    io::ErrorKind::PermissionDenied,
                    "is a link that another user has made; remove it",
                ));
            }
            let target = fs::read_link(path)?;
            let beside = path.parent().unwrap_or_else(|| Path::new("")).join(target);
            // The last part may not be there yet; a link to a link is not followed further.
            Ok(beside)
        }
        Ok(_) => Ok(path.to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(path.to_owned()),
        Err(error) => Err(error),
    }
}

/// A file that holds the process number, removed with the value if it still is the same file.
#[derive(Debug)]
pub struct PidFile {
    path: PathBuf,
    /// Held open, so that no other file gets its inode meanwhile.
    file: File,
}

impl PidFile {
    /// Writes it, readable by all users.
    ///
    /// # Errors
    /// As [`open`].
    pub fn write(path: &Path) -> io::Result<Self> {
        use std::io::Write as _;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o644);
        let mut file = open(path, &mut options)?;
        file.write_all(format!("{}\n", std::process::id()).as_bytes())?;
        Ok(Self {
            path: path.to_owned(),
            file,
        })
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let there = fs::symlink_metadata(&self.path).ok();
        let ours = self.file.metadata().ok();
        let identity = |data: &Metadata| (data.dev(), data.ino());
        if ours.is_some() && there.as_ref().map(identity) == ours.as_ref().map(identity) {
            // May be refused where privileges were dropped.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, lchown, symlink};

    use super::*;

    #[test]
    fn only_links_of_this_user_and_of_root_are_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (target, link) = (
            directory.path().join("target"),
            directory.path().join("link"),
        );
        fs::write(&target, "kept").unwrap();
        symlink("target", &link).unwrap();
        let mut options = OpenOptions::new();
        options.append(true).create(true);
        open(&link, &mut options).unwrap();
        if Uid::effective().is_root() {
            lchown(&link, Some(12345), None).unwrap();
            let refused = open(&link, &mut options).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
            assert!(PidFile::write(&link).is_err());
            assert_eq!(fs::read_to_string(&target).unwrap(), "kept");
        }
    }

    #[test]
    fn a_pid_file_is_removed_if_it_still_is_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pid");
        let file = PidFile::write(&path).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o7133, 0);
        drop(file);
        assert!(!path.exists());
        let file = PidFile::write(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "another's").unwrap();
        drop(file);
        assert_eq!(fs::read_to_string(&path).unwrap(), "another's");
    }
}
