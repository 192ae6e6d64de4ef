//! The status file and the management port's `status`, byte for byte as monitoring programs parse them: formats of a
//! server's status, and the statistics of a client.

#[cfg(feature = "server")]
pub mod server;

use crate::timestamp::Clock;
use host::written_file;
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};
use std::{fs, io};

/// Mode of a new file, as in stock: clients' names and addresses are private.
const MODE: u32 = 0o600;

/// Formats `10.1.2.3:1194`, or `[2001:db8::1]:1194` as OpenVPN 2.7 does; earlier releases omit brackets and port for
/// IPv6.
pub fn real_address(addr: SocketAddr) -> String {
    SocketAddr::new(addr.ip().to_canonical(), addr.port()).to_string()
}

/// Format of a server's status.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Format {
    /// Version 1: for people and old programs.
    #[default]
    One,
    /// Version 2: comma-separated lines that begin with their kind.
    Two,
    /// Version 3: tab-separated lines that begin with their kind.
    Three,
}

impl Format {
    /// Converts the number of `status-version` or of the command `status n`.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::One),
            2 => Some(Self::Two),
            3 => Some(Self::Three),
            _ => None,
        }
    }
}

/// A client's byte counts since its start.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ClientStatus {
    /// Bytes read from the tunnel's interface.
    pub tun_read: u64,
    /// Bytes written to the tunnel's interface.
    pub tun_write: u64,
    /// Bytes received from the server.
    pub link_read: u64,
    /// Bytes sent to the server.
    pub link_write: u64,
    /// Bytes received from the server and authenticated.
    pub auth_read: u64,
}

impl ClientStatus {
    /// Formats the status: lines ended by `\n`, the last one `END`. There is only one format.
    pub(crate) fn text(&self, clock: &Clock, now: SystemTime) -> String {
        format!(
            "OpenVPN STATISTICS\nUpdated,{}\nTUN/TAP read bytes,{}\nTUN/TAP write bytes,{}\n\
             TCP/UDP read bytes,{}\nTCP/UDP write bytes,{}\nAuth read bytes,{}\nEND\n",
            clock.ascii(now),
            self.tun_read,
            self.tun_write,
            self.link_read,
            self.link_write,
            self.auth_read,
        )
    }
}

/// A status or lease file that is rewritten periodically.
#[derive(Debug)]
pub struct PeriodicFile {
    path: PathBuf,
    period: Duration,
    next: Instant,
}

impl PeriodicFile {
    /// Makes a file that is due at once, and then every `period`.
    pub fn new(path: PathBuf, period: Duration, now: Instant) -> Self {
        Self {
            path,
            period,
            next: now,
        }
    }

    /// When the file is due next.
    pub const fn next_deadline(&self) -> Instant {
        self.next
    }

    /// Writes the file if it is due. Returns whether it was.
    ///
    /// # Errors
    /// The file cannot be written; the next attempt follows after the period.
    pub fn write_if_due(
        &mut self,
        now: Instant,
        text: impl FnOnce() -> String,
    ) -> io::Result<bool> {
        if now < self.next {
            return Ok(false);
        }
        self.next = now + self.period;
        self.write(&text())?;
        Ok(true)
    }

    /// Writes the file now: at the end, or on request.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, text: &str) -> io::Result<()> {
        write(&self.path, text, written_file::replace_for_now)
    }
}

/// Replaces a file so that readers see the old or the new text, never a part. Writes in place if the directory is not
/// writable (after dropping privileges) or the path is a device.
///
/// # Errors
/// Neither the replacement nor the write in place succeeded.
#[cfg(any(feature = "server", test))]
pub fn write_atomically(path: &Path, text: &str) -> io::Result<()> {
    write(path, text, written_file::replace)
}

fn write(
    path: &Path,
    text: &str,
    replace: fn(&Path, &[u8], u32) -> io::Result<()>,
) -> io::Result<()> {
    let regular = fs::symlink_metadata(path).map_or(true, |data| data.is_file());
    if regular && replace(path, text.as_bytes(), MODE).is_ok() {
        return Ok(());
    }
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(MODE);
    written_file::open(path, &mut options)?.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_prints_statistics() {
        let status = ClientStatus {
            tun_read: 1,
            tun_write: 2,
            link_read: 3,
            link_write: 4,
            auth_read: 5,
        };
        assert_eq!(
            status.text(&Clock::utc(), SystemTime::UNIX_EPOCH),
            "OpenVPN STATISTICS\nUpdated,1970-01-01 00:00:00\nTUN/TAP read bytes,1\n\
             TUN/TAP write bytes,2\nTCP/UDP read bytes,3\nTCP/UDP write bytes,4\n\
             Auth read bytes,5\nEND\n"
        );
    }

    #[test]
    fn a_file_is_replaced_when_it_is_time() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("status");
        let start = Instant::now();
        let mut file = PeriodicFile::new(path.clone(), Duration::from_secs(10), start);
        assert!(file.write_if_due(start, || "a".to_owned()).unwrap());
        let early = start + Duration::from_secs(9);
        assert!(!file.write_if_due(early, || "b".to_owned()).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "a");
        assert!(
            file.write_if_due(file.next_deadline(), || "c".to_owned())
                .unwrap()
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), "c");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_new_file_is_its_owners_and_an_old_one_keeps_its_mode() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("status");
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        write_atomically(&path, "a").unwrap();
        assert_eq!(mode(), 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        write_atomically(&path, "b").unwrap();
        assert_eq!(mode(), 0o644);
    }

    #[test]
    fn what_is_no_file_is_written_in_place() {
        write_atomically(Path::new("/dev/null"), "x").unwrap();
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("target");
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&target, &link).unwrap();
        write_atomically(&link, "x").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&target).unwrap(), "x");
    }
}
