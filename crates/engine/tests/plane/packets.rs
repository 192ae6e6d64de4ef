//! Inner packets with correct checksums, super-packets in the kernel's format, and functions to inspect either.

use netio::tun::{GsoKind, VNET_HDR_LEN, VnetHdr};

/// The address of host `number`: 10.0.0.x, or fd00::x.
pub(crate) fn address(v6: bool, number: u8) -> Vec<u8> {
    if v6 {
        let mut octets = vec![0xfd; 1];
        octets.resize(15, 0);
        octets.push(number);
        return octets;
    }
    vec![10, 0, 0, number]
}

/// The one's complement sum of 16-bit words, folded (RFC 1071), one word at a time.
pub(crate) fn sum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0_u32;
    for part in parts {
        for pair in part.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
    }
    sum as u16
}

/// An IP packet around `l4`, whose checksum field is at `field`. `complete` computes the full checksum, as on the wire;
/// otherwise only the pseudo-header's sum, as in a super-packet.
fn ip(
    v6: bool,
    (from, to): (u8, u8),
    protocol: u8,
    l4: &[u8],
    field: usize,
    complete: bool,
) -> Vec<u8> {
    let addresses = [address(v6, from), address(v6, to)].concat();
    let mut packet = if v6 {
        let mut head = vec![0x60, 0, 0, 0, 0, 0, protocol, 64];
        head[4..6].copy_from_slice(&(l4.len() as u16).to_be_bytes());
        head
    } else {
        let mut head = vec![0x45, 0, 0, 0, 0, 9, 0x40, 0, 64, protocol, 0, 0];
        head[2..4].copy_from_slice(&((20 + l4.len()) as u16).to_be_bytes());
        let check = !sum(&[&head, &addresses]);
        head[10..12].copy_from_slice(&check.to_be_bytes());
        head
    };
    packet.extend(&addresses);
    let start = packet.len();
    packet.extend(l4);
    let pseudo = [0, protocol, (l4.len() >> 8) as u8, l4.len() as u8];
    let check = if complete {
        !sum(&[&addresses, &pseudo, l4])
    } else {
        sum(&[&addresses, &pseudo])
    };
    packet[start + field..start + field + 2].copy_from_slice(&check.to_be_bytes());
    packet
}

fn udp_segment(payload: &[u8]) -> Vec<u8> {
    let mut l4 = vec![0x12, 0x34, 0x56, 0x78, 0, 0, 0, 0];
    l4[4..6].copy_from_slice(&((8 + payload.len()) as u16).to_be_bytes());
    l4.extend(payload);
    l4
}

fn tcp_segment(seq: u32, payload: &[u8]) -> Vec<u8> {
    let mut l4 = vec![0x12, 0x34, 0x56, 0x78];
    l4.extend(seq.to_be_bytes());
    l4.extend([0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    l4.extend(payload);
    l4
}

/// A UDP packet from one host to another.
pub(crate) fn udp(v6: bool, hosts: (u8, u8), payload: &[u8]) -> Vec<u8> {
    ip(v6, hosts, 17, &udp_segment(payload), 6, true)
}

/// A TCP packet with an acknowledgement and data.
pub(crate) fn tcp(v6: bool, hosts: (u8, u8), seq: u32, payload: &[u8]) -> Vec<u8> {
    ip(v6, hosts, 6, &tcp_segment(seq, payload), 16, true)
}

/// A super-packet with `mss` bytes of payload in each segment, and its header.
pub(crate) fn joined(
    udp: bool,
    v6: bool,
    hosts: (u8, u8),
    mss: usize,
    payload: &[u8],
) -> (VnetHdr, Vec<u8>) {
    let l4 = if v6 { 40 } else { 20 };
    let (segment, protocol, field) = if udp {
        (udp_segment(payload), 17, 6)
    } else {
        (tcp_segment(1000, payload), 6, 16)
    };
    let hdr = VnetHdr {
        needs_csum: true,
        gso: match (udp, v6) {
            (true, _) => GsoKind::Udp,
            (false, false) => GsoKind::Tcp4,
            (false, true) => GsoKind::Tcp6,
        },
        gso_ecn: false,
        hdr_len: (l4 + if udp { 8 } else { 20 }) as u16,
        gso_size: mss as u16,
        csum_start: l4 as u16,
        csum_offset: field as u16,
    };
    (hdr, ip(v6, hosts, protocol, &segment, field, false))
}

/// A packet behind the virtio header of an ordinary packet.
pub(crate) fn plain(packet: &[u8]) -> Vec<u8> {
    [&VnetHdr::NONE.emit()[..], packet].concat()
}

/// A super-packet behind its virtio header.
pub(crate) fn with_header((hdr, packet): &(VnetHdr, Vec<u8>)) -> Vec<u8> {
    [&hdr.emit()[..], packet].concat()
}

/// The packet with its ECN bits set to `ecn`.
pub(crate) fn marked(mut packet: Vec<u8>, ecn: u8) -> Vec<u8> {
    if packet[0] >> 4 == 6 {
        packet[1] = ecn << 4;
        return packet;
    }
    packet[1] = ecn;
    packet[10..12].fill(0);
    let check = !sum(&[&packet[..20]]);
    packet[10..12].copy_from_slice(&check.to_be_bytes());
    packet
}

/// The ECN bits of a packet.
pub(crate) fn mark(packet: &[u8]) -> u8 {
    if packet[0] >> 4 == 6 {
        packet[1] >> 4 & 3
    } else {
        packet[1] & 3
    }
}

/// A packet without its padding.
pub(crate) fn trimmed(packet: &[u8]) -> &[u8] {
    let word = |at: usize| usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
    if packet[0] >> 4 == 6 {
        &packet[..40 + word(4)]
    } else {
        &packet[..word(2)]
    }
}

/// The payload of a UDP or TCP packet.
///
/// # Panics
/// If a checksum is wrong.
pub(crate) fn payload(packet: &[u8]) -> &[u8] {
    let packet = trimmed(packet);
    let (l4, protocol, addresses) = if packet[0] >> 4 == 6 {
        (40, packet[6], &packet[8..40])
    } else {
        assert_eq!(sum(&[&packet[..20]]), 0xffff, "checksum of the IP header");
        (20, packet[9], &packet[12..20])
    };
    let segment = &packet[l4..];
    let pseudo = [0, protocol, (segment.len() >> 8) as u8, segment.len() as u8];
    assert_eq!(sum(&[addresses, &pseudo, segment]), 0xffff, "checksum");
    &segment[if protocol == 17 { 8 } else { 20 }..]
}

/// The payloads of all packets in one write to the interface, and whether the write was a super-packet.
///
/// # Panics
/// If header and packet contradict each other.
pub(crate) fn written(write: &[u8]) -> (Vec<Vec<u8>>, bool) {
    let hdr = VnetHdr::parse(write).unwrap();
    let packet = &write[VNET_HDR_LEN..];
    if hdr.gso == GsoKind::None {
        return (vec![packet.to_vec()], false);
    }
    let (l4, field) = (usize::from(hdr.csum_start), usize::from(hdr.csum_offset));
    assert!(hdr.needs_csum);
    assert_eq!(trimmed(packet).len(), packet.len());
    let (protocol, addresses) = if l4 == 40 {
        (packet[6], &packet[8..40])
    } else {
        assert_eq!(sum(&[&packet[..20]]), 0xffff);
        (packet[9], &packet[12..20])
    };
    let len = packet.len() - l4;
    let pseudo = sum(&[addresses, &[0, protocol, (len >> 8) as u8, len as u8]]);
    assert_eq!(
        packet[l4 + field..l4 + field + 2],
        pseudo.to_be_bytes(),
        "half a checksum"
    );
    // The length in the kernel's header is a hint, and the kernel rounds some lengths up.
    let header = match field {
        6 => l4 + 8,
        _ => l4 + usize::from(packet[l4 + 12] >> 4) * 4,
    };
    assert!((header..header + 4).contains(&usize::from(hdr.hdr_len)));
    let data = &packet[header..];
    let payloads = data
        .chunks(hdr.gso_size.into())
        .map(<[u8]>::to_vec)
        .collect();
    (payloads, true)
}
