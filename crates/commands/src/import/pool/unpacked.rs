//! An archive, unpacked by the system's `unzip` or `tar`.
//!
//! The archive is a stranger's. The programs run with limits of time and file size, in a new directory that only this
//! user may enter, in memory: the files hold keys. Both refuse paths that lead elsewhere, and only the regular files are
//! read.

use super::PoolError;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Exit codes of [`SCRIPT`], which none of its programs uses.
const MANY: i32 = 100;
const BIG: i32 = 101;

/// Largest size of all files together, in bytes: they are unpacked in memory.
const TOTAL_MAX: &str = "8388608";

/// Unpacks the files of servers from the archive `$1` into the directory `$2` by the program `$3`. `$4` is the letter of
/// the compression for `tar`, as busybox does not see it itself, and `$5` the largest size of all files. Blocks of
/// `ulimit -f` have 512 bytes. Names that begin with a dash are left out: `tar -T` takes them for options.
const SCRIPT: &str = r#"ulimit -t 20; umask 077
command -v "$3" >/dev/null || exit 127
fits() { [ "$(head -c $(($1 + 1)) | wc -c)" -le "$1" ]; }
names='*.[co][ov][np][fn]'
if [ "$3" = unzip ]; then
[ "$(unzip -l "$1" "$names" | head -n 1200 | wc -l)" -lt 1200 ] || exit 100
unzip -p "$1" "$names" | fits "$5" || exit 101
ulimit -f 128
exec unzip -o -qq "$1" "$names" -d "$2"
fi
{ tar "-t$4f" "$1" || : >"$2/.failed"; } | grep -E '^[^-].*\.(conf|ovpn)$' |
head -n 1200 | head -c 400000 >"$2/.list"
[ "$(wc -l <"$2/.list")" -lt 1200 ] && [ "$(wc -c <"$2/.list")" -lt 400000 ] || exit 100
[ ! -e "$2/.failed" ] || exit 1
[ -s "$2/.list" ] || exit 0
tar "-xO$4f" "$1" -T "$2/.list" | fits "$5" || exit 101
ulimit -f 128
exec tar "-x$4f" "$1" -C "$2" -T "$2/.list""#;

/// How names of these directories begin; the number of the process follows.
const PREFIX: &str = "import-";

/// The directory of an archive's files, removed when dropped.
pub(super) struct Unpacked(PathBuf);

impl Unpacked {
    /// Unpacks an archive into a directory in `scratch`; `None` if the file is not called like an archive.
    pub(super) fn new(archive: &Path, scratch: &Path) -> Result<Option<Self>, PoolError> {
        let Some((program, compression)) = program_for(archive) else {
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
        remove_remains(scratch).map_err(failed(scratch))?;
        let directory = scratch.join(format!("{PREFIX}{}", std::process::id()));
        let mut builder = fs::DirBuilder::new();
        let made = builder.mode(0o700).create(&directory);
        made.map_err(failed(&directory))?;
        let unpacked = Self(directory);
        let run = Command::new("sh")
            .args(["-c", SCRIPT, "sh"])
            .args([archive.as_path(), unpacked.directory()])
            .args([program, compression, TOTAL_MAX])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        let status = run.map_err(failed(Path::new("sh")))?;
        match status.code() {
            // No name fits, says unzip.
            Some(0 | 11) => Ok(Some(unpacked)),
            Some(127) => Err(PoolError::NoProgram(program)),
            Some(MANY) => Err(PoolError::Many(archive)),
            Some(BIG) => Err(PoolError::Big(archive)),
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

/// Removes the directories of imports whose processes were killed: they hold keys.
fn remove_remains(scratch: &Path) -> io::Result<()> {
    for entry in fs::read_dir(scratch)? {
        let entry = entry?;
        let name = entry.file_name();
        let process = name.to_str().and_then(|it| it.strip_prefix(PREFIX));
        let Some(pid) = process.and_then(|it| it.parse::<u32>().ok()) else {
            continue;
        };
        // A directory of this process is of an earlier one with its number.
        if pid == std::process::id() || !Path::new("/proc").join(pid.to_string()).exists() {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

/// The program that unpacks a file of this name, and the letter of the compression for `tar`.
fn program_for(archive: &Path) -> Option<(&'static str, &'static str)> {
    let name = archive.file_name()?.to_str()?.to_ascii_lowercase();
    let ends = |ending: &str| name.ends_with(ending);
    match () {
        () if ends(".zip") => Some(("unzip", "")),
        () if ends(".tar") => Some(("tar", "")),
        () if ends(".tar.gz") || ends(".tgz") => Some(("tar", "z")),
        () if ends(".tar.xz") => Some(("tar", "J")),
        () if ends(".tar.bz2") => Some(("tar", "j")),
        () => None,
    }
}
