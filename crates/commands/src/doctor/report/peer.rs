//! Measures a running tunnel by echoes: the peer needs no program for them.

use netio::netlink::{Netlink, RouteLookup};
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
use nix::unistd::Uid;
use report::{Peer, Protocol};
use std::error::Error;
use std::io;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

/// Time of the measurement.
const TIME: Duration = Duration::from_secs(5);

/// An echo that takes longer is lost.
const SILENCE: Duration = Duration::from_secs(1);

/// Echoes on their way at once. A divisor of 65,536, so that numbers stay in their slots when they wrap.
const WINDOW: usize = 64;

/// Bytes of an ICMP message.
const MESSAGE: usize = 1200;

/// Bytes of an IPv4 header without options.
const IPV4: usize = 20;

/// Types of messages (RFC 792).
const ECHO: u8 = 8;
const ECHO_REPLY: u8 = 0;

/// Measures the tunnel that leads to an address.
pub(super) fn measure(to: Ipv4Addr) -> Result<Peer, Box<dyn Error>> {
    if !Uid::effective().is_root() {
        return Err("run this as root: --with-peer sends echo requests".into());
    }
    let mut netlink = Netlink::open()?;
    let RouteLookup { dev, .. } = netlink.route_get(IpAddr::V4(to), 0)?;
    let device = netlink.name_of(dev)?;
    let statuses = crate::status::now()?;
    let status = statuses.into_iter().find(|it| it.interface == device);
    let protocol = status.and_then(|it| Protocol::named(&it.protocol));
    let protocol = protocol.ok_or_else(|| {
        format!("{to} is reached through {device}, which is no running tunnel; name the peer's address in the tunnel")
    })?;
    Echoes::new(to)?
        .measure(protocol)
        .map_err(|error| format!("{to}: {error}").into())
}

/// Echo requests to one address, each in a slot by its number.
struct Echoes {
    socket: UdpSocket,
    id: u16,
    /// The number of each slot's request, and its time.
    slots: [(u16, Instant); WINDOW],
}

impl Echoes {
    fn new(to: Ipv4Addr) -> io::Result<Self> {
        let kind = (AddressFamily::Inet, SockType::Raw, SockFlag::SOCK_CLOEXEC);
        let socket = socket(kind.0, kind.1, kind.2, SockProtocol::Icmp)?;
        // Sending and receiving are the same calls as for UDP.
        let socket = UdpSocket::from(socket);
        socket.connect((to, 0))?;
        socket.set_read_timeout(Some(SILENCE))?;
        Ok(Self {
            socket,
            id: (std::process::id() & 0xffff) as u16,
            slots: std::array::from_fn(|slot| (slot as u16, Instant::now())),
        })
    }

    fn measure(mut self, protocol: Protocol) -> io::Result<Peer> {
        let begun = Instant::now();
        let (mut lost, mut back, mut waited) = (0_u32, 0_u32, Duration::ZERO);
        for slot in 0..WINDOW {
            self.send(slot)?;
        }
        // Slots are looked at in turn, to notice lost echoes.
        let mut turn = 0;
        while begun.elapsed() < TIME {
            if let Some(slot) = self.receive()? {
                back += 1;
                waited += self.slots[slot].1.elapsed();
                self.renew(slot)?;
            } else if back == 0 && begun.elapsed() > 2 * SILENCE {
                let words = "no echo came back; does a firewall drop pings?";
                return Err(io::Error::new(io::ErrorKind::TimedOut, words));
            }
            turn = (turn + 1) % WINDOW;
            if self.slots[turn].1.elapsed() > SILENCE {
                lost += 1;
                self.renew(turn)?;
            }
        }
        let milliseconds = begun.elapsed().as_millis().max(1) as u64;
        let bytes = (IPV4 + MESSAGE) as u64;
        let rate = u64::from(back) * bytes * 8 / milliseconds;
        let mean = waited.as_micros() / u128::from(back.max(1));
        Ok(Peer {
            protocol,
            bytes: bytes as u16,
            kilobits_per_second: u32::try_from(rate).unwrap_or(u32::MAX),
            milliseconds: u32::try_from(milliseconds).unwrap_or(u32::MAX),
            echoes: back,
            lost,
            microseconds: u32::try_from(mean).unwrap_or(u32::MAX),
        })
    }

    /// Sends a slot's next request.
    fn renew(&mut self, slot: usize) -> io::Result<()> {
        self.slots[slot].0 = self.slots[slot].0.wrapping_add(WINDOW as u16);
        self.send(slot)
    }

    fn send(&mut self, slot: usize) -> io::Result<()> {
        let number = self.slots[slot].0;
        let mut message = [0; MESSAGE];
        message[0] = ECHO;
        message[4..6].copy_from_slice(&self.id.to_be_bytes());
        message[6..8].copy_from_slice(&number.to_be_bytes());
        // All other words are zero.
        let sum = (u32::from(ECHO) << 8) + u32::from(self.id) + u32::from(number);
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = (sum & 0xffff) + (sum >> 16);
        message[2..4].copy_from_slice(&(!(sum as u16)).to_be_bytes());
        self.slots[slot].1 = Instant::now();
        match self.socket.send(&message) {
            // A full queue is a lost echo.
            Err(error) if error.raw_os_error() != Some(nix::libc::ENOBUFS) => Err(error),
            _ => Ok(()),
        }
    }

    /// Waits for a message; returns the slot whose request it answers.
    fn receive(&self) -> io::Result<Option<usize>> {
        let mut packet = [0; 2048];
        let packet = match self.socket.recv(&mut packet) {
            Ok(count) => &packet[..count],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(answer(packet, self.id).and_then(|number| {
            let slot = usize::from(number) % WINDOW;
            (self.slots[slot].0 == number).then_some(slot)
        }))
    }
}

/// The number of the request that an IPv4 packet answers.
fn answer(packet: &[u8], id: u16) -> Option<u16> {
    let header = usize::from(packet.first()? & 0xf) * 4;
    let message = packet.get(header..header + 8)?;
    let word = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
    (message[0] == ECHO_REPLY && word(4) == id).then(|| word(6))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_answers_to_own_requests_count() {
        let mut packet = [0; 28];
        packet[0] = 0x45;
        packet[24..].copy_from_slice(&[0x12, 0x34, 0xab, 0xcd]);
        assert_eq!(answer(&packet, 0x1234), Some(0xabcd));
        assert_eq!(answer(&packet, 0x1235), None);
        assert_eq!(answer(&packet[..27], 0x1234), None);
        packet[20] = ECHO;
        assert_eq!(answer(&packet, 0x1234), None);
        assert_eq!(answer(&[0x4f; 30], 0x1234), None);
        assert_eq!(answer(&[], 0x1234), None);
    }
}
