//! Cuts super-packets into packets, laid out one after the other as UDP_SEGMENT needs them.

use netio::tun::{GsoKind, VNET_HDR_LEN, VnetHdr};

use super::packet::{Headers, fold, sum};

/// Limits of one UDP_SEGMENT send.
const TRAIN_BYTES: usize = 65_000;
const TRAIN_SEGMENTS: usize = 64;

const TCP_FLAGS: usize = 13;
const TCP_FIN_PSH: u8 = 0x09;
const TCP_CWR: u8 = 0x80;

/// Adjacent packets of equal length; the last may be shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) start: usize,
    pub(super) length: usize,
    pub(super) segment: usize,
}

/// Cuts the packets and super-packets that a TUN delivers.
#[derive(Debug)]
pub(super) struct Cutter {
    vnet: bool,
    bytes: Vec<u8>,
    trains: Vec<Run>,
}

impl Cutter {
    pub(super) fn new(vnet: bool) -> Self {
        Self {
            vnet,
            bytes: Vec::with_capacity(4 * TRAIN_BYTES),
            trains: Vec::new(),
        }
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.trains.clear();
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn trains(&self) -> &[Run] {
        &self.trains
    }

    /// Adds the result of one read. Invalid packets are dropped.
    pub(super) fn add(&mut self, read: &[u8]) {
        if !self.vnet {
            self.push(read);
            return;
        }
        let Some(header) = VnetHdr::parse(read) else {
            return;
        };
        let packet = &read[VNET_HDR_LEN..];
        match header.gso {
            GsoKind::None => {
                let start = self.push(packet);
                if header.needs_csum {
                    complete(&mut self.bytes[start..], &header);
                }
            }
            _ => self.cut(packet, &header),
        }
    }

    /// Adds a packet to the last train or starts a new train; returns the packet's position.
    fn push(&mut self, packet: &[u8]) -> usize {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(packet);
        self.extend(start, packet.len());
        start
    }

    fn extend(&mut self, start: usize, length: usize) {
        if let Some(last) = self.trains.last_mut() {
            let whole = last.length % last.segment == 0;
            let room =
                last.length + length <= TRAIN_BYTES && last.length / last.segment < TRAIN_SEGMENTS;
            if whole && room && length <= last.segment {
                last.length += length;
                return;
            }
        }
        if length > 0 {
            self.trains.push(Run {
                start,
                length,
                segment: length,
            });
        }
    }

    fn cut(&mut self, packet: &[u8], vnet: &VnetHdr) {
        let Some(headers) = Headers::parse(packet) else {
            return;
        };
        let (header, payload) = packet.split_at(headers.payload);
        let size = usize::from(vnet.gso_size);
        if size == 0 || headers.udp != (vnet.gso == GsoKind::Udp) {
            return;
        }
        let count = payload.len().div_ceil(size);
        for (number, part) in payload.chunks(size).enumerate() {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(header);
            self.bytes.extend_from_slice(part);
            let packet = &mut self.bytes[start..];
            if !headers.v6 {
                let id = u16::from_be_bytes([packet[4], packet[5]]).wrapping_add(number as u16);
                packet[4..6].copy_from_slice(&id.to_be_bytes());
            }
            let length = packet.len();
            headers.set_lengths(packet, length);
            if !headers.udp {
                number_tcp(&mut packet[headers.transport..], number, size, count);
            }
            headers.set_checksum(packet);
            self.extend(start, length);
        }
    }
}

/// Sets the sequence number of segment `number`, and clears flags that belong only to the first or last segment.
fn number_tcp(tcp: &mut [u8], number: usize, size: usize, count: usize) {
    let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
    let sequence = sequence.wrapping_add((number * size) as u32);
    tcp[4..8].copy_from_slice(&sequence.to_be_bytes());
    if number + 1 < count {
        tcp[TCP_FLAGS] &= !TCP_FIN_PSH;
    }
    if number > 0 {
        tcp[TCP_FLAGS] &= !TCP_CWR;
    }
}

/// Completes a checksum whose field holds the sum of the pseudo header.
fn complete(packet: &mut [u8], vnet: &VnetHdr) {
    let start = usize::from(vnet.csum_start);
    let field = start + usize::from(vnet.csum_offset);
    if field + 2 > packet.len() {
        return;
    }
    let checksum = match !fold(sum(&packet[start..])) {
        0 => u16::MAX,
        checksum => checksum,
    };
    packet[field..field + 2].copy_from_slice(&checksum.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forwarder::packet::tests::packet;

    #[test]
    fn super_packets_become_whole_packets_in_one_train() {
        for (v6, udp, gso) in [
            (false, false, GsoKind::Tcp4),
            (true, false, GsoKind::Tcp6),
            (false, true, GsoKind::Udp),
        ] {
            let payload: Vec<u8> = (0..2500).map(|i| i as u8).collect();
            let mut read = VnetHdr {
                gso,
                gso_size: 1000,
                ..VnetHdr::NONE
            }
            .emit()
            .to_vec();
            read.extend(packet(v6, udp, 77, &payload));
            let mut cutter = Cutter::new(true);
            cutter.add(&read);
            let [run] = cutter.trains() else {
                panic!("{:?}", cutter.trains());
            };
            let mut joined = Vec::new();
            for packet in cutter.bytes()[..run.length].chunks(run.segment) {
                let headers = Headers::parse(packet).unwrap();
                assert!(headers.verify(packet));
                joined.extend_from_slice(&packet[headers.payload..]);
            }
            assert_eq!(joined, payload);
        }
    }

    #[test]
    fn loose_packets_of_equal_size_share_a_train() {
        let mut cutter = Cutter::new(false);
        for length in [100, 100, 60, 100, 200] {
            cutter.add(&vec![0; length]);
        }
        let lengths: Vec<_> = cutter.trains().iter().map(|run| run.length).collect();
        assert_eq!(lengths, [260, 100, 200]);
    }

    #[test]
    fn nonsense_is_dropped() {
        let mut cutter = Cutter::new(true);
        for fill in [0u8, 1, 4, 5, 0x45, 0xff] {
            for length in 0..100 {
                cutter.add(&vec![fill; length]);
            }
        }
    }
}
