//! An archive, unpacked by the system's `unzip` or `tar`.
//!
//! The archive is a stranger's. The programs run with limits of time and file size, in a new directory that only this
//! user may enter, in memory: the files hold keys. Both refuse paths that lead elsewhere, and only the regular files are
//! read.

use super::PoolError;
use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Unpacks the files of servers from the archive `$1` into the directory `$2`. Blocks of `ulimit -f` have 512 bytes. Names
/// that begin with a dash are left out: `tar -T` takes them for options.
const SCRIPT: &str = "ulimit -t 20; ulimit -f 128; umask 077
command -v \"$3\" >/dev/null || exit 127
few() { head -n 1200 >\"$2/.list\"; [ \"$(wc -l <\"$2/.list\")\" -lt 1200 ]; }
if [ \"$3\" = unzip ]; then
unzip -l \"$1\" '*.[co][ov][np][fn]' | few \"$1\" \"$2\" || exit 9
exec unzip -o -j -qq \"$1\" '*.[co][ov][np][fn]' -d \"$2\"
fi
tar -tf \"$1\" | grep -E '^[^-].*\\.(conf|ovpn)$' | few \"$1\" \"$2\" || exit 9
[ -s \"$2/.list\" ] || exit 0
exec tar -xf \"$1\" -C \"$2\" -T \"$2/.list\"";

/// The directory of an archive's files, removed when dropped.
pub(super) struct Unpacked(PathBuf);

impl Unpacked {
    /// Unpacks an archive into a directory in `scratch`; `None` if the file is not called like an archive.
    pub(super) fn new(archive: &Path, scratch: &Path) -> Result<Option<Self>, PoolError> {
        let Some(program) = program_for(archive) else {
            return Ok(None);
        };
        let failed = |path: &Path| {
            let file = path.display().to_string();
            move |error| PoolError::File { file, error }
        };
        // The programs take names with a dash at the beginning for options.
        let archive = fs::canonicalize(archive).map_err(failed(archive))?;
        if !archive.is_file() {
            return Err(PoolError::Damaged(archive));
        }
        fs::create_dir_all(scratch).map_err(failed(scratch))?;
        let directory = scratch.join(format!("import-{}", std::process::id()));
        let mut builder = fs::DirBuilder::new();
        let made = builder.mode(0o700).create(&directory);
        made.map_err(failed(&directory))?;
        let unpacked = Self(directory);
        let run = Command::new("sh")
            .args(["-c", SCRIPT, "sh"])
            .args([archive.as_path(), unpacked.directory()])
            .arg(program)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        let status = run.map_err(failed(Path::new("sh")))?;
        match status.code() {
            // No name fits, says unzip.
            Some(0 | 11) => Ok(Some(unpacked)),
            Some(127) => Err(PoolError::NoProgram(program)),
            Some(9) => Err(PoolError::Many(archive)),
            _ => Err(PoolError::Damaged(archive)),
        }
    }

    pub(super) fn directory(&self) -> &Path {
        &self.0
    }
}

impl Drop for Unpacked {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            let directory = self.0.display();
            log::warn!("{directory}: {error}; it holds keys: remove it");
        }
    }
}

/// The program that unpacks a file of this name.
fn program_for(archive: &Path) -> Option<&'static str> {
    let name = archive.file_name()?.to_str()?.to_ascii_lowercase();
    let ends = |endings: &[&str]| endings.iter().any(|it| name.ends_with(it));
    match () {
        () if ends(&[".zip"]) => Some("unzip"),
        () if ends(&[".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2"]) => Some("tar"),
        () => None,
    }
}
