//! Joins packets into super-packets without copying the payload.

use std::io::IoSlice;
use std::ops::Range;

use netio::tun::{GsoKind, VnetHdr};

use super::packet::{Headers, fold};

/// Longest IP packet.
const PACKET_MAX: usize = 65_535;
/// Maximum number of packets in one UDP super-packet, by the kernel's rule; TCP never reaches it.
const SEGMENTS_MAX: usize = 64;

const TCP_FLAGS: usize = 13;
const TCP_ACK: u8 = 0x10;
const TCP_PSH: u8 = 0x08;

/// Joins consecutive packets of the same flow.
#[derive(Debug)]
pub(super) struct Joiner {
    vnet: bool,
}

/// A super-packet in the making.
struct Group {
    headers: Headers,
    /// The positions of the group's packets.
    packets: Vec<Range<usize>>,
    /// Payload bytes of every packet but the last.
    size: usize,
    /// Total bytes, counting the headers once.
    length: usize,
    /// The TCP sequence number that must follow.
    next: u32,
    /// Whether the group is complete: a short packet or one with PSH ends it.
    closed: bool,
}

impl Joiner {
    pub(super) fn new(vnet: bool) -> Self {
        Self { vnet }
    }

    /// Writes the packets at these positions, joined where possible.
    pub(super) fn write(
        &mut self,
        memory: &[u8],
        packets: impl Iterator<Item = Range<usize>>,
        mut write: impl FnMut(&[IoSlice<'_>]),
    ) {
        let mut group: Option<Group> = None;
        for place in packets {
            let packet = &memory[place.clone()];
            let started = self
                .vnet
                .then(|| Group::start(packet, place.clone()))
                .flatten();
            let Some(started) = started else {
                flush(&mut group, memory, &mut write);
                self.single(packet, &mut write);
                continue;
            };
            let joined = group
                .as_mut()
                .is_some_and(|group| group.join(memory, packet, &started));
            if !joined {
                flush(&mut group, memory, &mut write);
                group = Some(started);
            }
        }
        flush(&mut group, memory, &mut write);
    }

    fn single(&self, packet: &[u8], write: &mut impl FnMut(&[IoSlice<'_>])) {
        let header = VnetHdr::NONE.emit();
        if self.vnet {
            write(&[IoSlice::new(&header), IoSlice::new(packet)]);
        } else {
            write(&[IoSlice::new(packet)]);
        }
    }
}

fn flush(group: &mut Option<Group>, memory: &[u8], write: &mut impl FnMut(&[IoSlice<'_>])) {
    if let Some(group) = group.take() {
        group.write(memory, write);
    }
}

impl Group {
    /// Starts a group with one packet, if its kind can be joined and its checksums are correct.
    fn start(packet: &[u8], place: Range<usize>) -> Option<Self> {
        let headers = Headers::parse(packet)?;
        let size = packet.len() - headers.payload;
        let mut group = Self {
            headers,
            packets: vec![place],
            size,
            length: packet.len(),
            next: 0,
            closed: false,
        };
        if !headers.udp {
            let tcp = &packet[headers.transport..];
            if tcp[TCP_FLAGS] & !TCP_PSH != TCP_ACK {
                return None;
            }
            group.closed = tcp[TCP_FLAGS] & TCP_PSH != 0;
            group.next = sequence(tcp).wrapping_add(size as u32);
        }
        (size > 0 && headers.verify(packet)).then_some(group)
    }

    /// Adds a packet if it continues this group.
    fn join(&mut self, memory: &[u8], packet: &[u8], other: &Self) -> bool {
        let payload = packet.len() - other.headers.payload;
        let fits = !self.closed
            && other.headers == self.headers
            && payload <= self.size
            && self.length + payload <= PACKET_MAX
            && self.packets.len() < SEGMENTS_MAX;
        let first = &memory[self.packets[0].clone()];
        if !fits || !same_flow(&self.headers, first, packet) {
            return false;
        }
        if !self.headers.udp && sequence(&packet[self.headers.transport..]) != self.next {
            return false;
        }
        self.closed = other.closed || payload < self.size;
        self.next = other.next;
        self.length += payload;
        self.packets.extend_from_slice(&other.packets);
        true
    }

    fn write(&self, memory: &[u8], write: &mut impl FnMut(&[IoSlice<'_>])) {
        let headers = &self.headers;
        let first = &memory[self.packets[0].clone()];
        if let [_] = self.packets[..] {
            let header = VnetHdr::NONE.emit();
            write(&[IoSlice::new(&header), IoSlice::new(first)]);
            return;
        }
        let mut header = first[..headers.payload].to_vec();
        headers.set_lengths(&mut header, self.length);
        if !headers.udp && self.closed {
            let last = &memory[self.packets[self.packets.len() - 1].clone()];
            header[headers.transport + TCP_FLAGS] |= last[headers.transport + TCP_FLAGS] & TCP_PSH;
        }
        // The kernel completes the checksum if it needs it.
        let field = headers.checksum_field();
        let pseudo = fold(headers.pseudo(&header, self.length));
        header[field..field + 2].copy_from_slice(&pseudo.to_ne_bytes());
        let vnet = VnetHdr {
            needs_csum: true,
            gso: match (headers.udp, headers.v6) {
                (true, _) => GsoKind::Udp,
                (false, false) => GsoKind::Tcp4,
                (false, true) => GsoKind::Tcp6,
            },
            gso_ecn: false,
            hdr_len: headers.payload as u16,
            gso_size: self.size as u16,
            csum_start: headers.transport as u16,
            csum_offset: headers.checksum_offset() as u16,
        }
        .emit();
        let payloads = self
            .packets
            .iter()
            .map(|place| &memory[place.start + headers.payload..place.end]);
        let parts: Vec<IoSlice<'_>> = [vnet.as_slice(), &header]
            .into_iter()
            .chain(payloads)
            .map(IoSlice::new)
            .collect();
        write(&parts);
    }
}

fn sequence(tcp: &[u8]) -> u32 {
    u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]])
}

/// Whether two packets differ only in lengths, numbers, PSH and checksums.
fn same_flow(headers: &Headers, a: &[u8], b: &[u8]) -> bool {
    let same = |range: Range<usize>| a[range.clone()] == b[range];
    let t = headers.transport;
    let network = if headers.v6 {
        same(0..4) && same(6..40)
    } else {
        same(0..2) && same(6..10) && same(12..t)
    };
    let transport = if headers.udp {
        same(t..t + 4)
    } else {
        same(t..t + 4)
            && same(t + 8..t + 13)
            && same(t + 14..t + 16)
            && same(t + 18..headers.payload)
    };
    network && transport
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forwarder::cut::Cutter;
    use crate::forwarder::packet::tests::packet;

    /// Joins packets and returns what the joiner writes.
    fn join(packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let memory = packets.concat();
        let mut at = 0;
        let places = packets.iter().map(|packet| {
            at += packet.len();
            at - packet.len()..at
        });
        let mut out = Vec::new();
        Joiner::new(true).write(&memory, places, |parts| {
            out.push(parts.iter().flat_map(|part| part.iter().copied()).collect());
        });
        out
    }

    #[test]
    fn what_is_joined_cuts_into_what_it_was() {
        for (v6, udp) in [(false, false), (true, false), (true, true)] {
            let packets: Vec<_> = (0..5u32)
                .map(|i| {
                    packet(
                        v6,
                        udp,
                        1000 * i,
                        &[i as u8; 1000][..1000 - 300 * (i as usize / 4)],
                    )
                })
                .collect();
            let joined = join(&packets);
            assert_eq!(joined.len(), 1, "v6 {v6} udp {udp}");
            let mut cutter = Cutter::new(true);
            cutter.add(&joined[0]);
            let expected = packets.concat();
            assert!(cutter.bytes() == expected, "v6 {v6} udp {udp}");
        }
    }

    #[test]
    fn gaps_damage_and_other_flows_are_not_joined() {
        let one = packet(false, false, 0, &[1; 100]);
        let next = packet(false, false, 100, &[2; 100]);
        let late = packet(false, false, 200, &[3; 100]);
        assert_eq!(join(&[one.clone(), next.clone()]).len(), 1);
        assert_eq!(join(&[one.clone(), late]).len(), 2);
        let mut damaged = next.clone();
        *damaged.last_mut().unwrap() ^= 1;
        assert!(join(&[one.clone(), damaged.clone()])[1][10..] == damaged);
        let udp = packet(false, true, 0, &[2; 100]);
        assert_eq!(join(&[one, udp, next]).len(), 3);
        assert_eq!(join(&[vec![], vec![0x45; 10]]).len(), 2);
    }
}
