//! Datagrams with any source address, as an attacker on the path sends them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::{Host, Process};
use netio::packet::{FrameBatch, NOTE_SIZE, PacketSocket};

use crate::acceptance::internet_checksum;

const ETHERNET: usize = 14;
const IP: usize = 20;
const UDP: usize = 8;

/// Offset of the payload in an IPv4 frame.
pub const PAYLOAD: usize = ETHERNET + IP + UDP;

/// Datagrams per batch of a flood.
const BATCH: usize = 32;

/// Reads the MAC address of a host's interface.
pub fn mac_of(host: &Host, interface: &str) -> [u8; 6] {
    let link = host.netlink().unwrap().link(interface).unwrap();
    link.mac.try_into().unwrap()
}

/// Builds a frame with a UDP datagram, from these MAC addresses, IP addresses and ports.
pub fn frame(
    macs: [[u8; 6]; 2],
    from: (impl Into<IpAddr>, u16),
    to: (impl Into<IpAddr>, u16),
    payload: &[u8],
) -> Vec<u8> {
    let length = (UDP + payload.len()) as u16;
    let mut datagram = Vec::with_capacity(UDP + payload.len());
    datagram.extend(from.1.to_be_bytes());
    datagram.extend(to.1.to_be_bytes());
    datagram.extend(length.to_be_bytes());
    // UDP without a checksum, which IPv4 permits.
    datagram.extend([0, 0]);
    datagram.extend(payload);
    let mut frame = [macs[1], macs[0]].concat();
    match (from.0.into(), to.0.into()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            frame.extend([0x08, 0x00, 0x45, 0]);
            frame.extend((length + IP as u16).to_be_bytes());
            frame.extend([0, 0, 0, 0, 64, 17, 0, 0]);
            frame.extend(from.octets());
            frame.extend(to.octets());
            header_checksum(&mut frame);
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(length.to_be_bytes());
            frame.extend([17, 64]);
            frame.extend(from.octets());
            frame.extend(to.octets());
            let (from, to) = (from.octets(), to.octets());
            let ends = [
                &from[..],
                &to,
                &[0, 0],
                &length.to_be_bytes(),
                &[0, 0, 0, 17],
            ];
            let sum = internet_checksum(&[&ends.concat()[..], &datagram].concat());
            datagram[6..8].copy_from_slice(&sum);
        }
        families => panic!("a datagram has one family: {families:?}"),
    }
    frame.extend(datagram);
    frame
}

/// Completes the checksum of a frame's IPv4 header.
pub fn header_checksum(frame: &mut [u8]) {
    let header = &mut frame[ETHERNET..ETHERNET + IP];
    header[10..12].fill(0);
    let sum = internet_checksum(header);
    header[10..12].copy_from_slice(&sum);
}

/// Writes `mac1` into a WireGuard handshake message, which ends with room for two MACs. Any sender that knows the
/// receiver's public key can compute it.
pub fn sign(message: &mut [u8], public_key: &[u8; 32]) {
    let at = message.len() - 32;
    let key = crypto::blake2s::hash(&[b"mac1----", public_key]);
    let mac = crypto::blake2s::mac(&key, &[&message[..at]]);
    message[at..at + 16].copy_from_slice(&mac);
    message[at + 16..].fill(0);
}

/// Builds a forged initiation that the receiver can only recognize by decrypting it.
pub fn initiation(random: &mut Random, public_key: &[u8; 32]) -> Vec<u8> {
    let mut message = random.bytes(148);
    message[..4].copy_from_slice(&[1, 0, 0, 0]);
    sign(&mut message, public_key);
    message
}

/// A reproducible generator of random bytes.
pub struct Random(pub u64);

impl Random {
    /// Returns the next 64 bits.
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Fills a buffer.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            *byte = (self.number() >> 32) as u8;
        }
    }

    /// Returns `length` random bytes.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.fill(&mut bytes);
        bytes
    }

    /// Returns a random port and an address in 11.0.0.0/8 or 2001:db8::/32, of the family of `to`.
    fn source(&mut self, to: IpAddr) -> (IpAddr, u16) {
        let address = match to {
            IpAddr::V4(_) => Ipv4Addr::from(0x0b00_0000 | self.number() as u32 >> 8).into(),
            IpAddr::V6(_) => {
                let (net, host) = (self.number() >> 32, self.number());
                Ipv6Addr::from(0x2001_0db8 << 96 | u128::from(net) << 64 | u128::from(host)).into()
            }
        };
        (address, self.number() as u16 | 1)
    }
}

/// How a flood sends.
#[derive(Clone, Copy)]
pub enum Pace {
    /// Makes 32 new datagrams, sends them, and sleeps for this long.
    New(Duration),
    /// Sends 50,000 datagrams a second, or as many as the machine can: repeats [`PREPARED`] of them, in batches.
    Repeat,
}

/// Datagrams that a fast flood prepares and repeats: several seconds' worth of sources for a limit per source.
const PREPARED: usize = 32_768;

/// Datagrams of a fast flood in 1.28 ms.
const FAST_BATCH: (usize, Duration) = (netio::packet::BATCH, Duration::from_micros(1280));

/// A flood of datagrams to one port, each from a random address and port of 11.0.0.0/8 or 2001:db8::/32, until the
/// value is dropped.
pub struct Flood {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Flood {
    /// Starts a flood to these addresses in turn. `next` makes each payload.
    pub fn begin(
        (from, interface): (&Host, &str),
        (to, its_interface): (&Host, &str),
        (at, port): (Vec<IpAddr>, u16),
        pace: Pace,
        mut next: impl FnMut(&mut Random) -> Vec<u8> + Send + 'static,
    ) -> Self {
        let macs = [mac_of(from, interface), mac_of(to, its_interface)];
        let open = || PacketSocket::open(interface);
        let socket = from.run(open).unwrap().unwrap();
        let mut random = Random(7);
        let mut make = move |count: usize| -> Vec<Vec<u8>> {
            let one =
                |to: &IpAddr| frame(macs, random.source(*to), (*to, port), &next(&mut random));
            at.iter().cycle().take(count).map(one).collect()
        };
        let (count, size) = match pace {
            Pace::New(_) => (0, BATCH),
            Pace::Repeat => (PREPARED, FAST_BATCH.0),
        };
        let prepared = make(count);
        let (stop, sent) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (ends, counts) = (Arc::clone(&stop), Arc::clone(&sent));
        let thread = thread::spawn(move || {
            let mut due = Instant::now();
            for start in (0..count.max(1)).step_by(size).cycle() {
                if ends.load(Ordering::Relaxed) {
                    break;
                }
                let new = if count == 0 { make(size) } else { Vec::new() };
                let frames = prepared.get(start..start + size).unwrap_or(&new);
                let noted: Vec<_> = frames
                    .iter()
                    .map(|f| ([0; NOTE_SIZE], f.as_slice()))
                    .collect();
                if let Ok(count) = socket.send_batch(&noted) {
                    counts.fetch_add(count as u64, Ordering::Relaxed);
                }
                match pace {
                    Pace::New(pace) => thread::sleep(pace),
                    Pace::Repeat => {
                        // Late batches follow without a pause.
                        due += FAST_BATCH.1;
                        thread::sleep(due.saturating_duration_since(Instant::now()));
                    }
                }
            }
        });
        Self {
            stop,
            sent,
            thread: Some(thread),
        }
    }

    /// Number of datagrams sent so far.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            // A second panic would hide the first one's message.
            assert!(ended.is_ok() || thread::panicking(), "the flood failed");
        }
    }
}

/// A UDP datagram seen by a tap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// The source address.
    pub from: IpAddr,
    /// The first byte of the datagram's payload.
    pub kind: u8,
    /// Bytes of the datagram's payload.
    pub length: usize,
}

/// The datagrams from this source port that the tap has seen since the last call.
pub fn seen(tap: &PacketSocket, port: u16) -> Vec<Seen> {
    let (mut batch, mut seen) = (FrameBatch::new(1 << 16), Vec::new());
    while tap.receive(&mut batch).unwrap() > 0 {
        seen.extend(batch.frames().filter_map(|it| datagram(it.frame, port)));
    }
    seen
}

/// Parses the UDP datagram in a frame; `None` unless its source is this port.
fn datagram(frame: &[u8], port: u16) -> Option<Seen> {
    let packet = frame.get(ETHERNET..)?;
    let (from, protocol, rest) = match frame.get(12..14)? {
        [0x08, 0x00] => {
            let from: [u8; 4] = packet.get(12..16)?.try_into().ok()?;
            (IpAddr::from(from), packet.get(9)?, packet.get(IP..)?)
        }
        [0x86, 0xdd] => {
            let from: [u8; 16] = packet.get(8..24)?.try_into().ok()?;
            (IpAddr::from(from), packet.get(6)?, packet.get(40..)?)
        }
        _ => return None,
    };
    let payload = rest.get(UDP..)?;
    let ours = *protocol == 17 && rest[..2] == port.to_be_bytes();
    ours.then(|| Seen {
        from,
        kind: payload.first().copied().unwrap_or_default(),
        length: payload.len(),
    })
}

/// Anonymous memory of a process, that is, not backed by files, in bytes.
pub fn anonymous_memory(process: &Process) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kilobytes = line.and_then(|it| it.trim().strip_suffix(" kB"));
    kilobytes.unwrap().trim().parse::<u64>().unwrap() * 1024
}

/// UDP datagrams that programs of a host have received, over IPv4 and IPv6, by the kernel's counters.
pub fn datagrams_received(host: &Host) -> [u64; 2] {
    let read = |file: &str| std::fs::read_to_string(format!("/proc/thread-self/net/{file}"));
    let texts = host.run(|| [read("snmp").unwrap(), read("snmp6").unwrap()]);
    let [v4, v6] = texts.unwrap();
    let v4 = v4.lines().filter(|line| line.starts_with("Udp:")).nth(1);
    let v6 = v6.lines().find(|line| line.starts_with("Udp6InDatagrams"));
    [v4, v6].map(|line| {
        let number = line.and_then(|it| it.split_whitespace().nth(1));
        number.unwrap().parse().unwrap()
    })
}
