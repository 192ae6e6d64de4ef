//! Opens a socket to one server, through its proxy if it has one.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use config::lines::Line;
use config::openvpn::{Connection, Family, HttpProxy, Prompted, Proxy, Remote, Sockets};
use netio::tcp::{Connecting, TcpOptions};
use zeroize::Zeroizing;

use super::error::DialError;
use super::http::{self, Reader, Verdict};
use super::resolve::resolve;
use super::socks::{Progress, Socks};
use super::stop::{Stop, Woken};

/// Maximum number of requests to an HTTP proxy per connection: without a password, with it, and again if the nonce was
/// stale.
const REQUESTS_MAX: usize = 3;

/// Name and password for a proxy.
#[derive(Clone)]
pub struct ProxyLogin {
    /// User name for the proxy.
    pub name: String,
    /// The password.
    pub password: Zeroizing<String>,
}

impl fmt::Debug for ProxyLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("ProxyLogin");
        debug.field("name", &self.name).finish_non_exhaustive()
    }
}

/// Transport to the server.
#[derive(Debug)]
pub enum Socket {
    /// UDP to this address; bind the socket as [`Target::local`] says.
    Udp(SocketAddr),
    /// A non-blocking TCP connection to the server, direct or through a proxy.
    Tcp(TcpStream),
}

/// One configured connection and one of its addresses, or of its proxy's.
#[derive(Clone, Debug)]
pub struct Target {
    /// Connection as configured.
    pub connection: Connection,
    /// Destination of the outer packets, which must stay outside the tunnel.
    pub remote: SocketAddr,
    sockets: Sockets,
    /// Time limit for the other end's first bytes, if another line can reach it.
    patience: Option<Duration>,
}

/// Time limit for connecting over one of several lines: the kernel has sent at least three SYNs by then.
const CONNECT: Duration = Duration::from_secs(4);

/// How long a connection over one of several lines survives without acknowledgements. Even a slow line is not
/// silent for so long.
const SILENT: Duration = Duration::from_secs(6);

/// Turns the end by a [`Stop`], which is not an error, into `None`.
fn unless_stopped<T>(done: Result<T, DialError>) -> Result<Option<T>, DialError> {
    match done {
        Ok(value) => Ok(Some(value)),
        Err(DialError::Stopped) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Target {
    /// Makes a target from a connection and one of its addresses.
    pub(crate) fn new(connection: Connection, sockets: Sockets, remote: SocketAddr) -> Self {
        Self {
            connection,
            remote,
            sockets,
            patience: None,
        }
    }

    /// Binds the target to one of several uplinks.
    pub fn by_line(mut self, line: &Line) -> Self {
        self.sockets.device.clone_from(&line.interface);
        self.sockets.mark = line.mark.or(self.sockets.mark);
        self.connection.local.host = line.source.map(|source| source.to_string());
        self.patience = Some(CONNECT);
        self
    }

    /// The device to bind the socket to.
    pub fn device(&self) -> Option<&str> {
        self.sockets.device.as_deref()
    }

    /// Tests whether the target is reachable; closes the connection at once. Returns `None` if `stop` came first.
    ///
    /// # Errors
    /// See [`DialError`].
    pub fn touch(mut self, stop: &Stop<'_>) -> Result<Option<()>, DialError> {
        // The port may be in use by the current connection.
        self.connection.local.bind = false;
        let dial = Dial {
            target: &self,
            stop,
            until: Instant::now() + CONNECT,
            quiet: true,
        };
        unless_stopped(dial.connect().map(drop))
    }

    /// Source of the proxy's name and password, if it may ask for them.
    pub fn proxy_credentials(&self) -> Option<&Prompted> {
        match self.connection.proxy.as_ref()? {
            Proxy::Http(proxy) => proxy.credentials.as_ref(),
            Proxy::Socks { credentials, .. } => credentials.as_ref(),
        }
    }

    /// Returns the local address to bind (`local`, `lport`, `nobind`); an inner `None` leaves it to the kernel.
    /// `Ok(None)` means that `stop` came first.
    ///
    /// # Errors
    /// [`DialError::Local`] and [`DialError::LocalFamily`].
    pub(crate) fn local(&self, stop: &Stop<'_>) -> Result<Option<Option<SocketAddr>>, DialError> {
        let local = &self.connection.local;
        let port = if local.bind { local.port } else { 0 };
        let Some(host) = &local.host else {
            let any: IpAddr = match self.remote {
                SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
            };
            return Ok(Some((port != 0).then(|| SocketAddr::new(any, port))));
        };
        let Some(found) = resolve(host, port, Family::Any, stop)? else {
            return Ok(None);
        };
        let same = |addr: &SocketAddr| addr.is_ipv4() == self.remote.is_ipv4();
        let found = found.into_iter().find(same);
        found
            .map(|addr| Some(Some(addr)))
            .ok_or_else(|| DialError::LocalFamily {
                local: host.clone(),
                remote: self.remote,
            })
    }

    /// Opens the socket within `connect-timeout`. Returns `None` if `stop` came first.
    ///
    /// For UDP, opens nothing and only returns the address.
    ///
    /// # Errors
    /// See [`DialError`].
    pub fn open(
        &self,
        login: Option<&ProxyLogin>,
        stop: &Stop<'_>,
    ) -> Result<Option<Socket>, DialError> {
        let tcp = self.connection.protocol.transport.is_tcp();
        match (&self.connection.proxy, tcp) {
            (None, false) => return Ok(Some(Socket::Udp(self.remote))),
            (Some(Proxy::Http(_)), false) => return Err(DialError::HttpUdp),
            (Some(Proxy::Socks { .. }), false) => return Err(DialError::SocksUdp),
            _ => {}
        }
        let dial = Dial {
            target: self,
            stop,
            until: Instant::now()
                + Duration::from_secs(self.connection.connect_timeout.max(1).into()),
            quiet: false,
        };
        unless_stopped(dial.open(login).map(Socket::Tcp))
    }
}

/// Opens one connection.
struct Dial<'a> {
    target: &'a Target,
    stop: &'a Stop<'a>,
    until: Instant,
    /// Suppresses log lines.
    quiet: bool,
}

impl Dial<'_> {
    fn open(&self, login: Option<&ProxyLogin>) -> Result<TcpStream, DialError> {
        let Some(remote) = &self.target.connection.remote else {
            return self.connect();
        };
        match &self.target.connection.proxy {
            None => self.connect(),
            Some(Proxy::Http(proxy)) => self.through_http(proxy, remote, login),
            Some(Proxy::Socks { .. }) => self.through_socks(remote, login),
        }
    }

    fn connect(&self) -> Result<TcpStream, DialError> {
        let remote = self.target.remote;
        let refused = |error| DialError::Refused { remote, error };
        let sockets = &self.target.sockets;
        let Some(local) = self.target.local(self.stop)? else {
            return Err(DialError::Stopped);
        };
        let options = TcpOptions {
            local,
            v6_only: false,
            fwmark: sockets.mark.unwrap_or(0),
            device: sockets.device.clone(),
            send_buffer: sockets.send_buffer,
            receive_buffer: sockets.receive_buffer,
            user_timeout: self.target.patience.map(|_| SILENT),
        };
        if !self.quiet {
            log::info!("Attempting to establish TCP connection with {remote}");
        }
        let patience = self.target.patience.map(|it| Instant::now() + it);
        let until = patience.map_or(self.until, |at| at.min(self.until));
        let connecting = Connecting::new(remote, &options)?;
        while !connecting.is_done().map_err(refused)? {
            let woken = self.stop.writable(&connecting, until);
            if matches!(woken, Ok(Woken::Late)) && until < self.until {
                return Err(DialError::Silent { remote });
            }
            self.judge(woken, "connecting")?;
        }
        Ok(connecting.into_stream())
    }

    fn through_http(
        &self,
        proxy: &HttpProxy,
        server: &Remote,
        login: Option<&ProxyLogin>,
    ) -> Result<TcpStream, DialError> {
        let remote = self.target.remote;
        let failed = |error| DialError::Http { remote, error };
        let authority = http::authority(&server.host, server.port);
        let mut shown = http::first_authorization(proxy.auth, login);
        for _ in 0..REQUESTS_MAX {
            let stream = self.connect()?;
            let request = http::request(proxy, &authority, shown.as_deref()).map_err(failed)?;
            self.send(&stream, &request)?;
            let mut reader = Reader::default();
            let answer = loop {
                // Peeks first, so that bytes after the header stay in the socket.
                let mut bytes = [0; 1024];
                let count = self.receive(&stream, |stream| stream.peek(&mut bytes))?;
                if count == 0 {
                    return Err(DialError::Proxy {
                        remote,
                        error: io::ErrorKind::UnexpectedEof.into(),
                    });
                }
                let (taken, answer) = reader.feed(&bytes[..count]).map_err(failed)?;
                self.receive(&stream, |mut stream| {
                    stream.read_exact(&mut bytes[..taken])?;
                    Ok(taken)
                })?;
                if let Some(answer) = answer {
                    break answer;
                }
            };
            let verdict = http::judge(&answer, proxy.auth, login, &authority, shown.as_deref());
            match verdict.map_err(failed)? {
                Verdict::Open => return Ok(stream),
                // A proxy may close the connection or send a page, so the next request uses a new one.
                Verdict::Authorize(value) => shown = Some(value),
            }
        }
        Err(failed(http::HttpError::BadLogin))
    }

    fn through_socks(
        &self,
        server: &Remote,
        login: Option<&ProxyLogin>,
    ) -> Result<TcpStream, DialError> {
        let remote = self.target.remote;
        let failed = |error| DialError::Socks { remote, error };
        let mut socks = Socks::new(&server.host, server.port, login).map_err(failed)?;
        let stream = self.connect()?;
        let mut progress = socks.begin();
        loop {
            let count = match progress {
                Progress::Done => return Ok(stream),
                Progress::Read(count) => count,
                Progress::Send(bytes, count) => {
                    self.send(&stream, &bytes)?;
                    count
                }
            };
            let mut bytes = vec![0; count];
            let mut filled = 0;
            while filled < count {
                let read = self.receive(&stream, |mut stream| stream.read(&mut bytes[filled..]))?;
                if read == 0 {
                    return Err(DialError::Proxy {
                        remote,
                        error: io::ErrorKind::UnexpectedEof.into(),
                    });
                }
                filled += read;
            }
            progress = socks.feed(&bytes).map_err(failed)?;
        }
    }

    fn send(&self, stream: &TcpStream, mut bytes: &[u8]) -> Result<(), DialError> {
        while !bytes.is_empty() {
            let woken = self.stop.writable(stream, self.until);
            self.judge(woken, "the proxy")?;
            match (&mut &*stream).write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) => self.may_wait(error)?,
            }
        }
        Ok(())
    }

    fn receive(
        &self,
        stream: &TcpStream,
        mut read: impl FnMut(&TcpStream) -> io::Result<usize>,
    ) -> Result<usize, DialError> {
        loop {
            let woken = self.stop.readable(stream, self.until);
            self.judge(woken, "the proxy")?;
            match read(stream) {
                Ok(count) => return Ok(count),
                Err(error) => self.may_wait(error)?,
            }
        }
    }

    fn may_wait(&self, error: io::Error) -> Result<(), DialError> {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(()),
            _ => Err(DialError::Proxy {
                remote: self.target.remote,
                error,
            }),
        }
    }

    fn judge(&self, woken: io::Result<Woken>, what: &'static str) -> Result<(), DialError> {
        let remote = self.target.remote;
        match woken {
            Ok(Woken::Ready) => Ok(()),
            Ok(Woken::Stop) => Err(DialError::Stopped),
            Ok(Woken::Late) => Err(DialError::Late {
                remote,
                what,
                seconds: self.target.connection.connect_timeout,
            }),
            Err(error) => Err(DialError::Resources { remote, error }),
        }
    }
}

#[cfg(test)]
mod tests;
