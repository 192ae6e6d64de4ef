//! Compiles ELF files during the test, without a C library, with Debian's cross compilers and zig's clang.

use std::path::{Path, PathBuf};
use std::process::Command;

use audit::facts::Facts;

/// The source compiled with each row of flags: each function shows one effect of the flags.
pub(crate) const SOURCE: &str = "
float scale(float a, float b) { return a * b + a; }
double half(double a) { return a * 0.5; }
int ratio(int a, int b) { return a / b; }
unsigned field(unsigned x) { return (x >> 3) & 0x1f; }
int add(int *p) { return __atomic_fetch_add(p, 1, __ATOMIC_SEQ_CST); }
void mix(unsigned *restrict o, const unsigned *restrict p) { for (int i = 0; i < 64; i++) o[i] ^= p[i]; }
";

/// A temporary directory for sources and compiled files.
pub(crate) struct Bench {
    directory: tempfile::TempDir,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    /// Writes a source file with that text.
    pub(crate) fn source(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Compiles the sources with the flags, which are separated by spaces.
    pub(crate) fn build(&self, compiler: &str, flags: &str, sources: &[&Path]) -> Vec<u8> {
        let out = self.directory.path().join("out");
        let mut words = compiler.split_whitespace();
        let mut command = Command::new(words.next().unwrap());
        command
            .args(words)
            .args(flags.split_whitespace())
            .args(sources)
            .arg("-o")
            .arg(&out);
        run(&mut command);
        std::fs::read(&out).unwrap()
    }

    /// Returns the file after `strip`; `program` may include options.
    pub(crate) fn strip(&self, program: &str, bytes: &[u8]) -> Vec<u8> {
        let path = self.directory.path().join("stripped");
        std::fs::write(&path, bytes).unwrap();
        let mut words = program.split_whitespace();
        let mut command = Command::new(words.next().unwrap());
        run(command.args(words).arg(&path));
        std::fs::read(&path).unwrap()
    }
}

fn run(command: &mut Command) {
    let program = command.get_program().to_owned();
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{program:?}: {error}; scripts/setup installs it"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
}

/// Returns the file without section headers. `cut`: also without the data that only they refer to, as `sstrip` leaves
/// it.
pub(crate) fn without_sections(bytes: &[u8], cut: bool) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let wide = bytes[4] == 2;
    let number = |bytes: &[u8], at: usize, size: usize| {
        (0..size).rev().fold(0, |value, place| {
            value << 8 | usize::from(bytes[at + place])
        })
    };
    let (word, offset, shoff, headers) = if wide {
        (8, 32, 40, 0x3a)
    } else {
        (4, 28, 32, 0x2e)
    };
    bytes[shoff..shoff + word].fill(0);
    bytes[headers..headers + 6].fill(0);
    if cut {
        let (first, count) = (number(&bytes, offset, word), number(&bytes, headers - 2, 2));
        let (entry, start, size) = if wide { (56, 8, 32) } else { (32, 4, 16) };
        let ends = (0..count).map(|at| {
            let header = first + at * entry;
            number(&bytes, header + start, word) + number(&bytes, header + size, word)
        });
        let end = ends.max().unwrap();
        bytes.truncate(end);
    }
    bytes
}

/// The facts of a valid ELF file.
pub(crate) fn facts(bytes: &[u8]) -> Facts {
    audit::elf::read(bytes).unwrap()
}

pub(crate) const ARM: &str = "arm-linux-gnueabihf-gcc";
pub(crate) const A64: &str = "aarch64-linux-gnu-gcc";
pub(crate) const SHARED: &str = "-shared -fPIC -nostdlib -ffreestanding";

/// zig's clang, if `scripts/cross` has fetched it; the tests do not fetch its hundred megabytes.
pub(crate) fn zig() -> Option<String> {
    let path = |name| std::env::var_os(name).map(PathBuf::from);
    let cache = || {
        Some(
            path("XDG_CACHE_HOME")
                .or_else(|| Some(path("HOME")?.join(".cache")))?
                .join("millrace"),
        )
    };
    let zig = path("MILLRACE_TOOLS")
        .or_else(cache)?
        .join("zig/ziglang/zig");
    zig.exists().then(|| format!("{} cc", zig.display()))
}
