//! Reads the documents of several daemons: connects to all sockets first, then reads each answer as it comes. One
//! deadline holds for all, so several hanging daemons cost no more time than one.

use super::StatusError;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use service::status::Status;
use std::io::{self, ErrorKind, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Largest accepted document, in bytes: 10,000 peers take about 4 MiB.
const DOCUMENT_MAX: usize = 64 << 20;

/// Bytes per read.
const PIECE: usize = 64 << 10;

/// A daemon to which a request was sent.
struct Asked {
    ifname: String,
    /// The source of the remaining answer; `None` when it is complete.
    stream: Option<UnixStream>,
    document: Vec<u8>,
    error: Option<StatusError>,
}

/// Asks all daemons, and waits for all together, at most until the deadline. Returns the results in the same order.
pub(super) fn ask(
    names: Vec<String>,
    path: impl Fn(&str) -> PathBuf,
    patience: Duration,
) -> Vec<Result<Status, StatusError>> {
    ask_where(names, path, patience, |_| true)
}

/// Asks only the daemon that is the process `pid`. The results have errors of sockets whose process is unknown.
pub(super) fn ask_process(
    names: Vec<String>,
    path: impl Fn(&str) -> PathBuf,
    patience: Duration,
    pid: i32,
) -> Vec<Result<Status, StatusError>> {
    ask_where(names, path, patience, |stream| {
        getsockopt(stream, PeerCredentials).is_ok_and(|it| it.pid() == pid)
    })
}

fn ask_where(
    names: Vec<String>,
    path: impl Fn(&str) -> PathBuf,
    patience: Duration,
    is_wanted: impl Fn(&UnixStream) -> bool,
) -> Vec<Result<Status, StatusError>> {
    let deadline = Instant::now() + patience;
    let ask = |ifname: String| {
        let (stream, error) = match call(&path(&ifname)) {
            Ok(stream) if is_wanted(&stream) => (Some(stream), None),
            Ok(_) => return None,
            Err(error) => (None, Some(refused(&ifname, error))),
        };
        Some(Asked {
            ifname,
            stream,
            document: Vec::new(),
            error,
        })
    };
    let mut all: Vec<Asked> = names.into_iter().filter_map(ask).collect();
    while wait(&all, deadline) {
        all.iter_mut().for_each(Asked::read);
    }
    all.into_iter().map(Asked::status).collect()
}

/// Waits until any daemon sends; false if all are complete or the time is over.
fn wait(all: &[Asked], deadline: Instant) -> bool {
    let open = all.iter().filter_map(|it| it.stream.as_ref());
    let mut fds: Vec<PollFd<'_>> = open
        .map(|it| PollFd::new(it.as_fd(), PollFlags::POLLIN))
        .collect();
    let left = deadline.saturating_duration_since(Instant::now());
    if fds.is_empty() || left.is_zero() {
        return false;
    }
    // Rounded up, as a rest below a millisecond would not wait.
    let left = left + Duration::from_millis(1);
    let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
    matches!(poll(&mut fds, timeout), Ok(1..) | Err(Errno::EINTR))
}

/// Connects without waiting: the queue of a hanging daemon may be full.
fn call(path: &std::path::Path) -> io::Result<UnixStream> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let fd = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    let address = UnixAddr::new(path)?;
    connect(std::os::fd::AsRawFd::as_raw_fd(&fd), &address)?;
    Ok(fd.into())
}

fn refused(ifname: &str, error: io::Error) -> StatusError {
    let ifname = ifname.to_owned();
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => StatusError::NotRunning { ifname },
        ErrorKind::PermissionDenied => StatusError::NotAllowed { ifname },
        // The daemon's queue is full.
        ErrorKind::WouldBlock => StatusError::Silent { ifname },
        _ => StatusError::Socket { ifname, error },
    }
}

impl Asked {
    /// Reads the available bytes.
    fn read(&mut self) {
        let Some(stream) = &mut self.stream else {
            return;
        };
        let mut piece = vec![0; PIECE];
        loop {
            match stream.read(&mut piece) {
                Ok(0) => break,
                Ok(length) => self.document.extend_from_slice(&piece[..length]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => {
                    let ifname = self.ifname.clone();
                    self.error = Some(StatusError::Socket { ifname, error });
                    break;
                }
            }
            if self.document.len() > DOCUMENT_MAX {
                break;
            }
        }
        self.stream = None;
    }

    fn status(self) -> Result<Status, StatusError> {
        let ifname = self.ifname;
        if let Some(error) = self.error {
            return Err(error);
        }
        if self.stream.is_some() {
            return Err(StatusError::Silent { ifname });
        }
        serde_json::from_slice(&self.document)
            .map_err(|error| StatusError::Garbled { ifname, error })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::thread;

    /// Longer than any step here takes on a loaded machine.
    const LONG: Duration = Duration::from_secs(60);

    fn document(interface: &str) -> Vec<u8> {
        let status = Status {
            interface: interface.to_owned(),
            ..Status::default()
        };
        serde_json::to_vec(&status).unwrap()
    }

    /// Each daemon answers only once all have been asked; asking them in turn would hang.
    #[test]
    fn all_are_asked_before_any_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let names = ["a", "b", "c"];
        let listeners = names.map(|it| UnixListener::bind(path(it)).unwrap());
        let answering = thread::spawn(move || {
            let streams = listeners.map(|it| it.accept().unwrap().0);
            for (name, mut stream) in names.into_iter().zip(streams) {
                io::Write::write_all(&mut stream, &document(name)).unwrap();
            }
        });
        let all = ask(names.map(str::to_owned).to_vec(), path, LONG);
        answering.join().unwrap();
        let told: Vec<String> = all.into_iter().map(|it| it.unwrap().interface).collect();
        assert_eq!(told, names);
    }

    #[test]
    fn those_that_hang_hide_no_others_and_are_told_in_words() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        // These sockets never accept, like a stopped process.
        let _hangs = ["a", "c"].map(|it| UnixListener::bind(path(it)).unwrap());
        drop(UnixListener::bind(path("gone")).unwrap());
        let answers = UnixListener::bind(path("b")).unwrap();
        let mut client = call(&path("b")).unwrap();
        let (mut stream, _) = answers.accept().unwrap();
        io::Write::write_all(&mut stream, &document("b")).unwrap();
        drop(stream);
        // This process has answered already: its answer is read even when no time is left.
        let mut b = Asked {
            ifname: "b".to_owned(),
            stream: Some(client.try_clone().unwrap()),
            document: Vec::new(),
            error: None,
        };
        b.read();
        assert_eq!(b.status().unwrap().interface, "b");
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
        let names = ["a", "c", "gone"].map(str::to_owned).to_vec();
        let all = ask(names, path, Duration::from_millis(1));
        let words: Vec<String> = all
            .into_iter()
            .map(|it| it.unwrap_err().to_string())
            .collect();
        assert!(words[0].starts_with("a does not answer"), "{words:?}");
        assert!(words[1].starts_with("c does not answer"), "{words:?}");
        assert!(words[2].contains("no Millrace tunnel"), "{words:?}");
    }

    #[test]
    fn one_process_is_asked_and_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let _hangs = UnixListener::bind(path("a")).unwrap();
        let ask = |pid: u32| {
            let names = vec!["a".to_owned()];
            ask_process(names, path, Duration::from_millis(1), pid.cast_signed())
        };
        assert_eq!(ask(std::process::id()).len(), 1);
        assert!(ask(1).is_empty());
    }

    /// The queue of a hanging daemon fills up after some connections.
    #[test]
    fn a_full_queue_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let _hangs = UnixListener::bind(path("a")).unwrap();
        let mut kept = Vec::new();
        let error = loop {
            match call(&path("a")) {
                Ok(stream) => kept.push(stream),
                Err(error) => break error,
            }
        };
        let words = refused("a", error).to_string();
        assert!(words.starts_with("a does not answer"), "{words}");
    }
}
