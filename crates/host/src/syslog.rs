//! Writes to the machine's system log through its socket (RFC 3164, section 4.1).

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Severities of RFC 3164, table 2.
pub const ERROR: u32 = 3;
/// See [`ERROR`].
pub const WARNING: u32 = 4;
/// See [`ERROR`].
pub const NOTICE: u32 = 5;
/// See [`ERROR`].
pub const INFO: u32 = 6;
/// See [`ERROR`].
pub const DEBUG: u32 = 7;

/// The socket of the system log.
const SOCKET: &str = "/dev/log";

/// The facility for daemons, shifted into place.
const FACILITY: u32 = 3 << 3;

/// The system log.
#[derive(Debug)]
pub struct Syslog {
    socket: UnixDatagram,
    path: PathBuf,
    name: String,
}

impl Syslog {
    /// Connects to the system log of this machine, under the name `name`.
    ///
    /// # Errors
    /// No system log listens.
    pub fn new(name: &str) -> io::Result<Self> {
        Self::at(Path::new(SOCKET), name)
    }

    /// Opens a log as [`Syslog::new`] does, but lets the system log start later.
    ///
    /// # Errors
    /// The kernel gives no socket.
    pub fn later(name: &str) -> io::Result<Self> {
        Self::unconnected(Path::new(SOCKET), name)
    }

    /// Opens a log as [`Syslog::new`] does, on another socket than the machine's.
    ///
    /// # Errors
    /// The errors of [`Syslog::new`].
    pub fn at(path: &Path, name: &str) -> io::Result<Self> {
        let syslog = Self::unconnected(path, name)?;
        syslog.socket.connect(path)?;
        Ok(syslog)
    }

    fn unconnected(path: &Path, name: &str) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        // A full log must not hold up the tunnel.
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            path: path.to_owned(),
            name: name.to_owned(),
        })
    }

    /// Sends a line.
    ///
    /// # Errors
    /// No system log listens, or its queue is full.
    pub fn send(&self, severity: u32, text: &str, now: SystemTime) -> io::Result<()> {
        let priority = FACILITY | severity;
        let at = netio::time::local(now).syslog();
        let pid = std::process::id();
        let message = format!("<{priority}>{at} {}[{pid}]: {text}", self.name);
        let sent = self.socket.send(message.as_bytes());
        match sent {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                // The system log has started or restarted since, with a new socket.
                self.socket.connect(&self.path)?;
                self.socket.send(message.as_bytes()).map(drop)
            }
            sent => sent.map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_starts_late_or_anew_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let syslog = Syslog::unconnected(&path, "name").unwrap();
        let send = |text: &str| syslog.send(WARNING, text, SystemTime::now());
        send("lost").unwrap_err();
        for text in ["first", "second"] {
            let _ = std::fs::remove_file(&path);
            let daemon = UnixDatagram::bind(&path).unwrap();
            send(text).unwrap();
            let mut buffer = [0; 200];
            let count = daemon.recv(&mut buffer).unwrap();
            let message = std::str::from_utf8(&buffer[..count]).unwrap();
            assert!(
                message.starts_with("<28>") && message.ends_with(text),
                "{message}"
            );
        }
    }
}
