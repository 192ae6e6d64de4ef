//! Sockets of the management port: the listening socket, or the connection to the client of `management-client`.

use config::openvpn::{Management, ManagementAddress, OpenVpn};
use host::gate::{accepted, turned_away};
use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use nix::unistd::{Gid, Group, Uid, User};
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Seconds of silence before a TCP keepalive probe, and between two probes.
const KEEPALIVE_SECONDS: u32 = 30;

/// Unanswered probes before the connection ends.
const KEEPALIVE_PROBES: u32 = 3;

/// Error while opening the management port.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SocketError {
    /// The socket failed.
    #[error("management {address}: {error}")]
    Socket {
        /// The configured address.
        address: String,
        /// The kernel's error.
        error: io::Error,
    },
    /// The user or group of `management-client-user` or `management-client-group` does not exist.
    #[error("{directive} {name}: there is none of that name on this machine")]
    Unknown {
        /// The directive.
        directive: &'static str,
        /// The user or group.
        name: String,
    },
}

/// Which users may connect to a Unix socket; `None` for all.
#[derive(Clone, Copy, Default)]
struct Allowed {
    user: Option<Uid>,
    group: Option<Gid>,
}

/// The socket that management clients connect to.
pub(crate) struct ManagementSocket {
    listener: Listener,
    allowed: Allowed,
}

enum Listener {
    Tcp(TcpListener),
    Unix(
        UnixListener,
        #[expect(dead_code, reason = "removes the file when it is dropped")] SocketFile,
    ),
    /// This end connected to its client (`management-client`); no other can connect.
    Called,
}

impl ManagementSocket {
    /// Listens for clients, or connects to the one of `management-client`.
    ///
    /// # Errors
    /// See [`SocketError`].
    pub(crate) fn open(
        config: &OpenVpn,
        wanted: &Management,
    ) -> Result<(Self, Option<File>), SocketError> {
        let allowed = Allowed::of(wanted)?;
        let made = if wanted.connect {
            let client = allowed.call(config, &wanted.address);
            client.map(|client| (Listener::Called, client))
        } else {
            Listener::open(config, &wanted.address).map(|it| (it, None))
        };
        let (listener, client) = made.map_err(|error| SocketError::Socket {
            address: match &wanted.address {
                ManagementAddress::Tcp(host, port) => format!("{host} {port}"),
                ManagementAddress::Unix(path) => path.display().to_string(),
            },
            error,
        })?;
        Ok((Self { listener, allowed }, client))
    }

    /// Returns the descriptor that becomes readable when a client connects.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.listener {
            Listener::Tcp(listener) => Some(listener.as_fd()),
            Listener::Unix(listener, _) => Some(listener.as_fd()),
            Listener::Called => None,
        }
    }

    /// Whether this end connected to its client, so that no other can connect.
    pub(crate) const fn was_called(&self) -> bool {
        matches!(self.listener, Listener::Called)
    }

    /// Accepts the next client; `None` if its user is not permitted.
    ///
    /// # Errors
    /// Descriptors ran out.
    pub(crate) fn accept(&self) -> io::Result<Option<File>> {
        let allowed = self.allowed;
        let client = match &self.listener {
            Listener::Tcp(listener) => {
                accepted(listener.accept())?.map(|(stream, _)| allowed.tcp(stream))
            }
            Listener::Unix(listener, _) => {
                accepted(listener.accept())?.map(|(stream, _)| allowed.unix(stream))
            }
            Listener::Called => None,
        };
        // The setup fails only for a client that has left.
        Ok(client.and_then(Result::ok).flatten())
    }

    /// Accepts a client and closes its connection. Returns whether one was waiting.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub(crate) fn turn_away(&self) -> io::Result<bool> {
        match &self.listener {
            Listener::Tcp(listener) => turned_away(listener.accept()),
            Listener::Unix(listener, _) => turned_away(listener.accept()),
            Listener::Called => Ok(false),
        }
    }
}

impl Listener {
    fn open(config: &OpenVpn, address: &ManagementAddress) -> io::Result<Self> {
        match address {
            ManagementAddress::Tcp(host, port) => {
                let listener = TcpListener::bind((host.as_str(), *port))?;
                listener.set_nonblocking(true)?;
                Ok(Self::Tcp(listener))
            }
            ManagementAddress::Unix(path) => {
                let path = config.path(path);
                remove_dead_socket(&path)?;
                let listener = UnixListener::bind(&path)?;
                let file = SocketFile::of(&path)?;
                listener.set_nonblocking(true)?;
                // Mode 0777 whatever the umask, as in stock: monitors do not run as root. The port checks each client
                // against the configured user and group.
                fs::set_permissions(&path, Permissions::from_mode(0o777))?;
                Ok(Self::Unix(listener, file))
            }
        }
    }
}

/// File of the listening socket, removed on drop unless another file has taken its place.
struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl SocketFile {
    fn of(path: &Path) -> io::Result<Self> {
        let data = fs::symlink_metadata(path)?;
        Ok(Self {
            path: path.to_owned(),
            identity: (data.dev(), data.ino()),
        })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let data = fs::symlink_metadata(&self.path);
        if data.is_ok_and(|data| (data.dev(), data.ino()) == self.identity) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Removes the socket of a killed daemon: one of this user that refuses connections. Other files stay, because the path
/// comes from a configuration.
fn remove_dead_socket(path: &Path) -> io::Result<()> {
    let data = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    let in_use = |what| Err(io::Error::new(ErrorKind::AddrInUse, what));
    if !data.file_type().is_socket() {
        return in_use(
            "there is a file of that name that is no socket; remove it, or name another",
        );
    }
    if data.uid() != Uid::effective().as_raw() {
        return in_use("there is a socket of another user; remove it, or name another");
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            // Compares the identity, because the file may have been replaced.
            drop(SocketFile {
                path: path.to_owned(),
                identity: (data.dev(), data.ino()),
            });
            Ok(())
        }
        _ => in_use("another program listens there"),
    }
}

impl Allowed {
    fn of(wanted: &Management) -> Result<Self, SocketError> {
        let unknown = |directive, name: &str| SocketError::Unknown {
            directive,
            name: name.to_owned(),
        };
        let mut allowed = Self::default();
        if let Some(name) = &wanted.user {
            let found = User::from_name(name).ok().flatten();
            let found = found.ok_or_else(|| unknown("management-client-user", name))?;
            allowed.user = Some(found.uid);
        }
        if let Some(name) = &wanted.group {
            let found = Group::from_name(name).ok().flatten();
            let found = found.ok_or_else(|| unknown("management-client-group", name))?;
            allowed.group = Some(found.gid);
        }
        Ok(allowed)
    }

    /// Accepts a TCP connection as the management client; `None` if only some users may connect, because TCP does not
    /// identify its user.
    fn tcp(self, stream: TcpStream) -> io::Result<Option<File>> {
        // An unplugged client must not block others.
        setsockopt(&stream, sockopt::KeepAlive, &true)?;
        setsockopt(&stream, sockopt::TcpKeepIdle, &KEEPALIVE_SECONDS)?;
        setsockopt(&stream, sockopt::TcpKeepInterval, &KEEPALIVE_SECONDS)?;
        setsockopt(&stream, sockopt::TcpKeepCount, &KEEPALIVE_PROBES)?;
        stream.set_nonblocking(true)?;
        let welcome = self.user.is_none() && self.group.is_none();
        Ok(welcome.then(|| OwnedFd::from(stream).into()))
    }

    /// Accepts a connection to a Unix socket as the management client; `None` if its user may not connect.
    fn unix(self, stream: UnixStream) -> io::Result<Option<File>> {
        stream.set_nonblocking(true)?;
        let who = getsockopt(&stream, sockopt::PeerCredentials)?;
        let welcome = self.user.is_none_or(|uid| who.uid() == uid.as_raw())
            && self.group.is_none_or(|gid| who.gid() == gid.as_raw());
        if !welcome {
            log::warn!(
                "MANAGEMENT: unix domain socket client connection rejected: it is not of the user \
                 or group that management-client-user and management-client-group name"
            );
        }
        Ok(welcome.then(|| OwnedFd::from(stream).into()))
    }

    /// Connects to the client of `management-client`.
    fn call(self, config: &OpenVpn, address: &ManagementAddress) -> io::Result<Option<File>> {
        match address {
            ManagementAddress::Tcp(host, port) => {
                self.tcp(TcpStream::connect((host.as_str(), *port))?)
            }
            ManagementAddress::Unix(path) => self.unix(UnixStream::connect(config.path(path))?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::client;
    use std::io::Read as _;

    fn open(lines: &str) -> Result<(ManagementSocket, Option<File>), SocketError> {
        let config = client(&format!("auth-user-pass\n{lines}"));
        ManagementSocket::open(&config, config.service.management.as_ref().unwrap())
    }

    fn own_user() -> String {
        User::from_uid(Uid::current()).unwrap().unwrap().name
    }

    #[test]
    fn only_who_is_named_comes_in() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let at = format!("management {} unix\n", path.display());
        let (socket, _) = open(&format!("{at}management-client-user {}", own_user())).unwrap();
        let _stream = UnixStream::connect(&path).unwrap();
        assert!(socket.accept().unwrap().is_some());
        drop(socket);
        assert!(!path.exists());

        let other = if own_user() == "daemon" {
            "root"
        } else {
            "daemon"
        };
        let (socket, _) = open(&format!("{at}management-client-user {other}")).unwrap();
        let _stream = UnixStream::connect(&path).unwrap();
        assert!(socket.accept().unwrap().is_none());

        let unknown = open(&format!("{at}management-client-group no-such-group-here"));
        assert!(matches!(unknown, Err(SocketError::Unknown { .. })));
    }

    #[test]
    fn all_users_may_connect_where_none_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let (_door, _) = open(&format!("management {} unix", path.display())).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o777);
    }

    #[test]
    fn only_a_dead_socket_makes_way() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let at = format!("management {} unix", path.display());
        fs::write(&path, "kept").unwrap();
        assert!(matches!(open(&at), Err(SocketError::Socket { .. })));
        assert_eq!(fs::read_to_string(&path).unwrap(), "kept");
        // A symbolic link to a dead socket is also another owner's file.
        fs::remove_file(&path).unwrap();
        let dead = directory.path().join("dead");
        drop(UnixListener::bind(&dead).unwrap());
        std::os::unix::fs::symlink(&dead, &path).unwrap();
        assert!(open(&at).is_err() && path.is_symlink() && dead.exists());
        fs::remove_file(&path).unwrap();
        let alive = UnixListener::bind(&path).unwrap();
        assert!(open(&at).is_err());
        drop(alive);
        assert!(open(&at).is_ok(), "a dead socket is replaced");
    }

    #[test]
    fn what_has_taken_the_sockets_place_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let (socket, _) = open(&format!("management {} unix", path.display())).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "kept").unwrap();
        drop(socket);
        assert_eq!(fs::read_to_string(&path).unwrap(), "kept");
    }

    #[test]
    fn a_client_calls() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let lines = format!("management {} unix\nmanagement-client", path.display());
        assert!(matches!(open(&lines), Err(SocketError::Socket { .. })));
        let listener = UnixListener::bind(&path).unwrap();
        let (socket, client) = open(&lines).unwrap();
        assert!(socket.was_called() && socket.fd().is_none() && client.is_some());
        listener.accept().unwrap();
        drop(socket);
        assert!(path.exists(), "it is not ours");
    }

    #[test]
    fn a_tcp_port_takes_one_client_after_the_other_and_is_busy_for_a_second_program() {
        // An address that no other test uses, so that none can take the port.
        let listener = TcpListener::bind("127.0.0.78:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let at = format!("management 127.0.0.78 {port}");
        let Err(busy) = open(&at) else {
            panic!("two listen at one port");
        };
        let place = format!("127.0.0.78 {port}");
        assert!(busy.to_string().contains(&place), "{busy}");
        drop(listener);

        let (socket, _) = open(&at).unwrap();
        assert!(socket.accept().unwrap().is_none(), "nobody has called");
        let call = || TcpStream::connect(("127.0.0.78", port)).unwrap();
        let _first = call();
        assert!(socket.accept().unwrap().is_some());
        // Without descriptors, a caller is turned away so that it does not wait forever.
        let mut second = call();
        assert!(socket.turn_away().unwrap());
        assert_eq!(second.read(&mut [0; 1]).unwrap(), 0);
        assert!(socket.accept().unwrap().is_none());
    }

    #[test]
    fn a_client_is_called_at_its_tcp_port() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let lines = format!("management 127.0.0.1 {port}\nmanagement-client");
        let (socket, client) = open(&lines).unwrap();
        assert!(socket.was_called() && client.is_some());
        assert!(!socket.turn_away().unwrap(), "nobody can call it");
        listener.accept().unwrap();
    }
}
