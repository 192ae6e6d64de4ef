//! DNS queries for the addresses of a name, and their answers: RFC 1035 section 4, RFC 3596. Over UDP, without EDNS.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Largest message (RFC 1035, section 4.2.1), in bytes.
pub const MESSAGE_MAX: usize = 512;

/// Maximum number of addresses taken from an answer.
pub const ADDRESSES_MAX: usize = 16;

/// Maximum number of records read from an answer, and of aliases (CNAME) followed.
const RECORDS_MAX: u16 = 64;
const ALIASES_MAX: usize = 8;

/// Bytes of a message before its question.
const HEADER: usize = 12;

/// Maximum number of bytes of a name (RFC 1035, section 3.1), and of compression pointers in one name.
const NAME_MAX: usize = 255;
const POINTERS_MAX: usize = 16;

// Record types: RFC 1035, section 3.2.2; RFC 3596, section 2.1.
const A: u16 = 1;
const CNAME: u16 = 5;
const AAAA: u16 = 28;

/// The class of the Internet.
const IN: u16 = 1;

/// Address family that a query requests.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// IPv4.
    A,
    /// IPv6.
    Aaaa,
}

impl Kind {
    const fn number(self) -> u16 {
        match self {
            Self::A => A,
            Self::Aaaa => AAAA,
        }
    }
}

/// A server's verdict (RFC 1035, section 4.1.1, RCODE).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// The name exists, with or without addresses of this kind.
    Known,
    /// The name does not exist.
    NoName,
    /// The server gives no answer about the name.
    Refused,
}

/// The content of an answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Answer {
    /// The verdict.
    pub verdict: Verdict,
    /// The addresses, in the server's order.
    pub addresses: Vec<IpAddr>,
}

/// Builds a query with one question, recursion desired. `number` must be unpredictable. `None` if `host` is not a
/// valid name.
#[must_use]
pub fn question(number: u16, host: &str, kind: Kind) -> Option<Vec<u8>> {
    let mut query = number.to_be_bytes().to_vec();
    query.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    let plain = host.strip_suffix('.').unwrap_or(host);
    for label in plain.split('.') {
        let length = u8::try_from(label.len()).ok();
        query.push(length.filter(|length| (1..64).contains(length))?);
        query.extend(label.bytes());
    }
    query.push(0);
    if query.len() - HEADER > NAME_MAX {
        return None;
    }
    query.extend(kind.number().to_be_bytes());
    query.extend(IN.to_be_bytes());
    Some(query)
}

/// The query with the letters of its name in upper case where `bits` has a one. Servers repeat the spelling, so an
/// off-path forger has to guess it as well (draft-vixie-dnsext-dns0x20).
#[must_use]
pub fn mixed(mut query: Vec<u8>, bits: u64) -> Vec<u8> {
    let mut count = 0;
    for byte in name_of(&mut query) {
        if byte.is_ascii_alphabetic() {
            let is_capital = bits.rotate_right(count) & 1 == 1;
            count += 1;
            match is_capital {
                true => byte.make_ascii_uppercase(),
                false => byte.make_ascii_lowercase(),
            }
        }
    }
    query
}

/// The query with its name in lower case.
#[must_use]
pub fn plain(query: &[u8]) -> Vec<u8> {
    mixed(query.to_vec(), 0)
}

/// Whether an answer repeats the query's name with the same upper and lower case.
#[must_use]
pub fn has_letters_of(message: &[u8], query: &[u8]) -> bool {
    message.get(HEADER..query.len()) == query.get(HEADER..)
}

/// The labels of a query's name. The length bytes in between are below 64, and so never letters.
fn name_of(query: &mut [u8]) -> &mut [u8] {
    let end = query.len().saturating_sub(4);
    query.get_mut(HEADER..end).unwrap_or_default()
}

/// Parses the answer to `question`; `None` for any other message.
#[must_use]
pub fn answer(message: &[u8], question: &[u8], kind: Kind) -> Option<Answer> {
    let is_query = question.len() > HEADER && message.len() <= MESSAGE_MAX;
    // The response bit is set, and the opcode is that of a standard query.
    let flags = message.get(2)?;
    if !is_query || message.get(..2)? != &question[..2] || flags & 0xf8 != 0x80 {
        return None;
    }
    // Servers may change the case of the name; `has_letters_of` detects that.
    let asked = message.get(HEADER..question.len())?;
    if number(message, 4)? != 1 || !asked.eq_ignore_ascii_case(&question[HEADER..]) {
        return None;
    }
    let verdict = match message[3] & 0x0f {
        0 => Verdict::Known,
        3 => Verdict::NoName,
        _ => Verdict::Refused,
    };
    let mut addresses = Vec::new();
    if verdict == Verdict::Known {
        let records = records(message, question.len(), number(message, 6)?);
        let mut owner = name(message, HEADER)?.0;
        for _ in 0..ALIASES_MAX {
            let mut of_owner = records.iter().filter(|it| it.owner == owner);
            match of_owner.find_map(|it| it.alias(message)) {
                Some(target) => owner = target,
                None => break,
            }
        }
        let found = records.iter().filter(|it| it.owner == owner);
        for address in found.filter_map(|it| it.address(message, kind)) {
            if !addresses.contains(&address) && addresses.len() < ADDRESSES_MAX {
                addresses.push(address);
            }
        }
    }
    Some(Answer { verdict, addresses })
}

/// A record: owner, type, and position of its data.
struct Record {
    owner: Vec<u8>,
    kind: u16,
    data: std::ops::Range<usize>,
}

impl Record {
    fn alias(&self, message: &[u8]) -> Option<Vec<u8>> {
        if self.kind != CNAME {
            return None;
        }
        Some(name(message, self.data.start)?.0)
    }

    fn address(&self, message: &[u8], wanted: Kind) -> Option<IpAddr> {
        let data = message.get(self.data.clone())?;
        let ip = match wanted {
            _ if self.kind != wanted.number() => return None,
            Kind::A => Ipv4Addr::from(<[u8; 4]>::try_from(data).ok()?).into(),
            Kind::Aaaa => IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(data).ok()?)),
        };
        // No peer has an unspecified or multicast address.
        (!ip.is_unspecified() && !ip.is_multicast()).then_some(ip)
    }
}

/// The complete records, from position `at` on.
fn records(message: &[u8], mut at: usize, count: u16) -> Vec<Record> {
    let mut found = Vec::new();
    for _ in 0..count.min(RECORDS_MAX) {
        let Some((record, class)) = record(message, at) else {
            break;
        };
        at = record.data.end;
        if class == IN {
            found.push(record);
        }
    }
    found
}

fn record(message: &[u8], at: usize) -> Option<(Record, u16)> {
    let (owner, at) = name(message, at)?;
    let (kind, class) = (number(message, at)?, number(message, at + 2)?);
    let length = usize::from(number(message, at + 8)?);
    let data = at + 10..at + 10 + length;
    message.get(data.clone())?;
    Some((Record { owner, kind, data }, class))
}

fn number(message: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([
        *message.get(at)?,
        *message.get(at + 1)?,
    ]))
}

/// Reads a name: in lower case, each label behind its length; and the position behind it (RFC 1035, section 4.1.4).
/// Compression pointers may only lead backwards.
fn name(message: &[u8], start: usize) -> Option<(Vec<u8>, usize)> {
    let (mut at, mut behind, mut limit) = (start, None, start);
    let (mut labels, mut pointers) = (Vec::new(), 0);
    loop {
        let length = *message.get(at)?;
        match length {
            0 => return Some((labels, behind.unwrap_or(at + 1))),
            1..64 => {
                let end = at + 1 + usize::from(length);
                labels.push(length);
                labels.extend(message.get(at + 1..end)?.iter().map(u8::to_ascii_lowercase));
                at = end;
                if labels.len() >= NAME_MAX {
                    return None;
                }
            }
            0xc0.. => {
                behind = behind.or(Some(at + 2));
                let to = usize::from(number(message, at)? & 0x3fff);
                pointers += 1;
                if to >= limit || pointers > POINTERS_MAX {
                    return None;
                }
                (at, limit) = (to, to);
            }
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn asked(kind: Kind) -> Vec<u8> {
        question(0x1234, "vpn.example.com", kind).unwrap()
    }

    /// An answer with these records after the question.
    fn answered(kind: Kind, count: u8, records: &[u8]) -> Vec<u8> {
        let mut message = asked(kind);
        message[2..4].copy_from_slice(&[0x81, 0x80]);
        message[7] = count;
        message.extend(records);
        message
    }

    /// An alias, and then the address of its target.
    #[test]
    fn addresses_are_found_behind_aliases_and_of_the_name_only() {
        let mut records = vec![0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 9, 0, 4, 1, b'x', 0xc0, 16];
        let address = |last| [0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 192, 0, 2, last];
        records.extend([1, b'X', 0xc0, 16]);
        records.extend(address(7));
        // A record of a name that the query did not request.
        records.extend([1, b'y', 0xc0, 16]);
        records.extend(address(8));
        let message = answered(Kind::A, 3, &records);
        let found = answer(&message, &asked(Kind::A), Kind::A).unwrap();
        assert_eq!(found.verdict, Verdict::Known);
        assert_eq!(found.addresses, [IpAddr::from([192, 0, 2, 7])]);
        let of_v6 = answered(Kind::Aaaa, 3, &records);
        let found = answer(&of_v6, &asked(Kind::Aaaa), Kind::Aaaa).unwrap();
        assert!(found.addresses.is_empty());
    }

    #[test]
    fn what_is_no_answer_to_the_question_is_none() {
        let good = answered(Kind::A, 0, &[]);
        let is_one = |message: &[u8]| answer(message, &asked(Kind::A), Kind::A).is_some();
        assert!(is_one(&good));
        // Wrong number, not a response, wrong name, wrong type, two questions, too long.
        for (at, value) in [(1, 0x35), (2, 1), (13, b'x'), (HEADER + 18, 28), (5, 2)] {
            let mut other = good.clone();
            other[at] = value;
            assert!(!is_one(&other), "{at}");
        }
        assert!(!is_one(&[good, vec![0; MESSAGE_MAX]].concat()));
    }

    #[test]
    fn servers_say_no_in_two_ways() {
        for (code, verdict) in [
            (3, Verdict::NoName),
            (2, Verdict::Refused),
            (5, Verdict::Refused),
        ] {
            let mut message = answered(Kind::A, 0, &[]);
            message[3] = 0x80 | code;
            let found = answer(&message, &asked(Kind::A), Kind::A).unwrap();
            assert_eq!(found.verdict, verdict);
        }
    }

    #[test]
    fn a_name_that_points_at_itself_has_an_end() {
        let loops = [0xc0, 33, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 192, 0, 2, 7];
        let message = answered(Kind::A, 1, &loops);
        assert_eq!(message.len(), 33 + loops.len());
        let found = answer(&message, &asked(Kind::A), Kind::A).unwrap();
        assert!(found.addresses.is_empty());
    }

    #[test]
    fn names_that_are_none_are_not_asked_for() {
        for host in ["", ".", "a..b", &"x".repeat(64), &"abc.".repeat(64)] {
            assert_eq!(question(1, host, Kind::A), None, "{host}");
        }
        let dotted = question(7, "a.example.", Kind::Aaaa);
        assert_eq!(dotted, question(7, "a.example", Kind::Aaaa));
    }

    proptest! {
        #[test]
        fn answers_never_panic(tail in proptest::collection::vec(any::<u8>(), 0..480), count: u8) {
            let message = answered(Kind::Aaaa, count, &tail);
            let found = answer(&message, &asked(Kind::Aaaa), Kind::Aaaa);
            if let Some(found) = found {
                prop_assert!(found.addresses.len() <= ADDRESSES_MAX);
                prop_assert!(found.addresses.iter().all(IpAddr::is_ipv6));
            }
            let _ = answer(&message[..message.len() / 2], &asked(Kind::Aaaa), Kind::Aaaa);
        }

        /// The parser finds the address in an answer built here, whether the owner is compressed or spelled out.
        #[test]
        fn what_is_made_is_found(bits: u32, spelled: bool) {
            let ip = Ipv4Addr::from_bits(bits);
            prop_assume!(!ip.is_unspecified() && !ip.is_multicast());
            let owner: &[u8] = if spelled { b"\x03VPN\x07example\x03com\0" } else { &[0xc0, 12] };
            let head = [0, 1, 0, 1, 0, 0, 0, 9, 0, 4];
            let records = [owner, &head, &ip.octets()].concat();
            let found = answer(&answered(Kind::A, 1, &records), &asked(Kind::A), Kind::A).unwrap();
            prop_assert_eq!(found.addresses, [IpAddr::from(ip)]);
        }
    }
}
