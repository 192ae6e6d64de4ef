//! Opens and reads the files that a configuration names, which may hold secrets.
//!
//! A path in a configuration may lead anywhere. Only regular files are opened: a FIFO would block its reader for
//! ever, and opening some devices has an effect (opening a watchdog reboots the machine).

use std::fs::{File, Metadata, OpenOptions, metadata};
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::makedev;
use zeroize::Zeroizing;

/// Directories of inherited file descriptors, which shells use for `<(command)`.
const DESCRIPTORS: [&str; 2] = ["/dev/fd", "/proc/self/fd"];

/// Time limit of the command behind an inherited descriptor.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Opens a regular file for reading without blocking. `/dev/null` counts as an empty file.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] for anything but a regular file, and the kernel's errors.
pub fn open(path: &Path) -> io::Result<File> {
    // Test the kind before opening: opening a FIFO or a device may wait or have an effect.
    regular(&metadata(path)?)?;
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits())
        .open(path)?;
    regular(&file.metadata()?)?;
    Ok(file)
}

fn regular(data: &Metadata) -> io::Result<()> {
    let null = data.file_type().is_char_device() && data.rdev() == makedev(1, 3);
    match data.is_file() || null {
        true => Ok(()),
        false => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "is not a regular file",
        )),
    }
}

/// Reads a regular file of at most `max` bytes into memory that is overwritten when dropped. A larger file is
/// [`io::ErrorKind::FileTooLarge`]. Kernel files that report no size (`/proc/kmsg`) count as empty.
///
/// # Errors
/// The errors of [`open`].
pub fn read(path: &Path, max: u64) -> io::Result<Zeroizing<Vec<u8>>> {
    let file = open(path)?;
    match file.metadata()?.len() {
        0 => Ok(Zeroizing::default()),
        size => bounded(file, size, max),
    }
}

/// Reads a text file as [`read`] does.
///
/// # Errors
/// The errors of [`read`], and [`io::ErrorKind::InvalidData`] if it is not UTF-8.
pub fn read_text(path: &Path, max: u64) -> io::Result<Zeroizing<String>> {
    let bytes = read(path, max)?;
    let text = std::str::from_utf8(&bytes).map_err(|_| io::ErrorKind::InvalidData)?;
    Ok(Zeroizing::new(text.to_owned()))
}

/// Reads a file as [`read`] does. From an inherited pipe, reads the bytes that arrive within [`PATIENCE`].
///
/// # Errors
/// The errors of [`open`]; [`io::ErrorKind::TimedOut`] if the pipe is not closed in time.
pub fn read_handed_over(path: &Path, max: u64) -> io::Result<Zeroizing<Vec<u8>>> {
    if !is_handed_over(path) {
        return read(path, max);
    }
    let flags = OFlag::O_NONBLOCK.bits();
    let mut pipe = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)?;
    let end = Instant::now() + PATIENCE;
    let mut bytes = Zeroizing::new(Vec::with_capacity(1 << 16));
    let mut part = Zeroizing::new([0; 4096]);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        let mut waited = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
        match poll(&mut waited, left) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => {}
            Err(Errno::EINTR) => continue,
            Err(error) => return Err(error.into()),
        }
        match pipe.read(&mut part[..]) {
            Ok(0) => return Ok(bytes),
            Ok(count) => bytes.extend_from_slice(&part[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if bytes.len() as u64 > max {
            return Err(too_large(max));
        }
    }
}

/// Whether a path names an inherited pipe.
#[must_use]
pub fn is_handed_over(path: &Path) -> bool {
    let above = path.parent().unwrap_or_else(|| Path::new(""));
    let named =
        path == Path::new("/dev/stdin") || DESCRIPTORS.iter().any(|it| above == Path::new(it));
    named && metadata(path).is_ok_and(|it| it.file_type().is_fifo())
}

fn bounded(file: File, size: u64, max: u64) -> io::Result<Zeroizing<Vec<u8>>> {
    // Reserve the size first: a vector that grows leaves copies of the keys behind.
    let capacity = usize::try_from(size.min(max)).unwrap_or(0) + 1;
    let mut bytes = Zeroizing::new(Vec::with_capacity(capacity));
    file.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(too_large(max));
    }
    Ok(bytes)
}

fn too_large(max: u64) -> io::Error {
    io::Error::new(
        io::ErrorKind::FileTooLarge,
        format!("larger than {max} bytes"),
    )
}

/// A warning if users other than the owner can read, change or replace a secret file. `None` if only the owner can,
/// or if the file is missing. Root's group counts as root.
#[must_use]
pub fn exposed(path: &Path) -> Option<String> {
    let data = metadata(path).ok()?;
    let mode = data.mode() & 0o777;
    let group = mode & 0o070 != 0 && data.gid() != 0;
    // The mode of `/dev/null` and the like says nothing.
    if !data.is_file() || (mode & 0o007 == 0 && !group) {
        return None;
    }
    let path = path.display();
    Some(format!(
        "{path}: holds a secret, but mode {mode:o} lets other users read or change it; run chmod 600 {path}"
    ))
}

/// A sentence if users other than root and the current one can change or replace a file. `None` if they cannot, or if
/// the file is missing.
#[must_use]
pub fn changeable(path: &Path) -> Option<String> {
    let data = metadata(path).ok()?;
    let (mode, owner) = (data.mode(), data.uid());
    let is_foreign = owner != 0 && owner != nix::unistd::geteuid().as_raw();
    let group = mode & 0o020 != 0 && data.gid() != 0;
    let path = path.display();
    (data.is_file() && (is_foreign || mode & 0o002 != 0 || group)).then(|| {
        format!("other users can change the file; run chown root {path}; chmod 600 {path}")
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn only_regular_files_of_a_bounded_size_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("file"), "abc").unwrap();
        std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
        mkfifo(&at("fifo"), Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        std::os::unix::fs::symlink(at("fifo"), at("link-to-fifo")).unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        for name in ["file", "link"] {
            assert_eq!(read(&at(name), 3).unwrap().as_slice(), b"abc", "{name}");
            let error = read(&at(name), 2).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::FileTooLarge, "{name}");
        }
        let devices = ["/dev/zero", "/dev/tty", "/dev"].map(PathBuf::from);
        let others = ["fifo", "link-to-fifo", "socket", ""].map(at);
        for path in others.iter().chain(&devices) {
            let error = read(path, 3).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{path:?}");
        }
        assert!(read(Path::new("/dev/null"), 3).unwrap().is_empty());
        // Kernel files report no size, and some of them never end.
        assert!(
            read(Path::new("/proc/self/environ"), 1 << 20)
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn a_pipe_of_the_shell_is_read_and_a_named_one_is_not() {
        use std::io::Write as _;
        use std::os::fd::AsRawFd as _;
        let (read_end, mut write_end) = io::pipe().unwrap();
        write_end.write_all(b"abc").unwrap();
        drop(write_end);
        let path = PathBuf::from(format!("/dev/fd/{}", read_end.as_raw_fd()));
        assert!(read(&path, 3).is_err());
        assert_eq!(read_handed_over(&path, 3).unwrap().as_slice(), b"abc");
        // The pipe is empty and its other end is closed.
        assert!(read_handed_over(&path, 3).unwrap().is_empty());
    }

    #[test]
    fn only_files_that_others_can_read_are_warned_of() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        assert_eq!(exposed(&path), None);
        fs::write(&path, "").unwrap();
        for (mode, warned) in [(0o600, false), (0o400, false), (0o604, true), (0o644, true)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(exposed(&path).is_some(), warned, "{mode:o}");
        }
        assert_eq!(exposed(Path::new("/dev/null")), None);
    }
}
