//! Tells whether other users can read a file with keys or passwords.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// A warning if users other than the owner can read, change or replace a secret file. `None` if only the owner can,
/// or if the file is missing. Root's group counts as root.
#[must_use]
pub fn warning(path: &Path) -> Option<String> {
    let data = fs::metadata(path).ok()?;
    let mode = data.mode() & 0o777;
    let group = mode & 0o070 != 0 && data.gid() != 0;
    // The mode of `/dev/null` and the like says nothing.
    if !data.is_file() || (mode & 0o007 == 0 && !group) {
        return None;
    }
    let path = path.display();
    Some(format!(
        "{path}: holds a secret, and its mode {mode:o} lets other users at it; chmod 600 {path}"
    ))
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn only_files_that_others_can_read_are_warned_of() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        assert_eq!(warning(&path), None);
        fs::write(&path, "").unwrap();
        for (mode, warned) in [(0o600, false), (0o400, false), (0o604, true), (0o644, true)] {
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(warning(&path).is_some(), warned, "{mode:o}");
        }
        assert_eq!(warning(Path::new("/dev/null")), None);
    }
}
