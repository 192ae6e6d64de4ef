//! Questions to name servers that go past the tunnel, by its mark.
//!
//! A full tunnel with name servers of its own takes the host's questions too. When its peer has moved to another address
//! there is nothing inside that could answer where to. So the servers that the host had before are remembered, and asked
//! for the names of endpoints, and for nothing else.

use nix::sys::socket::{setsockopt, sockopt};
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// Where hosts keep the addresses of their name servers: the usual place; what systemd-resolved and OpenWrt's `dnsmasq`
/// ask themselves where that names only this host.
const FILES: [&str; 3] = [
    "/etc/resolv.conf",
    "/run/systemd/resolve/resolv.conf",
    "/tmp/resolv.conf.d/resolv.conf.auto",
];

/// Most servers that are remembered, as the C library does.
const SERVERS_MAX: usize = 3;

/// How long one server may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// Largest answer without EDNS (RFC 1035, section 4.2.1), in bytes.
const ANSWER_MAX: usize = 512;

// Types of records: RFC 1035, section 3.2.2; RFC 3596, section 2.1.
const A: u16 = 1;
const AAAA: u16 = 28;

/// The name servers of the host that are not on the host itself.
pub(super) fn servers() -> Vec<IpAddr> {
    let files = FILES
        .iter()
        .map(|path| fs::read_to_string(path).unwrap_or_default());
    files
        .map(|text| servers_in(&text))
        .find(|servers| !servers.is_empty())
        .unwrap_or_default()
}

fn servers_in(text: &str) -> Vec<IpAddr> {
    let lines = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        (words.next()? == "nameserver").then(|| words.next()?.parse().ok())?
    });
    let outside = |addr: &IpAddr| !addr.is_loopback();
    lines.filter(outside).take(SERVERS_MAX).collect()
}

/// A way to ask the servers.
pub(super) struct Asker {
    sockets: Vec<(UdpSocket, SocketAddr)>,
}

impl Asker {
    /// Opens a socket with `mark` for each server. Marks need a capability that the asking thread has not.
    pub(super) fn new(servers: &[IpAddr], mark: u32) -> Self {
        let open = |server: &IpAddr| -> io::Result<(UdpSocket, SocketAddr)> {
            let any: IpAddr = match server {
                IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
            };
            let socket = UdpSocket::bind((any, 0))?;
            setsockopt(&socket, sockopt::Mark, &mark)?;
            Ok((socket, SocketAddr::new(*server, 53)))
        };
        Self {
            sockets: servers.iter().filter_map(|it| open(it).ok()).collect(),
        }
    }

    /// The addresses of `host` that the first server knows which answers.
    ///
    /// # Errors
    /// None answers, or there is no such name.
    pub(super) fn look_up(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let mut last = io::ErrorKind::TimedOut.into();
        for (socket, server) in &self.sockets {
            let asked = [A, AAAA].map(|kind| ask(socket, *server, host, kind));
            let found: Vec<IpAddr> = asked.iter().flatten().flatten().copied().collect();
            if !found.is_empty() {
                return Ok(found);
            }
            last = match asked {
                [Err(error), _] | [_, Err(error)] => error,
                _ => io::ErrorKind::NotFound.into(),
            };
        }
        Err(last)
    }
}

fn ask(socket: &UdpSocket, server: SocketAddr, host: &str, kind: u16) -> io::Result<Vec<IpAddr>> {
    let question = question(host, kind).ok_or(io::ErrorKind::InvalidInput)?;
    // Only this server's datagrams are received.
    socket.connect(server)?;
    socket.send(&question)?;
    let (end, mut answer) = (Instant::now() + PATIENCE, [0; ANSWER_MAX]);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        socket.set_read_timeout(Some(left))?;
        let count = socket.recv(&mut answer)?;
        if let Some(found) = addresses(&answer[..count], &question, kind) {
            return Ok(found);
        }
    }
}

/// A query with one question (RFC 1035, section 4.1): a number that others cannot guess, recursion desired.
fn question(host: &str, kind: u16) -> Option<Vec<u8>> {
    let mut query = vec![0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    crypto::random(&mut query[..2]);
    for label in host.trim_end_matches('.').split('.') {
        let length = u8::try_from(label.len()).ok();
        query.push(length.filter(|length| (1..64).contains(length))?);
        query.extend(label.bytes());
    }
    query.push(0);
    query.extend(kind.to_be_bytes());
    query.extend([0, 1]);
    (query.len() <= ANSWER_MAX).then_some(query)
}

/// The addresses in an answer to `question`; `None` if it is none.
fn addresses(answer: &[u8], question: &[u8], kind: u16) -> Option<Vec<IpAddr>> {
    let is_answer = answer.get(..2)? == &question[..2] && answer.get(2)? & 0x80 != 0;
    // Servers may write the name in other letters, but what they answer is told again.
    let asked = answer.get(12..question.len())?;
    if !is_answer || !asked.eq_ignore_ascii_case(&question[12..]) {
        return None;
    }
    let count = u16::from_be_bytes([*answer.get(6)?, *answer.get(7)?]);
    let (mut rest, mut found) = (&answer[question.len()..], Vec::new());
    for _ in 0..count {
        let Some((this, after)) = record(rest) else {
            break;
        };
        rest = after;
        let (of, data) = this;
        if of == kind {
            if let Ok(four) = <[u8; 4]>::try_from(data) {
                found.push(IpAddr::from(four));
            } else if let Ok(sixteen) = <[u8; 16]>::try_from(data) {
                found.push(IpAddr::from(sixteen));
            }
        }
    }
    Some(found)
}

/// The type and the data of a record, and what follows it.
type Record<'a> = ((u16, &'a [u8]), &'a [u8]);

fn record(mut bytes: &[u8]) -> Option<Record<'_>> {
    // Its name: labels up to an empty one, or up to a pointer, which is not followed.
    loop {
        match *bytes.first()? {
            0 => {
                bytes = &bytes[1..];
                break;
            }
            pointer if pointer >= 0xc0 => {
                bytes = bytes.get(2..)?;
                break;
            }
            length => bytes = bytes.get(1 + usize::from(length)..)?,
        }
    }
    let kind = u16::from_be_bytes([*bytes.first()?, *bytes.get(1)?]);
    let length = usize::from(u16::from_be_bytes([*bytes.get(8)?, *bytes.get(9)?]));
    let rest = bytes.get(10..)?;
    Some(((kind, rest.get(..length)?), &rest[length..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn servers_on_the_host_itself_are_none() {
        let text = "# made by hand\nnameserver 127.0.0.53\nnameserver 192.0.2.1 x\n\
            nameserver 2001:db8::1\nsearch example\nnameserver nonsense\nnameserver";
        let found: Vec<String> = servers_in(text).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["192.0.2.1", "2001:db8::1"]);
    }

    /// An alias, and then the address of what it stands for.
    #[test]
    fn addresses_are_found_behind_aliases() {
        let question = question("vpn.example.com", A).unwrap();
        let mut answer = question.clone();
        answer[2..4].copy_from_slice(&[0x81, 0x80]);
        answer[7] = 2;
        answer.extend([0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 9, 0, 4, 1, b'x', 0xc0, 16]);
        answer.extend([
            1, b'x', 0xc0, 16, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 192, 0, 2, 7,
        ]);
        let found = addresses(&answer, &question, A).unwrap();
        assert_eq!(found, [IpAddr::from([192, 0, 2, 7])]);
        assert_eq!(addresses(&answer, &question, AAAA), Some(vec![]));
        // Of another question, or no answer at all.
        answer[0] ^= 1;
        assert_eq!(addresses(&answer, &question, A), None);
        assert_eq!(addresses(&question, &question, A), None);
    }

    #[test]
    fn names_that_are_none_are_not_asked_for() {
        for host in ["", "a..b", &"x".repeat(64), &"abc.".repeat(200)] {
            assert_eq!(question(host, A), None, "{host}");
        }
    }

    proptest! {
        #[test]
        fn answers_never_panic(tail in proptest::collection::vec(any::<u8>(), 0..300), count: u16) {
            let question = question("vpn.example", A).unwrap();
            let mut answer = question.clone();
            answer[2] = 0x81;
            answer[6..8].copy_from_slice(&count.to_be_bytes());
            answer.extend(tail);
            let found = addresses(&answer, &question, A).unwrap();
            prop_assert!(found.len() <= answer.len() / 14);
            let _ = addresses(&answer[..answer.len() / 2], &question, AAAA);
        }
    }
}
