//! UNIX sockets named after an interface: the listener with its file, and clients on threads of their own.

use host::gate::accepted;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Directory where `wg` looks for interfaces of user-space programs.
const UAPI_DIR: &str = "/var/run/wireguard";

/// Clients of one socket that are served at a time.
const CLIENTS: usize = 16;

/// A client that is silent for this long is disconnected.
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
        /// Path of the socket.
        path: PathBuf,
        /// The file system's error.
        source: io::Error,
    },
}

/// A listening socket that removes its file when dropped.
pub(crate) struct Listener {
    /// Listening socket.
    pub socket: UnixListener,
    path: PathBuf,
    /// The file's inode, so that only our own file is removed.
    inode: u64,
}

impl Listener {
    /// The UAPI socket of an interface.
    pub(crate) fn uapi(ifname: &str) -> Result<Self, SocketError> {
        Self::open(&Path::new(UAPI_DIR).join(format!("{ifname}.sock")))
    }

    /// The socket of an interface for AmneziaWG's `awg`.
    #[cfg(feature = "amnezia")]
    pub(crate) fn amnezia(ifname: &str) -> Result<Self, SocketError> {
        Self::open(&Path::new("/var/run/amneziawg").join(format!("{ifname}.sock")))
    }

    /// The status socket of an interface.
    pub(crate) fn status(ifname: &str) -> Result<Self, SocketError> {
        Self::open(&crate::status::socket_path(ifname))
    }

    pub(crate) fn open(path: &Path) -> Result<Self, SocketError> {
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
    pub(crate) fn is_removed(&self) -> bool {
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

/// Clients of a socket, a bounded number at a time. Each holds a reference.
#[derive(Default)]
pub(crate) struct Clients(Arc<()>);

/// An accepted client.
pub(crate) struct Client {
    stream: UnixStream,
    place: Arc<()>,
}

impl Clients {
    /// Accepts a waiting client, if there is one. Closes the connection if too many are served already.
    ///
    /// # Errors
    /// No descriptor is free for the client, which goes on waiting.
    pub(crate) fn accept(&self, listener: &Listener) -> io::Result<Option<Client>> {
        let Some((stream, _)) = accepted(listener.socket.accept())? else {
            return Ok(None);
        };
        if Arc::strong_count(&self.0) > CLIENTS {
            log::debug!(
                "too many clients on {}; one was disconnected",
                listener.path.display()
            );
            return Ok(None);
        }
        let place = Arc::clone(&self.0);
        Ok(Some(Client { stream, place }))
    }
}

impl Client {
    /// Serves the client on its own thread. Hangs up if no thread can be started.
    pub(crate) fn serve(self, serve: impl FnOnce(UnixStream) + Send + 'static) {
        let _ = thread::Builder::new().name("client".into()).spawn(move || {
            let Self { stream, place } = self;
            let _ = stream.set_nonblocking(false);
            let _ = stream.set_read_timeout(Some(SILENCE));
            let _ = stream.set_write_timeout(Some(SILENCE));
            serve(stream);
            drop(place);
        });
    }
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
