//! A temporary directory for one test.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A temporary directory of this test, deleted when the value is dropped.
pub struct Directory(PathBuf);

impl Default for Directory {
    fn default() -> Self {
        Self::new()
    }
}

impl Directory {
    /// Makes an empty directory.
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let name = format!("millrace-test-{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            match fs::create_dir(&path) {
                Ok(()) => return Self(path),
                // A killed or restarted process with the same process id left this directory.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => panic!("{}: {error}", path.display()),
            }
        }
    }

    /// The directory's path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file that only its owner can read, and returns its path.
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }
}

impl Directory {
    /// Replaces a file atomically, as UCI does.
    pub fn replace(&self, name: &str, text: &str) {
        let new = self.file("new", text);
        fs::rename(new, self.0.join(name)).unwrap();
    }

    /// Writes UCI's `network` file with a netifd interface that uses `file` of this directory, plus these lines, and the
    /// option that LuCI writes into every interface.
    pub fn interface(&self, name: &str, file: &str, more: &str) {
        let path = self.0.join(file);
        let text = format!(
            "config interface '{name}'\n\toption proto 'millrace'\n\toption config_file '{}'\n\toption multipath 'off'\n{more}",
            path.display()
        );
        self.replace("network", &text);
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
