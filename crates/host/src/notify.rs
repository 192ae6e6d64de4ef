//! Messages to a service manager: systemd's `sd_notify(3)`, or any listener where `NOTIFY_SOCKET` says.
//!
//! A process is one service, so it has one manager, which [`begin`] finds in the environment. Without a manager, these
//! functions do nothing.

use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::OnceLock;
use std::time::Duration;

/// Environment variable with the manager's socket: a path, or an abstract name after `@`.
pub const SOCKET: &str = "NOTIFY_SOCKET";

/// Environment variables with the watchdog's period in microseconds, and the process that it watches (every one if
/// unset).
const WATCHDOG: [&str; 2] = ["WATCHDOG_USEC", "WATCHDOG_PID"];

/// How long an important message waits for a manager whose queue is full: systemd may be starting many services.
const PATIENCE: Duration = Duration::from_secs(2);

static MANAGER: OnceLock<Option<Manager>> = OnceLock::new();

/// A service manager.
#[derive(Debug)]
struct Manager {
    /// Socket for repeated messages, which do not wait for room in the manager's queue.
    socket: UnixDatagram,
    /// Socket for messages that are sent once.
    patient: UnixDatagram,
    address: SocketAddr,
    watchdog: Option<Duration>,
}

impl Manager {
    fn of_environment() -> Option<Self> {
        let name = env::var_os(SOCKET)?;
        let number = |name: &str| env::var(name).ok()?.parse::<u64>().ok();
        let [period, whose] = WATCHDOG.map(number);
        let ours = whose.is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = period.filter(|_| ours).map(Duration::from_micros);
        let made = address(name.as_bytes()).and_then(|address| Self::new(address, watchdog));
        made.inspect_err(|error| log::warn!("{SOCKET}: {error}"))
            .ok()
    }

    fn new(address: SocketAddr, watchdog: Option<Duration>) -> io::Result<Self> {
        let (socket, patient) = (UnixDatagram::unbound()?, UnixDatagram::unbound()?);
        // A slow manager must not hold up the tunnel.
        socket.set_nonblocking(true)?;
        patient.set_write_timeout(Some(PATIENCE))?;
        Ok(Self {
            socket,
            patient,
            address,
            watchdog,
        })
    }

    fn send(&self, by: &UnixDatagram, words: &str) {
        if let Err(error) = by.send_to_addr(words.as_bytes(), &self.address) {
            log::debug!("{SOCKET}: {error}");
        }
    }
}

fn address(name: &[u8]) -> io::Result<SocketAddr> {
    match name {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        [b'/', ..] => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(name)),
        // Other kinds of address, such as vsock from a virtual machine's host, are not supported.
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Finds the manager. Call it once, before other threads start.
pub fn begin() {
    let _ = MANAGER.set(Manager::of_environment());
}

/// Sends a message that is repeated, and so may be lost.
fn tell(words: &str) {
    if let Some(Some(manager)) = MANAGER.get() {
        manager.send(&manager.socket, words);
    }
}

/// Sends a message that the manager must not miss.
fn tell_once(words: &str) {
    if let Some(Some(manager)) = MANAGER.get() {
        manager.send(&manager.patient, words);
    }
}

/// The status as one line.
fn line(status: &str) -> String {
    status.replace(['\n', '\r'], " ")
}

/// Reports that the service works, or waits for an event outside its control: units that wait for it may start. Also
/// ends [`reloading`].
pub fn ready(status: &str) {
    tell_once(&format!("READY=1\nSTATUS={}", line(status)));
}

/// Reports the present state, as text for people.
pub fn status(status: &str) {
    tell(&format!("STATUS={}", line(status)));
}

/// Reports that the service is reading its configuration again.
pub fn reloading() {
    tell_once("RELOADING=1");
}

/// Reports that the service is ending.
pub fn stopping() {
    tell_once("STOPPING=1");
}

/// How long the manager waits for [`alive`] before it restarts the service; `None` if it has no watchdog.
#[must_use]
pub fn watchdog() -> Option<Duration> {
    MANAGER.get()?.as_ref()?.watchdog
}

/// Signals the manager's watchdog that the service is alive.
pub fn alive() {
    tell("WATCHDOG=1");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both kinds of address reach a manager's socket.
    #[test]
    fn the_manager_hears_by_a_path_and_by_a_name_that_no_file_has() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let name = format!("@millrace-notify-{}", std::process::id());
        for at in [path.to_str().unwrap(), &name] {
            let address = address(at.as_bytes()).unwrap();
            let manager = UnixDatagram::bind_addr(&address).unwrap();
            let client = Manager::new(address, None).unwrap();
            client.send(&client.socket, "READY=1\nSTATUS=up");
            let mut buffer = [0; 100];
            let count = manager.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..count], b"READY=1\nSTATUS=up");
        }
        assert!(address(b"vsock:2:1234").is_err());
        assert_eq!(line("one\ntwo"), "one two");
    }

    /// A manager whose queue is full still receives a message that is sent once. Repeated messages do not wait for it.
    #[test]
    fn a_manager_whose_queue_is_full_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let end = Duration::from_secs(30);
        manager.set_read_timeout(Some(end)).unwrap();
        let address = SocketAddr::from_pathname(&path).unwrap();
        let client = Manager::new(address, None).unwrap();
        let fill = || client.socket.send_to_addr(b"WATCHDOG=1", &client.address);
        while fill().is_ok() {}
        std::thread::scope(|scope| {
            scope.spawn(|| client.send(&client.patient, "READY=1"));
            let mut buffer = [0; 100];
            loop {
                let count = manager.recv(&mut buffer).unwrap();
                if &buffer[..count] == b"READY=1" {
                    break;
                }
            }
        });
    }

    #[test]
    fn without_a_manager_nothing_happens() {
        ready("up");
        alive();
        assert_eq!(watchdog(), None);
    }
}
