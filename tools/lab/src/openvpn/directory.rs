//! Temporary directories for keys, configurations and sockets, deleted when their value is dropped.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::LabError;

/// A directory that only this user can enter.
#[derive(Debug)]
pub struct Directory(PathBuf);

impl Directory {
    /// Makes a directory among the machine's temporary files.
    ///
    /// # Errors
    /// [`LabError::Load`] if the directory cannot be made.
    pub fn new() -> Result<Self, LabError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let parent = std::env::temp_dir();
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            // A short name: socket paths have 107 bytes at most.
            let path = parent.join(format!("millrace-lab-{}-{number}", process::id()));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self(path)),
                // A killed process with the same process id left this directory.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(LabError::load(format!("make {}", path.display()))(error));
                }
            }
        }
    }

    /// The directory's path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the path of `name` in the directory.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file that only its owner can read, makes its subdirectory if the name contains one, and returns the
    /// path.
    ///
    /// # Errors
    /// [`LabError::Load`].
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> Result<PathBuf, LabError> {
        let path = self.join(name);
        let write = || {
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            let mut options = fs::OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(0o600);
            io::Write::write_all(&mut options.open(&path)?, content.as_ref())
        };
        write().map_err(LabError::load(format!("write {}", path.display())))?;
        Ok(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // If this fails, the rest stays among the machine's temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}
