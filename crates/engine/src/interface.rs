//! Packets of the interface, many at a time: super-packets are cut after reading, and joined before writing.
//!
//! [`Reader`] and [`Writer`] are for tunnels that bypass the engine, because their keys depend on the order of packets.

use crate::alignment;
use crate::gro::{self, Coalescer, JOIN_MAX, Joins, Shape, Written};
use crate::gso::{Super, complete_checksum};
use netio::tun::{GsoKind, Tun, VNET_HDR_LEN, VnetHdr};
use std::io::{self, IoSlice};
use std::ops::Range;

/// Bytes of the longest super-packet, with its header.
const READ_MAX: usize = VNET_HDR_LEN + u16::MAX as usize;
/// Bytes gathered before a write.
const GATHERED: usize = 128 << 10;
/// EINVAL has this value on every Linux architecture.
const EINVAL: i32 = 22;

/// The result of writing a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Writes {
    pub(crate) calls: u64,
    pub(crate) super_packets: u64,
    /// Packets that the kernel refused.
    pub(crate) refused: u64,
}

/// Writes the gathered packets; writes them one by one where the kernel takes no super-packets.
pub(crate) fn write(tun: &Tun, coalescer: &mut Coalescer, memory: &mut [u8]) -> Writes {
    let mut writes = Writes::default();
    coalescer.drain(memory, |memory, hdr, gather| {
        writes.calls += 1;
        if gather.count == 1 {
            let single = gather.ranges().next().unwrap_or_default();
            writes.refused += u64::from(write_single(tun, memory, single).is_err());
            return Written::Done;
        }
        let mut ranges = gather.ranges().peekable();
        let hdr_bytes = match ranges.peek() {
            // The kernel copies `hdr_len` bytes into one place, and the rest into pages, from their beginnings on. So
            // the rest must begin on a word here, too.
            Some(first) if alignment::MATTERS => VnetHdr {
                hdr_len: alignment::up(first.clone(), hdr.hdr_len),
                ..*hdr
            }
            .emit(),
            _ => hdr.emit(),
        };
        let mut parts = [IoSlice::new(&[]); JOIN_MAX + 1];
        parts[0] = IoSlice::new(&hdr_bytes);
        let mut used = 1;
        for range in ranges {
            parts[used] = IoSlice::new(&memory[range]);
            used += 1;
        }
        let rung = if hdr.gso == GsoKind::Udp {
            &tun.uso
        } else {
            &tun.gro
        };
        match tun.write(&parts[..used]) {
            Ok(_) => {
                writes.super_packets += 1;
                rung.accepted();
            }
            Err(e) if e.raw_os_error() == Some(EINVAL) => {
                rung.rejected(format_args!("the kernel refused a super-packet: {e}"));
                return Written::Refused;
            }
            Err(_) => writes.refused += u64::from(gather.count),
        }
        Written::Done
    });
    writes
}

/// Writes a packet as it is. Its `virtio_net_hdr` goes directly in front of it, so that both are one part. If the
/// tunnel's header is shorter, those bytes belong to a packet still to be written; they are saved and restored.
fn write_single(tun: &Tun, memory: &mut [u8], packet: Range<usize>) -> io::Result<usize> {
    if !tun.vnet_hdr() {
        return tun.write(&[IoSlice::new(&memory[packet])]);
    }
    let hdr = VnetHdr::NONE.emit();
    let Some(from) = packet.start.checked_sub(VNET_HDR_LEN) else {
        return tun.write(&[IoSlice::new(&hdr), IoSlice::new(&memory[packet])]);
    };
    let before = from..from + VNET_HDR_LEN;
    let mut covered = [0; VNET_HDR_LEN];
    covered.copy_from_slice(&memory[before.clone()]);
    memory[before.clone()].copy_from_slice(&hdr);
    let written = tun.write(&[IoSlice::new(&memory[from..packet.end])]);
    memory[before].copy_from_slice(&covered);
    written
}

/// Reads packets from an interface.
pub struct Reader {
    memory: Vec<u8>,
    /// Scratch memory for the headers of a super-packet being cut.
    headers: Vec<u8>,
    malformed: u64,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}

impl Default for Reader {
    fn default() -> Self {
        Self::new()
    }
}

impl Reader {
    /// Allocates 64 KiB of memory for packets.
    #[must_use]
    pub fn new() -> Self {
        Self {
            memory: vec![0; READ_MAX],
            headers: Vec::new(),
            malformed: 0,
        }
    }

    /// Reads once and gives each packet to `each`. Returns the number of packets.
    ///
    /// # Errors
    /// The errors of [`Tun::read`].
    pub fn read(&mut self, tun: &Tun, mut each: impl FnMut(&[u8])) -> io::Result<usize> {
        let len = tun.read(&mut self.memory)?;
        let read = &mut self.memory[..len];
        if !tun.vnet_hdr() {
            each(read);
            return Ok(1);
        }
        let Some((hdr, packet)) =
            VnetHdr::parse(read).and_then(|hdr| Some((hdr, read.get_mut(VNET_HDR_LEN..)?)))
        else {
            self.malformed += 1;
            return Ok(0);
        };
        if hdr.gso == GsoKind::None {
            if !complete_checksum(packet, &hdr) {
                self.malformed += 1;
                return Ok(0);
            }
            each(packet);
            return Ok(1);
        }
        let Some(parsed) = Super::parse(packet, &hdr) else {
            self.malformed += 1;
            return Ok(0);
        };
        parsed.cut(packet, &mut self.headers, each);
        Ok(parsed.count())
    }

    /// Packets that were dropped because header and packet contradict each other.
    #[must_use]
    pub const fn malformed(&self) -> u64 {
        self.malformed
    }
}

/// Writes packets to an interface.
#[derive(Debug)]
pub struct Writer {
    coalescer: Coalescer,
    memory: Vec<u8>,
    refused: u64,
}

impl Default for Writer {
    fn default() -> Self {
        Self::new()
    }
}

impl Writer {
    /// A writer with no packets.
    #[must_use]
    pub fn new() -> Self {
        Self {
            coalescer: Coalescer::with_capacity(2 * JOIN_MAX),
            memory: Vec::with_capacity(GATHERED),
            refused: 0,
        }
    }

    /// Takes a packet and writes it at the next [`flush`](Self::flush) at the latest. Packets of one flow keep their
    /// order.
    pub fn push(&mut self, tun: &Tun, packet: &[u8]) {
        if self.memory.len() + packet.len() > GATHERED {
            self.flush(tun);
        }
        let joins = Joins {
            tcp: tun.gro.on(),
            udp: tun.uso.on(),
            most: JOIN_MAX,
        };
        // No packets can be joined, so none are inspected.
        let shape = if tun.vnet_hdr() && (joins.tcp || joins.udp) {
            gro::inspect(packet)
        } else {
            Shape::Plain
        };
        let start = self.memory.len() as u32;
        self.memory.extend_from_slice(packet);
        self.coalescer
            .push(&self.memory, start, packet.len() as u32, shape, joins);
    }

    /// Writes the packets taken so far.
    pub fn flush(&mut self, tun: &Tun) {
        if !self.memory.is_empty() {
            self.refused += write(tun, &mut self.coalescer, &mut self.memory).refused;
            self.memory.clear();
        }
    }

    /// Packets that the kernel refused.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum;
    use crate::ip::TCP;
    use crate::ip::tests::ipv4;
    use netio::simulated::Call;

    /// A packet of one flow, with `payload` bytes behind `seq`.
    fn tcp(seq: u32, payload: usize) -> Vec<u8> {
        let mut segment = vec![0x12, 0x34, 0x00, 0x50];
        segment.extend_from_slice(&seq.to_be_bytes());
        segment.extend_from_slice(&[0, 0, 0, 9, 0x50, 0x10, 0x10, 0, 0, 0, 0, 0]);
        segment.extend((0..payload).map(|at| (seq as usize + at) as u8));
        let mut packet = ipv4([10, 0, 0, 1], [10, 0, 0, 2], TCP, &segment);
        // Don't Fragment is set, so the IP identification does not matter.
        packet[6] = 0x40;
        checksum::write_ipv4(&mut packet[..20]);
        let sum = checksum::pseudo_header(&packet[12..20], TCP, packet.len() - 20);
        packet[36..38].copy_from_slice(&checksum::fold(sum).to_ne_bytes());
        let hdr = VnetHdr {
            needs_csum: true,
            csum_start: 20,
            csum_offset: 16,
            ..VnetHdr::NONE
        };
        assert!(complete_checksum(&mut packet, &hdr));
        packet
    }

    #[test]
    fn packets_of_one_flow_are_written_as_one_and_read_as_they_were() {
        let (tun, kernel) = Tun::simulated().unwrap();
        let packets: Vec<Vec<u8>> = (0..5).map(|at| tcp(at * 1000, 1000)).collect();
        let mut writer = Writer::new();
        for packet in &packets {
            writer.push(&tun, packet);
        }
        writer.flush(&tun);
        let mut bytes = vec![0; READ_MAX];
        let len = kernel.recv(&mut bytes).unwrap();
        let hdr = VnetHdr::parse(&bytes).unwrap();
        assert_eq!((hdr.gso, hdr.gso_size), (GsoKind::Tcp4, 1000));
        assert_eq!(len, VNET_HDR_LEN + 40 + 5000);
        assert_eq!(writer.refused(), 0);
        // Reads the super-packet back as the kernel would hand it over.
        kernel.send(&bytes[..len]).unwrap();
        let (mut reader, mut read) = (Reader::new(), Vec::new());
        let count = reader.read(&tun, |packet| read.push(packet.to_vec()));
        assert_eq!(count.unwrap(), 5);
        for (at, (read, sent)) in read.iter().zip(&packets).enumerate() {
            assert_eq!(read[40..], sent[40..], "{at}");
            let pseudo = checksum::pseudo_header(&read[12..20], TCP, read.len() - 20);
            let sum = checksum::add(pseudo, &read[20..]);
            assert_eq!(checksum::fold(sum), 0xffff, "{at}");
        }
        let nothing = reader.read(&tun, |_| panic!("nothing was sent"));
        assert_eq!(nothing.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_header_is_said_to_be_no_longer_than_the_super_packet_is() {
        let (tun, kernel) = Tun::simulated().unwrap();
        for (before, payload) in (1..=4).flat_map(|before| (1..=4).map(move |it| (before, it))) {
            let mut writer = Writer::new();
            writer.push(&tun, &vec![0x60; before]);
            for at in 0..2 {
                writer.push(&tun, &tcp(at * payload, payload as usize));
            }
            writer.flush(&tun);
            let mut bytes = vec![0; READ_MAX];
            kernel.recv(&mut bytes).unwrap();
            let len = kernel.recv(&mut bytes).unwrap() - VNET_HDR_LEN;
            let hdr = VnetHdr::parse(&bytes).unwrap();
            assert_eq!((hdr.gso, len), (GsoKind::Tcp4, 40 + 2 * payload as usize));
            // The kernel refuses a longer `hdr_len` (`drivers/net/tun.c`).
            let said = usize::from(hdr.hdr_len);
            assert!((40..=len).contains(&said), "{said} of {len}");
        }
    }

    #[test]
    fn a_refused_super_packet_leaves_the_packets_between_its_own_as_they_were() {
        let (tun, kernel) = Tun::simulated().unwrap();
        tun.faults.set(|call| match call {
            Call::Write { parts } if VnetHdr::parse(&parts[0])?.gso != GsoKind::None => {
                Some(Err(io::Error::from_raw_os_error(EINVAL)))
            }
            _ => None,
        });
        let (mut writer, mut other) = (Writer::new(), tcp(7000, 1000));
        // A packet of another flow; swapping these bytes leaves the checksum unchanged.
        other.swap(20, 22);
        other.swap(21, 23);
        // The second packet ends right before the third, which is written first.
        let packets = [tcp(0, 1000), other, tcp(1000, 1000)];
        for packet in &packets {
            writer.push(&tun, packet);
        }
        writer.flush(&tun);
        let mut bytes = vec![0; READ_MAX];
        for at in [0, 2, 1] {
            let len = kernel.recv(&mut bytes).unwrap();
            let (hdr, packet) = bytes[..len].split_at(VNET_HDR_LEN);
            assert_eq!(VnetHdr::parse(hdr), Some(VnetHdr::NONE));
            assert!(*packet == packets[at], "packet {at}");
        }
        assert_eq!(writer.refused(), 0);
        // The writer counts an ordinary packet that the kernel refuses.
        tun.faults
            .set(|_| Some(Err(io::Error::from_raw_os_error(EINVAL))));
        writer.push(&tun, &packets[0]);
        writer.flush(&tun);
        assert_eq!(writer.refused(), 1);
    }

    #[test]
    fn an_interface_without_headers_has_packets_one_by_one() {
        let (tun, kernel) = Tun::simulated().unwrap();
        let tun = tun.plain();
        let mut writer = Writer::new();
        let packets = [tcp(0, 100), tcp(100, 100), vec![0x60; 3], vec![]];
        for packet in &packets[..3] {
            writer.push(&tun, packet);
        }
        writer.flush(&tun);
        let mut bytes = vec![0; READ_MAX];
        for packet in &packets[..3] {
            let len = kernel.recv(&mut bytes).unwrap();
            assert_eq!(bytes[..len], *packet);
            kernel.send(packet).unwrap();
        }
        let mut reader = Reader::new();
        for packet in &packets[..3] {
            assert_eq!(
                reader.read(&tun, |read| assert_eq!(read, packet)).unwrap(),
                1
            );
        }
    }

    #[test]
    fn what_contradicts_itself_is_counted_and_dropped() {
        let (tun, kernel) = Tun::simulated().unwrap();
        let lie = VnetHdr {
            needs_csum: true,
            gso: GsoKind::Tcp4,
            gso_size: 1000,
            csum_start: 24,
            csum_offset: 16,
            ..VnetHdr::NONE
        };
        let outside = VnetHdr {
            gso: GsoKind::None,
            csum_start: 5000,
            ..lie
        };
        let mut reader = Reader::new();
        let packet = tcp(0, 2000);
        for hdr in [&lie.emit()[..], &outside.emit(), &[0; 4]] {
            let body: &[u8] = if hdr.len() < VNET_HDR_LEN {
                &[]
            } else {
                &packet
            };
            kernel.send(&[hdr, body].concat()).unwrap();
            assert_eq!(reader.read(&tun, |_| panic!("dropped")).unwrap(), 0);
        }
        assert_eq!(reader.malformed(), 3);
    }
}
