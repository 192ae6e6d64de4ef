//! `fragment`: packets cut to pieces inside the encryption, so that each piece fits a path that drops large packets.
//!
//! Every packet, cut or not, begins with four bytes, big-endian:
//!
//! ```text
//! bits 0..2    0 whole, 1 a piece with others after it, 2 the last piece, 3 not used
//! bits 2..10   number of the packet (0 for whole ones)
//! bits 10..15  number of the piece, from 0
//! bits 15..29  in a last piece: bytes of each of the others, divided by 4
//! ```
//! Pieces but the last are of one size, a multiple of four, so that each piece tells its place.

use std::ops::Range;
use std::time::{Duration, Instant};

use thiserror::Error;

/// Bytes of the head.
pub const HEADER_LEN: usize = 4;
/// Pieces of a packet at most.
pub const MAX_PIECES: usize = 32;
/// Packets that are being put together at most: as with stock.
const WINDOW: u8 = 25;
/// How long a packet waits for its pieces.
const LIFETIME: Duration = Duration::from_secs(10);

const TYPE_WHOLE: u32 = 0;
const TYPE_PIECE: u32 = 1;
const TYPE_LAST: u32 = 2;

/// Cuts packets.
#[derive(Clone, Debug)]
pub struct Fragmenter {
    most: usize,
    number: u8,
}

/// One piece of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// What goes before it.
    pub header: [u8; HEADER_LEN],
    /// Which bytes of the packet it has.
    pub range: Range<usize>,
}

/// The packet would need more than 32 pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a packet of {len} bytes would need more than 32 fragments of {piece}")]
pub struct TooManyPieces {
    /// Bytes of the packet.
    pub len: usize,
    /// Bytes of a piece.
    pub piece: usize,
}

impl Fragmenter {
    /// Cuts packets of more than `most` bytes, which is [`Encapsulation::max_fragment`](super::mtu::Encapsulation);
    /// at least 4. `number` is that of the packet before the first, random so that a new session's pieces do not
    /// meet those of the old one.
    #[must_use]
    pub fn new(most: usize, number: u8) -> Self {
        Self {
            most: most.max(4),
            number,
        }
    }

    /// Bytes of the largest packet that goes in one piece.
    #[must_use]
    pub const fn most(&self) -> usize {
        self.most
    }

    /// Cuts a packet of `len` bytes as stock does: one piece if it fits, otherwise pieces of nearly the same size.
    ///
    /// # Errors
    /// If it would need more than 32. The packet is to be dropped.
    pub fn cut(
        &mut self,
        len: usize,
    ) -> Result<impl ExactSizeIterator<Item = Piece> + use<>, TooManyPieces> {
        let (size, count) = if len <= self.most {
            (len, 1)
        } else {
            let size = piece_len(len, self.most);
            (size, len.div_ceil(size))
        };
        if count > MAX_PIECES {
            return Err(TooManyPieces { len, piece: size });
        }
        if count > 1 {
            self.number = self.number.wrapping_add(1);
        }
        let number = self.number;
        Ok((0..count).map(move |index| {
            let range = index * size..len.min((index + 1) * size);
            let head = match (count, index + 1 == count) {
                (1, _) => TYPE_WHOLE,
                // A piece is smaller than 64 KiB.
                (_, true) => head(TYPE_LAST, number, index) | (size as u32 / 4) << 15,
                (_, false) => head(TYPE_PIECE, number, index),
            };
            let header = head.to_be_bytes();
            Piece { header, range }
        }))
    }
}

fn head(kind: u32, number: u8, index: usize) -> u32 {
    // Less than 32.
    kind | u32::from(number) << 2 | (index as u32) << 10
}

/// Bytes of the pieces of a packet that needs more than one: a multiple of four, and no more than `most`.
///
/// The same number of pieces, but the last not much shorter than the others.
fn piece_len(len: usize, most: usize) -> usize {
    let aligned = most & !3;
    let (full, rest) = (len / aligned, len % aligned);
    if full == 0 || rest == 0 || rest >= aligned * 3 / 4 {
        return aligned;
    }
    let even = most - (most - rest) / (full + 1);
    (even.next_multiple_of(4)).min(aligned)
}

/// Puts pieces together again.
///
/// Pieces are authentic, so only the peer can send them; it still cannot make this hold more than 25 packets.
#[derive(Debug)]
pub struct Reassembler {
    /// Bytes of the longest packet.
    most: usize,
    newest: u8,
    partial: Vec<Partial>,
    /// A buffer to use again.
    spare: Vec<u8>,
}

/// A packet of which some pieces are there.
#[derive(Debug)]
struct Partial {
    number: u8,
    /// Bytes of its pieces but the last.
    size: usize,
    /// Bit n: piece n is there.
    pieces: u32,
    /// Index and end of the last piece, once it is there.
    last: Option<(usize, usize)>,
    bytes: Vec<u8>,
    touched: Instant,
}

/// What came of a piece.
#[derive(Debug, PartialEq, Eq)]
pub enum Reassembled<'a> {
    /// It is a whole packet: the payload from its fifth byte on.
    Whole,
    /// It was the missing piece; this is the packet.
    Complete(&'a [u8]),
    /// Others are missing.
    Waiting,
}

/// Why a payload is no piece of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FragmentError {
    /// Shorter than the head: the peer has no `fragment`.
    #[error("no fragment header; `fragment` must be set at both ends or at neither")]
    NoHeader,
    /// A head that is none.
    #[error(
        "impossible fragment header {0:#010x}; `fragment` must be set at both ends or at neither"
    )]
    Header(u32),
    /// The packet would be longer than any.
    #[error("fragments of a packet that is too long")]
    TooLong,
}

impl Reassembler {
    /// For packets of at most `most` bytes, framing and all.
    #[must_use]
    pub const fn new(most: usize) -> Self {
        Self {
            most,
            newest: 0,
            partial: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// Takes what was in a data packet.
    ///
    /// # Errors
    /// See [`FragmentError`]; the payload is dropped.
    pub fn receive(
        &mut self,
        payload: &[u8],
        now: Instant,
    ) -> Result<Reassembled<'_>, FragmentError> {
        let (head, piece) = payload.split_first_chunk().ok_or(FragmentError::NoHeader)?;
        let head = u32::from_be_bytes(*head);
        // Eight bits, five and fourteen.
        let number = (head >> 2) as u8;
        let index = (head >> 10 & 0x1f) as usize;
        let (is_last, size) = match head & 3 {
            // Without a number, as every sender has it: other bits would be the mark of another version.
            TYPE_WHOLE if head & 0xff == 0 => return Ok(Reassembled::Whole),
            TYPE_PIECE => (false, piece.len()),
            TYPE_LAST => (true, (head >> 15 & 0x3fff) as usize * 4),
            _ => return Err(FragmentError::Header(head)),
        };
        if size == 0 || !size.is_multiple_of(4) || piece.len() > size {
            return Err(FragmentError::Header(head));
        }
        let at = index * size;
        if at + piece.len() > self.most {
            return Err(FragmentError::TooLong);
        }
        self.advance(number);
        let slot = self.slot(number, size, now);
        let partial = &mut self.partial[slot];
        partial.touched = now;
        if let Some((last, _)) = partial.last
            && index > last
        {
            return Err(FragmentError::Header(head));
        }
        if partial.bytes.len() < at + piece.len() {
            partial.bytes.resize(at + piece.len(), 0);
        }
        partial.bytes[at..at + piece.len()].copy_from_slice(piece);
        partial.pieces |= 1 << index;
        if is_last {
            partial.last = Some((index, at + piece.len()));
        }
        let Some(end) = partial.complete() else {
            return Ok(Reassembled::Waiting);
        };
        let done = self.partial.swap_remove(slot);
        self.spare = done.bytes;
        // All pieces up to the last are there, so the bytes reach to its end.
        Ok(Reassembled::Complete(&self.spare[..end]))
    }

    /// Forgets packets that have waited for ten seconds. To be called now and then; returns how many were forgotten.
    pub fn expire(&mut self, now: Instant) -> usize {
        let before = self.partial.len();
        self.partial
            .retain(|partial| now.saturating_duration_since(partial.touched) < LIFETIME);
        if self.partial.is_empty() {
            self.partial = Vec::new();
            self.spare = Vec::new();
        }
        before - self.partial.len()
    }

    /// Packets that wait for pieces.
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.partial.len()
    }

    /// Moves the window to hold `number`, as stock does: everything is forgotten if it is far away.
    fn advance(&mut self, number: u8) {
        let ahead = number.wrapping_sub(self.newest);
        if ahead < WINDOW {
            self.newest = number;
        } else if self.newest.wrapping_sub(number) >= WINDOW {
            self.newest = number;
            self.partial.clear();
        }
        let newest = self.newest;
        self.partial
            .retain(|partial| newest.wrapping_sub(partial.number) < WINDOW);
    }

    /// Where the pieces of this packet are; begun anew if there are none, or of another size: an older packet's.
    fn slot(&mut self, number: u8, size: usize, now: Instant) -> usize {
        let found = self.partial.iter().position(|it| it.number == number);
        let mut fresh = Partial {
            number,
            size,
            pieces: 0,
            last: None,
            bytes: Vec::new(),
            touched: now,
        };
        match found {
            Some(slot) if self.partial[slot].size == size => slot,
            Some(slot) => {
                fresh.bytes = std::mem::take(&mut self.partial[slot].bytes);
                fresh.bytes.clear();
                self.partial[slot] = fresh;
                slot
            }
            None => {
                fresh.bytes = std::mem::take(&mut self.spare);
                fresh.bytes.clear();
                self.partial.push(fresh);
                self.partial.len() - 1
            }
        }
    }
}

impl Partial {
    /// Where the packet ends, if every piece is there.
    fn complete(&self) -> Option<usize> {
        let (last, end) = self.last?;
        // `last` is less than 32.
        let wanted = u32::MAX >> (31 - last);
        (self.pieces & wanted == wanted && self.pieces & !wanted == 0).then_some(end)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packet(len: usize, salt: u8) -> Vec<u8> {
        (0..len).map(|at| (at % 251) as u8 ^ salt).collect()
    }

    fn pieces(fragmenter: &mut Fragmenter, packet: &[u8]) -> Vec<Vec<u8>> {
        let cut = fragmenter.cut(packet.len()).unwrap();
        cut.map(|piece| [&piece.header[..], &packet[piece.range]].concat())
            .collect()
    }

    #[test]
    fn sizes_of_stock() {
        // 1500 does not fit twice: one piece more, all of about the same size.
        assert_eq!(piece_len(1500, 1272), 752);
        assert_eq!(piece_len(2544, 1272), 1272);
        assert_eq!(piece_len(2500, 1272), 1272);
        assert_eq!(piece_len(1275, 1273), 640);
        let sizes = |len, most| -> Vec<_> {
            Fragmenter::new(most, 0)
                .cut(len)
                .unwrap()
                .map(|piece| piece.range.len())
                .collect()
        };
        assert_eq!(sizes(1272, 1272), [1272]);
        assert_eq!(sizes(1500, 1272), [752, 748]);
        assert_eq!(sizes(2544, 1272), [1272, 1272]);
    }

    /// What stock 2.6.14 has logged for packets of many sizes.
    #[test]
    fn pieces_of_stock() {
        let mut rows = 0;
        for row in include_str!("../../tests/data/fragments.txt").lines() {
            if row.starts_with('#') {
                continue;
            }
            let mut words = row.split(' ');
            let len = words.next().unwrap().parse().unwrap();
            let pieces: Vec<_> = words
                .map(|word| {
                    let (head, len) = word.split_once(':').unwrap();
                    let head = u32::from_str_radix(head, 16).unwrap();
                    (head.to_be_bytes(), len.parse::<usize>().unwrap())
                })
                .collect();
            let number = (u32::from_be_bytes(pieces[0].0) >> 2) as u8;
            let cut: Vec<_> = Fragmenter::new(339, number.wrapping_sub(1))
                .cut(len)
                .unwrap()
                .map(|piece| (piece.header, piece.range.len()))
                .collect();
            assert_eq!(cut, pieces, "{len} bytes");
            rows += 1;
        }
        assert!(rows > 30);
    }

    #[test]
    fn heads() {
        let mut fragmenter = Fragmenter::new(100, 0xfe);
        assert_eq!(pieces(&mut fragmenter, &[7; 100])[0][..5], [0, 0, 0, 0, 7]);
        let cut = pieces(&mut fragmenter, &[7; 200]);
        assert_eq!(cut[0][..4], (1_u32 | 0xff << 2).to_be_bytes());
        assert_eq!(
            cut[1][..4],
            (2_u32 | 0xff << 2 | 1 << 10 | (100 / 4) << 15).to_be_bytes()
        );
        // The number wraps.
        assert_eq!(pieces(&mut fragmenter, &[7; 200])[0][..4], [0, 0, 0, 1]);
    }

    #[test]
    fn too_long_a_packet_is_refused() {
        let mut fragmenter = Fragmenter::new(40, 0);
        assert_eq!(fragmenter.cut(40 * 32).unwrap().len(), 32);
        let Err(error) = fragmenter.cut(40 * 32 + 1) else {
            panic!("33 pieces");
        };
        assert_eq!(error.len, 1281);
        assert!(Fragmenter::new(0, 0).cut(1500).is_err());
    }

    #[test]
    fn in_any_order_and_between_each_other() {
        let now = Instant::now();
        let mut fragmenter = Fragmenter::new(100, 250);
        let mut reassembler = Reassembler::new(1500);
        let packets: Vec<_> = (0..20).map(|n| packet(900 + n, n as u8)).collect();
        let mut wire: Vec<_> = packets
            .iter()
            .flat_map(|packet| pieces(&mut fragmenter, packet))
            .collect();
        // Odd ones first, then even ones from behind; numbers wrap in between.
        let mut order: Vec<_> = (0..wire.len()).filter(|n| n % 2 == 1).collect();
        order.extend((0..wire.len()).filter(|n| n % 2 == 0).rev());
        let mut done = Vec::new();
        for n in order {
            match reassembler.receive(&wire[n], now).unwrap() {
                Reassembled::Complete(packet) => done.push(packet.to_vec()),
                Reassembled::Waiting => {}
                Reassembled::Whole => panic!("no packet was whole"),
            }
        }
        done.reverse();
        assert_eq!(done, packets);
        assert_eq!(reassembler.waiting(), 0);
        wire.clear();
    }

    #[test]
    fn a_lost_piece_costs_one_packet_and_bounded_memory() {
        let mut now = Instant::now();
        let mut fragmenter = Fragmenter::new(100, 0);
        let mut reassembler = Reassembler::new(1500);
        for n in 0..1000 {
            let wire = pieces(&mut fragmenter, &packet(250, n as u8));
            for piece in &wire[..wire.len() - 1] {
                assert_eq!(reassembler.receive(piece, now), Ok(Reassembled::Waiting));
            }
            assert!(reassembler.waiting() <= usize::from(WINDOW));
        }
        now += LIFETIME;
        assert_eq!(reassembler.expire(now), usize::from(WINDOW));
        assert_eq!(reassembler.waiting(), 0);
    }

    /// The number comes again with pieces of another size: those of the old packet are forgotten.
    #[test]
    fn pieces_of_different_packets_are_not_mixed() {
        let now = Instant::now();
        let mut reassembler = Reassembler::new(1500);
        let old = pieces(&mut Fragmenter::new(100, 7), &packet(200, 1));
        let new = pieces(&mut Fragmenter::new(60, 7), &packet(110, 2));
        assert_eq!(reassembler.receive(&old[0], now), Ok(Reassembled::Waiting));
        assert_eq!(reassembler.receive(&new[1], now), Ok(Reassembled::Waiting));
        assert_eq!(
            reassembler.receive(&new[0], now),
            Ok(Reassembled::Complete(&packet(110, 2)))
        );
    }

    #[test]
    fn damaged_heads() {
        let now = Instant::now();
        let mut reassembler = Reassembler::new(1500);
        let mut receive = |head: u32, len: usize| {
            let bytes = [&head.to_be_bytes()[..], &vec![0; len]].concat();
            reassembler.receive(&bytes, now).map(|_| ())
        };
        assert_eq!(receive(0, 0), Ok(()));
        for head in [3, 4, 0xfc, 2, 1] {
            assert_eq!(receive(head, 0), Err(FragmentError::Header(head)));
        }
        assert_eq!(receive(1, 5), Err(FragmentError::Header(1)));
        // Longer than its own size field says.
        assert_eq!(
            receive(2 | 1 << 15, 5),
            Err(FragmentError::Header(2 | 1 << 15))
        );
        assert_eq!(receive(1 | 31 << 10, 100), Err(FragmentError::TooLong));
        assert_eq!(
            receive(2 | 31 << 10 | 0x3fff << 15, 4),
            Err(FragmentError::TooLong)
        );
        // A last piece, then one behind it.
        assert_eq!(receive(2 | 1 << 10 | 5 << 15, 20), Ok(()));
        assert!(receive(1 | 2 << 10, 20).is_err());
        assert_eq!(
            reassembler.receive(&[0; 3], now),
            Err(FragmentError::NoHeader)
        );
    }

    proptest! {
        #[test]
        fn what_is_cut_comes_back(len in 1..4000_usize, most in 8..1500_usize, number: u8, swap: u8) {
            let packet = packet(len, 0);
            let mut fragmenter = Fragmenter::new(most, number);
            let Ok(cut) = fragmenter.cut(len) else {
                prop_assert!(len > most * 20);
                return Ok(());
            };
            let cut: Vec<_> = cut.collect();
            prop_assert!(cut.iter().all(|piece| piece.range.len() <= most));
            prop_assert_eq!(cut.iter().map(|piece| piece.range.len()).sum::<usize>(), len);
            let mut wire: Vec<_> = cut.iter().map(|piece| [&piece.header[..], &packet[piece.range.clone()]].concat()).collect();
            let count = wire.len();
            wire.rotate_left(usize::from(swap) % count);
            let mut reassembler = Reassembler::new(4000);
            let mut complete = None;
            for piece in wire {
                match reassembler.receive(&piece, Instant::now()).unwrap() {
                    Reassembled::Whole => complete = Some(piece[4..].to_vec()),
                    Reassembled::Complete(bytes) => complete = Some(bytes.to_vec()),
                    Reassembled::Waiting => {}
                }
            }
            prop_assert_eq!(complete, Some(packet));
        }

        #[test]
        fn anything_at_all(payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..60)) {
            let mut reassembler = Reassembler::new(500);
            for payload in payloads {
                if let Ok(Reassembled::Complete(packet)) = reassembler.receive(&payload, Instant::now()) {
                    prop_assert!(packet.len() <= 500);
                }
                prop_assert!(reassembler.waiting() <= usize::from(WINDOW));
            }
        }
    }
}
