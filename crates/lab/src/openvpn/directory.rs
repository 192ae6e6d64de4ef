//! Directories for keys, configurations and sockets, gone with their value.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::LabError;

/// A directory that only we can enter.
#[derive(Debug)]
pub struct Directory(PathBuf);

impl Directory {
    /// Makes one among the machine's temporary files.
    ///
    /// # Errors
    /// [`LabError::Load`] if that is not possible.
    pub fn new() -> Result<Self, LabError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let parent = std::env::temp_dir();
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            // Short: sockets are made here, whose paths have 107 bytes at most.
            let path = parent.join(format!("millrace-lab-{}-{number}", process::id()));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self(path)),
                // Left by a process of the same number that was killed.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(LabError::load(format!("make {}", path.display()))(error));
                }
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path of something in it.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file that only we can read, in a directory of its own if its path says so, and returns its
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
        // A file that cannot be removed is among the temporary files anyhow.
        let _ = fs::remove_dir_all(&self.0);
    }
}
