//! The two UNIX sockets of an interface: the UAPI for `wg`, and Millrace's status.

use super::interface::Interface;
use config::uapi::{Request, Requests, write_errno, write_get};
use netio::poll::Waker;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Directory where `wg` looks for interfaces of user-space programs.
const UAPI_DIR: &str = "/var/run/wireguard";

/// Connections served at a time. `wg` uses one.
const CONNECTIONS: usize = 16;

/// The server closes the connection of a client that is silent for this long.
const SILENCE: Duration = Duration::from_secs(30);

/// How long to wait for another program to release the socket: `wg-quick down`, for instance, may have deleted its
/// interface a moment ago.
const ENDING: Duration = Duration::from_secs(2);

/// Pause between two checks whether the program has released it.
const LOOK: Duration = Duration::from_millis(20);

/// Why a socket could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Another program answers on the socket.
    #[error("{0}: another program serves this interface; end it first")]
    InUse(PathBuf),
    /// The file system refuses the operation.
    #[error("{path}: {source} (the directory must be writable: run as root)")]
    Io {
        /// The socket.
        path: PathBuf,
        /// The file system's error.
        source: io::Error,
    },
}

/// A listening socket that removes its file when dropped.
pub struct Listener {
    /// The socket.
    pub socket: UnixListener,
    path: PathBuf,
    /// The file's inode, so that only our own file is removed.
    inode: u64,
}

impl Listener {
    /// The UAPI socket of an interface.
    pub(super) fn uapi(ifname: &str) -> Result<Self, SocketError> {
        Self::open(&Path::new(UAPI_DIR).join(format!("{ifname}.sock")))
    }

    /// The status socket of an interface.
    pub fn status(ifname: &str) -> Result<Self, SocketError> {
        Self::open(&crate::status::socket_path(ifname))
    }

    pub(super) fn open(path: &Path) -> Result<Self, SocketError> {
        let io = |source| SocketError::Io {
            path: path.to_owned(),
            source,
        };
        if let Some(dir) = path.parent() {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(dir)
                .map_err(io)?;
        }
        let end = Instant::now() + ENDING;
        while UnixStream::connect(path).is_ok() {
            if Instant::now() >= end {
                return Err(SocketError::InUse(path.to_owned()));
            }
            thread::sleep(LOOK);
        }
        // Bound under another name until it listens: `wg` takes a socket that refuses connections for the remains of
        // a crash, and removes it. The rename then replaces real remains of a crash.
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // Always the same name, so that the socket of a killed daemon is replaced. No other process makes it
        // meanwhile, as only one has the interface.
        let early = path.with_file_name(format!(".{name}.new"));
        match fs::remove_file(&early) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(io(e)),
            _ => {}
        }
        // The socket gives access to the keys, so no other user may connect, not even for a moment.
        let mask = nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
        let socket = UnixListener::bind(&early);
        nix::sys::stat::umask(mask);
        let socket = socket.map_err(io)?;
        fs::set_permissions(&early, fs::Permissions::from_mode(0o600))
            .and_then(|()| fs::rename(&early, path))
            .map_err(|error| {
                let _ = fs::remove_file(&early);
                io(error)
            })?;
        let inode = inode(path).map_err(io)?;
        Ok(Self {
            socket,
            path: path.to_owned(),
            inode,
        })
    }

    /// Whether the file was removed, which is how `wg-quick` ends older programs.
    pub(super) fn is_removed(&self) -> bool {
        inode(&self.path).ok() != Some(self.inode)
    }
}

fn inode(path: &Path) -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    Ok(fs::symlink_metadata(path)?.ino())
}

impl Drop for Listener {
    fn drop(&mut self) {
        if !self.is_removed() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Serves clients on threads of their own, a bounded number at a time.
pub(super) struct Server {
    interface: Arc<Mutex<Option<Interface>>>,
    /// Wakes the control thread, as a change of configuration can bring deadlines forward.
    wake: Arc<Waker>,
    served: Arc<AtomicUsize>,
}

impl Server {
    pub(super) fn new(interface: Arc<Mutex<Option<Interface>>>, wake: Arc<Waker>) -> Self {
        Self {
            interface,
            wake,
            served: Arc::default(),
        }
    }

    /// Accepts a waiting client of the UAPI socket, if there is one.
    ///
    /// # Errors
    /// No descriptor is free for the client, which goes on waiting.
    pub(super) fn accept_uapi(&self, listener: &Listener) -> io::Result<()> {
        self.accept(listener, |interface, wake, stream| {
            if let Err(e) = serve(interface, wake, stream) {
                log::debug!("UAPI client: {e}");
            }
        })
    }

    /// Accepts a waiting client of the status socket, if there is one.
    ///
    /// # Errors
    /// See [`Server::accept_uapi`].
    pub(super) fn accept_status(&self, listener: &Listener, started: Instant) -> io::Result<()> {
        self.accept(listener, move |interface, _, mut stream| {
            let document = lock(interface).as_ref().map(|i| i.status(started));
            let Some(mut document) = document else {
                return;
            };
            document.look_at_uplinks();
            if let Ok(text) = serde_json::to_vec(&document) {
                let _ = stream.write_all(&text);
            }
        })
    }

    fn accept(
        &self,
        listener: &Listener,
        serve: impl FnOnce(&Mutex<Option<Interface>>, &Waker, UnixStream) + Send + 'static,
    ) -> io::Result<()> {
        let stream = match listener.socket.accept() {
            Ok((stream, _)) => stream,
            // The client has gone again.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(e) => return Err(e),
        };
        if self.served.fetch_add(1, Ordering::AcqRel) >= CONNECTIONS {
            self.served.fetch_sub(1, Ordering::AcqRel);
            log::debug!("too many clients of the configuration socket; one was hung up on");
            return Ok(());
        }
        let (interface, wake) = (Arc::clone(&self.interface), Arc::clone(&self.wake));
        let served = Arc::clone(&self.served);
        let count_down = Arc::clone(&served);
        let thread = thread::Builder::new().name("client".into()).spawn(move || {
            let _ = stream.set_nonblocking(false);
            let _ = stream.set_read_timeout(Some(SILENCE));
            let _ = stream.set_write_timeout(Some(SILENCE));
            serve(&interface, &wake, stream);
            served.fetch_sub(1, Ordering::AcqRel);
        });
        if thread.is_err() {
            count_down.fetch_sub(1, Ordering::AcqRel);
        }
        Ok(())
    }
}

fn serve(interface: &Mutex<Option<Interface>>, wake: &Waker, stream: UnixStream) -> io::Result<()> {
    let mut out = BufWriter::new(stream.try_clone()?);
    let mut requests = Requests::new(stream);
    while let Some(request) = requests.next_request()? {
        match request {
            Ok(Request::Get) => {
                let state = lock(interface).as_ref().map(Interface::get);
                let Some((device, peers)) = state else {
                    return Ok(());
                };
                write_get(&mut out, &device, peers)?;
            }
            Ok(Request::Set(set)) => {
                let result = lock(interface).as_mut().map(|i| i.set(&set));
                let Some(result) = result else { return Ok(()) };
                wake.wake();
                let errno = result.map_or_else(
                    |(errno, words)| {
                        log::warn!("configuration refused: {words}");
                        errno
                    },
                    |()| 0,
                );
                write_errno(&mut out, errno)?;
            }
            Err(e) => {
                log::warn!("configuration refused, line {}: {}", e.line, e.message);
                write_errno(&mut out, e.errno)?;
            }
        }
        out.flush()?;
    }
    Ok(())
}

pub(super) fn lock(
    interface: &Mutex<Option<Interface>>,
) -> std::sync::MutexGuard<'_, Option<Interface>> {
    interface.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_of_a_program_that_is_about_to_end_is_taken_over() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("wg0.sock");
        let before = Listener::open(&path).unwrap();
        let ends = thread::spawn(move || {
            // The other listener has found the socket in use.
            before.socket.accept().unwrap();
        });
        let listener = Listener::open(&path).unwrap();
        ends.join().unwrap();
        assert!(!listener.is_removed());
    }

    #[test]
    fn a_socket_in_use_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("wg0.sock");
        let before = Listener::open(&path).unwrap();
        assert!(matches!(Listener::open(&path), Err(SocketError::InUse(_))));
        assert!(!before.is_removed());
    }
}
