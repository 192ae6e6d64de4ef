//! `fragment`: packets cut to pieces inside the encryption, so that each piece fits a path that drops large packets.
//!
//! Every packet, cut or not, begins with four bytes, big-endian:
//!
//! ```text
//! bits 0..2    0 whole, 1 a piece with others after it, 2 the last piece, 3 not used
//! bits 2..10   number of the packet (0 for whole ones)
//! bits 10..15  number of the piece, from 0
//! bits 15..29  in a last piece: bytes of each other piece, divided by 4
//! ```
//! All pieces but the last have the same size, a multiple of four, so the number of a piece gives its place.

#[cfg(test)]
mod tests;

use plane::Joined;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use thiserror::Error;

/// Bytes of the head.
pub const HEADER_LEN: usize = 4;
/// Maximum number of pieces of a packet.
pub const MAX_PIECES: usize = 32;
/// Maximum number of packets in reassembly at a time, as in stock.
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
    /// The header before the piece.
    pub header: [u8; HEADER_LEN],
    /// The bytes of the packet that the piece carries.
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
    /// Cuts packets of more than `most` bytes, which is [`Encapsulation::max_fragment`](super::mtu::Encapsulation); at
    /// least 4. `number` is the number before the first packet's: random, so that pieces of a new session do not mix
    /// with old ones.
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
    /// If the packet would need more than 32 pieces. Drop it.
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
/// The number of pieces stays the least possible, and the last is not much shorter than the others.
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
    /// A buffer for reuse.
    spare: Vec<u8>,
}

/// A packet of which some pieces are missing.
#[derive(Debug)]
struct Partial {
    number: u8,
    /// Bytes of every piece but the last.
    size: usize,
    /// Bit n: piece n is there.
    pieces: u32,
    /// Index and end of the last piece, once it is there.
    last: Option<(usize, usize)>,
    bytes: Vec<u8>,
    touched: Instant,
}

/// The result of a piece.
#[derive(Debug, PartialEq, Eq)]
pub enum Reassembled<'a> {
    /// A whole packet: the payload from its fifth byte on.
    Whole,
    /// The payload was the missing piece; this is the packet.
    Complete(&'a [u8]),
    /// Other pieces are missing.
    Waiting,
}

/// Why a payload is not a piece of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FragmentError {
    /// The payload is shorter than the header: the peer has no `fragment`.
    #[error("the fragment header is missing; `fragment` must be set at both ends or at neither")]
    NoHeader,
    /// The header has an impossible value.
    #[error(
        "the fragment header {0:#010x} is invalid; `fragment` must be set at both ends or at neither"
    )]
    Header(u32),
    /// The packet would be longer than the longest allowed.
    #[error("the fragments' packet is too long")]
    TooLong,
}

impl Reassembler {
    /// Makes a reassembler for packets of at most `most` bytes, framing included.
    #[must_use]
    pub const fn new(most: usize) -> Self {
        Self {
            most,
            newest: 0,
            partial: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// Takes the payload of a data packet.
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
            // Every sender leaves the other bits 0: set bits could be the mark of another version.
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

    /// Finds the slot of this packet. Starts a new one if there is none, or if its pieces have another size: an older
    /// packet's.
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

/// Cuts and rejoins the packets of a peer, across all its keys.
pub struct Fragments {
    out: Mutex<Fragmenter>,
    back: Mutex<Reassembler>,
}

impl Fragments {
    /// Pieces of at most `most` bytes, of packets of at most `longest` bytes.
    pub fn new(most: usize, longest: usize) -> Self {
        let mut number = [0];
        crypto::random(&mut number);
        Self {
            out: Mutex::new(Fragmenter::new(most, number[0])),
            back: Mutex::new(Reassembler::new(longest)),
        }
    }

    /// Cuts a packet with its framing, and passes each piece to `emit` as its header and its bytes.
    pub(super) fn split(&self, framed: &[u8], emit: &mut dyn FnMut(&[u8], &[u8])) {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        match out.cut(framed.len()) {
            Ok(pieces) => pieces.for_each(|piece| emit(&piece.header, &framed[piece.range])),
            Err(error) => log::debug!("{error}"),
        }
    }

    /// Takes a piece, and writes the packet that it completes, with its framing, to `whole`.
    ///
    /// # Errors
    /// The verdict on a piece that completes no packet.
    pub(super) fn join(&self, piece: &[u8], whole: &mut Vec<u8>) -> Result<(), Joined> {
        let mut back = self.back.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        back.expire(now);
        match back.receive(piece, now) {
            Ok(Reassembled::Complete(joined)) => whole.extend_from_slice(joined),
            // Does not panic: the piece was long enough for a header.
            Ok(Reassembled::Whole) => whole.extend_from_slice(&piece[HEADER_LEN..]),
            Ok(Reassembled::Waiting) => return Err(Joined::Waits),
            Err(error) => {
                log::debug!("{error}");
                return Err(Joined::Malformed);
            }
        }
        Ok(())
    }
}
