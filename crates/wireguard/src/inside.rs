//! UDP packets of the exchange of post-quantum keys inside the tunnel, which are no host's.
//!
//! They have the greatest hop limit (RFC 5082). A router in front of the peer lowers it, so hosts behind the peer cannot
//! forge them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use postquantum::HOPS;

use crate::echo::sum;

const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
const UDP_HEADER: usize = 8;
const UDP: u8 = 17;

/// Bytes of the headers around a payload: IPv6 and UDP.
pub const HEADERS_MAX: usize = IPV6_HEADER + UDP_HEADER;

/// A packet of the exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inside<'a> {
    /// Address of the sender.
    pub from: IpAddr,
    /// Address that it was sent to.
    pub to: IpAddr,
    /// Payload of UDP.
    pub payload: &'a [u8],
}

/// Whether an inner packet belongs to the exchange at this port: the peer itself has sent it.
#[must_use]
pub fn is_exchange(packet: &[u8], port: u16) -> bool {
    Inside::parse(packet, port).is_some()
}

impl<'a> Inside<'a> {
    /// Reads an inner packet; `None` if it is not one of the exchange at this port. Bytes behind it are padding.
    #[must_use]
    pub fn parse(packet: &'a [u8], port: u16) -> Option<Self> {
        let (from, to, udp): (IpAddr, IpAddr, _) = match packet.first()? >> 4 {
            4 => {
                let (header, udp) = packet.split_first_chunk::<IPV4_HEADER>()?;
                // Neither options nor fragments: this program sends none.
                let whole = u16::from_be_bytes([header[6], header[7]]) & 0x3fff == 0;
                if header[0] != 0x45 || header[8..10] != [HOPS, UDP] || !whole {
                    return None;
                }
                let address = |at: usize| {
                    let octets = [header[at], header[at + 1], header[at + 2], header[at + 3]];
                    IpAddr::from(Ipv4Addr::from(octets))
                };
                (address(12), address(16), udp)
            }
            6 => {
                let (header, udp) = packet.split_first_chunk::<IPV6_HEADER>()?;
                let (from, to) = header[8..].split_first_chunk::<16>()?;
                let to = to.first_chunk::<16>()?;
                if header[6..8] != [UDP, HOPS] {
                    return None;
                }
                (
                    Ipv6Addr::from(*from).into(),
                    Ipv6Addr::from(*to).into(),
                    udp,
                )
            }
            _ => return None,
        };
        let (header, _) = udp.split_first_chunk::<UDP_HEADER>()?;
        let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
        let payload = udp.get(UDP_HEADER..len)?;
        let ours = header[2..4] == port.to_be_bytes() && postquantum::is_exchange(payload);
        ours.then_some(Self { from, to, payload })
    }

    /// The packet's bytes, from and to the same port; `None` where the addresses are of two families, or the payload is
    /// too long.
    #[must_use]
    pub fn emit(&self, port: u16) -> Option<Vec<u8>> {
        let len = u16::try_from(UDP_HEADER + self.payload.len()).ok()?;
        let (mut packet, pseudo) = match (self.from, self.to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let mut head = [0; IPV4_HEADER];
                head[0] = 0x45;
                head[2..4].copy_from_slice(&len.checked_add(20)?.to_be_bytes());
                (head[8], head[9]) = (HOPS, UDP);
                head[12..16].copy_from_slice(&from.octets());
                head[16..].copy_from_slice(&to.octets());
                let checksum = !sum(0, &head);
                head[10..12].copy_from_slice(&checksum.to_be_bytes());
                (head.to_vec(), sum(0, &head[12..]))
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let mut head = [0; IPV6_HEADER];
                head[0] = 0x60;
                head[4..6].copy_from_slice(&len.to_be_bytes());
                (head[6], head[7]) = (UDP, HOPS);
                head[8..24].copy_from_slice(&from.octets());
                head[24..].copy_from_slice(&to.octets());
                (head.to_vec(), sum(0, &head[8..]))
            }
            _ => return None,
        };
        let at = packet.len();
        packet.extend(port.to_be_bytes());
        packet.extend(port.to_be_bytes());
        packet.extend(len.to_be_bytes());
        packet.extend([0; 2]);
        packet.extend_from_slice(self.payload);
        let start = u32::from(pseudo) + u32::from(UDP) + u32::from(len);
        // Zero would mean "no checksum".
        let checksum = match !sum(start, &packet[at..]) {
            0 => u16::MAX,
            checksum => checksum,
        };
        packet[at + 6..at + 8].copy_from_slice(&checksum.to_be_bytes());
        Some(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postquantum::PORT;
    use proptest::prelude::*;

    const PAIRS: [(&str, &str); 2] = [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")];

    fn message(payload: &[u8], pair: usize) -> Vec<u8> {
        let (from, to) = PAIRS[pair];
        let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
        Inside { from, to, payload }.emit(PORT).unwrap()
    }

    #[test]
    fn packets_are_read_as_they_were_written_and_checksums_are_right() {
        let payload = [&b"MRPQ"[..], &[7; 45]].concat();
        for (pair, (from, to)) in PAIRS.iter().enumerate() {
            let mut packet = message(&payload, pair);
            let header = packet.len() - UDP_HEADER - payload.len();
            let pseudo = if header == 20 { 12 } else { 8 };
            let start = u32::from(sum(0, &packet[pseudo..header]));
            let start = start + u32::from(UDP) + (UDP_HEADER + payload.len()) as u32;
            assert_eq!(sum(start, &packet[header..]), 0xffff);
            let mut passed_on = packet.clone();
            passed_on[if header == 20 { 8 } else { 7 }] -= 1;
            assert!(!is_exchange(&passed_on, PORT), "a router lowers the limit");
            packet.resize(packet.len() + 15, 0);
            let read = Inside::parse(&packet, PORT).unwrap();
            assert_eq!(read.payload, payload);
            let addresses = (from.parse().unwrap(), to.parse().unwrap());
            assert_eq!((read.from, read.to), addresses);
            assert!(!is_exchange(&packet, PORT + 1));
            let other = message(&[b'x'; 49], pair);
            assert!(!is_exchange(&other, PORT));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..100), first in prop::sample::select(vec![0x45_u8, 0x60, 0x46, 0])) {
            if let Some(byte) = bytes.first_mut() {
                *byte = first;
            }
            let _ = Inside::parse(&bytes, PORT);
        }
    }
}
