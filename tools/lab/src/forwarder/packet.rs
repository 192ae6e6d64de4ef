//! Headers and checksums of an inner packet, for both directions.

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Positions of the headers of a TCP or UDP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Headers {
    pub(super) v6: bool,
    pub(super) udp: bool,
    /// Where the TCP or UDP header starts.
    pub(super) transport: usize,
    /// Where the payload starts.
    pub(super) payload: usize,
}

impl Headers {
    /// Parses a whole TCP or UDP packet; `None` for a fragment. IPv6 extension headers are not followed.
    pub(super) fn parse(packet: &[u8]) -> Option<Self> {
        let (v6, protocol, transport) = match packet.first()? >> 4 {
            4 => {
                let header: &[u8; 20] = packet.first_chunk()?;
                let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff;
                if fragment != 0 {
                    return None;
                }
                (false, header[9], usize::from(header[0] & 15) * 4)
            }
            6 => (true, packet.first_chunk::<40>()?[6], 40),
            _ => return None,
        };
        let (udp, length) = match protocol {
            TCP => (false, usize::from(packet.get(transport + 12)? >> 4) * 4),
            UDP => (true, 8),
            _ => return None,
        };
        let payload = transport + length;
        let least = if v6 { 40 } else { 20 };
        let sound = transport >= least && length >= if udp { 8 } else { 20 };
        (sound && payload <= packet.len()).then_some(Self {
            v6,
            udp,
            transport,
            payload,
        })
    }

    /// Position of the transport's checksum field in the packet.
    pub(super) fn checksum_field(&self) -> usize {
        self.transport + self.checksum_offset()
    }

    /// Position of the checksum field within the transport header.
    pub(super) fn checksum_offset(&self) -> usize {
        if self.udp { 6 } else { 16 }
    }

    /// Returns the sum of the pseudo header of a packet of `length` bytes.
    pub(super) fn pseudo(&self, packet: &[u8], length: usize) -> u64 {
        let addresses = if self.v6 { 8..40 } else { 12..20 };
        let protocol = if self.udp { UDP } else { TCP };
        let length = (length - self.transport) as u16;
        sum(&packet[addresses]) + u64::from(u16::from(protocol).to_be()) + u64::from(length.to_be())
    }

    /// Writes the lengths and the IPv4 header checksum of a packet into `packet`, which may hold only the headers.
    pub(super) fn set_lengths(&self, packet: &mut [u8], length: usize) {
        if self.v6 {
            packet[4..6].copy_from_slice(&((length - 40) as u16).to_be_bytes());
        } else {
            packet[2..4].copy_from_slice(&(length as u16).to_be_bytes());
            packet[10..12].fill(0);
            let checksum = !fold(sum(&packet[..self.transport]));
            packet[10..12].copy_from_slice(&checksum.to_ne_bytes());
        }
        if self.udp {
            let field = self.transport + 4;
            let bytes = ((length - self.transport) as u16).to_be_bytes();
            packet[field..field + 2].copy_from_slice(&bytes);
        }
    }

    /// Fills in the transport's checksum of a whole packet.
    pub(super) fn set_checksum(&self, packet: &mut [u8]) {
        let field = self.checksum_field();
        packet[field..field + 2].fill(0);
        let total = self.pseudo(packet, packet.len()) + sum(&packet[self.transport..]);
        // In UDP zero means "no checksum" (RFC 768); all ones is the same sum, in TCP too.
        let checksum = match !fold(total) {
            0 => u16::MAX,
            checksum => checksum,
        };
        packet[field..field + 2].copy_from_slice(&checksum.to_ne_bytes());
    }

    /// Whether the transport checksum of a whole packet is correct.
    pub(super) fn verify(&self, packet: &[u8]) -> bool {
        let total = self.pseudo(packet, packet.len()) + sum(&packet[self.transport..]);
        fold(total) == u16::MAX
    }
}

/// Sums `bytes` as 32-bit words in native byte order. The sum folds to the Internet checksum in that order (RFC 1071
/// section 2B). Up to 64 KiB no carry is lost.
pub(super) fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(4);
    let rest = words.remainder();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    let words =
        words.map(|word| u64::from(u32::from_ne_bytes([word[0], word[1], word[2], word[3]])));
    words.sum::<u64>() + u64::from(u32::from_ne_bytes(last))
}

/// Folds a sum to 16 bits.
pub(super) fn fold(mut sum: u64) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Builds a TCP or UDP packet with valid checksums.
    pub(crate) fn packet(v6: bool, udp: bool, sequence: u32, payload: &[u8]) -> Vec<u8> {
        let mut packet = if v6 {
            let mut header = vec![0x60, 0, 0, 0, 0, 0, 0, 64];
            header.extend((0..32).map(|i| i as u8));
            header
        } else {
            let id = (sequence / 1000) as u8;
            let mut header = vec![0x45, 0, 0, 0, 0, id, 0x40, 0, 64, 0, 0, 0];
            header.extend([10, 0, 0, 1, 10, 0, 0, 2]);
            header
        };
        let protocol = if udp { UDP } else { TCP };
        packet[if v6 { 6 } else { 9 }] = protocol;
        packet.extend([0x12, 0x34, 0x56, 0x78]);
        if udp {
            packet.extend([0; 4]);
        } else {
            packet.extend(sequence.to_be_bytes());
            packet.extend([0, 0, 0, 9, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
        }
        packet.extend_from_slice(payload);
        let length = packet.len();
        let headers = Headers::parse(&packet).unwrap();
        headers.set_lengths(&mut packet, length);
        headers.set_checksum(&mut packet);
        packet
    }

    #[test]
    fn checksum_is_that_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(fold(sum(&bytes)), u16::from_ne_bytes([0xdd, 0xf2]));
        assert_eq!(fold(sum(&[1])), u16::from_ne_bytes([1, 0]));
    }

    #[test]
    fn damage_is_found_and_nonsense_refused() {
        for (v6, udp) in [(false, false), (false, true), (true, false), (true, true)] {
            let mut whole = packet(v6, udp, 1, b"payload");
            let headers = Headers::parse(&whole).unwrap();
            assert!(headers.verify(&whole));
            *whole.last_mut().unwrap() ^= 1;
            assert!(!headers.verify(&whole));
            for length in 0..headers.payload {
                assert_eq!(Headers::parse(&whole[..length]), None);
            }
        }
    }
}
