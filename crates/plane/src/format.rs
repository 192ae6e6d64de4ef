//! The format of one key's data packets, and batches of them: packets of one key, in order, in one slot of memory.

use core::ops::Range;

/// How the data packets of one key look, and how they are sealed and opened.
///
/// Each key has a format of its own, since peers of one tunnel may have agreed upon different
/// ciphers and framings. Called a batch at a time.
pub trait Format: Send + Sync {
    /// Bytes before a payload.
    fn head(&self) -> usize;

    /// Bytes behind a payload of `len` bytes.
    fn tail(&self, len: usize) -> usize;

    /// The length that a payload of `len` bytes is padded to, on an interface of `mtu` bytes; at least `len`, and another
    /// one at each call where the format says so. The padding is zero and part of the payload that is sealed; the
    /// receiver cuts it off by the length that the IP header says.
    #[must_use]
    fn padded(&self, len: usize, mtu: usize) -> usize {
        let _ = mtu;
        len
    }

    /// Seals each payload into a datagram, from `start - head` to `start + len + tail` of each packet. Packets are
    /// numbered from 0. Every batch of the engine has room for that, so sealing cannot fail. `start` and `len` stay as
    /// they are. Every packet is sent.
    fn seal(&self, batch: &mut Batch<'_>);

    /// Opens packets, from the end of the header that [`Class::Data`](crate::Class::Data) gave to the end of the
    /// datagram. A packet that opens becomes authentic and shrinks to its payload, and its number is set if the format
    /// carries it.
    fn open(&self, batch: &mut Batch<'_>);

    /// Classifies an opened payload; may unwrap it further.
    fn reveal(&self, memory: &mut [u8], packet: &mut Packet) -> Payload;

    /// Changes an inner packet that is about to be sealed or was just opened (`mssfix`). Never called for
    /// super-packets.
    fn adjust(&self, packet: &mut [u8]) {
        let _ = packet;
    }

    /// Returns true if only control seals with the key, by [`DataPlane::send_on`](crate::DataPlane::send_on). Packets then
    /// wait for another key. Not called per packet.
    #[cfg(feature = "postquantum")]
    fn only_messages(&self) -> bool {
        false
    }

    /// The epoch of the sealing key, if packet numbers have epochs; else 0. Not called per packet.
    fn epoch(&self) -> u16 {
        0
    }

    /// Whether packets go through [`Format::split`] before they are sealed.
    fn splits(&self) -> bool {
        false
    }

    /// Cuts an inner packet into payloads, each handed over in two parts: header and rest.
    fn split(&self, packet: &[u8], emit: &mut dyn FnMut(&[u8], &[u8])) {
        emit(&[], packet);
    }

    /// Takes a [`Payload::Piece`], and writes the packet that it completes, or that was compressed, to `whole`.
    /// Overwrites the old content.
    fn join(&self, piece: &[u8], whole: &mut Vec<u8>) -> Joined {
        let _ = (piece, whole);
        Joined::Malformed
    }
}

/// The result of a [`Payload::Piece`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joined {
    /// A packet.
    Packet,
    /// A packet that the peer had compressed.
    Unpacked,
    /// No packet yet: other pieces are missing.
    Waits,
    /// No packet: compression is not allowed, the compressed data is invalid, or the result is too long.
    Compressed,
    /// No packet: the payload lacks the framing of compression that the ends agreed on.
    Unframed,
    /// No packet: the payload is not a valid piece.
    Malformed,
}

/// The content of an authentic data packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// A payload that claims to be an IP packet.
    Inner,
    /// A keepalive without content.
    Keepalive,
    /// A message for the protocol's state machine.
    Message,
    /// A piece of a packet, a compressed packet, or one without the agreed framing: for [`Format::join`], in order.
    Piece,
    /// A payload of no known kind.
    Malformed,
}

/// One packet of a batch. Offsets are bytes into the batch's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    /// Offset of the payload's first byte. Before opening: offset of the cipher's head, or of the payload if the cipher
    /// has no head.
    pub start: u32,
    /// Bytes of payload. Before opening: bytes from `start` to the end of the datagram.
    pub len: u32,
    /// The packet's number under its key, from which the nonce is made. Always 64 bits, on every machine. Opening sets
    /// it if the packet carries the number; otherwise the caller sets it.
    pub counter: u64,
    /// Whether opening found the packet genuine. If so, `start` and `len` are the payload's.
    pub authentic: bool,
}

impl Packet {
    /// Returns `start..start + len`, if it lies in a memory of `memory_len` bytes with `front` bytes before it and
    /// `behind` bytes after it.
    #[must_use]
    #[inline]
    pub fn range(&self, front: usize, behind: usize, memory_len: usize) -> Option<Range<usize>> {
        let start = usize::try_from(self.start).ok()?;
        let end = start.checked_add(usize::try_from(self.len).ok()?)?;
        let fits = start >= front && end.checked_add(behind)? <= memory_len;
        fits.then_some(start..end)
    }

    /// Marks the packet as genuine, its payload at `payload`.
    #[inline]
    pub fn accept(&mut self, payload: &Range<usize>) {
        // The payload lies within the old `start..start + len`, so neither cast truncates.
        self.start = payload.start as u32;
        self.len = payload.len() as u32;
        self.authentic = true;
    }
}

/// Packets of one key, in one slot of memory.
///
/// The packets must not overlap; if they do, what is sealed or opened is garbage, never memory outside the slot.
#[derive(Debug)]
pub struct Batch<'a> {
    /// Memory of the slot.
    pub memory: &'a mut [u8],
    /// The positions of the packets in the slot.
    pub packets: &'a mut [Packet],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_leave_the_memory_are_refused() {
        let packet = |start, len| Packet {
            start,
            len,
            ..Packet::default()
        };
        assert_eq!(packet(4, 8).range(4, 16, 28), Some(4..12));
        assert_eq!(packet(4, 8).range(5, 16, 28), None);
        assert_eq!(packet(4, 8).range(4, 16, 27), None);
        assert_eq!(packet(u32::MAX, u32::MAX).range(0, 16, 65536), None);
        assert_eq!(packet(0, 0).range(0, 16, 15), None);
        assert_eq!(packet(0, 0).range(0, 0, 0), Some(0..0));
    }
}
