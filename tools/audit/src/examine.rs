//! Audit of a whole firmware: reads every file, finds the chip, judges each file and sorts the worst first.

use std::fs;
use std::io::Read as _;
use std::path::Path;

use crate::elf;
use crate::facts::Machine;
use crate::judge::{self, Subject, Words};
use crate::role::Role;
use crate::soc::{Detected, Hints, Soc, Table};
use crate::unpack::{self, Entry, EntryKind, Limits, UnpackError, Visitor};
use crate::verdict::Finding;

/// Maximum number of files that one audit judges. The report states how many it left out.
const FILES_MAX: usize = 50_000;

/// A part that the walk recognised but did not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// The containers that lead to the part.
    pub origin: String,
    /// Part of the firmware that was skipped.
    pub what: String,
    /// Why the walk skipped the part.
    pub why: String,
}

/// How the chip was chosen.
#[derive(Clone, Debug)]
pub struct Chosen<'t> {
    /// Chip of the device.
    pub soc: &'t Soc,
    /// Why the audit chose this chip.
    pub because: String,
}

impl<'t> From<Detected<'t>> for Chosen<'t> {
    fn from(found: Detected<'t>) -> Self {
        let doubt = if found.certain {
            ""
        } else {
            ", which is not certain"
        };
        Self {
            soc: found.soc,
            because: format!("{}{doubt}", found.because),
        }
    }
}

/// The report on a firmware.
#[derive(Clone, Debug)]
pub struct Audit<'t> {
    /// The chip that the audit judged for.
    pub chip: Chosen<'t>,
    /// One finding for each judged file, the most worth fixing first.
    pub findings: Vec<Finding>,
    /// The parts that were skipped.
    pub skipped: Vec<Skipped>,
    /// Files of any kind that the walk saw.
    pub files: u64,
    /// Kinds of places in which the walk found files, in order of discovery.
    pub origins: Vec<String>,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The file or directory to audit cannot be read.
    #[error(transparent)]
    Unpack(#[from] UnpackError),
    /// The user named no chip, and nothing in the firmware identifies one.
    #[error(
        "{0} does not name its chip; give --soc NAME or --router MODEL (millrace audit --list-socs)"
    )]
    NoChip(String),
    /// The programs are for x86, whose chips are not in the table.
    #[error(
        "{0}: its programs are for x86, but only routers with ARM, MIPS or PowerPC can be audited; name the directory \
         of a router's files, or its image"
    )]
    X86(String),
    /// The firmware holds nothing to judge.
    #[error("{0}: contains neither ELF files nor a kernel{1}")]
    Nothing(String, String),
}

/// Judges the ELF file, directory or image at `path`, for the `chosen` chip or the one that its files identify.
/// Before each file calls `watch` with the number of files, that one included.
///
/// # Errors
/// [`AuditError`]: the path is unreadable, holds nothing to judge, or does not identify the chip.
pub fn audit<'t>(
    path: &Path,
    limits: &Limits,
    table: &'t Table,
    chosen: Option<Chosen<'t>>,
    watch: &mut dyn FnMut(u64),
) -> Result<Audit<'t>, AuditError> {
    let name = path.display().to_string();
    // Reading a whole x86 system takes minutes and finds no chip.
    if chosen.is_none() && is_x86(path) {
        return Err(AuditError::X86(name));
    }
    let mut examiner = Examiner {
        watch: Some(watch),
        ..Examiner::default()
    };
    match unpack::walk(path, limits, &mut examiner) {
        Ok(()) => {}
        Err(
            error @ (UnpackError::TooLarge(_) | UnpackError::TooMuch(_) | UnpackError::TooMany(_)),
        ) => {
            examiner.skipped(&name, "the rest", &error.to_string());
        }
        Err(error) => return Err(error.into()),
    }
    examiner.finish(&name, table, chosen)
}

/// Programs of which every root file system has at least one.
const PROGRAMS: [&str; 4] = ["bin/busybox", "usr/bin/env", "bin/sh", "sbin/init"];

/// Largest program that the x86 check reads, in bytes.
const PROGRAM_MAX: u64 = 4 << 20;

/// Whether a directory is the root file system of an x86 machine, by the first of its usual programs.
fn is_x86(root: &Path) -> bool {
    let Ok(root) = fs::canonicalize(root) else {
        return false;
    };
    // A router's absolute links resolve from this host's root, so they lead to this host's programs.
    let is_own = |name: &str| {
        let path = fs::canonicalize(root.join(name));
        path.is_ok_and(|it| it.starts_with(&root))
    };
    let machine = |name: &str| {
        let mut bytes = Vec::new();
        let file = fs::File::open(root.join(name)).ok()?;
        file.take(PROGRAM_MAX).read_to_end(&mut bytes).ok()?;
        Some(elf::read(&bytes).ok()?.machine)
    };
    let own = PROGRAMS.into_iter().filter(|it| is_own(it));
    let mut machines = own.filter_map(machine);
    machines
        .next()
        .is_some_and(|it| matches!(it, Machine::X86 { .. }))
}

/// A file that was read; the judgement waits for the chip.
struct Seen {
    path: String,
    origin: usize,
    role: Role,
    subject: Subject,
}

#[derive(Default)]
pub(crate) struct Examiner<'w> {
    /// Called with the number of files before each file is read.
    watch: Option<&'w mut dyn FnMut(u64)>,
    hints: Hints,
    seen: Vec<Seen>,
    skipped: Vec<Skipped>,
    origins: Vec<String>,
    files: u64,
    left_out: u64,
}

impl Visitor for Examiner<'_> {
    fn entry(&mut self, entry: &Entry<'_>) {
        self.files += 1;
        if let Some(watch) = &mut self.watch {
            watch(self.files);
        }
        if entry.kind != EntryKind::File {
            return;
        }
        self.hints.see(entry.path, entry.data);
        let Some((role, subject)) = self.subject(entry) else {
            return;
        };
        if self.seen.len() >= FILES_MAX {
            self.left_out += 1;
            return;
        }
        let origin = match self.origins.iter().position(|known| known == entry.origin) {
            Some(known) => known,
            None => {
                self.origins.push(entry.origin.to_owned());
                self.origins.len() - 1
            }
        };
        self.seen.push(Seen {
            path: entry.path.to_owned(),
            origin,
            role,
            subject,
        });
    }

    fn skipped(&mut self, origin: &str, what: &str, why: &str) {
        let skipped = Skipped {
            origin: origin.to_owned(),
            what: what.to_owned(),
            why: why.to_owned(),
        };
        if self.skipped.len() < FILES_MAX {
            self.skipped.push(skipped);
        }
    }
}

impl Examiner<'_> {
    fn subject(&mut self, entry: &Entry<'_>) -> Option<(Role, Subject)> {
        let name = entry.path.rsplit('/').next().unwrap_or(entry.path);
        if name == "vmlinux" || name == "kernel" {
            return Some((Role::Kernel, Subject::KernelWords(Words::of(entry.data))));
        }
        if is_kernel_config(entry.data) {
            let text = String::from_utf8_lossy(entry.data).into_owned();
            return Some((Role::KernelConfig, Subject::KernelConfig(text)));
        }
        if !elf::is_elf(entry.data) {
            return None;
        }
        match elf::read(entry.data) {
            Ok(mut facts) => {
                let role = Role::of(entry.path, &facts);
                // Libraries have thousands of names; the judges use only those that begin with `__a`.
                let telling = |name: &String| name.starts_with("__a");
                facts.functions.retain(telling);
                facts.imports.retain(telling);
                Some((role, Subject::Elf(Box::new(facts))))
            }
            Err(error) => {
                self.skipped(entry.origin, entry.path, &error.to_string());
                None
            }
        }
    }

    pub(crate) fn finish<'t>(
        mut self,
        name: &str,
        table: &'t Table,
        chosen: Option<Chosen<'t>>,
    ) -> Result<Audit<'t>, AuditError> {
        if self.seen.is_empty() {
            let why = self
                .skipped
                .first()
                .map_or_else(String::new, |s| format!(" ({}: {})", s.what, s.why));
            return Err(AuditError::Nothing(name.to_owned(), why));
        }
        let chip = chosen
            .or_else(|| self.hints.find(table).map(Chosen::from))
            .ok_or_else(|| AuditError::NoChip(name.to_owned()))?;
        if self.left_out > 0 {
            let why = format!("only the first {FILES_MAX} files are audited");
            self.skipped(name, &format!("{} more files", self.left_out), &why);
        }
        let mut findings: Vec<Finding> = self
            .seen
            .iter()
            .map(|seen| {
                judge::judge(
                    chip.soc,
                    &seen.path,
                    &self.origins[seen.origin],
                    seen.role,
                    &seen.subject,
                )
            })
            .collect();
        findings.sort_by(|a, b| {
            b.rank()
                .cmp(&a.rank())
                .then_with(|| b.role.heat().cmp(&a.role.heat()))
                .then_with(|| a.path.cmp(&b.path))
        });
        Ok(Audit {
            chip,
            findings,
            skipped: self.skipped,
            files: self.files,
            origins: self.origins,
        })
    }
}

/// Whether `bytes` are a kernel configuration, which begins with a comment that says so.
fn is_kernel_config(bytes: &[u8]) -> bool {
    let head = &bytes[..bytes.len().min(256)];
    head.starts_with(b"#") && memchr::memmem::find(head, b"Kernel Configuration").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// An audit of a PC ends early: the table has no x86 chip.
    #[test]
    fn the_root_of_an_x86_machine_is_known_by_its_first_program() {
        if !cfg!(target_arch = "x86_64") {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let programs = root.join("usr/bin");
        fs::create_dir_all(&programs).unwrap();
        let audited = || {
            let mut files = 0;
            let mut watch = |_| files += 1;
            let table = Table::builtin();
            let result = audit(root, &Limits::default(), table, None, &mut watch);
            (result.map(|_| ()).unwrap_err(), files)
        };
        // A link to a program of this host; a router's file system has such links to its own programs.
        symlink("/usr/bin/env", programs.join("env")).unwrap();
        assert!(!matches!(audited().0, AuditError::X86(_)));
        fs::remove_file(programs.join("env")).unwrap();
        fs::copy("/usr/bin/env", programs.join("env")).unwrap();
        let (error, files) = audited();
        assert!(matches!(error, AuditError::X86(_)) && files == 0, "{error}");
    }
}
