//! The packets of the self-test: built by hand, told apart, and compared with the received ones.
//!
//! This code must be right when the kernel's is wrong, so it shares nothing with the data plane. It computes checksums
//! word by word, and every packet is IPv4 without options.

use crate::tun::{GsoKind, VnetHdr};
use crate::udp::SelfTest;
use std::net::Ipv4Addr;

/// Payload bytes of one segment: smaller than the initial MTU of any TUN (1500).
pub(super) const SEGMENT: usize = 1000;
/// Payload bytes of the super-packet: seven segments, the last of them shorter.
pub(super) const LENGTH: usize = 7 * SEGMENT - 100;
/// Payload of the ordinary packet that follows the super-packet.
pub(super) const CONTROL: &[u8] = b"control";

const IP_LEN: usize = 20;
const TCP: u8 = 6;
const UDP: u8 = 17;
/// TCP flags: `RST`, `PSH`, `ACK`.
pub(super) const RST: u8 = 0x04;
pub(super) const PSH: u8 = 0x08;
pub(super) const ACK: u8 = 0x10;

/// The payload of the super-packet, in which no two segments are alike.
pub(super) fn payload() -> Vec<u8> {
    (0..LENGTH as u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect()
}

/// Fields of the transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    /// TCP: sequence number, acknowledgement number, flags.
    Tcp(u32, u32, u8),
    /// UDP.
    Udp,
}

/// The headers of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Headers {
    /// Source.
    pub(super) src: (Ipv4Addr, u16),
    /// Destination.
    pub(super) dst: (Ipv4Addr, u16),
    /// The fields of the transport protocol.
    pub(super) transport: Transport,
}

impl Headers {
    /// A packet with `payload`, which the kernel must segment if `gso`, and the header that precedes it.
    pub(super) fn packet(&self, payload: &[u8], gso: bool) -> (VnetHdr, Vec<u8>) {
        let (protocol, l4_len, csum_offset, kind) = match self.transport {
            Transport::Tcp(..) => (TCP, 20, 16, GsoKind::Tcp4),
            Transport::Udp => (UDP, 8, 6, GsoKind::Udp),
        };
        let mut packet = vec![0x45, 0];
        packet.extend(((IP_LEN + l4_len + payload.len()) as u16).to_be_bytes());
        // Identification 1, don't fragment, 64 hops.
        packet.extend([0, 1, 0x40, 0, 64, protocol, 0, 0]);
        packet.extend(self.src.0.octets());
        packet.extend(self.dst.0.octets());
        let sum = !fold(sum(&packet));
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet.extend(self.src.1.to_be_bytes());
        packet.extend(self.dst.1.to_be_bytes());
        match self.transport {
            Transport::Tcp(seq, ack, flags) => {
                packet.extend(seq.to_be_bytes());
                packet.extend(ack.to_be_bytes());
                packet.extend([5 << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
            }
            Transport::Udp => {
                packet.extend(((l4_len + payload.len()) as u16).to_be_bytes());
                packet.extend([0, 0]);
            }
        }
        packet.extend(payload);
        let pseudo = pseudo_sum(&packet);
        let field = IP_LEN + csum_offset;
        if !gso {
            let sum = !fold(pseudo + sum_of_l4(&packet));
            packet[field..field + 2].copy_from_slice(&sum.to_be_bytes());
            return (VnetHdr::NONE, packet);
        }
        packet[field..field + 2].copy_from_slice(&fold(pseudo).to_be_bytes());
        let hdr = VnetHdr {
            needs_csum: true,
            gso: kind,
            gso_ecn: false,
            hdr_len: (IP_LEN + l4_len) as u16,
            gso_size: SEGMENT as u16,
            csum_start: IP_LEN as u16,
            csum_offset: csum_offset as u16,
        };
        (hdr, packet)
    }

    /// The headers and the payload of an IPv4 packet, and whether its checksum is correct. `None` for packets that no
    /// test sends or expects.
    pub(super) fn parse(packet: &[u8]) -> Option<(Self, &[u8], bool)> {
        let length = usize::from(u16::from_be_bytes([*packet.get(2)?, *packet.get(3)?]));
        let packet = packet.get(..length)?;
        let l4 = packet.get(IP_LEN..)?;
        if packet[0] != 0x45 || l4.len() < 8 {
            return None;
        }
        let word = |i: usize| u16::from_be_bytes([l4[i], l4[i + 1]]);
        let long = |i: usize| u32::from_be_bytes([l4[i], l4[i + 1], l4[i + 2], l4[i + 3]]);
        let (transport, start) = match packet[9] {
            TCP if l4.len() >= 20 => (
                Transport::Tcp(long(4), long(8), l4[13]),
                usize::from(l4[12] >> 4) * 4,
            ),
            UDP => (Transport::Udp, 8),
            _ => return None,
        };
        let address =
            |i: usize| Ipv4Addr::from([packet[i], packet[i + 1], packet[i + 2], packet[i + 3]]);
        let none = transport == Transport::Udp && word(6) == 0;
        let intact = none || fold(pseudo_sum(packet) + sum_of_l4(packet)) == 0xffff;
        let headers = Self {
            src: (address(12), word(0)),
            dst: (address(16), word(2)),
            transport,
        };
        Some((headers, l4.get(start..)?, intact))
    }
}

/// Sum of big-endian words, not yet folded. At most 64 KiB are summed, so it cannot overflow.
fn sum(bytes: &[u8]) -> u32 {
    bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |&low| u32::from(low)))
        .sum()
}

fn sum_of_l4(packet: &[u8]) -> u32 {
    sum(&packet[IP_LEN..])
}

/// Sum of addresses, protocol and length, for the checksums of TCP and UDP.
fn pseudo_sum(packet: &[u8]) -> u32 {
    sum(&packet[12..IP_LEN]) + u32::from(packet[9]) + (packet.len() - IP_LEN) as u32
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}

/// Compares received packets, piece by piece and in order, with [`payload`].
pub(super) struct Ledger {
    expected: Vec<u8>,
    came: usize,
    fault: Option<String>,
}

impl Ledger {
    /// A ledger before the first packet.
    pub(super) fn new() -> Self {
        Self {
            expected: payload(),
            came: 0,
            fault: None,
        }
    }

    /// Number of payload bytes received so far.
    pub(super) fn came(&self) -> usize {
        self.came
    }

    /// Records one packet, or one super-packet with segments of `segment` bytes.
    pub(super) fn enter(&mut self, payload: &[u8], segment: Option<u16>) {
        match segment {
            Some(segment) if usize::from(segment) != SEGMENT => {
                self.blame(format!(
                    "segments of {segment} instead of {SEGMENT} bytes came"
                ));
            }
            None if payload.len() > SEGMENT => {
                self.blame(format!("a packet of {} bytes came whole", payload.len()));
            }
            _ => {}
        }
        let end = self.came + payload.len();
        if self.expected.get(self.came..end) != Some(payload) {
            self.blame(format!(
                "what came from byte {} on is not what went",
                self.came
            ));
        }
        self.came = end;
    }

    /// Records a fault; the first one counts.
    pub(super) fn blame(&mut self, fault: String) {
        self.fault.get_or_insert(fault);
    }

    /// The verdict, once the packet that was sent last has arrived.
    pub(super) fn close(self) -> SelfTest {
        match self.fault {
            Some(fault) => SelfTest::Failed(fault),
            None if self.came == self.expected.len() => SelfTest::Passed,
            None => SelfTest::Failed(format!(
                "{} of {} bytes came",
                self.came,
                self.expected.len()
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: (Ipv4Addr, u16) = (Ipv4Addr::new(192, 0, 2, 1), 7);
    const TO: (Ipv4Addr, u16) = (Ipv4Addr::new(192, 0, 2, 2), 9);

    #[test]
    fn a_packet_is_read_as_it_was_made_and_damage_is_seen() {
        for transport in [Transport::Udp, Transport::Tcp(1, 2, PSH)] {
            let headers = Headers {
                src: FROM,
                dst: TO,
                transport,
            };
            let (hdr, mut packet) = headers.packet(CONTROL, false);
            assert_eq!(hdr, VnetHdr::NONE);
            assert_eq!(fold(sum(&packet[..IP_LEN])), 0xffff);
            assert_eq!(Headers::parse(&packet), Some((headers, CONTROL, true)));
            *packet.last_mut().unwrap() ^= 1;
            assert!(!Headers::parse(&packet).unwrap().2);
            for length in 0..packet.len() {
                assert_eq!(Headers::parse(&packet[..length]), None);
            }
        }
    }

    #[test]
    fn a_super_packet_carries_the_sum_of_its_pseudo_header() {
        let headers = Headers {
            src: FROM,
            dst: TO,
            transport: Transport::Tcp(1, 0, PSH),
        };
        let (hdr, mut packet) = headers.packet(&payload(), true);
        assert_eq!((hdr.gso, hdr.hdr_len), (GsoKind::Tcp4, 40));
        // A device without segmentation completes the checksum from `csum_start` on.
        let field = usize::from(hdr.csum_start + hdr.csum_offset);
        let whole = !fold(sum_of_l4(&packet));
        packet[field..field + 2].copy_from_slice(&whole.to_be_bytes());
        assert!(Headers::parse(&packet).unwrap().2);
    }

    #[test]
    fn a_ledger_takes_super_packets_and_single_ones() {
        let bytes = payload();
        let mut ledger = Ledger::new();
        ledger.enter(&bytes[..3 * SEGMENT], Some(SEGMENT as u16));
        for piece in bytes[3 * SEGMENT..].chunks(SEGMENT) {
            ledger.enter(piece, None);
        }
        assert_eq!(ledger.close(), SelfTest::Passed);
    }

    #[test]
    fn a_ledger_names_what_is_wrong() {
        let bytes = payload();
        let failed = |enter: &dyn Fn(&mut Ledger)| {
            let mut ledger = Ledger::new();
            enter(&mut ledger);
            match ledger.close() {
                SelfTest::Failed(why) => why,
                verdict => panic!("{verdict:?}"),
            }
        };
        assert!(failed(&|_| ()).contains("0 of 6900"));
        assert!(failed(&|l| l.enter(&bytes[1..2], None)).contains("byte 0"));
        assert!(failed(&|l| l.enter(&bytes, None)).contains("whole"));
        assert!(failed(&|l| l.enter(&bytes, Some(999))).contains("999"));
        assert!(
            failed(&|l| {
                l.enter(&bytes, Some(SEGMENT as u16));
                l.enter(&bytes[..1], None);
            })
            .contains("byte 6900")
        );
    }
}
