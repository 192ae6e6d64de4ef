//! Packets of hosts behind the ends, with the right lengths and checksums, which the code that joins
//! packets checks.

/// One flow of TCP or UDP.
pub(crate) struct Flow {
    udp: bool,
    v6: bool,
    number: u8,
    /// Bytes sent so far, and packets.
    sequence: u32,
    count: u16,
    push: bool,
}

impl Flow {
    /// Bit 0: UDP; bit 1: IPv6; bit 2: every packet is pushed; the others: which flow.
    pub(crate) fn new(how: u8) -> Self {
        Self {
            udp: how & 1 != 0,
            v6: how & 2 != 0,
            number: how >> 3,
            sequence: 0,
            count: 0,
            push: how & 4 != 0,
        }
    }

    /// The next packet, with this many bytes of payload.
    pub(crate) fn packet(&mut self, payload: usize) -> Vec<u8> {
        let mut l4 = vec![0, self.number, 0, 80];
        if self.udp {
            l4.extend(((8 + payload) as u16).to_be_bytes());
            l4.extend([0, 0]);
        } else {
            l4.extend(self.sequence.to_be_bytes());
            l4.extend([0, 0, 0, 1, 0x50, if self.push { 0x18 } else { 0x10 }]);
            l4.extend([1, 0, 0, 0, 0, 0]);
        }
        l4.resize(l4.len() + payload, 0x5a);
        self.sequence = self.sequence.wrapping_add(payload as u32);
        self.count = self.count.wrapping_add(1);
        let protocol = if self.udp { 17 } else { 6 };
        let len = l4.len() as u16;
        let mut packet = if self.v6 {
            let mut ip = vec![0x60, 0, 0, 0];
            ip.extend(len.to_be_bytes());
            ip.extend([protocol, 64]);
            ip.extend([0xfd; 16]);
            ip.extend([0xfe; 16]);
            ip
        } else {
            let mut ip = vec![0x45, 0];
            ip.extend(len.wrapping_add(20).to_be_bytes());
            ip.extend(self.count.to_be_bytes());
            ip.extend([0, 0, 64, protocol, 0, 0, 10, 8, 0, 1, 10, 8, 0, 2]);
            let sum = !sum(0, &ip);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
            ip
        };
        let addresses = if self.v6 { 8 } else { 12 };
        let pseudo = sum(u32::from(protocol) + u32::from(len), &packet[addresses..]);
        let checksum = match !sum(pseudo.into(), &l4) {
            0 => 0xffff,
            sum => sum,
        };
        let at = if self.udp { 6 } else { 16 };
        l4[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
        packet.extend(l4);
        packet
    }
}

/// The Internet checksum's sum, not complemented.
fn sum(start: u32, bytes: &[u8]) -> u16 {
    let mut sum = start;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    ((sum & 0xffff) + (sum >> 16)) as u16
}
