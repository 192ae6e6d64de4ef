//! Writes files: those that a configuration names (status, leases, process number, log), and this program's own.
//!
//! Other users may be able to write to the directories. A link that another user made there would make root write to
//! its target. The power may fail at any moment: [`replace`] leaves either the old content or the new.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use nix::fcntl::{AT_FDCWD, AtFlags, OFlag};
use nix::unistd::{Uid, linkat};

/// Mode of a lock file: only its owner may open it.
const LOCK_MODE: u32 = 0o600;

/// Opens a file with `options`. Follows a link only if this user or root made it.
///
/// # Errors
/// `PermissionDenied` for a link of another user; otherwise the kernel's error.
pub fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let path = place(path)?;
    // `O_NONBLOCK`: opening a FIFO at this path must not block.
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    options.custom_flags(flags.bits()).open(path)
}

/// Opens a lock file, and creates it if it is missing. Only its owner may open it: any process that can read a file can
/// lock it and keep it locked.
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

/// The path to write to: the target of a permitted link, otherwise the path itself.
fn place(path: &Path) -> io::Result<PathBuf> {
    match fs::symlink_metadata(path) {
        Ok(data) if data.is_symlink() => {
            if data.uid() != 0 && data.uid() != Uid::effective().as_raw() {
                return Err(io::Error::new(
                    io::ErrorKind::PermissionDenied,
                    "is a link of another user; remove it",
                ));
            }
            let target = fs::read_link(path)?;
            let beside = path.parent().unwrap_or_else(|| Path::new("")).join(target);
            // The target may not exist yet. A link to a link is not followed further.
            Ok(beside)
        }
        Ok(_) => Ok(path.to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(path.to_owned()),
        Err(error) => Err(error),
    }
}

/// Writes a new file that only this user can read. The content is on the disk when this returns. The file gets its name
/// only once it is complete, so a killed process leaves nothing behind.
///
/// # Errors
/// `AlreadyExists`, or the kernel's error; no file is left behind.
pub fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    if let Some(mut file) = unnamed_beside(path) {
        file.write_all(content)?;
        file.sync_all()?;
        match give_name(&file, path) {
            Ok(()) => return sync_directory_of(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(error),
            // Naming the file needs /proc, which may be missing.
            Err(_) => {}
        }
    }
    write_beside(path, content)?;
    sync_directory_of(path)
}

/// Writes as [`write_new`] does, on a file system without unnamed files. A killed process leaves a file beside the
/// target, which the next writer removes.
fn write_beside(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut whole = Replacement::new(path, content, 0o600)?;
    let steps = [Step::Create, Step::Write, Step::Sync];
    let written = steps.into_iter().try_for_each(|step| whole.take(step));
    let linked = written.and_then(|()| match fs::hard_link(&whole.temporary, path) {
        // FAT has no hard links: an empty file takes the name first.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            File::create_new(path).and_then(|_| fs::rename(&whole.temporary, path))
        }
        linked => linked,
    });
    // Without the lock, the file belongs to another writer.
    if whole.file.is_some() {
        let _ = fs::remove_file(&whole.temporary);
    }
    linked
}

/// Creates a file without a name, which the kernel removes when this process ends. `None` if the file system does not
/// support such files.
fn unnamed_beside(path: &Path) -> Option<File> {
    let directory = path.parent().filter(|it| !it.as_os_str().is_empty());
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options.custom_flags(OFlag::O_TMPFILE.bits());
    options
        .open(directory.unwrap_or_else(|| Path::new(".")))
        .ok()
}

/// Links an unnamed file to its name, which no file may have yet.
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

/// Replaces a file's content. A reader finds the old content or the new, and so does the next boot, whenever the power
/// fails. Owner and mode stay; a new file gets `mode`. Links are followed as by [`open`]. The content is on the disk
/// when this returns.
///
/// # Errors
/// The kernel's error; the file is as it was.
pub fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    take_steps(&STEPS, path, content, mode)
}

/// Replaces a file that is soon written again and that a reboot makes worthless. Readers find the old content or the
/// new. This does not wait for the disk.
///
/// # Errors
/// The kernel's error; the file is as it was.
pub fn replace_for_now(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let steps = [Step::Create, Step::Write, Step::Rename];
    take_steps(&steps, path, content, mode)
}

fn take_steps(steps: &[Step], path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    // The file behind a link is replaced; the link stays.
    let path = place(path)?;
    if fs::symlink_metadata(&path).is_ok_and(|it| it.is_symlink()) {
        let words = "is a link to a link; name the file itself";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, words));
    }
    let mut replacement = Replacement::new(&path, content, mode)?;
    let done = steps.iter().try_for_each(|step| replacement.take(*step));
    // Remove only a file that this writer has locked; otherwise it belongs to another writer.
    if done.is_err() && replacement.file.is_some() {
        let _ = fs::remove_file(&replacement.temporary);
    }
    done
}

/// The steps of a replacement, in order. A test simulates a power cut after each.
const STEPS: [Step; 5] = [
    Step::Create,
    Step::Write,
    Step::Sync,
    Step::Rename,
    Step::SyncDirectory,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Creates a file beside the target, with the same owner and mode. Removes what an earlier power cut left there,
    /// and waits for another writer of the same file.
    Create,
    Write,
    /// Puts the content on the disk, before any name leads to it.
    Sync,
    Rename,
    /// Puts the name on the disk, too.
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

/// Creates an empty file that only this writer has until it is closed. Another writer may hold the name locked, and
/// will rename or remove its file. A power cut may have left a file of that name, which no process locks.
fn locked(path: &Path) -> io::Result<File> {
    loop {
        let mut options = OpenOptions::new();
        // Only this user may read the file until it has its owner.
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

/// Whether the name still leads to this file, and not to a newer one.
fn is_at(file: &File, path: &Path) -> bool {
    let identity = |data: Metadata| (data.dev(), data.ino());
    let there = fs::symlink_metadata(path).ok().map(identity);
    there.is_some() && file.metadata().ok().map(identity) == there
}

/// Whether no writer to wait for can own the file: another user could keep its file locked for ever. A file that has
/// just gone is not foreign: the next writer may have put its own there, which must stay.
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

/// Waits until the names in a file's directory are on the disk: a power cut must not bring back replaced or removed
/// files.
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

/// A file that holds the process number. Dropping this removes the file, unless another file has taken its place.
#[derive(Debug)]
pub struct PidFile {
    path: PathBuf,
    /// The file, held open so that no other file can get its inode number.
    file: File,
}

impl PidFile {
    /// Writes the file, readable by all users.
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
            // Fails if the process has dropped its privileges.
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

    /// The power fails after each step, and during the write. The file has the old content or the new, and the next
    /// replacement succeeds.
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
                // The content is not on the disk yet: any part of it may have arrived.
                for left in 0..=replacement.content.len() {
                    let part = &replacement.content[..left];
                    fs::write(&replacement.temporary, part).unwrap();
                    assert_eq!(fs::read(&path).unwrap(), b"old");
                }
            }
            // The process that held the lock has ended.
            drop(replacement);
            replace(&path, b"next", 0o600).unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"next");
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        }
        // The content is on the disk before a name leads to it.
        let at = |step| STEPS.iter().position(|it| *it == step);
        assert!(at(Step::Sync) < at(Step::Rename) && at(Step::Rename) < at(Step::SyncDirectory));
    }

    /// When writers replace one file at the same time, each writes its whole content and none fails.
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
        // The process is killed during the write.
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
