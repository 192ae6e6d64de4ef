//! Our own echo requests inside the tunnel, which any far end answers, and how to tell their answers from other echo
//! replies (RFC 792; RFC 4443, section 4).
//!
//! A request carries a number and a random token, which stays the same while requests are outstanding. Replies with the
//! current token are taken out of the peers' packets; all other packets go to their destination.

use plane::AtomicU64;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::Ordering;

/// Bytes of the shortest request over either family: headers of IP and ICMP, token and number.
pub const ECHO_MIN: u16 = (IPV6_HEADER + ICMP_HEADER + 16) as u16;

const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
const IPV6_FRAGMENT: usize = 8;
const ICMP_HEADER: usize = 8;

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const FRAGMENT: u8 = 44;

/// Types of requests, and of answers.
const REQUEST: (u8, u8) = (8, 128);
const REPLY: (u8, u8) = (0, 129);

/// Hops that a request and its answer may take.
const HOPS: u8 = 64;

/// The token of the awaited answers; 0 for none.
#[derive(Debug, Default)]
pub struct EchoWatch(AtomicU64);

impl EchoWatch {
    /// Takes answers that have this token from now on; 0 for none.
    pub fn watch(&self, token: u64) {
        // Relaxed is enough: the store publishes no other data, and an answer passes at least two kernels after it.
        self.0.store(token, Ordering::Relaxed);
    }

    /// Whether a packet is an awaited answer. Costs one load while none is awaited.
    #[inline]
    #[must_use]
    pub fn takes(&self, packet: &[u8]) -> bool {
        let token = self.0.load(Ordering::Relaxed);
        token != 0 && Answer::parse(packet).is_some_and(|answer| answer.token == token)
    }
}

/// An answer to a request of ours, or to one that looks like that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The sender of the answer.
    pub from: IpAddr,
    /// The token of the request.
    pub token: u64,
    /// The number of the request.
    pub number: u64,
}

impl Answer {
    /// Reads an echo reply, or the first fragment of one: the host that answers may have a smaller MTU.
    #[must_use]
    pub fn parse(packet: &[u8]) -> Option<Self> {
        let (from, icmp) = match packet.first()? >> 4 {
            4 => ipv4(packet)?,
            6 => ipv6(packet)?,
            _ => return None,
        };
        let wanted = if from.is_ipv4() { REPLY.0 } else { REPLY.1 };
        let (head, rest) = icmp.split_at_checked(ICMP_HEADER)?;
        let (token, rest) = rest.split_first_chunk()?;
        let number = rest.first_chunk()?;
        let token = u64::from_be_bytes(*token);
        // The identifier is part of the token, too.
        let ours = head[..2] == [wanted, 0] && head[4..6] == token.to_be_bytes()[..2];
        ours.then(|| Self {
            from,
            token,
            number: u64::from_be_bytes(*number),
        })
    }
}

/// The sender of an ICMP packet over IPv4, and the packet.
fn ipv4(packet: &[u8]) -> Option<(IpAddr, &[u8])> {
    let header = packet.first_chunk::<IPV4_HEADER>()?;
    let offset = u16::from_be_bytes([header[6], header[7]]) & 0x1fff;
    let source: [u8; 4] = header[12..16].try_into().ok()?;
    let len = usize::from(header[0] & 15) * 4;
    let icmp = packet.get(len.max(IPV4_HEADER)..)?;
    (header[9] == ICMP && offset == 0).then_some((Ipv4Addr::from(source).into(), icmp))
}

/// Reads the echo of IPv6.
fn ipv6(packet: &[u8]) -> Option<(IpAddr, &[u8])> {
    let (header, mut rest) = packet.split_first_chunk::<IPV6_HEADER>()?;
    let source: [u8; 16] = header[8..24].try_into().ok()?;
    let mut next = header[6];
    if next == FRAGMENT {
        let (fragment, behind) = rest.split_first_chunk::<IPV6_FRAGMENT>()?;
        if u16::from_be_bytes([fragment[2], fragment[3]]) >> 3 != 0 {
            return None;
        }
        (next, rest) = (fragment[0], behind);
    }
    (next == ICMPV6).then_some((Ipv6Addr::from(source).into(), rest))
}

/// A request of `len` bytes, at least [`ECHO_MIN`]; `None` where the addresses are of two families. Routers beyond the
/// far end may fragment it, since the networks there are not probed.
#[must_use]
pub fn request(
    (from, to): (IpAddr, IpAddr),
    (token, number): (u64, u64),
    len: u16,
) -> Option<Vec<u8>> {
    let len = len.max(ECHO_MIN);
    let mut packet = vec![0; usize::from(len)];
    let (kind, header, pseudo) = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let head = &mut packet[..IPV4_HEADER];
            head[0] = 0x45;
            head[2..4].copy_from_slice(&len.to_be_bytes());
            head[4..6].copy_from_slice(&(number as u16).to_be_bytes());
            (head[8], head[9]) = (HOPS, ICMP);
            head[12..16].copy_from_slice(&from.octets());
            head[16..].copy_from_slice(&to.octets());
            let checksum = !sum(0, head);
            head[10..12].copy_from_slice(&checksum.to_be_bytes());
            (REQUEST.0, IPV4_HEADER, 0)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let body = len - IPV6_HEADER as u16;
            let head = &mut packet[..IPV6_HEADER];
            head[0] = 0x60;
            head[4..6].copy_from_slice(&body.to_be_bytes());
            (head[6], head[7]) = (ICMPV6, HOPS);
            head[8..24].copy_from_slice(&from.octets());
            head[24..].copy_from_slice(&to.octets());
            let pseudo = sum(u32::from(body) + u32::from(ICMPV6), &head[8..]);
            (REQUEST.1, IPV6_HEADER, pseudo)
        }
        _ => return None,
    };
    let icmp = &mut packet[header..];
    icmp[0] = kind;
    icmp[4..6].copy_from_slice(&token.to_be_bytes()[..2]);
    icmp[6..8].copy_from_slice(&(number as u16).to_be_bytes());
    icmp[8..16].copy_from_slice(&token.to_be_bytes());
    icmp[16..24].copy_from_slice(&number.to_be_bytes());
    let checksum = !sum(u32::from(pseudo), icmp);
    icmp[2..4].copy_from_slice(&checksum.to_be_bytes());
    Some(packet)
}

/// The Internet checksum's sum (RFC 1071), folded.
pub(crate) fn sum(start: u32, bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2);
    let word = |two: &[u8]| u32::from(two[0]) << 8 | two.get(1).map_or(0, |low| u32::from(*low));
    // At most 32,768 words of 16 bits: no overflow.
    let mut sum: u32 = start + words.map(word).sum::<u32>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// A far end's answer to a request: for simulations.
#[doc(hidden)]
#[must_use]
pub fn answer_to(request: &[u8]) -> Option<Vec<u8>> {
    let mut answer = request.to_vec();
    let (header, addresses, len) = match request.first()? >> 4 {
        4 => (IPV4_HEADER, 12, 4),
        _ => (IPV6_HEADER, 8, 16),
    };
    answer[addresses..addresses + len].copy_from_slice(&request[addresses + len..][..len]);
    answer[addresses + len..][..len].copy_from_slice(&request[addresses..][..len]);
    let kind = if len == 4 { REPLY.0 } else { REPLY.1 };
    *answer.get_mut(header)? = kind;
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAIRS: [(&str, &str); 2] = [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")];

    fn pair((from, to): (&str, &str)) -> (IpAddr, IpAddr) {
        (from.parse().unwrap(), to.parse().unwrap())
    }

    #[test]
    fn requests_have_their_length_and_right_checksums() {
        for len in [ECHO_MIN, 101, 1280, 1420] {
            let v4 = request(pair(PAIRS[0]), (1 << 60, 7), len).unwrap();
            assert_eq!(v4.len(), usize::from(len));
            assert_eq!(sum(0, &v4[..20]), 0xffff);
            assert_eq!(sum(0, &v4[20..]), 0xffff);
            let v6 = request(pair(PAIRS[1]), (1 << 60, 7), len).unwrap();
            assert_eq!(v6.len(), usize::from(len));
            let body = u32::from(len) - 40 + u32::from(ICMPV6);
            assert_eq!(sum(body, &v6[8..]), 0xffff);
        }
        let mixed = (pair(PAIRS[0]).0, pair(PAIRS[1]).1);
        assert_eq!(request(mixed, (1, 7), 100), None);
    }

    #[test]
    fn answers_are_taken_by_the_token_of_the_moment_only() {
        let watch = EchoWatch::default();
        for addresses in PAIRS.map(pair) {
            let token = 0x1234_5678_9abc_def0;
            let asked = request(addresses, (token, 7), 200).unwrap();
            let answer = answer_to(&asked).unwrap();
            watch.watch(0);
            assert!(!watch.takes(&answer));
            watch.watch(token + 1);
            assert!(!watch.takes(&answer));
            watch.watch(token);
            assert!(watch.takes(&answer));
            assert!(!watch.takes(&asked), "a request is not an answer");
            assert!(!watch.takes(&answer[..60.min(answer.len())][..40]));
            let expected = Answer {
                from: addresses.1,
                token,
                number: 7,
            };
            assert_eq!(Answer::parse(&answer), Some(expected));
            // The first 68 bytes are all that some hosts send back of a long one.
            assert_eq!(Answer::parse(&answer[..68]), Some(expected));
        }
    }

    #[test]
    fn the_first_fragment_of_an_answer_is_one() {
        let token = 0x1234_5678_9abc_def0;
        let asked = request(pair(PAIRS[0]), (token, 7), 200).unwrap();
        let mut v4 = answer_to(&asked).unwrap();
        v4[6] = 0x20;
        assert!(Answer::parse(&v4).is_some());
        v4[7] = 1;
        assert_eq!(Answer::parse(&v4), None);
        let asked = request(pair(PAIRS[1]), (token, 7), 200).unwrap();
        let mut v6 = answer_to(&asked).unwrap();
        v6[6] = FRAGMENT;
        v6.splice(40..40, [ICMPV6, 0, 0, 1, 0, 0, 0, 9]);
        assert!(Answer::parse(&v6).is_some());
        v6[43] = 9;
        assert_eq!(Answer::parse(&v6), None);
    }

    proptest! {
        #[test]
        fn hostile_packets_are_read_no_further_than_they_go(mut bytes in prop::collection::vec(any::<u8>(), 0..120), v4: bool) {
            if let Some(first) = bytes.first_mut() {
                *first = if v4 { 0x40 | (*first & 15) } else { 0x60 };
            }
            let _ = Answer::parse(&bytes);
        }
    }
}
