//! Facts about an inner packet for schedulers, queues and windows: its flow, its marks, its kind.

use plane::Ecn;

const HOP_BY_HOP: u8 = 0;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;
/// Maximum number of IPv6 extension headers that are skipped.
const EXTENSIONS_MAX: usize = 4;

/// The code point of Class Selector 5 (RFC 2474). It, EF (46, RFC 3246) and all above mark urgent packets: voice,
/// signalling, the network's own control.
pub const DSCP_CRITICAL: u8 = 40;

/// A packet of UDP up to this long, IP header included, is small: voice, games, name and time requests.
pub const UDP_SMALL: usize = 300;

/// The content of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A segment of TCP with SYN.
    TcpSyn,
    /// A segment of TCP with neither data nor SYN, FIN or RST: it acknowledges only.
    TcpAck,
    /// A TCP segment of another kind.
    Tcp,
    /// A datagram of UDP.
    Udp,
    /// Another protocol, a fragment, or headers that cannot be read.
    Other,
}

/// The facts about an inner packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inner {
    /// A hash of addresses, protocol and ports. Fragments are hashed without ports, so that all of a datagram are one
    /// flow.
    pub flow: u32,
    /// The length of the packet in bytes.
    pub length: usize,
    /// The six bits of the differentiated services code point.
    pub dscp: u8,
    /// The packet's ECN bits.
    pub ecn: Ecn,
    /// Content of the packet.
    pub kind: Kind,
}

impl Inner {
    /// Whether losing the packet hurts more than its size suggests: DSCP from CS5 on, small UDP, TCP's SYN and pure
    /// acknowledgements.
    #[must_use]
    pub const fn critical(&self) -> bool {
        match self.kind {
            Kind::TcpSyn | Kind::TcpAck => true,
            Kind::Udp if self.length <= UDP_SMALL => true,
            _ => self.urgent(),
        }
    }

    /// Whether the sender has marked the packet as urgent. All packets of a flow usually are, so they may be delivered
    /// out of order with others.
    #[must_use]
    pub const fn urgent(&self) -> bool {
        self.dscp >= DSCP_CRITICAL
    }

    /// Whether other packets of the flow may overtake this one: it is urgent, or acknowledges only. Of two
    /// acknowledgements the newer one includes the older one. Exceptions are a window that a receiver has opened
    /// meanwhile and duplicates that it reports (RFC 9293 section 3.10.7.4, RFC 2883); networks that reorder lose these
    /// as well. Waiting for a lost acknowledgement makes every round trip longer.
    #[must_use]
    pub const fn needs_no_order(&self) -> bool {
        self.urgent() || matches!(self.kind, Kind::TcpAck)
    }
}

/// Reads inner packets. Hashes depend on a seed, so that a stranger cannot choose flows that collide (RFC 8290
/// section 6).
#[derive(Clone, Copy, Debug)]
pub struct Reader {
    seed: u64,
}

impl Reader {
    /// Makes a reader with a seed, which must be random for each start.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// Reads a packet. `None` if it is neither IPv4 nor IPv6, or too short for its header.
    #[must_use]
    #[inline]
    pub fn read(&self, packet: &[u8]) -> Option<Inner> {
        match packet.first()? >> 4 {
            4 => self.read_v4(packet),
            6 => self.read_v6(packet),
            _ => None,
        }
    }

    fn read_v4(&self, packet: &[u8]) -> Option<Inner> {
        let header = packet.get(..20)?;
        let length = usize::from(header[0] & 15) * 4;
        let offset = u16::from_be_bytes([header[6], header[7]]);
        // Either More Fragments is set, or the offset is not 0.
        let fragment = offset & 0x3fff != 0;
        let behind = if fragment { None } else { packet.get(length..) };
        let mut hash = Hash::new(self.seed);
        hash.add(&header[12..20]);
        Some(inner(packet, header[1], header[9], behind, hash))
    }

    fn read_v6(&self, packet: &[u8]) -> Option<Inner> {
        let header = packet.get(..40)?;
        let class = header[0] << 4 | header[1] >> 4;
        let mut protocol = header[6];
        let mut behind = packet.get(40..);
        for _ in 0..EXTENSIONS_MAX {
            if !matches!(protocol, HOP_BY_HOP | ROUTING | DESTINATION) {
                break;
            }
            let Some([next, length, ..]) = behind else {
                break;
            };
            protocol = *next;
            behind = behind.and_then(|behind| behind.get(usize::from(*length) * 8 + 8..));
        }
        if protocol == FRAGMENT {
            behind = None;
        }
        let mut hash = Hash::new(self.seed);
        hash.add(&header[8..40]);
        Some(inner(packet, class, protocol, behind, hash))
    }
}

/// Reads the part that both versions have in common. `behind` are the bytes behind the IP header, unless the packet is
/// a fragment.
#[inline]
fn inner(packet: &[u8], class: u8, protocol: u8, behind: Option<&[u8]>, mut hash: Hash) -> Inner {
    hash.add(&[protocol]);
    let ports = behind
        .filter(|_| matches!(protocol, TCP | UDP))
        .and_then(|behind| behind.get(..4));
    let kind = match (protocol, ports, behind) {
        (UDP, Some(_), _) => Kind::Udp,
        (TCP, Some(_), Some(segment)) => tcp_kind(segment),
        _ => Kind::Other,
    };
    hash.add(ports.unwrap_or_default());
    Inner {
        flow: hash.finish(),
        length: packet.len(),
        dscp: class >> 2,
        ecn: Ecn::from_tos(class),
        kind,
    }
}

fn tcp_kind(segment: &[u8]) -> Kind {
    const FIN: u8 = 1;
    const SYN: u8 = 2;
    const RST: u8 = 4;
    const ACK: u8 = 16;
    let [offset, flags] = match segment.get(12..14) {
        Some([offset, flags]) => [*offset, *flags],
        _ => return Kind::Other,
    };
    let data = segment.len() > usize::from(offset >> 4) * 4;
    match flags & (FIN | SYN | RST | ACK) {
        flags if flags & SYN != 0 => Kind::TcpSyn,
        ACK if !data => Kind::TcpAck,
        _ => Kind::Tcp,
    }
}

/// Multiplies and folds: spreads flows over places well enough, in a few instructions.
struct Hash(u64);

impl Hash {
    const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn add(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            let mixed = self.0 ^ u64::from_le_bytes(word);
            let wide = u128::from(mixed ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
            self.0 = (wide as u64 ^ (wide >> 64) as u64).rotate_left(23);
        }
    }

    const fn finish(&self) -> u32 {
        (self.0 ^ self.0 >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const READER: Reader = Reader::new(1);

    /// An IPv4 packet with this class, protocol and payload.
    fn v4(class: u8, protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x45, class, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0];
        packet.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        packet.extend(payload);
        packet
    }

    fn v6(class: u8, next: u8, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x60 | class >> 4, class << 4, 0, 0, 0, 0, next, 64];
        packet.extend([1; 16]);
        packet.extend([2; 16]);
        packet.extend(payload);
        packet
    }

    fn segment(port: u8, flags: u8, data: usize) -> Vec<u8> {
        let mut segment = vec![0, port, 0, 80];
        segment.extend([0; 8]);
        segment.extend([0x50, flags, 0, 0, 0, 0, 0, 0]);
        segment.resize(20 + data, 0);
        segment
    }

    fn read(packet: &[u8]) -> Inner {
        READER.read(packet).unwrap()
    }

    #[test]
    fn what_tcp_carries() {
        for (flags, data, kind) in [
            (0x02, 0, Kind::TcpSyn),
            (0x12, 0, Kind::TcpSyn),
            (0x10, 0, Kind::TcpAck),
            (0x10, 1, Kind::Tcp),
            (0x11, 0, Kind::Tcp),
            (0x14, 0, Kind::Tcp),
        ] {
            let inner = read(&v4(0, TCP, &segment(1, flags, data)));
            assert_eq!(inner.kind, kind, "{flags:x}");
            let critical = matches!(kind, Kind::TcpSyn | Kind::TcpAck);
            assert_eq!(inner.critical(), critical);
            assert_eq!(inner.needs_no_order(), kind == Kind::TcpAck);
            assert_eq!(read(&v6(0, TCP, &segment(1, flags, data))).kind, kind);
        }
    }

    #[test]
    fn small_datagrams_and_marked_packets_are_critical() {
        assert!(read(&v4(0, UDP, &[0; 172])).critical());
        assert!(!read(&v4(0, UDP, &[0; 1200])).critical());
        let ef = read(&v6(46 << 2 | 2, UDP, &[0; 1200]));
        assert!(ef.critical() && ef.urgent() && ef.needs_no_order());
        assert_eq!((ef.dscp, ef.ecn), (46, Ecn::Ect0));
        assert!(!read(&v4(39 << 2, TCP, &segment(1, 0x10, 9))).critical());
    }

    #[test]
    fn a_flow_is_its_addresses_protocol_and_ports() {
        let flow = |packet: &[u8]| read(packet).flow;
        let first = v4(0, TCP, &segment(1, 0x10, 9));
        assert_eq!(flow(&first), flow(&v4(0xb8, TCP, &segment(1, 2, 0))));
        assert_ne!(flow(&first), flow(&v4(0, TCP, &segment(2, 0x10, 9))));
        assert_ne!(flow(&first), flow(&v4(0, UDP, &segment(1, 0x10, 9))));
        assert_ne!(flow(&first), Reader::new(2).read(&first).unwrap().flow);
    }

    #[test]
    fn fragments_of_a_datagram_are_one_flow() {
        let mut first = v4(0, UDP, &[1; 64]);
        first[6] = 0x20;
        let mut second = v4(0, UDP, &[2; 64]);
        second[7] = 8;
        assert_eq!(read(&first).flow, read(&second).flow);
        assert_eq!(read(&second).kind, Kind::Other);
    }

    #[test]
    fn extension_headers_are_looked_behind() {
        let mut payload = vec![UDP, 0, 0, 0, 0, 0, 0, 0];
        payload.extend([0, 7, 0, 53, 0, 8, 0, 0]);
        assert_eq!(read(&v6(0, DESTINATION, &payload)).kind, Kind::Udp);
        assert_eq!(read(&v6(0, FRAGMENT, &payload)).kind, Kind::Other);
    }

    proptest! {
        #[test]
        fn no_bytes_do_harm(bytes in prop::collection::vec(any::<u8>(), 0..120), version in any::<bool>()) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = *first & 15 | if version { 0x40 } else { 0x60 };
            }
            let _ = READER.read(&bytes);
        }
    }
}
