//! `struct virtio_net_hdr`, the ten bytes that precede every packet of a TUN opened with
//! `IFF_VNET_HDR` (Linux `include/uapi/linux/virtio_net.h`; VIRTIO 1.1 section 5.1.6).
//!
//! Only the legacy layout is used: native byte order, no `num_buffers`.

/// Size of the header, in bytes.
pub const VNET_HDR_LEN: usize = 10;

const F_NEEDS_CSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// What kind of segmentation a super-packet asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GsoKind {
    /// An ordinary packet.
    None,
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP over either family (USO), since Linux 6.2.
    Udp,
}

/// A decoded header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VnetHdr {
    /// The checksum field holds only the pseudo-header sum; the rest is to be completed over
    /// `csum_start..`.
    pub needs_csum: bool,
    /// Kind of super-packet.
    pub gso: GsoKind,
    /// A TCP super-packet whose first segment alone carries CWR.
    pub gso_ecn: bool,
    /// Length of the headers in bytes. A hint: forwarded packets carry wrong ones, so readers
    /// compute it from the packet.
    pub hdr_len: u16,
    /// Payload bytes per segment.
    pub gso_size: u16,
    /// Where the checksummed part starts, in bytes from the packet's first.
    pub csum_start: u16,
    /// Where the checksum field is, in bytes from `csum_start`.
    pub csum_offset: u16,
}

impl VnetHdr {
    /// The header of an ordinary, fully checksummed packet.
    pub const NONE: Self = Self {
        needs_csum: false,
        gso: GsoKind::None,
        gso_ecn: false,
        hdr_len: 0,
        gso_size: 0,
        csum_start: 0,
        csum_offset: 0,
    };

    /// Reads a header.
    ///
    /// `None` where it is short or asks for a segmentation that was never negotiated (UFO,
    /// tunnel types): such a packet cannot be handled and is dropped.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let b: &[u8; VNET_HDR_LEN] = bytes.get(..VNET_HDR_LEN)?.try_into().ok()?;
        let word = |i: usize| u16::from_ne_bytes([b[i], b[i + 1]]);
        let gso = match b[1] & !GSO_ECN {
            GSO_NONE => GsoKind::None,
            GSO_TCPV4 => GsoKind::Tcp4,
            GSO_TCPV6 => GsoKind::Tcp6,
            GSO_UDP_L4 => GsoKind::Udp,
            _ => return None,
        };
        Some(Self {
            needs_csum: b[0] & F_NEEDS_CSUM != 0,
            gso,
            gso_ecn: b[1] & GSO_ECN != 0,
            hdr_len: word(2),
            gso_size: word(4),
            csum_start: word(6),
            csum_offset: word(8),
        })
    }

    /// Writes the header.
    #[must_use]
    pub fn emit(&self) -> [u8; VNET_HDR_LEN] {
        let mut b = [0; VNET_HDR_LEN];
        b[0] = if self.needs_csum { F_NEEDS_CSUM } else { 0 };
        b[1] = match self.gso {
            GsoKind::None => GSO_NONE,
            GsoKind::Tcp4 => GSO_TCPV4,
            GsoKind::Tcp6 => GSO_TCPV6,
            GsoKind::Udp => GSO_UDP_L4,
        } | if self.gso_ecn { GSO_ECN } else { 0 };
        b[2..4].copy_from_slice(&self.hdr_len.to_ne_bytes());
        b[4..6].copy_from_slice(&self.gso_size.to_ne_bytes());
        b[6..8].copy_from_slice(&self.csum_start.to_ne_bytes());
        b[8..10].copy_from_slice(&self.csum_offset.to_ne_bytes());
        b
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_the_round_trip() {
        let hdr = VnetHdr {
            needs_csum: true,
            gso: GsoKind::Tcp6,
            gso_ecn: true,
            hdr_len: 60,
            gso_size: 1360,
            csum_start: 40,
            csum_offset: 16,
        };
        assert_eq!(VnetHdr::parse(&hdr.emit()), Some(hdr));
        assert_eq!(VnetHdr::NONE.emit(), [0; VNET_HDR_LEN]);
    }

    #[test]
    fn unknown_segmentation_and_short_headers_are_refused() {
        assert_eq!(VnetHdr::parse(&[0; 9]), None);
        assert_eq!(VnetHdr::parse(&[0, 3, 0, 0, 0, 0, 0, 0, 0, 0]), None);
    }
}
