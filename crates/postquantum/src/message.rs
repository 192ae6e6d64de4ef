//! The wire format: UDP payloads inside the tunnel.
//!
//! ```text
//! 0        4         5      6       7       8             24        32
//! | "MRPQ" | version | type | suite | flags | exchange id | prev_id | payload
//! ```
//!
//! Bits of `flags`: 0 and 1 the part's index, 2 and 3 the number of parts, 7 a sender with a single slot for keys. A
//! message in parts repeats its header in each. Lengths are exact, or, where the carriage must not show them, those of
//! a part of an Offer, filled with zeros.

use core::ops::Range;

use crypto::mlkem::{CIPHERTEXT_LEN, ENCAPSULATION_KEY_LEN};

use crate::derivation::TAG_LEN;
use crate::keys::KeyId;

/// Bytes of a header.
pub const HEADER_LEN: usize = 32;
/// Bytes of the longest datagram: an Offer in one part.
pub const DATAGRAM_MAX: usize = HEADER_LEN + ENCAPSULATION_KEY_LEN;
/// Parts of a message at most.
pub const PARTS_MAX: u8 = 3;

const MAGIC: [u8; 4] = *b"MRPQ";
const VERSION: u8 = 1;
/// ML-KEM-768.
const SUITE: u8 = 1;
const SINGLE_SLOT: u8 = 0x80;

/// Names an exchange: random bytes of the end that offers.
pub type ExchangeId = [u8; 16];

/// Whether a UDP payload is a message of any version, so that it is not for the host's programs.
#[must_use]
pub fn is_exchange(payload: &[u8]) -> bool {
    payload.len() >= HEADER_LEN && payload.starts_with(&MAGIC)
}

/// The messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An encapsulation key.
    Offer = 1,
    /// A ciphertext and the responder's tag.
    Answer,
    /// The initiator's tag: it has the key.
    Confirm,
    /// The initiator's tag again: the responder uses the key.
    Done,
    /// The receiver of an Offer does not know the previous key, or that of a Confirm the exchange.
    Refuse,
}

impl Kind {
    /// Bytes of the payload.
    #[must_use]
    pub const fn payload_len(self) -> usize {
        match self {
            Self::Offer => ENCAPSULATION_KEY_LEN,
            Self::Answer => CIPHERTEXT_LEN + TAG_LEN,
            Self::Confirm | Self::Done => TAG_LEN,
            Self::Refuse => 0,
        }
    }

    fn parse(byte: u8) -> Option<Self> {
        let all = [
            Self::Offer,
            Self::Answer,
            Self::Confirm,
            Self::Done,
            Self::Refuse,
        ];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The kind of message.
    pub kind: Kind,
    /// The sender has room for one preshared key, as a kernel's peer has.
    pub single_slot: bool,
    /// The exchange.
    pub exchange: ExchangeId,
    /// The previous key, which the new one also depends on.
    pub previous: KeyId,
}

impl Header {
    /// The header's bytes in a message of one part.
    #[must_use]
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        self.emit_part(Part { index: 0, count: 1 })
    }

    fn emit_part(&self, part: Part) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..4].copy_from_slice(&MAGIC);
        let flags = if self.single_slot { SINGLE_SLOT } else { 0 };
        bytes[4..8].copy_from_slice(&[
            VERSION,
            self.kind as u8,
            SUITE,
            flags | part.count << 2 | part.index,
        ]);
        bytes[8..24].copy_from_slice(&self.exchange);
        bytes[24..].copy_from_slice(&self.previous.0);
        bytes
    }
}

/// The place of a datagram in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// From 0.
    pub index: u8,
    /// From 1 to [`PARTS_MAX`].
    pub count: u8,
}

impl Part {
    /// The bytes of a payload of `len` bytes that this part carries: all parts but the last have equal lengths.
    fn range(self, len: usize) -> Range<usize> {
        let each = len.div_ceil(usize::from(self.count));
        let start = each * usize::from(self.index);
        start.min(len)..(start + each).min(len)
    }
}

/// Bytes of the first of `count` datagrams that carry `len` bytes of payload.
fn datagram_len(len: usize, count: u8) -> usize {
    HEADER_LEN + len.div_ceil(usize::from(count))
}

/// Reads a datagram: the header, its place in the message, and its bytes of the payload.
#[must_use]
pub fn parse(datagram: &[u8]) -> Option<(Header, Part, &[u8])> {
    let (header, rest) = datagram.split_first_chunk::<HEADER_LEN>()?;
    let flags = header[7];
    let part = Part {
        index: flags & 3,
        count: flags >> 2 & 3,
    };
    let kind = Kind::parse(header[5])?;
    let known = header[..4] == MAGIC && header[4] == VERSION && header[6] == SUITE;
    if !known || flags & 0x70 != 0 || part.index >= part.count {
        return None;
    }
    let (mut exchange, mut previous) = ([0; 16], KeyId::default());
    exchange.copy_from_slice(&header[8..24]);
    previous.0.copy_from_slice(&header[24..]);
    let (payload, padding) = rest.split_at_checked(part.range(kind.payload_len()).len())?;
    let is_padded = || {
        let mut lens = (1..=PARTS_MAX).map(|count| datagram_len(ENCAPSULATION_KEY_LEN, count));
        lens.any(|len| len == datagram.len()) && padding.iter().all(|byte| *byte == 0)
    };
    if !padding.is_empty() && !is_padded() {
        return None;
    }
    let header = Header {
        kind,
        single_slot: flags & SINGLE_SLOT != 0,
        exchange,
        previous,
    };
    Some((header, part, payload))
}

/// Makes the datagrams of a message, none longer than `room` bytes; none at all if three parts are too few. With `pad`,
/// each is as long as one of an Offer in the same room.
#[must_use]
pub fn emit(header: &Header, payload: &[u8], room: usize, pad: bool) -> Vec<Vec<u8>> {
    let parts = |len, room| (1..=PARTS_MAX).find(|count| datagram_len(len, *count) <= room);
    let offer = parts(ENCAPSULATION_KEY_LEN, room).filter(|_| pad);
    let padded = offer.map(|count| datagram_len(ENCAPSULATION_KEY_LEN, count));
    let Some(count) = parts(payload.len(), padded.unwrap_or(room)) else {
        return Vec::new();
    };
    let datagram = |index| {
        let part = Part { index, count };
        let mut datagram = header.emit_part(part).to_vec();
        datagram.extend_from_slice(&payload[part.range(payload.len())]);
        datagram.resize(padded.unwrap_or(datagram.len()), 0);
        datagram
    };
    (0..count).map(datagram).collect()
}

/// A message of which some parts have come.
#[derive(Debug)]
pub struct Assembly {
    header: Header,
    count: u8,
    /// A bit for each part that has come.
    have: u8,
    payload: Box<[u8]>,
}

impl Assembly {
    /// Takes a part, and returns the message if it is complete. `slot` has the message whose parts come; a part of
    /// another message takes its place.
    #[must_use]
    pub fn add(slot: &mut Option<Box<Self>>, datagram: &[u8]) -> Option<(Header, Box<[u8]>)> {
        let (header, part, payload) = parse(datagram)?;
        if part.count == 1 {
            return Some((header, payload.into()));
        }
        let same = |it: &Self| it.header == header && it.count == part.count;
        if !slot.as_deref().is_some_and(same) {
            *slot = Some(Box::new(Self {
                header,
                count: part.count,
                have: 0,
                payload: vec![0; header.kind.payload_len()].into(),
            }));
        }
        let message = slot.as_deref_mut()?;
        let range = part.range(message.payload.len());
        message.payload[range].copy_from_slice(payload);
        message.have |= 1 << part.index;
        if message.have.count_ones() < u32::from(part.count) {
            return None;
        }
        let whole = slot.take()?;
        Some((whole.header, whole.payload))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(kind: Kind) -> Header {
        Header {
            kind,
            single_slot: true,
            exchange: *b"0123456789abcdef",
            previous: KeyId(*b"previous"),
        }
    }

    #[test]
    fn lengths_are_those_of_the_table() {
        let len = |kind: Kind| {
            let payload = vec![7; kind.payload_len()];
            let sent = emit(&header(kind), &payload, 1280 - 48, false);
            sent.iter().map(Vec::len).collect::<Vec<_>>()
        };
        assert_eq!(len(Kind::Offer), [1216]);
        assert_eq!(len(Kind::Answer), [1136]);
        assert_eq!(len(Kind::Confirm), [48]);
        assert_eq!(len(Kind::Done), [48]);
        assert_eq!(len(Kind::Refuse), [32]);
    }

    #[test]
    fn other_lengths_versions_and_suites_are_refused() {
        let whole = emit(&header(Kind::Answer), &[7; 1104], 1216, false).remove(0);
        assert!(parse(&whole).is_some());
        for at in [0, 4, 5, 6] {
            let mut other = whole.clone();
            other[at] ^= 0x10;
            assert!(parse(&other).is_none(), "byte {at}");
        }
        assert!(parse(&whole[..whole.len() - 1]).is_none());
        assert!(parse(&[&whole[..], &[0]].concat()).is_none());
        let mut padded = whole;
        padded.resize(DATAGRAM_MAX, 0);
        assert!(parse(&padded).is_some());
        *padded.last_mut().unwrap() = 1;
        assert!(parse(&padded).is_none());
    }

    #[test]
    fn padding_makes_all_messages_of_a_room_equally_long() {
        for (room, len) in [(1216, 1216), (1215, 624), (623, 427), (427, 427)] {
            for kind in [Kind::Offer, Kind::Answer, Kind::Confirm, Kind::Refuse] {
                let payload = vec![7; kind.payload_len()];
                for datagram in emit(&header(kind), &payload, room, true) {
                    assert_eq!(datagram.len(), len, "{kind:?} {room}");
                }
            }
        }
        assert!(emit(&header(Kind::Offer), &[0; 1184], 426, false).is_empty());
    }

    proptest! {
        #[test]
        fn parts_in_any_order_make_the_message(
            kind in 1_u8..6, room in 427_usize..1300, pad: bool, seed: [u8; 4], order in prop::collection::vec(0_usize..3, 12)
        ) {
            let kind = Kind::parse(kind).unwrap();
            let payload: Vec<u8> = seed.iter().copied().cycle().take(kind.payload_len()).collect();
            let sent = emit(&header(kind), &payload, room, pad);
            prop_assert!(sent.iter().all(|datagram| datagram.len() <= room && is_exchange(datagram)));
            let mut slot = None;
            let order = order.into_iter().chain(0..3).filter(|at| *at < sent.len());
            let whole = order.filter_map(|at| Assembly::add(&mut slot, &sent[at])).next();
            prop_assert_eq!(whole, Some((header(kind), payload.into())));
        }

        #[test]
        fn datagrams_that_parse_are_as_long_as_they_say(mut bytes in prop::collection::vec(any::<u8>(), 0..1300), kind in 0_u8..7, flags: u8) {
            if let Some(front) = bytes.first_chunk_mut::<8>() {
                *front = [b'M', b'R', b'P', b'Q', VERSION, kind, SUITE, flags];
            }
            if let Some((header, part, payload)) = parse(&bytes) {
                prop_assert!(part.index < part.count && part.count <= PARTS_MAX);
                prop_assert!(payload.len() <= header.kind.payload_len());
                let mut slot = None;
                let whole = Assembly::add(&mut slot, &bytes);
                prop_assert_eq!(whole.is_some(), part.count == 1);
            }
        }
    }
}
