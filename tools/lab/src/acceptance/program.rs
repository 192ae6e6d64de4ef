//! The program under test.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The program under test, which Cargo has built beside the running test.
pub const PROGRAM: Program = Program;

/// Stands for the program's path wherever a path is accepted.
#[derive(Clone, Copy, Debug)]
pub struct Program;

impl Program {
    /// Path of the program.
    pub fn path(self) -> &'static Path {
        static PATH: OnceLock<PathBuf> = OnceLock::new();
        PATH.get_or_init(|| {
            // Tests are in `deps`, one directory below the programs.
            let test = std::env::current_exe().unwrap();
            let program = test.ancestors().nth(2).unwrap().join("millrace");
            assert!(program.is_file(), "{} is not built", program.display());
            program
        })
    }
}

impl AsRef<Path> for Program {
    fn as_ref(&self) -> &Path {
        self.path()
    }
}

impl AsRef<OsStr> for Program {
    fn as_ref(&self) -> &OsStr {
        self.path().as_os_str()
    }
}

impl From<Program> for PathBuf {
    fn from(program: Program) -> Self {
        program.path().to_owned()
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path().display().fmt(f)
    }
}
