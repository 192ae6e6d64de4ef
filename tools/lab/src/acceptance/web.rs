//! `millrace monitor` in a host, and hand-written requests that no browser would send.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd as _;

use crate::{Host, Process};
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, SockaddrStorage};

use super::{Directory, PATIENCE, PROGRAM};

/// The page's password in tests.
pub const PASSWORD: &str = "correct horse";

/// The file of [`PASSWORD`], with the fewest rounds: `millrace monitor password` chooses as many as take a quarter of a
/// second, which are seconds on a busy machine.
const PASSWORD_FILE: &str =
    "pbkdf2-sha256 100000 MDEyMzQ1Njc4OWFiY2RlZg WYEVV1ul0qBt7iGnOFpq5RmH0aOFvmOKTlUAgn9mWYM\n";

/// The password in the form of `Authorization: Basic`, with a user name in front.
pub const BASIC: &str = "eDpjb3JyZWN0IGhvcnNl";

/// The token that programs send for the metrics.
pub const TOKEN: &str = "0123456789abcdef0123";

/// A running `millrace monitor`.
pub struct Monitor<'h> {
    host: &'h Host,
    /// The privileged process.
    pub process: Process,
    /// The directory of the server's files.
    pub directory: Directory,
}

impl<'h> Monitor<'h> {
    /// Starts a server at 127.0.0.1:8470, with the password and a token or without both, and with further arguments.
    pub fn start(host: &'h Host, password: bool, more: &[&str]) -> Self {
        let directory = Directory::new();
        let path = |name: &str| directory.path().join(name).display().to_string();
        let [file, token, day] = [path("password"), path("token"), path("day")];
        if password {
            directory.file("password", PASSWORD_FILE);
            directory.file("token", TOKEN);
        }
        let words = [
            "monitor",
            "--password",
            &file,
            "--token",
            &token,
            "--history",
            &day,
        ];
        let mut process = host
            .command(PROGRAM)
            .args(words)
            .args(more)
            .spawn()
            .unwrap();
        let told = |line: &str| line.contains("the page is at http://");
        process
            .wait_for_line("its address", PATIENCE, told)
            .unwrap();
        Self {
            host,
            process,
            directory,
        }
    }

    /// Sends a request verbatim and reads the reply.
    pub fn request(&self, request: &str) -> Reply {
        exchange(self.host, (Ipv4Addr::LOCALHOST, 8470).into(), request)
    }

    /// Opens a connection to an address without sending anything.
    pub fn connect(&self, address: SocketAddr) -> TcpStream {
        let connect = || TcpStream::connect(address);
        self.host.run(connect).unwrap().unwrap()
    }

    /// Connects from an address of the host.
    pub fn connect_from(&self, from: IpAddr, address: SocketAddr) -> TcpStream {
        let connect = || connect_from(from, address);
        self.host.run(connect).unwrap().unwrap()
    }

    /// Sends a request from an address of the host and reads the reply.
    pub fn request_from(&self, from: IpAddr, request: &str) -> Reply {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 8470));
        exchange_by(self.host, || connect_from(from, address), request)
    }

    /// Whether the server still listens.
    pub fn is_there(&self) -> bool {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 8470));
        self.host
            .run(|| TcpStream::connect(address))
            .unwrap()
            .is_ok()
    }
}

/// Answer of the server.
#[derive(Debug)]
pub struct Reply {
    /// The status; 0 if nothing came.
    pub status: u16,
    head: String,
    body: Vec<u8>,
}

impl Reply {
    /// A header field, by its lower-case name.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut pairs = self.head.lines().filter_map(|it| it.split_once(": "));
        let named = pairs.find(|(key, _)| key.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value)
    }

    /// All header fields of one name.
    pub fn fields<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let pairs = self.head.lines().filter_map(|it| it.split_once(": "));
        let named = pairs.filter(move |(key, _)| key.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value)
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }
}

/// Sends a request from a host to one of its addresses.
pub fn exchange(host: &Host, address: SocketAddr, request: &str) -> Reply {
    exchange_by(host, || TcpStream::connect(address), request)
}

fn connect_from(from: IpAddr, address: SocketAddr) -> io::Result<TcpStream> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::Inet,
        SocketAddr::V6(_) => AddressFamily::Inet6,
    };
    let socket = socket::socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    let stream = TcpStream::from(socket);
    let of = |address: SocketAddr| SockaddrStorage::from(address);
    socket::bind(stream.as_raw_fd(), &of((from, 0).into()))?;
    socket::connect(stream.as_raw_fd(), &of(address))?;
    Ok(stream)
}

fn exchange_by(
    host: &Host,
    connect: impl FnOnce() -> io::Result<TcpStream> + Send,
    request: &str,
) -> Reply {
    let mut bytes = Vec::new();
    let work = || {
        let mut stream = connect()?;
        stream.set_read_timeout(Some(PATIENCE))?;
        // A client that the server rejects may find the connection closed.
        let _ = stream.write_all(request.as_bytes());
        let _ = stream.read_to_end(&mut bytes);
        io::Result::Ok(())
    };
    host.run(work).unwrap().unwrap();
    let end = bytes.windows(4).position(|it| it == b"\r\n\r\n");
    let body = end.map_or(Vec::new(), |end| bytes.split_off(end + 4));
    let head = String::from_utf8(bytes).unwrap();
    let status = head.split(' ').nth(1).and_then(|it| it.parse().ok());
    Reply {
        status: status.unwrap_or(0),
        head,
        body,
    }
}
