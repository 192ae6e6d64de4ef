//! Cutting super-packets of the TUN into packets, in place.
//!
//! The kernel hands over up to 64 KiB of one TCP or UDP flow under one header. Each packet that
//! it stands for must leave as a datagram of its own, with room for the tunnel's header before it
//! and its tag behind it. The packets are spread out inside the memory that the super-packet was
//! read into, from the last to the first: a packet's new place never begins before its payload's
//! old one, so nothing is overwritten that is still needed, and no second buffer is touched.

use crate::checksum;
use crate::ip::{IPV6_HEADER, TCP, UDP};
use netio::tun::{GsoKind, VnetHdr};

const TCP_FLAGS: usize = 13;
const TCP_CWR: u8 = 0x80;
const TCP_PSH: u8 = 0x08;
const TCP_FIN: u8 = 0x01;

/// A super-packet whose headers were parsed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Super {
    v6: bool,
    udp: bool,
    gso_ecn: bool,
    /// Where the TCP or UDP header starts.
    l4: usize,
    /// Bytes of all headers.
    header: usize,
    /// Bytes of payload.
    payload: usize,
    /// Payload bytes of each packet; the last may have fewer.
    mss: usize,
}

impl Super {
    /// Parses a super-packet. `None` when header and packet contradict each other.
    ///
    /// `hdr_len` is not read: forwarded packets carry wrong ones.
    pub(crate) fn parse(packet: &[u8], hdr: &VnetHdr) -> Option<Self> {
        let (v6, udp) = match hdr.gso {
            GsoKind::Tcp4 => (false, false),
            GsoKind::Tcp6 => (true, false),
            GsoKind::Udp => (packet.first()? >> 4 == 6, true),
            GsoKind::None => return None,
        };
        let l4 = usize::from(hdr.csum_start);
        if v6 {
            if packet.first()? >> 4 != 6 || l4 < IPV6_HEADER {
                return None;
            }
        } else {
            let first = *packet.first()?;
            if first >> 4 != 4 || l4 < 20 || l4 != usize::from(first & 15) * 4 {
                return None;
            }
            if *packet.get(9)? != if udp { UDP } else { TCP } {
                return None;
            }
        }
        let header = if udp {
            l4 + 8
        } else {
            let offset = usize::from(packet.get(l4 + 12)? >> 4) * 4;
            if offset < 20 {
                return None;
            }
            l4 + offset
        };
        let mss = usize::from(hdr.gso_size);
        let payload = packet.len().checked_sub(header)?;
        if mss == 0 || payload == 0 {
            return None;
        }
        Some(Self {
            v6,
            udp,
            gso_ecn: hdr.gso_ecn,
            l4,
            header,
            payload,
            mss,
        })
    }

    /// Number of packets that the super-packet stands for.
    pub(crate) fn count(&self) -> usize {
        self.payload.div_ceil(self.mss)
    }

    /// Length of packet `i` in bytes, headers included.
    pub(crate) fn len(&self, i: usize) -> usize {
        self.header + self.mss.min(self.payload - i * self.mss)
    }

    /// Passes each packet of a super-packet to `each`, complete with its checksums, without moving payload. Each header
    /// is written over the end of the payload before it, which is no longer needed. `headers` is scratch memory for the
    /// headers.
    pub(crate) fn cut(
        &self,
        packet: &mut [u8],
        headers: &mut Vec<u8>,
        mut each: impl FnMut(&[u8]),
    ) {
        headers.clear();
        headers.extend_from_slice(&packet[..self.header]);
        let sums = self.sums(headers);
        let count = self.count();
        for i in 0..count {
            let start = i * self.mss;
            let one = &mut packet[start..start + self.len(i)];
            one[..self.header].copy_from_slice(headers);
            let payload = checksum::add(0, &one[self.header..]);
            self.finish(one, sums, payload, i, i + 1 == count);
            each(one);
        }
    }

    /// Spreads the super-packet at `memory[from..]` out: packet `i` moves to `start + i * stride`, complete with its
    /// checksums. `start` must be at least `from`.
    ///
    /// `stride` must be at least the length of a packet, and `memory` must reach to the end of
    /// the last.
    pub(crate) fn spread(&self, memory: &mut [u8], from: usize, start: usize, stride: usize) {
        debug_assert!(stride >= self.len(0) && from <= start);
        let header = from..from + self.header;
        let sums = self.sums(&memory[header.clone()]);
        let count = self.count();
        for i in (0..count).rev() {
            let len = self.len(i);
            let at = start + i * stride;
            let payload = at + self.header;
            let payload = if i > 0 || from < start {
                let old = header.end + i * self.mss;
                let sum = checksum::move_up(memory, old..old + len - self.header, payload);
                memory.copy_within(header.clone(), at);
                sum
            } else {
                checksum::add(0, &memory[payload..at + len])
            };
            self.finish(&mut memory[at..at + len], sums, payload, i, i + 1 == count);
        }
    }

    /// Sums of the header fields that all packets share: one for IPv4, one for the pseudo-header and the rest. Adding a
    /// field's complement removes that field.
    #[inline(never)]
    fn sums(&self, header: &[u8]) -> Sums {
        let word = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let without = |sum, fields: &[usize]| {
            let fields = fields.iter().map(|&at| checksum::Sum::from(!word(at)));
            fields.fold(sum, |sum, field| sum + field)
        };
        let (ip, addresses) = if self.v6 {
            (0, 8..40)
        } else {
            let sum = checksum::add(0, &header[..self.l4]);
            (without(sum, &[2, 4, 10]), 12..20)
        };
        let (protocol, l4) = (if self.udp { UDP } else { TCP }, self.l4);
        let pseudo = checksum::pseudo_header(&header[addresses], protocol, 0);
        let sum = checksum::add(pseudo, &header[l4..]);
        let rest = if self.udp {
            without(sum, &[l4 + 4, l4 + 6])
        } else {
            without(sum, &[l4 + 4, l4 + 6, l4 + 12, l4 + 16])
        };
        Sums { ip, rest }
    }

    /// Sets packet `i`'s own lengths, numbers, flags and checksums. `payload` is the checksum of its payload, which
    /// begins on a whole 32-bit word.
    #[inline(never)]
    fn finish(&self, packet: &mut [u8], sums: Sums, payload: checksum::Sum, i: usize, last: bool) {
        let len = packet.len();
        let word = |bytes: &[u8], at: usize| {
            checksum::Sum::from(u16::from_ne_bytes([bytes[at], bytes[at + 1]]))
        };
        if self.v6 {
            packet[4..6].copy_from_slice(&((len - IPV6_HEADER) as u16).to_be_bytes());
        } else {
            packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
            let id = u16::from_be_bytes([packet[4], packet[5]]).wrapping_add(i as u16);
            packet[4..6].copy_from_slice(&id.to_be_bytes());
            let sum = !checksum::fold(sums.ip + word(packet, 2) + word(packet, 4));
            packet[10..12].copy_from_slice(&sum.to_ne_bytes());
        }
        let rest = len - self.l4;
        let sum = sums.rest + payload + checksum::Sum::from((rest as u16).to_be());
        let l4 = &mut packet[self.l4..self.header];
        if self.udp {
            l4[4..6].copy_from_slice(&(rest as u16).to_be_bytes());
            // UDP's length counts twice: in the pseudo-header and here.
            let sum = !checksum::fold(sum + word(l4, 4));
            // Zero means "no checksum" (RFC 768), so a computed zero is sent as all ones.
            let sum = if sum == 0 { u16::MAX } else { sum };
            l4[6..8].copy_from_slice(&sum.to_ne_bytes());
        } else {
            let seq = u32::from_be_bytes([l4[4], l4[5], l4[6], l4[7]]);
            let seq = seq.wrapping_add((i * self.mss) as u32);
            l4[4..8].copy_from_slice(&seq.to_be_bytes());
            if !last {
                l4[TCP_FLAGS] &= !(TCP_FIN | TCP_PSH);
            }
            // RFC 3168 section 6.1.2: CWR goes on the first new data packet only.
            if i > 0 && self.gso_ecn {
                l4[TCP_FLAGS] &= !TCP_CWR;
            }
            let sum = !checksum::fold(sum + word(l4, 4) + word(l4, 6) + word(l4, 12));
            l4[16..18].copy_from_slice(&sum.to_ne_bytes());
        }
    }
}

/// Sums of the header fields that all packets of a super-packet share.
#[derive(Clone, Copy, Debug)]
struct Sums {
    /// Sum of IPv4's header, without length, identification and checksum.
    ip: checksum::Sum,
    /// Sum of the pseudo-header and the TCP or UDP header, without lengths, sequence number, flags and checksum.
    rest: checksum::Sum,
}

/// Completes the checksum of an ordinary packet whose header says that the kernel left it half
/// done. Returns `false` if the header points outside the packet.
pub(crate) fn complete_checksum(packet: &mut [u8], hdr: &VnetHdr) -> bool {
    if !hdr.needs_csum {
        return true;
    }
    let start = usize::from(hdr.csum_start);
    let field = start + usize::from(hdr.csum_offset);
    if field + 2 > packet.len() {
        return false;
    }
    // The checksum field holds the pseudo-header's sum, and the sum over the packet includes it.
    let sum = !checksum::fold(checksum::add(0, &packet[start..]));
    let is_udp = hdr.csum_offset == 6;
    let sum = if sum == 0 && is_udp { u16::MAX } else { sum };
    packet[field..field + 2].copy_from_slice(&sum.to_ne_bytes());
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip::tests::{ipv4, ipv6};

    fn tcp(seq: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
        let mut t = vec![0x12, 0x34, 0x00, 0x50];
        t.extend_from_slice(&seq.to_be_bytes());
        t.extend_from_slice(&[0, 0, 0, 9, 0x80, flags, 0x10, 0, 0, 0, 0, 0]);
        t.extend_from_slice(&[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
        t.extend_from_slice(payload);
        t
    }

    fn checksum_is_right(packet: &[u8]) -> bool {
        let v6 = packet[0] >> 4 == 6;
        let (l4, addresses, protocol) = if v6 {
            (40, 8..40, packet[6])
        } else {
            (20, 12..20, packet[9])
        };
        let pseudo = checksum::pseudo_header(&packet[addresses], protocol, packet.len() - l4);
        checksum::fold(checksum::add(pseudo, &packet[l4..])) == 0xffff
    }

    fn split(packet: &[u8], hdr: &VnetHdr, gap: usize) -> Vec<Vec<u8>> {
        let s = Super::parse(packet, hdr).unwrap();
        let stride = s.len(0) + gap;
        // The first packet stays in place, or moves up by two bytes.
        let [spread, behind] = [0, 2].map(|start| {
            let mut memory = packet.to_vec();
            memory.resize(start + s.count() * stride, 0xee);
            s.spread(&mut memory, 0, start, stride);
            let at = |i: usize| start + i * stride;
            let packets = (0..s.count()).map(|i| memory[at(i)..at(i) + s.len(i)].to_vec());
            packets.collect::<Vec<_>>()
        });
        assert_eq!(spread, behind);
        let mut cut = Vec::new();
        s.cut(&mut packet.to_vec(), &mut Vec::new(), |one| {
            cut.push(one.to_vec());
        });
        assert_eq!(cut, spread, "one way as the other");
        spread
    }

    #[test]
    fn tcp_super_packets_become_packets_with_right_numbers_flags_and_checksums() {
        let payload: Vec<u8> = (0..2500_u32).map(|i| (i * 7) as u8).collect();
        for v6 in [false, true] {
            let l4 = tcp(0xffff_fff0, 0x99, &payload);
            let packet = if v6 {
                ipv6([1; 16], [2; 16], TCP, &l4)
            } else {
                ipv4([10, 0, 0, 1], [10, 0, 0, 2], TCP, &l4)
            };
            let hdr = VnetHdr {
                needs_csum: true,
                gso: if v6 { GsoKind::Tcp6 } else { GsoKind::Tcp4 },
                gso_ecn: true,
                // Deliberately wrong: the kernel's forwarding path reports a wrong `hdr_len`.
                hdr_len: 17,
                gso_size: 1000,
                csum_start: if v6 { 40 } else { 20 },
                csum_offset: 16,
            };
            let parts = split(&packet, &hdr, 32);
            let ip = if v6 { 40 } else { 20 };
            assert_eq!(
                parts.iter().map(|p| p.len() - ip - 32).collect::<Vec<_>>(),
                [1000, 1000, 500]
            );
            let mut joined = Vec::new();
            for (i, part) in parts.iter().enumerate() {
                assert!(checksum_is_right(part));
                let seq = u32::from_be_bytes(part[ip + 4..ip + 8].try_into().unwrap());
                assert_eq!(seq, 0xffff_fff0_u32.wrapping_add(i as u32 * 1000));
                let flags = [0x90, 0x10, 0x19][i];
                assert_eq!(part[ip + TCP_FLAGS], flags, "packet {i}");
                if !v6 {
                    assert_eq!(checksum::fold(checksum::add(0, &part[..20])), 0xffff);
                    assert_eq!(part[5], 1 + i as u8);
                }
                joined.extend_from_slice(&part[ip + 32..]);
            }
            assert_eq!(joined, payload);
        }
    }

    #[test]
    fn udp_super_packets_become_datagrams() {
        let mut l4 = vec![0, 1, 0, 2, 0, 0, 0, 0];
        l4.extend((0..3001_u32).map(|i| i as u8));
        let packet = ipv4([10, 0, 0, 1], [10, 0, 0, 2], UDP, &l4);
        let hdr = VnetHdr {
            needs_csum: true,
            gso: GsoKind::Udp,
            gso_size: 1000,
            csum_start: 20,
            csum_offset: 6,
            ..VnetHdr::NONE
        };
        let parts = split(&packet, &hdr, 48);
        assert_eq!(parts.len(), 4);
        assert!(parts.iter().all(|p| checksum_is_right(p)));
        assert_eq!(parts[3].len(), 29);
        assert_eq!(parts[3][24..26], 9_u16.to_be_bytes());
    }

    #[test]
    fn contradictions_are_refused() {
        let packet = ipv4([10, 0, 0, 1], [10, 0, 0, 2], TCP, &tcp(1, 0x10, &[0; 100]));
        let good = VnetHdr {
            needs_csum: true,
            gso: GsoKind::Tcp4,
            gso_size: 50,
            csum_start: 20,
            csum_offset: 16,
            ..VnetHdr::NONE
        };
        assert!(Super::parse(&packet, &good).is_some());
        for bad in [
            VnetHdr {
                gso_size: 0,
                ..good
            },
            VnetHdr {
                csum_start: 24,
                ..good
            },
            VnetHdr {
                gso: GsoKind::Tcp6,
                ..good
            },
            VnetHdr {
                gso: GsoKind::Udp,
                ..good
            },
        ] {
            assert!(Super::parse(&packet, &bad).is_none(), "{bad:?}");
        }
        assert!(Super::parse(&packet[..40], &good).is_none());
        assert!(Super::parse(&[], &good).is_none());
    }

    #[test]
    fn half_done_checksums_are_completed() {
        let mut packet = ipv4(
            [10, 0, 0, 1],
            [10, 0, 0, 2],
            UDP,
            &[0, 1, 0, 2, 0, 12, 0, 0, 9, 8, 7, 6],
        );
        let pseudo = checksum::fold(checksum::pseudo_header(&packet[12..20], UDP, 12));
        packet[26..28].copy_from_slice(&pseudo.to_ne_bytes());
        let hdr = VnetHdr {
            needs_csum: true,
            csum_start: 20,
            csum_offset: 6,
            ..VnetHdr::NONE
        };
        assert!(complete_checksum(&mut packet, &hdr));
        assert!(checksum_is_right(&packet));
        assert!(!complete_checksum(&mut packet[..27], &hdr));
    }
}
