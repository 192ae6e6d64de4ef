//! Pings sent by the test itself, which waits as long as needed for a late answer.

use std::io;
use std::net::{IpAddr, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::Host;

use super::content::Content;
use super::{PATIENCE, ip, until, until_within};

/// Asserts that `count` pings are all answered; each is sent as soon as the one before was answered. (`ping` waits
/// for its last answer only twice the longest other round trip, too short on a busy machine.)
pub fn pings(host: &Host, target: &str, count: u16) {
    pings_of(host, target, count, 56);
}

/// Pings as [`pings`] does, with `size` bytes of data in each.
pub fn pings_of(host: &Host, target: &str, count: u16, size: usize) {
    let answers = host.run(|| {
        let socket = echo_socket(ip(target))?;
        (1..=count).try_for_each(|number| echo(&socket, number, size, PATIENCE))
    });
    answers
        .unwrap()
        .unwrap_or_else(|error| panic!("ping {target} from {}: {error}", host.name()));
}

/// Waits until three pings in a row are answered, for peers that lose some.
pub fn reaches(host: &Host, target: &str) {
    reaches_within(PATIENCE, host, target);
}

/// Waits for at most `limit` until three pings in a row are answered.
pub fn reaches_within(limit: Duration, host: &Host, target: &str) {
    until_within(limit, target, || {
        let try_once = || {
            let socket = echo_socket(ip(target))?;
            (1..=3).try_for_each(|number| echo(&socket, number, 56, Duration::from_secs(1)))
        };
        host.run(try_once).unwrap().is_ok()
    });
}

/// Pings without a pause until the first answer, and returns the time until then. Each ping waits for its answer a quarter
/// of the time so far, as a busy machine answers late.
pub fn until_answer(host: &Host, target: &str) -> Duration {
    let start = Instant::now();
    until(target, || {
        let patience = (start.elapsed() / 4).max(Duration::from_millis(100));
        let once = || echo(&echo_socket(ip(target))?, 1, 56, patience);
        host.run(once).unwrap().is_ok()
    });
    start.elapsed()
}

/// Opens a raw ICMP socket of the target's family. It sends and receives ICMP messages, only to and from the target,
/// like a connected UDP socket.
fn echo_socket(target: IpAddr) -> io::Result<UdpSocket> {
    use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
    let (family, protocol) = match target {
        IpAddr::V4(_) => (AddressFamily::Inet, SockProtocol::Icmp),
        IpAddr::V6(_) => (AddressFamily::Inet6, SockProtocol::IcmpV6),
    };
    let socket = socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
    let socket = UdpSocket::from(socket);
    socket.connect((target, 0))?;
    Ok(socket)
}

/// Sends one echo request and waits for its answer.
fn echo(socket: &UdpSocket, number: u16, size: usize, patience: Duration) -> io::Result<()> {
    // A different identifier for every socket, so that none takes another's answer.
    static IDENTITIES: AtomicU32 = AtomicU32::new(1);
    let identity = IDENTITIES.fetch_add(1, Ordering::Relaxed) as u16;
    let four = socket.local_addr()?.is_ipv4();
    let (request, reply) = if four { (8, 0) } else { (128, 129) };
    let mut message = vec![0; 8 + size];
    Content(u64::from(identity) + 1).fill(&mut message[8..]);
    message[0] = request;
    message[4..6].copy_from_slice(&identity.to_be_bytes());
    message[6..8].copy_from_slice(&number.to_be_bytes());
    if four {
        // For ICMPv6 the kernel computes the checksum.
        let sum = internet_checksum(&message);
        message[2..4].copy_from_slice(&sum);
    }
    socket.send(&message)?;
    let end = Instant::now() + patience;
    let mut buffer = vec![0; 65_536];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let words = format!("number {number} was not answered");
            return Err(io::Error::new(io::ErrorKind::TimedOut, words));
        }
        socket.set_read_timeout(Some(left))?;
        let length = match socket.recv(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            other => other?,
        };
        // IPv4 raw sockets deliver the IP header too.
        let header = if four {
            usize::from(buffer[0] & 15) * 4
        } else {
            0
        };
        let answer = &buffer[header..length];
        if answer.len() == message.len() && answer[0] == reply && answer[4..] == message[4..] {
            return Ok(());
        }
    }
}

/// Computes the RFC 1071 checksum of a message whose checksum field is zero.
pub fn internet_checksum(bytes: &[u8]) -> [u8; 2] {
    let mut sum: u32 = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | pair.get(1).copied().map_or(0, u32::from))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}
