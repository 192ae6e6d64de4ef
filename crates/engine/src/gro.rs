//! Joining packets of one flow into super-packets, so that the TUN is written once for many.
//!
//! Only what the kernel's own GRO would join is joined: packets of one TCP or UDP flow that follow
//! each other without a gap, whose headers differ in nothing but numbers and checksums. Payloads
//! are not moved: a super-packet is gathered from where its packets lie.
//!
//! A super-packet's checksum is half done, which tells the kernel not to check it. So each packet's own checksum is
//! verified before joining; otherwise joining would hide damage that happened before the tunnel.

mod flow;

use crate::checksum;
use crate::ip::{IPV6_HEADER, TCP, UDP};
use flow::{Item, same_flow};
use netio::tun::{GsoKind, VnetHdr};

/// Maximum length of a joined packet's headers, in bytes: IPv6 and the longest TCP header.
const HEADER_MAX: usize = IPV6_HEADER + 60;

/// Maximum number of packets in one super-packet: the kernel's limit for UDP (`UDP_MAX_SEGMENTS`).
pub(crate) const JOIN_MAX: usize = 64;

/// Earlier flows that a packet is compared with.
const FLOWS: usize = 8;

const TCP_ACK: u8 = 0x10;
const TCP_PSH: u8 = 0x08;

/// A packet's role for the coalescer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A packet that is written as it is; no packet of its flow may overtake it.
    Plain,
    /// A TCP or UDP packet that ends the joining of its flow (pure ACK, SYN, bad checksum…).
    Barrier(u32),
    /// A packet that may be joined with others of its flow.
    Flow {
        /// Hash of addresses and ports.
        hash: u32,
        udp: bool,
        v6: bool,
        /// Bytes of all headers.
        header: u16,
    },
}

/// Inspects one inner packet and, if it might be joined, verifies its checksum.
pub(crate) fn inspect(packet: &[u8]) -> Shape {
    let Some(&first) = packet.first() else {
        return Shape::Plain;
    };
    let (v6, l4, protocol, addresses) = match first {
        // A packet with IP options is not joined: bulk traffic has none.
        0x45 if packet.len() >= 28 => {
            let fragment = u16::from_be_bytes([packet[6], packet[7]]) & 0x3fff != 0;
            if fragment {
                return Shape::Plain;
            }
            (false, 20, packet[9], 12..20)
        }
        _ if first >> 4 == 6 && packet.len() >= IPV6_HEADER + 8 => {
            (true, IPV6_HEADER, packet[6], 8..40)
        }
        _ => return Shape::Plain,
    };
    if protocol != TCP && protocol != UDP {
        return Shape::Plain;
    }
    let udp = protocol == UDP;
    let hash = flow_hash(&packet[addresses.clone()], &packet[l4..l4 + 4]);
    let barrier = Shape::Barrier(hash);
    let rest = &packet[l4..];
    let header = if udp {
        let stated = usize::from(u16::from_be_bytes([rest[4], rest[5]]));
        // Zero means that the sender computed no checksum, and a super-packet would add one.
        if stated != rest.len() || rest[6..8] == [0, 0] {
            return barrier;
        }
        l4 + 8
    } else {
        if rest.len() < 20 {
            return barrier;
        }
        let offset = usize::from(rest[12] >> 4) * 4;
        // Only plain data may be joined: any other flag has its own meaning.
        if offset < 20 || offset > rest.len() || rest[13] & !TCP_PSH != TCP_ACK {
            return barrier;
        }
        l4 + offset
    };
    if packet.len() == header {
        return barrier;
    }
    if !v6 && checksum::fold(checksum::add(0, &packet[..20])) != 0xffff {
        return barrier;
    }
    let pseudo = checksum::pseudo_header(&packet[addresses], protocol, rest.len());
    if checksum::fold(checksum::add(pseudo, rest)) != 0xffff {
        return barrier;
    }
    Shape::Flow {
        hash,
        udp,
        v6,
        header: header as u16,
    }
}

fn flow_hash(addresses: &[u8], ports: &[u8]) -> u32 {
    // A collision costs only a comparison, so any mixing function will do.
    let mut h = 0x9e37_79b9_u32;
    for word in addresses
        .as_chunks::<4>()
        .0
        .iter()
        .chain(ports.as_chunks::<4>().0)
    {
        h = (h ^ u32::from_ne_bytes(*word))
            .wrapping_mul(0x85eb_ca6b)
            .rotate_left(13);
    }
    h
}

/// One packet's place in memory.
#[derive(Clone, Copy, Debug)]
struct Part {
    start: u32,
    len: u32,
    /// The next part of the same super-packet; [`END`] for none.
    next: u32,
}

const END: u32 = u32::MAX;

/// Collects packets in order and yields writes.
#[derive(Debug)]
pub(crate) struct Coalescer {
    items: Vec<Item>,
    parts: Vec<Part>,
}

/// Which joins are allowed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joins {
    pub(crate) tcp: bool,
    pub(crate) udp: bool,
    /// Maximum number of packets in one super-packet.
    pub(crate) most: usize,
}

impl Coalescer {
    pub(crate) fn with_capacity(packets: usize) -> Self {
        Self {
            items: Vec::with_capacity(packets),
            parts: Vec::with_capacity(packets),
        }
    }

    /// Adds the packet `memory[start..start + len]`.
    pub(crate) fn push(&mut self, memory: &[u8], start: u32, len: u32, shape: Shape, joins: Joins) {
        let part = self.parts.len() as u32;
        self.parts.push(Part {
            start,
            len,
            next: END,
        });
        match shape {
            Shape::Plain => {}
            Shape::Barrier(hash) => self.close(hash),
            Shape::Flow {
                hash,
                udp,
                v6,
                header,
            } => {
                let allowed = if udp { joins.udp } else { joins.tcp };
                if allowed {
                    if self.join(memory, part, hash, joins.most.min(JOIN_MAX)) {
                        return;
                    }
                    self.close(hash);
                    self.items.push(start_flow(
                        memory,
                        part,
                        start,
                        len,
                        (hash, udp, v6, header),
                    ));
                    return;
                }
            }
        }
        self.items.push(Item {
            hash: 0,
            open: false,
            flow: false,
            udp: false,
            v6: false,
            header: 0,
            size: 0,
            next_seq: 0,
            next_id: 0,
            total: len,
            count: 1,
            first: part,
            last: part,
        });
    }

    fn close(&mut self, hash: u32) {
        for item in self.items.iter_mut().filter(|i| i.open && i.hash == hash) {
            item.open = false;
        }
    }

    /// Joins `part` to the open super-packet of its flow, if there is one and it fits.
    fn join(&mut self, memory: &[u8], part: u32, hash: u32, most: usize) -> bool {
        let parts = &mut self.parts;
        let found = self
            .items
            .iter_mut()
            .rev()
            .filter(|i| i.open)
            .take(FLOWS)
            .find(|i| i.hash == hash);
        let Some(item) = found else {
            return false;
        };
        let place = |p: Part| &memory[p.start as usize..(p.start + p.len) as usize];
        let new = place(parts[part as usize]);
        let old = place(parts[item.first as usize]);
        let header = usize::from(item.header);
        let payload = new.len().saturating_sub(header);
        let fits = payload > 0
            && payload <= usize::from(item.size)
            && item.total as usize + payload <= 65_535
            && (item.count as usize) < most
            && same_flow(item, old, new);
        if !fits {
            return false;
        }
        item.total += payload as u32;
        item.count += 1;
        let last = item.last as usize;
        item.last = part;
        parts[last].next = part;
        item.next_id = item.next_id.wrapping_add(1);
        item.next_seq = item.next_seq.wrapping_add(payload as u32);
        // A shorter packet, or one with PSH, ends what its sender cut from one write.
        let l4 = if item.v6 { IPV6_HEADER } else { 20 };
        let pushed = !item.udp && new[l4 + 13] & TCP_PSH != 0;
        item.open = payload == usize::from(item.size) && !pushed;
        true
    }

    /// Calls `write` for each write, in order, with its header and its parts: the first packet whole, then only the
    /// payloads of the others. For that call, the first packet of a super-packet holds rewritten headers in `memory`;
    /// `write` must leave the memory unchanged.
    ///
    /// If `write` reports that the kernel refused a super-packet, `write` gets its original packets one by one.
    pub(crate) fn drain(
        &mut self,
        memory: &mut [u8],
        mut write: impl FnMut(&mut [u8], &VnetHdr, &Gather<'_>) -> Written,
    ) {
        for item in &self.items {
            let gather = Gather {
                parts: &self.parts,
                first: item.first,
                header: u32::from(item.header),
                count: item.count,
            };
            if item.count == 1 {
                write(memory, &VnetHdr::NONE, &gather);
                continue;
            }
            let start = self.parts[item.first as usize].start as usize;
            let header = usize::from(item.header);
            let mut saved = [0; HEADER_MAX];
            saved[..header].copy_from_slice(&memory[start..start + header]);
            let last = self.parts[item.last as usize].start as usize;
            let hdr = join_headers(memory, start, last, item);
            if write(memory, &hdr, &gather) == Written::Refused {
                memory[start..start + header].copy_from_slice(&saved[..header]);
                let mut part = item.first;
                while part != END {
                    let single = Gather {
                        first: part,
                        header: 0,
                        count: 1,
                        parts: &self.parts,
                    };
                    write(memory, &VnetHdr::NONE, &single);
                    part = self.parts[part as usize].next;
                }
            }
        }
        self.items.clear();
        self.parts.clear();
    }
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// The kernel took the packet, or the device dropped it.
    Done,
    /// The kernel does not accept this super-packet.
    Refused,
}

/// The parts that one write is gathered from.
pub(crate) struct Gather<'a> {
    parts: &'a [Part],
    first: u32,
    header: u32,
    /// Packets in this write.
    pub(crate) count: u32,
}

impl Gather<'_> {
    /// Byte ranges in order: the whole first packet, then the payloads of the others.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = std::ops::Range<usize>> + '_ {
        let mut part = self.first;
        let mut left = self.count;
        let mut skip = 0;
        std::iter::from_fn(move || {
            if part == END || left == 0 {
                return None;
            }
            let p = self.parts[part as usize];
            let range = (p.start + skip) as usize..(p.start + p.len) as usize;
            part = p.next;
            left -= 1;
            skip = self.header;
            Some(range)
        })
    }
}

fn start_flow(
    memory: &[u8],
    part: u32,
    start: u32,
    len: u32,
    (hash, udp, v6, header): (u32, bool, bool, u16),
) -> Item {
    let packet = &memory[start as usize..(start + len) as usize];
    let payload = len - u32::from(header);
    let l4 = if v6 { IPV6_HEADER } else { 20 };
    let seq = u32::from_be_bytes([
        packet[l4 + 4],
        packet[l4 + 5],
        packet[l4 + 6],
        packet[l4 + 7],
    ]);
    Item {
        hash,
        open: udp || packet[l4 + 13] & TCP_PSH == 0,
        flow: true,
        udp,
        v6,
        header,
        size: payload as u16,
        next_seq: seq.wrapping_add(payload),
        next_id: u16::from_be_bytes([packet[4], packet[5]]).wrapping_add(1),
        total: len,
        count: 1,
        first: part,
        last: part,
    }
}

/// Rewrites the first packet's headers for the whole super-packet.
fn join_headers(memory: &mut [u8], start: usize, last: usize, item: &Item) -> VnetHdr {
    let l4 = if item.v6 { IPV6_HEADER } else { 20 };
    let header = usize::from(item.header);
    let total = item.total as usize;
    // Only TCP has flags: a UDP packet, and the memory with it, may end before that byte.
    let last_psh = if item.udp {
        0
    } else {
        memory[last + l4 + 13] & TCP_PSH
    };
    let first = &mut memory[start..start + header];
    let addresses = if item.v6 {
        first[4..6].copy_from_slice(&((total - IPV6_HEADER) as u16).to_be_bytes());
        8..40
    } else {
        first[2..4].copy_from_slice(&(total as u16).to_be_bytes());
        checksum::write_ipv4(&mut first[..20]);
        12..20
    };
    let protocol = if item.udp { UDP } else { TCP };
    let pseudo = checksum::fold(checksum::pseudo_header(
        &first[addresses],
        protocol,
        total - l4,
    ));
    let csum_offset = if item.udp {
        let len = ((total - l4) as u16).to_be_bytes();
        first[l4 + 4..l4 + 6].copy_from_slice(&len);
        6
    } else {
        first[l4 + 13] |= last_psh;
        16
    };
    first[l4 + csum_offset..l4 + csum_offset + 2].copy_from_slice(&pseudo.to_ne_bytes());
    VnetHdr {
        needs_csum: true,
        gso: match (item.udp, item.v6) {
            (true, _) => GsoKind::Udp,
            (false, false) => GsoKind::Tcp4,
            (false, true) => GsoKind::Tcp6,
        },
        gso_ecn: false,
        hdr_len: item.header,
        gso_size: item.size,
        csum_start: l4 as u16,
        csum_offset: csum_offset as u16,
    }
}

#[cfg(test)]
mod tests;
