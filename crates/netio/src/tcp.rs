//! TCP for tunnels: connecting without blocking, and listening.
//!
//! Both return the standard library's sockets, non-blocking and with Nagle's algorithm off: a tunnel writes whole
//! batches, which the algorithm would only delay.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use crate::poll::check;
use crate::udp::socket::{set_device, set_int, set_mark, to_raw};

/// Connections that wait to be accepted; the kernel's own limit may be lower.
const BACKLOG: libc::c_int = 128;

/// Options of a socket.
#[derive(Clone, Debug, Default)]
pub struct TcpOptions {
    /// The local address of a connection; `None` for the kernel's choice, port 0 for any port. [`Listener::new`] takes
    /// its address as an argument instead.
    pub local: Option<SocketAddr>,
    /// An IPv6 listener takes no IPv4 connections (`IPV6_V6ONLY`).
    pub v6_only: bool,
    /// `SO_MARK` of everything sent; 0 for none.
    pub fwmark: u32,
    /// `SO_BINDTODEVICE`.
    pub device: Option<String>,
    /// Send buffer in bytes; `None` leaves it to the kernel's tuning.
    pub send_buffer: Option<u32>,
    /// Receive buffer in bytes; `None` leaves it to the kernel's tuning.
    pub receive_buffer: Option<u32>,
    /// A connection ends when the other end's kernel has acknowledged no sent data for this long (`TCP_USER_TIMEOUT`,
    /// RFC 5482). `None` leaves the kernel's limit of a quarter of an hour.
    pub user_timeout: Option<Duration>,
}

/// Why opening or connecting a socket failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TcpError {
    /// The kernel has no such family (IPv6 disabled).
    #[error("this kernel has no IPv{}", if .0.is_ipv4() { 4 } else { 6 })]
    NoFamily(IpAddr),
    /// Another socket uses the local address.
    #[error("TCP {0} is in use by another program (choose another port, or address)")]
    InUse(SocketAddr),
    /// This host does not have the local address.
    #[error("{0} is not an address of this host")]
    NotLocal(IpAddr),
    /// Another error.
    #[error("TCP socket for {address}: {what}: {source}")]
    Option {
        /// The address to connect to or to listen on.
        address: SocketAddr,
        /// The step that failed.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// A connection attempt. Its descriptor becomes writable when the attempt has succeeded or failed.
#[derive(Debug)]
pub struct Connecting(TcpStream);

impl Connecting {
    /// Begins to connect to `remote`.
    ///
    /// # Errors
    /// See [`TcpError`]. Reports a remote without a route here; [`Connecting::is_done`] reports a remote that refuses.
    pub fn new(remote: SocketAddr, options: &TcpOptions) -> Result<Self, TcpError> {
        let fd = socket(remote, options)?;
        if let Some(local) = options.local {
            bind(&fd, local)?;
        }
        let (raw, len) = to_raw(remote);
        // SAFETY: `raw` is an initialised sockaddr of `len` bytes that lives through the call.
        let result = unsafe { libc::connect(fd.as_raw_fd(), (&raw const raw).cast(), len) };
        match check(result) {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => {
                Err(failed(remote, "connect")(error))
            }
            _ => Ok(Self(TcpStream::from(fd))),
        }
    }

    /// Whether the connection is established. May be called at any time.
    ///
    /// # Errors
    /// The reason for failure: refused, unreachable, timed out.
    pub fn is_done(&self) -> io::Result<bool> {
        if let Some(error) = self.0.take_error()? {
            return Err(error);
        }
        match self.0.peer_addr() {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The socket, which is connected once [`Connecting::is_done`] has returned true.
    #[must_use]
    pub fn into_stream(self) -> TcpStream {
        self.0
    }
}

impl AsFd for Connecting {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A socket that accepts connections.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    options: TcpOptions,
}

impl Listener {
    /// Listens on `address`. `[::]` accepts IPv4 connections too, unless [`TcpOptions::v6_only`] is set.
    ///
    /// # Errors
    /// See [`TcpError`].
    pub fn new(address: SocketAddr, options: &TcpOptions) -> Result<Self, TcpError> {
        let fd = socket(address, options)?;
        if address.is_ipv6() {
            let only = libc::c_int::from(options.v6_only);
            set_int(&fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, only)
                .map_err(failed(address, "IPV6_V6ONLY"))?;
        }
        // A restarted server must get its port at once, while old connections are still closing.
        set_int(&fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)
            .map_err(failed(address, "SO_REUSEADDR"))?;
        bind(&fd, address)?;
        // SAFETY: plain numbers, and the descriptor is open.
        check(unsafe { libc::listen(fd.as_raw_fd(), BACKLOG) }).map_err(|source| {
            match source.raw_os_error() {
                Some(libc::EADDRINUSE) => TcpError::InUse(address),
                _ => failed(address, "listen")(source),
            }
        })?;
        Ok(Self {
            socket: TcpListener::from(fd),
            options: options.clone(),
        })
    }

    /// The next connection and its remote address; `None` if none waits. The address of an IPv4 client is an IPv4
    /// address, whatever the listener's family.
    ///
    /// # Errors
    /// When descriptors or memory have run out: wait before calling again. A client that left before it was accepted
    /// causes no error.
    pub fn accept(&self) -> io::Result<Option<(TcpStream, SocketAddr)>> {
        loop {
            let (stream, from) = match self.socket.accept() {
                Ok(accepted) => accepted,
                Err(error) => match error.raw_os_error() {
                    // accept(2) also returns errors that belong only to the new connection.
                    Some(
                        libc::EINTR
                        | libc::ECONNABORTED
                        | libc::EPROTO
                        | libc::ENETDOWN
                        | libc::ENETUNREACH
                        | libc::EHOSTDOWN
                        | libc::EHOSTUNREACH
                        | libc::ENONET
                        | libc::ENOPROTOOPT
                        | libc::EOPNOTSUPP,
                    ) => continue,
                    _ if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                    _ => return Err(error),
                },
            };
            let ready = stream
                .set_nonblocking(true)
                .and_then(|()| stream.set_nodelay(true));
            // Some kernels refuse options on a connection that has been reset already.
            if ready.is_err() {
                continue;
            }
            // Connections inherit buffers from the listener, but not on every kernel its mark.
            if self.options.fwmark != 0 {
                let _ = set_mark(&stream, self.options.fwmark);
            }
            let from = SocketAddr::new(from.ip().to_canonical(), from.port());
            return Ok(Some((stream, from)));
        }
    }

    /// The listener's address, with the port that the kernel chose.
    ///
    /// # Errors
    /// The error of `getsockname`.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn failed(address: SocketAddr, what: &'static str) -> impl FnOnce(io::Error) -> TcpError {
    move |source| TcpError::Option {
        address,
        what,
        source,
    }
}

/// A socket for the family of `address`, with the options that connections and listeners share.
fn socket(address: SocketAddr, options: &TcpOptions) -> Result<OwnedFd, TcpError> {
    let domain = match address {
        SocketAddr::V4(_) => libc::AF_INET,
        SocketAddr::V6(_) => libc::AF_INET6,
    };
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no pointers are passed; the result is checked before it is owned.
    let fd = match check(unsafe { libc::socket(domain, kind, 0) }) {
        // SAFETY: `fd` is a fresh descriptor that nothing else owns.
        Ok(fd) => unsafe { OwnedFd::from_raw_fd(fd) },
        Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => {
            return Err(TcpError::NoFamily(address.ip()));
        }
        Err(error) => return Err(failed(address, "socket")(error)),
    };
    set_int(&fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)
        .map_err(failed(address, "TCP_NODELAY"))?;
    if let Some(time) = options.user_timeout {
        let millis = libc::c_int::try_from(time.as_millis()).unwrap_or(libc::c_int::MAX);
        set_int(&fd, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, millis)
            .map_err(failed(address, "TCP_USER_TIMEOUT"))?;
    }
    if options.fwmark != 0 {
        set_mark(&fd, options.fwmark).map_err(failed(address, "SO_MARK"))?;
    }
    if let Some(device) = &options.device {
        set_device(&fd, device).map_err(failed(address, "SO_BINDTODEVICE"))?;
    }
    // Set before connecting, because the ends agree on the window's scale then. A buffer smaller than requested makes
    // the socket slower, not wrong.
    for (name, bytes) in [
        (libc::SO_SNDBUF, options.send_buffer),
        (libc::SO_RCVBUF, options.receive_buffer),
    ] {
        if let Some(bytes) = bytes.filter(|&bytes| bytes != 0) {
            let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
            let _ = set_int(&fd, libc::SOL_SOCKET, name, bytes);
        }
    }
    Ok(fd)
}

fn bind(fd: &OwnedFd, address: SocketAddr) -> Result<(), TcpError> {
    let (raw, len) = to_raw(address);
    // SAFETY: `raw` is an initialised sockaddr of `len` bytes that lives through the call.
    let result = unsafe { libc::bind(fd.as_raw_fd(), (&raw const raw).cast(), len) };
    check(result)
        .map(drop)
        .map_err(|source| match source.raw_os_error() {
            Some(libc::EADDRINUSE) => TcpError::InUse(address),
            Some(libc::EADDRNOTAVAIL) => TcpError::NotLocal(address.ip()),
            _ => failed(address, "bind")(source),
        })
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::time::Duration;

    use super::*;
    use crate::poll::Poller;

    fn wait(fd: impl AsFd, writable: bool) {
        let poller = Poller::new().unwrap();
        poller.add(&fd, 0).unwrap();
        poller.modify(&fd, 0, writable).unwrap();
        assert!(
            !poller
                .wait(Some(Duration::from_secs(40)))
                .unwrap()
                .is_empty()
        );
    }

    fn listen(address: &str) -> Listener {
        Listener::new(address.parse().unwrap(), &TcpOptions::default()).unwrap()
    }

    #[test]
    fn both_ends_meet() {
        let listener = listen("127.0.0.1:0");
        assert!(listener.accept().unwrap().is_none());
        let options = TcpOptions {
            local: Some("127.0.0.1:0".parse().unwrap()),
            send_buffer: Some(1 << 16),
            receive_buffer: Some(1 << 16),
            ..TcpOptions::default()
        };
        let client = Connecting::new(listener.address().unwrap(), &options).unwrap();
        wait(&client, true);
        assert!(client.is_done().unwrap());
        let mut client = client.into_stream();
        wait(&listener, false);
        let (mut server, from) = listener.accept().unwrap().unwrap();
        assert_eq!(from, client.local_addr().unwrap());
        assert!(client.nodelay().unwrap() && server.nodelay().unwrap());
        server.write_all(b"hello").unwrap();
        wait(&client, false);
        let mut answer = [0; 8];
        assert_eq!(client.read(&mut answer).unwrap(), 5);
        assert_eq!(
            client.read(&mut answer).unwrap_err().kind(),
            io::ErrorKind::WouldBlock
        );
    }

    #[test]
    fn ipv4_clients_of_an_ipv6_listener_keep_their_addresses() {
        let listener = Listener::new("[::]:0".parse().unwrap(), &TcpOptions::default());
        let Some(listener) = lab::require(listener) else {
            return;
        };
        let port = listener.address().unwrap().port();
        let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        wait(&listener, false);
        let (_, from) = listener.accept().unwrap().unwrap();
        assert_eq!(from, client.local_addr().unwrap());
    }

    #[test]
    fn a_port_where_nothing_listens_is_an_error() {
        let closed = listen("127.0.0.1:0").address().unwrap();
        let client = Connecting::new(closed, &TcpOptions::default()).unwrap();
        wait(&client, true);
        let error = client.is_done().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn addresses_of_others_cannot_be_used() {
        let first = listen("127.0.0.1:0");
        let address = first.address().unwrap();
        let second = Listener::new(address, &TcpOptions::default());
        assert!(matches!(second, Err(TcpError::InUse(taken)) if taken == address));
        let foreign = Listener::new("192.0.2.1:0".parse().unwrap(), &TcpOptions::default());
        assert!(matches!(foreign, Err(TcpError::NotLocal(_))));
    }
}
