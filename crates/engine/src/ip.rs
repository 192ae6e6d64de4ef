//! Reading and touching inner IP packets: only what routing, segmentation and ECN need.

use crate::checksum;
use netio::udp::Ecn;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// IP protocol number of TCP.
pub(crate) const TCP: u8 = 6;
/// IP protocol number of UDP.
pub(crate) const UDP: u8 = 17;
/// IP protocol number of ICMP for IPv4.
pub(crate) const ICMP: u8 = 1;
/// IP protocol number of ICMP for IPv6.
pub(crate) const ICMPV6: u8 = 58;

/// IPv6's fixed header, in bytes.
pub(crate) const IPV6_HEADER: usize = 40;

/// The header fields of an IP packet that the data plane uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IpPacket {
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    /// Length from the IP header in bytes, at most the length of the slice.
    pub(crate) len: usize,
    pub(crate) ecn: Ecn,
}

impl IpPacket {
    /// Reads the header of the packet that `bytes` starts with; trailing bytes are padding.
    ///
    /// `None` when it is not IPv4 or IPv6 or is shorter than its header says.
    #[inline]
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        match bytes.first()? >> 4 {
            4 => {
                let h: &[u8; 20] = bytes.get(..20)?.try_into().ok()?;
                let len = usize::from(u16::from_be_bytes([h[2], h[3]]));
                let header = usize::from(h[0] & 15) * 4;
                if header < 20 || len < header || len > bytes.len() {
                    return None;
                }
                Some(Self {
                    src: Ipv4Addr::new(h[12], h[13], h[14], h[15]).into(),
                    dst: Ipv4Addr::new(h[16], h[17], h[18], h[19]).into(),
                    len,
                    ecn: Ecn::from_tos(h[1]),
                })
            }
            6 => {
                let h: &[u8; IPV6_HEADER] = bytes.get(..IPV6_HEADER)?.try_into().ok()?;
                let len = usize::from(u16::from_be_bytes([h[4], h[5]])) + IPV6_HEADER;
                if len > bytes.len() {
                    return None;
                }
                let address = |at: usize| {
                    let mut octets = [0; 16];
                    octets.copy_from_slice(&h[at..at + 16]);
                    IpAddr::from(Ipv6Addr::from(octets))
                };
                Some(Self {
                    src: address(8),
                    dst: address(24),
                    len,
                    ecn: Ecn::from_tos(h[1] >> 4),
                })
            }
            _ => None,
        }
    }
}

/// Destination port and payload of a UDP packet, or of its first fragment; `None` for any other packet.
pub(crate) fn udp_payload(packet: &[u8]) -> Option<(u16, &[u8])> {
    const HEADER: usize = 8;
    const FRAGMENT: u8 = 44;
    let (protocol, at) = match packet.first()? >> 4 {
        4 => {
            let later = u16::from_be_bytes([*packet.get(6)?, *packet.get(7)?]) & 0x1fff != 0;
            if later {
                return None;
            }
            (*packet.get(9)?, usize::from(packet[0] & 15) * 4)
        }
        6 => match *packet.get(6)? {
            FRAGMENT => {
                let fragment = packet.get(IPV6_HEADER..IPV6_HEADER + 8)?;
                if u16::from_be_bytes([fragment[2], fragment[3]]) & !7 != 0 {
                    return None;
                }
                (fragment[0], IPV6_HEADER + 8)
            }
            next => (next, IPV6_HEADER),
        },
        _ => return None,
    };
    if protocol != UDP {
        return None;
    }
    let payload = packet.get(at + HEADER..)?;
    Some((
        u16::from_be_bytes([packet[at + 2], packet[at + 3]]),
        payload,
    ))
}

/// Whether a packet is a TCP segment with data, without reading its options: acknowledgements are shorter.
pub(crate) fn carries_tcp(packet: &[u8]) -> bool {
    const DATA: usize = 512;
    let protocol = match packet.first() {
        Some(first) if first >> 4 == 4 => packet.get(9),
        _ => packet.get(6),
    };
    packet.len() >= DATA && protocol == Some(&TCP)
}

/// Sets the ECN field of a decapsulated packet from both ECN fields (RFC 6040 section 4.2, figure 4).
///
/// Returns `false` if the packet must be dropped, because a transport that does not understand the mark experienced
/// congestion.
#[must_use]
pub(crate) fn decapsulate_ecn(packet: &mut [u8], inner: Ecn, outer: Ecn) -> bool {
    match (inner, outer) {
        (Ecn::NotEct, Ecn::Ce) => false,
        (Ecn::Ect0 | Ecn::Ect1, Ecn::Ce) => {
            set_ecn(packet, Ecn::Ce);
            true
        }
        (Ecn::Ect0, Ecn::Ect1) => {
            set_ecn(packet, Ecn::Ect1);
            true
        }
        _ => true,
    }
}

/// The outer ECN field for an inner one (RFC 6040 section 4.1, normal mode: copied).
#[must_use]
pub(crate) fn encapsulate_ecn(inner: Ecn) -> Ecn {
    inner
}

/// Sets the ECN field, and updates the checksum of an IPv4 header.
pub(crate) fn set_ecn(packet: &mut [u8], ecn: Ecn) {
    match packet[0] >> 4 {
        4 => {
            packet[1] = (packet[1] & !3) | ecn.bits();
            let header = usize::from(packet[0] & 15) * 4;
            checksum::write_ipv4(&mut packet[..header]);
        }
        6 => packet[1] = (packet[1] & !0x30) | (ecn.bits() << 4),
        _ => {}
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An IPv4 packet with a valid header checksum.
    pub(crate) fn ipv4(src: [u8; 4], dst: [u8; 4], protocol: u8, payload: &[u8]) -> Vec<u8> {
        let len = (20 + payload.len()) as u16;
        let mut p = vec![0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, protocol, 0, 0];
        p[2..4].copy_from_slice(&len.to_be_bytes());
        p.extend_from_slice(&src);
        p.extend_from_slice(&dst);
        checksum::write_ipv4(&mut p[..20]);
        p.extend_from_slice(payload);
        p
    }

    /// An IPv6 packet.
    pub(crate) fn ipv6(src: [u8; 16], dst: [u8; 16], next: u8, payload: &[u8]) -> Vec<u8> {
        let mut p = vec![0x60, 0, 0, 0];
        p.extend_from_slice(&(payload.len() as u16).to_be_bytes());
        p.extend_from_slice(&[next, 64]);
        p.extend_from_slice(&src);
        p.extend_from_slice(&dst);
        p.extend_from_slice(payload);
        p
    }

    #[test]
    fn udp_payloads_are_found_behind_either_header_and_in_first_fragments() {
        let mut four = vec![0; 20 + 8];
        (four[0], four[9]) = (0x45, UDP);
        four.extend([1, 2, 3]);
        assert_eq!(udp_payload(&four).map(|p| p.1), Some(&[1, 2, 3][..]));
        four[6] = 0x20;
        assert_eq!(
            udp_payload(&four).map(|p| p.1),
            Some(&[1, 2, 3][..]),
            "first fragment"
        );
        four[7] = 1;
        assert_eq!(udp_payload(&four), None, "a later one");
        let mut six = vec![0; 40 + 8];
        (six[0], six[6]) = (0x60, UDP);
        six.push(9);
        assert_eq!(udp_payload(&six).map(|p| p.1), Some(&[9][..]));
        let mut fragment = vec![0; 48 + 8];
        (fragment[0], fragment[6], fragment[40]) = (0x60, 44, UDP);
        fragment.push(7);
        assert_eq!(udp_payload(&fragment).map(|p| p.1), Some(&[7][..]));
        fragment[43] = 8;
        assert_eq!(udp_payload(&fragment), None);
        // Truncated packets must not cause reads beyond the slice.
        for len in 0..four.len() {
            udp_payload(&four[..len]);
            udp_payload(&fragment[..len]);
        }
        assert_eq!(udp_payload(&[0x4f; 30]), None);
    }

    #[test]
    fn lengths_come_from_the_header_and_must_be_there() {
        let mut p = ipv4([10, 0, 0, 1], [10, 0, 0, 2], UDP, &[1; 30]);
        p.extend_from_slice(&[0; 14]);
        assert_eq!(IpPacket::parse(&p).map(|i| i.len), Some(50));
        assert_eq!(IpPacket::parse(&p[..49]), None);
        assert_eq!(IpPacket::parse(&[0x45; 19]), None);
        assert_eq!(IpPacket::parse(&[]), None);
        assert_eq!(IpPacket::parse(&[0x15; 40]), None);
        let p = ipv6([1; 16], [2; 16], TCP, &[0; 20]);
        assert_eq!(IpPacket::parse(&p).map(|i| i.len), Some(60));
        assert_eq!(IpPacket::parse(&p[..59]), None);
    }

    #[test]
    fn ecn_is_combined_as_rfc_6040_says() {
        use Ecn::{Ce, Ect0, Ect1, NotEct};
        // Rows: inner; columns: outer Not-ECT, ECT(0), ECT(1), CE. None is a drop.
        let table = [
            (NotEct, [Some(NotEct), Some(NotEct), Some(NotEct), None]),
            (Ect0, [Some(Ect0), Some(Ect0), Some(Ect1), Some(Ce)]),
            (Ect1, [Some(Ect1), Some(Ect1), Some(Ect1), Some(Ce)]),
            (Ce, [Some(Ce), Some(Ce), Some(Ce), Some(Ce)]),
        ];
        for (inner, row) in table {
            for (outer, expected) in [NotEct, Ect0, Ect1, Ce].into_iter().zip(row) {
                for mut p in [
                    ipv4([10, 0, 0, 1], [10, 0, 0, 2], UDP, &[0; 8]),
                    ipv6([1; 16], [2; 16], UDP, &[0; 8]),
                ] {
                    set_ecn(&mut p, inner);
                    let kept = decapsulate_ecn(&mut p, inner, outer);
                    let got = kept.then(|| IpPacket::parse(&p).unwrap().ecn);
                    assert_eq!(got, expected, "inner {inner:?} outer {outer:?}");
                    if p[0] >> 4 == 4 {
                        assert_eq!(checksum::fold(checksum::add(0, &p[..20])), 0xffff);
                    }
                }
            }
        }
    }
}
