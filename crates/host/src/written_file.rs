//! Files that are written: those that a configuration names (status, leases, process number, log), and our own.
//!
//! Directories may be ones that others write to. A link that another user has made there would have root write to its
//! target. And the power may fail at any moment: [`replace`] leaves the old content or the new.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use nix::fcntl::{AT_FDCWD, AtFlags, OFlag};
use nix::unistd::{Uid, linkat};

/// Mode of a file that processes lock: its owner's.
const LOCK_MODE: u32 = 0o600;

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

/// Opens the file of a lock, which is made if there is none. Other users cannot: whoever may read a file can lock it, and
/// keep it locked.
///
/// # Errors
/// The kernel's error.
pub fn open_lock(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(LOCK_MODE)
        .custom_flags(OFlag::O_NOFOLLOW.bits())
        .open(path)?;
    if file.metadata()?.mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(LOCK_MODE))?;
    }
    Ok(file)
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

/// Writes a new file that only this user can read. It is on the disk when this returns, and has its name only when it
/// is whole: a process that is killed leaves nothing behind.
///
/// # Errors
/// `AlreadyExists`, and what the kernel says; nothing is left behind.
pub fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    if let Some(mut file) = unnamed_beside(path) {
        file.write_all(content)?;
        file.sync_all()?;
        match give_name(&file, path) {
            Ok(()) => return sync_directory_of(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(error),
            // /proc, which names the file, may be missing.
            Err(_) => {}
        }
    }
    write_beside(path, content)?;
    sync_directory_of(path)
}

/// Writes as [`write_new`] does, on a file system where each file has a name: a process that is killed leaves a file that the next one to
/// write here removes.
fn write_beside(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut whole = Replacement::new(path, content, 0o600)?;
    let steps = [Step::Create, Step::Write, Step::Sync];
    let written = steps.into_iter().try_for_each(|step| whole.take(step));
    let linked = written.and_then(|()| match fs::hard_link(&whole.temporary, path) {
        // FAT has no links: an empty file takes the name first.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            File::create_new(path).and_then(|_| fs::rename(&whole.temporary, path))
        }
        linked => linked,
    });
    // The file is another writer's where the lock is not to be had.
    if whole.file.is_some() {
        let _ = fs::remove_file(&whole.temporary);
    }
    linked
}

/// Makes a file without a name, of which nothing is left when this process ends. `None` where the file system has no such files.
fn unnamed_beside(path: &Path) -> Option<File> {
    let directory = path.parent().filter(|it| !it.as_os_str().is_empty());
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options.custom_flags(OFlag::O_TMPFILE.bits());
    options
        .open(directory.unwrap_or_else(|| Path::new(".")))
        .ok()
}

/// Gives such a file its name, which no file may have yet.
fn give_name(file: &File, path: &Path) -> io::Result<()> {
    let from = format!("/proc/self/fd/{}", file.as_raw_fd());
    linkat(
        AT_FDCWD,
        from.as_str(),
        AT_FDCWD,
        path,
        AtFlags::AT_SYMLINK_FOLLOW,
    )?;
    Ok(())
}

/// Puts a content in the place of a file: a reader finds the old one or the new one, and so does the next boot whatever
/// moment the power fails in. Owner and mode stay; a file that is new has `mode`. A link is followed as by [`open`]. It is on
/// the disk when this returns.
///
/// # Errors
/// The kernel's error; the file is as it was.
pub fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    take_steps(&STEPS, path, content, mode)
}

/// Replaces a file that is written again in a moment, and says nothing after a reboot: readers find the old content or
/// the new, and no one waits until it is on the disk.
///
/// # Errors
/// The kernel's error; the file is as it was.
pub fn replace_for_now(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let steps = [Step::Create, Step::Write, Step::Rename];
    take_steps(&steps, path, content, mode)
}

fn take_steps(steps: &[Step], path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    // The file behind a link is replaced, and the link stays.
    let path = place(path)?;
    if fs::symlink_metadata(&path).is_ok_and(|it| it.is_symlink()) {
        let words = "is a link to a link; name the file itself";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, words));
    }
    let mut replacement = Replacement::new(&path, content, mode)?;
    let done = steps.iter().try_for_each(|step| replacement.take(*step));
    // Only where it is there, locked: without the lock it is another writer's.
    if done.is_err() && replacement.file.is_some() {
        let _ = fs::remove_file(&replacement.temporary);
    }
    done
}

/// How a file is replaced, in this order. A test breaks it off after each.
const STEPS: [Step; 5] = [
    Step::Create,
    Step::Write,
    Step::Sync,
    Step::Rename,
    Step::SyncDirectory,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// A file beside it, with the same owner and mode. What a power cut has left of another time is removed, and another
    /// writer of the same file waited for.
    Create,
    Write,
    /// Its content is on the disk, before any name leads to it.
    Sync,
    Rename,
    /// The name is, too.
    SyncDirectory,
}

struct Replacement<'a> {
    path: &'a Path,
    content: &'a [u8],
    mode: u32,
    temporary: PathBuf,
    file: Option<File>,
}

impl<'a> Replacement<'a> {
    fn new(path: &'a Path, content: &'a [u8], mode: u32) -> io::Result<Self> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let mut temporary = OsString::from(".");
        temporary.push(name);
        temporary.push(".new");
        Ok(Self {
            path,
            content,
            mode,
            temporary: path.with_file_name(temporary),
            file: None,
        })
    }

    fn take(&mut self, step: Step) -> io::Result<()> {
        match step {
            Step::Create => {
                let file = locked(&self.temporary)?;
                let old = fs::symlink_metadata(self.path).ok();
                let mut mode = self.mode;
                if let Some(old) = old {
                    let own = file.metadata()?;
                    if (own.uid(), own.gid()) != (old.uid(), old.gid()) {
                        fchown(&file, Some(old.uid()), Some(old.gid()))?;
                    }
                    mode = old.mode() & 0o777;
                }
                file.set_permissions(Permissions::from_mode(mode))?;
                self.file = Some(file);
                Ok(())
            }
            Step::Write => {
                let content = self.content;
                self.file()?.write_all(content)
            }
            Step::Sync => self.file()?.sync_all(),
            Step::Rename => fs::rename(&self.temporary, self.path),
            Step::SyncDirectory => sync_directory_of(self.path),
        }
    }

    fn file(&mut self) -> io::Result<&mut File> {
        self.file
            .as_mut()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// Makes an empty file that only this writer has, until it is closed. Its name may be taken: by a writer that still has it
/// locked, and renames or removes it; or by what a power cut has left, which is locked by no process.
fn locked(path: &Path) -> io::Result<File> {
    loop {
        let mut options = OpenOptions::new();
        // Until it has its owner, only this user may read it.
        options.write(true).create_new(true).mode(0o600);
        match options.open(path) {
            Ok(file) => {
                file.lock()?;
                if is_at(&file, path) {
                    return Ok(file);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if is_foreign(path) {
                    remove(path)?;
                    continue;
                }
                let left = match open(path, OpenOptions::new().write(true)) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    left => left?,
                };
                left.lock()?;
                if is_at(&left, path) {
                    remove(path)?;
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// Whether the name leads to this file, and not to a newer one.
fn is_at(file: &File, path: &Path) -> bool {
    let identity = |data: Metadata| (data.dev(), data.ino());
    let there = fs::symlink_metadata(path).ok().map(identity);
    there.is_some() && file.metadata().ok().map(identity) == there
}

/// Whether it cannot be of a writer that is waited for: another user's file could stay locked for ever. What has just
/// gone is not another's: the next writer may have put its own there, which is not to be removed.
fn is_foreign(path: &Path) -> bool {
    let user = Uid::effective().as_raw();
    fs::symlink_metadata(path).is_ok_and(|it| !it.is_file() || ![0, user].contains(&it.uid()))
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Waits until the names in a file's directory are on the disk: a power cut must not bring back what was replaced or removed.
///
/// # Errors
/// The kernel's error.
pub fn sync_directory_of(path: &Path) -> io::Result<()> {
    let directory = path.parent().unwrap_or_else(|| Path::new(""));
    let here = Path::new(".");
    let directory = if directory.as_os_str().is_empty() {
        here
    } else {
        directory
    };
    File::open(directory)?.sync_all()
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
    /// The errors of [`open`].
    pub fn write(path: &Path) -> io::Result<Self> {
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
        if is_at(&self.file, &self.path) {
            // May be refused where privileges were dropped.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{lchown, symlink};

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

    /// The power fails after each step, and in the middle of the writing: the file is the old one or the new one as a whole,
    /// and can be replaced the next time.
    #[test]
    fn a_power_cut_leaves_the_old_content_or_the_new() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        for cut in 0..=STEPS.len() {
            replace(&path, b"old", 0o600).unwrap();
            let mut replacement = Replacement::new(&path, b"new content", 0o600).unwrap();
            for step in &STEPS[..cut] {
                replacement.take(*step).unwrap();
            }
            let renamed = STEPS[..cut].contains(&Step::Rename);
            let expected: &[u8] = if renamed { b"new content" } else { b"old" };
            assert_eq!(fs::read(&path).unwrap(), expected, "after {cut} steps");
            if STEPS[..cut].last() == Some(&Step::Write) {
                // Not on the disk yet: any part of it may be.
                for left in 0..=replacement.content.len() {
                    let part = &replacement.content[..left];
                    fs::write(&replacement.temporary, part).unwrap();
                    assert_eq!(fs::read(&path).unwrap(), b"old");
                }
            }
            // The process that had it locked is no more.
            drop(replacement);
            replace(&path, b"next", 0o600).unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"next");
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        }
        // The content is on the disk before a name leads to it.
        let at = |step| STEPS.iter().position(|it| *it == step);
        assert!(at(Step::Sync) < at(Step::Rename) && at(Step::Rename) < at(Step::SyncDirectory));
    }

    /// Of writers that replace one file at the same time, each puts its whole content there, and none fails.
    #[test]
    fn writers_of_one_file_wait_for_each_other() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let contents: Vec<Vec<u8>> = (b'a'..=b'd').map(|byte| vec![byte; 50_000]).collect();
        let is_whole = |found: &Vec<u8>| contents.contains(found);
        std::thread::scope(|scope| {
            for content in &contents {
                scope.spawn(|| {
                    for _ in 0..200 {
                        replace_for_now(&path, content, 0o600).unwrap();
                        assert!(is_whole(&fs::read(&path).unwrap()));
                    }
                });
            }
        });
        assert!(is_whole(&fs::read(&path).unwrap()));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_a_link_leads_to_is_replaced_with_its_mode() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("real"), "old").unwrap();
        fs::set_permissions(at("real"), Permissions::from_mode(0o600)).unwrap();
        symlink("real", at("link")).unwrap();
        replace(&at("link"), b"new", 0o644).unwrap();
        assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
        assert_eq!(fs::read(at("real")).unwrap(), b"new");
        let mode = fs::metadata(at("real")).unwrap().mode() & 0o777;
        assert_eq!(mode, 0o600);
        symlink("link", at("twice")).unwrap();
        assert!(replace(&at("twice"), b"x", 0o644).is_err());
        assert_eq!(fs::read(at("real")).unwrap(), b"new");
    }

    #[test]
    fn a_new_file_has_no_name_before_it_is_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let names = || fs::read_dir(directory.path()).unwrap().count();
        let mut file = unnamed_beside(&path).unwrap();
        file.write_all(b"key").unwrap();
        assert_eq!(names(), 0);
        give_name(&file, &path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"key");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let twice = give_name(&file, &path).unwrap_err();
        assert_eq!(twice.kind(), io::ErrorKind::AlreadyExists);
        drop(unnamed_beside(&path));
        assert_eq!(names(), 1);
        let taken = write_new(&path, b"other").unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"key");
    }

    #[test]
    fn a_new_file_is_whole_where_each_file_has_a_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        // Killed in the middle of the writing.
        let mut killed = Replacement::new(&path, b"half of a key", 0o600).unwrap();
        killed.take(Step::Create).unwrap();
        killed.take(Step::Write).unwrap();
        drop(killed);
        assert!(!path.exists());
        write_beside(&path, b"key").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"key");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let taken = write_beside(&path, b"other").unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"key");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_is_replaced_keeps_its_mode() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        replace(&path, b"one", 0o600).unwrap();
        assert_eq!(mode(), 0o600);
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        replace(&path, b"two", 0o600).unwrap();
        assert_eq!(mode(), 0o640);
        assert!(replace(&directory.path().join("no/file"), b"x", 0o600).is_err());
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
