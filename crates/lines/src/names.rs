//! Looks up the host names of endpoints.
//!
//! A tunnel with name servers of its own, or with a guard that lets DNS leave only through the tunnel, also captures
//! the host's DNS queries. The tunnel then needs the name, and the name needs the tunnel. So these sources are asked in
//! turn until one answers:
//!
//! 1. the line's own name servers, over that line;
//! 2. the host's resolver;
//! 3. the host's name servers from before the tunnel was up, over the lines or with the tunnel's mark;
//! 4. if none of them answers, the last addresses that worked ([`kept`]).
//!
//! A look-up alone does not store an address: a captive portal answers every query with its own address. The address
//! is stored when the other end has authenticated there, which the machines report.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::time::Instant;

use config::lines::Lines;
use host::names::message::MESSAGE_MAX;
use host::names::{Lookup, LookupError, Secret, Step};
use netio::poll::Poller;
use nix::sys::socket::{setsockopt, sockopt};

mod background;
mod kept;
mod name;
mod servers;

pub use background::{Background, Resolver};
pub use kept::keep;
pub use name::Name;
pub use name::{LookUp, Whose};
#[cfg(feature = "handover")]
pub use servers::is_of;

/// Sockets for DNS queries, ready for a thread that may not open them itself.
#[derive(Debug, Default)]
pub struct Asker {
    /// The lines' own name servers.
    lines: Sockets,
    /// The host's name servers, queried outside the tunnel.
    past: Sockets,
}

impl Asker {
    /// Opens a socket for each server and line. Setting marks needs a capability that the asking thread lacks. `host`
    /// are the host's servers.
    pub fn new(host: &[IpAddr], mark: u32, lines: &Lines) -> Self {
        let mut asker = Self::default();
        let devices = lines.lines.iter().filter_map(|line| {
            let device = line.interface.as_deref()?;
            Some((line.name.as_str(), device, line.mark.unwrap_or(mark)))
        });
        let mut is_by_lines = false;
        for (name, device, mark) in devices {
            is_by_lines = true;
            for server in servers::of_line(name, device) {
                asker.lines.open(server, mark, Some(device));
            }
            for server in host {
                asker.past.open(*server, mark, Some(device));
            }
        }
        if !is_by_lines {
            for server in host {
                asker.past.open(*server, mark, None);
            }
        }
        asker
    }

    /// Returns all addresses of a name, and stores none of them: see [`keep`].
    ///
    /// # Errors
    /// The error of the host's resolver, if no other source has an answer.
    pub fn look_up(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        // A scoped address is not a name: only the host's resolver knows its interface, which may come later.
        let is_name = config::types::is_domain(host.trim_end_matches('.'));
        // Name servers may be behind the tunnel that the last program has left, and are not reached before it is up.
        if is_name && netio::tun::has_inherited() {
            let found = kept::last(host);
            if !found.is_empty() {
                return Ok(found);
            }
        }
        if is_name && let Ok(found) = self.lines.look_up(host) {
            return Ok(found);
        }
        let error = match (host, 0_u16).to_socket_addrs() {
            Ok(found) => return Ok(found.map(|it| it.ip()).collect()),
            Err(error) => error,
        };
        if !is_name {
            return Err(error);
        }
        match self.past.look_up(host) {
            Ok(found) => return Ok(found),
            Err(LookupError::NoAddress) => return Err(error),
            Err(past) => log::debug!("{host}: lookup outside the tunnel: {past}"),
        }
        match kept::last(host) {
            found if found.is_empty() => Err(error),
            found => {
                log::warn!("{host}: {error}; trying its last good address");
                Ok(found)
            }
        }
    }
}

/// Maximum number of sockets of one group, which has one for each server and line.
const SOCKETS_MAX: usize = 16;

/// A group of servers that are asked one after the other.
#[derive(Debug, Default)]
struct Sockets(Vec<UdpSocket>);

impl Sockets {
    fn open(&mut self, server: IpAddr, mark: u32, device: Option<&str>) {
        if self.0.len() < SOCKETS_MAX
            && let Ok(socket) = open(server, mark, device)
                .inspect_err(|error| log::debug!("name server {server}: {error}"))
        {
            self.0.push(socket);
        }
    }

    fn look_up(&self, host: &str) -> Result<Vec<IpAddr>, LookupError> {
        if self.0.is_empty() {
            return Err(LookupError::NoAnswer);
        }
        let Ok(poller) = Poller::new() else {
            return Err(LookupError::NoAnswer);
        };
        for (token, socket) in (0..).zip(&self.0) {
            let _ = poller.add(socket, token);
        }
        let secrets = [(); 2].map(|()| {
            let (mut numbers, mut letters) = ([0; 4], [0; 8]);
            crypto::random(&mut numbers);
            crypto::random(&mut letters);
            let [a, b, c, d] = numbers;
            Secret {
                number: u16::from_ne_bytes([a, b]),
                letters: u64::from_ne_bytes(letters),
                plain: u16::from_ne_bytes([c, d]),
            }
        });
        let mut lookup = Lookup::new(host, self.0.len(), secrets, Instant::now())?;
        loop {
            let now = Instant::now();
            match lookup.next(now) {
                Step::Done(found) => return found,
                Step::Send(server, message) => {
                    if self.0[server].send(&message).is_err() {
                        lookup.unreachable(server, now);
                    }
                }
                Step::Wait(until) => {
                    let ready = poller.wait(Some(until.saturating_duration_since(now)));
                    for token in ready.iter().flat_map(|it| it.iter()) {
                        let server = usize::try_from(token).unwrap_or(usize::MAX);
                        self.hear(server, &mut lookup);
                    }
                }
            }
        }
    }

    fn hear(&self, server: usize, lookup: &mut Lookup) {
        let Some(socket) = self.0.get(server) else {
            return;
        };
        let mut message = [0; MESSAGE_MAX + 1];
        // The socket is connected, so it receives only this server's datagrams.
        match socket.recv(&mut message) {
            Ok(count) => lookup.heard(server, &message[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => lookup.unreachable(server, Instant::now()),
        }
    }
}

fn open(server: IpAddr, mark: u32, device: Option<&str>) -> io::Result<UdpSocket> {
    let any: IpAddr = match server {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    if mark != 0 {
        setsockopt(&socket, sockopt::Mark, &mark)?;
    }
    if let Some(device) = device {
        setsockopt(&socket, sockopt::BindToDevice, &device.into())?;
    }
    socket.set_nonblocking(true)?;
    socket.connect(SocketAddr::new(server, 53))?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn addresses_and_this_host_need_no_server() {
        let asker = Asker::new(&[], 0, &Lines::default());
        let found = asker.look_up("192.0.2.7").unwrap();
        assert_eq!(found, [IpAddr::from([192, 0, 2, 7])]);
        assert!(asker.look_up("fe80::1%no-such-device").is_err());
    }

    #[test]
    fn a_socket_of_a_device_that_is_not_there_is_none() {
        let mut sockets = Sockets::default();
        sockets.open(IpAddr::from([192, 0, 2, 53]), 0, Some("no-such-device"));
        assert!(sockets.0.is_empty());
        assert_eq!(sockets.look_up("vpn.example"), Err(LookupError::NoAnswer));
    }

    /// A name server on the loopback interface, which answers `count` queries by `answer`; and a socket to it.
    fn server(
        count: usize,
        answer: impl Fn(Vec<u8>) -> Option<Vec<u8>> + Send + 'static,
    ) -> (UdpSocket, thread::JoinHandle<()>) {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(server.local_addr().unwrap()).unwrap();
        client.set_nonblocking(true).unwrap();
        let serve = move || {
            let mut message = [0; 512];
            for _ in 0..count {
                let (length, from) = server.recv_from(&mut message).unwrap();
                if let Some(answer) = answer(message[..length].to_vec()) {
                    server.send_to(&answer, from).unwrap();
                }
            }
        };
        (client, thread::spawn(serve))
    }

    /// The answer with 192.0.2.7, or with no address to a question for IPv6.
    fn with_address(mut query: Vec<u8>) -> Option<Vec<u8>> {
        let is_v4 = query[query.len() - 3] == 1;
        query[2] |= 0x80;
        if is_v4 {
            query[7] = 1;
            // The name of the question, A, IN, 60 seconds, 4 bytes.
            query.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 7]);
        }
        Some(query)
    }

    /// The server does not know the name.
    fn unknown(mut query: Vec<u8>) -> Option<Vec<u8>> {
        query[2] |= 0x80;
        query[3] |= 3;
        Some(query)
    }

    #[test]
    fn the_next_server_is_asked_if_one_is_unreachable_or_knows_no_name() {
        let closed = {
            // An address that no other test uses, so that none can take the port.
            let gone = UdpSocket::bind("127.0.0.77:0").unwrap();
            let socket = UdpSocket::bind("127.0.0.77:0").unwrap();
            socket.connect(gone.local_addr().unwrap()).unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        };
        let (second, is_unknown) = server(2, unknown);
        let (third, knows) = server(2, with_address);
        let sockets = Sockets(vec![closed, second, third]);
        let found = sockets.look_up("vpn.example").unwrap();
        assert_eq!(found, [IpAddr::from([192, 0, 2, 7])]);
        is_unknown.join().unwrap();
        knows.join().unwrap();
    }

    #[test]
    fn the_server_of_an_uplink_is_asked_before_the_hosts() {
        let (socket, knows) = server(2, with_address);
        let mut asker = Asker::default();
        asker.lines.0.push(socket);
        // The host's resolver would not find this name.
        let found = asker.look_up("vpn.invalid").unwrap();
        assert_eq!(found, [IpAddr::from([192, 0, 2, 7])]);
        knows.join().unwrap();
    }

    #[test]
    fn a_name_without_an_address_is_told_apart_from_a_server_without_an_answer() {
        let (socket, is_unknown) = server(2, unknown);
        let sockets = Sockets(vec![socket]);
        assert_eq!(sockets.look_up("vpn.example"), Err(LookupError::NoAddress));
        is_unknown.join().unwrap();
        assert_eq!(sockets.look_up("vpn..example"), Err(LookupError::NotAName));
    }
}
