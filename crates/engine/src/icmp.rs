//! Informs a local sender that its packet cannot be delivered: writes ICMP destination unreachable back into the TUN
//! (RFC 792, RFC 4443 section 3.1).

use crate::checksum;
use crate::ip::{ICMP, ICMPV6, IPV6_HEADER, IpPacket};
use std::net::IpAddr;

/// Longest answer: IPv6's minimum MTU, as RFC 4443 section 2.4 (c) asks. RFC 1812 section 4.3.2.3 allows only 576 bytes
/// for IPv4, so IPv4 answers are cut shorter.
pub(crate) const ANSWER_MAX: usize = 1280;
const ANSWER_MAX_V4: usize = 576;

/// Host unreachable (type 3, code 1).
const V4_HOST_UNREACHABLE: [u8; 2] = [3, 1];
/// Address unreachable (type 1, code 3).
const V6_ADDRESS_UNREACHABLE: [u8; 2] = [1, 3];

/// Writes the answer to `packet` into `out` and returns its length.
///
/// `None` if RFC 1122 section 3.2.2 or RFC 4443 section 2.4 (e) forbid an answer. They forbid it for ICMP errors,
/// multicast or unspecified addresses, and fragments other than the first.
pub(crate) fn unreachable(packet: &[u8], out: &mut [u8; ANSWER_MAX]) -> Option<usize> {
    let ip = IpPacket::parse(packet)?;
    let packet = &packet[..ip.len];
    match (ip.src, ip.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let fragment = u16::from_be_bytes([packet[6], packet[7]]) & 0x1fff != 0;
            let header = usize::from(packet[0] & 15) * 4;
            let is_error = packet[9] == ICMP && !matches!(packet.get(header), Some(0 | 8));
            let bad = src.is_unspecified()
                || src.is_multicast()
                || src.is_broadcast()
                || dst.is_multicast()
                || dst.is_broadcast();
            if fragment || is_error || bad {
                return None;
            }
            let quoted = packet.len().min(ANSWER_MAX_V4 - 28);
            let len = 28 + quoted;
            let head = &mut out[..len];
            head[..28].fill(0);
            head[0] = 0x45;
            // Precedence "internetwork control", as RFC 1812 section 4.3.2.5 requires for errors.
            head[1] = 0xc0;
            head[2..4].copy_from_slice(&(len as u16).to_be_bytes());
            head[8] = 64;
            head[9] = ICMP;
            // The answer comes from the unreachable address itself. The tunnel may lack an address of its own, and the
            // sender's kernel looks at the quoted packet.
            head[12..16].copy_from_slice(&packet[16..20]);
            head[16..20].copy_from_slice(&packet[12..16]);
            head[20..22].copy_from_slice(&V4_HOST_UNREACHABLE);
            head[28..].copy_from_slice(&packet[..quoted]);
            checksum::write_ipv4(&mut head[..20]);
            let sum = !checksum::fold(checksum::add(0, &head[20..]));
            head[22..24].copy_from_slice(&sum.to_ne_bytes());
            Some(len)
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            // ICMPv6 types below 128 are errors.
            let is_error = packet[6] == ICMPV6 && packet.get(IPV6_HEADER).is_none_or(|t| *t < 128);
            if is_error || src.is_unspecified() || src.is_multicast() || dst.is_multicast() {
                return None;
            }
            let quoted = packet.len().min(ANSWER_MAX - IPV6_HEADER - 8);
            let len = IPV6_HEADER + 8 + quoted;
            let head = &mut out[..len];
            head[..IPV6_HEADER + 8].fill(0);
            head[0] = 0x60;
            head[4..6].copy_from_slice(&((8 + quoted) as u16).to_be_bytes());
            head[6] = ICMPV6;
            head[7] = 64;
            head[8..24].copy_from_slice(&packet[24..40]);
            head[24..40].copy_from_slice(&packet[8..24]);
            head[40..42].copy_from_slice(&V6_ADDRESS_UNREACHABLE);
            head[48..].copy_from_slice(&packet[..quoted]);
            let pseudo = checksum::pseudo_header(&head[8..40], ICMPV6, 8 + quoted);
            let sum = !checksum::fold(checksum::add(pseudo, &head[40..]));
            head[42..44].copy_from_slice(&sum.to_ne_bytes());
            Some(len)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip::UDP;
    use crate::ip::tests::{ipv4, ipv6};

    #[test]
    fn the_answer_quotes_the_packet_and_has_right_checksums() {
        let mut out = [0; ANSWER_MAX];
        let packet = ipv4([10, 0, 0, 1], [10, 0, 0, 9], UDP, &[5; 900]);
        let len = unreachable(&packet, &mut out).unwrap();
        assert_eq!(len, 576);
        assert_eq!(
            IpPacket::parse(&out[..len]).unwrap().dst,
            "10.0.0.1".parse::<IpAddr>().unwrap()
        );
        assert_eq!(checksum::fold(checksum::add(0, &out[..20])), 0xffff);
        assert_eq!(checksum::fold(checksum::add(0, &out[20..len])), 0xffff);
        assert_eq!(out[28..len], packet[..len - 28]);

        let packet = ipv6([1; 16], [3; 16], UDP, &[5; 8]);
        let len = unreachable(&packet, &mut out).unwrap();
        let pseudo = checksum::pseudo_header(&out[8..40], ICMPV6, len - 40);
        assert_eq!(checksum::fold(checksum::add(pseudo, &out[40..len])), 0xffff);
        assert_eq!(out[48..len], packet);
    }

    #[test]
    fn errors_and_multicast_are_not_answered() {
        let mut out = [0; ANSWER_MAX];
        let echo = ipv4([10, 0, 0, 1], [10, 0, 0, 9], ICMP, &[8; 8]);
        assert!(unreachable(&echo, &mut out).is_some());
        for packet in [
            ipv4([10, 0, 0, 1], [10, 0, 0, 9], ICMP, &[3; 8]),
            ipv4([10, 0, 0, 1], [224, 0, 0, 1], UDP, &[0; 8]),
            ipv4([0, 0, 0, 0], [10, 0, 0, 9], UDP, &[0; 8]),
            ipv6([1; 16], [0xff; 16], UDP, &[0; 8]),
            ipv6([1; 16], [2; 16], ICMPV6, &[1; 8]),
            vec![0; 40],
        ] {
            assert_eq!(unreachable(&packet, &mut out), None);
        }
    }
}
