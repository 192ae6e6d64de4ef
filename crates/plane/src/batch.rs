//! A batch: packets of one key, in order, in one slot of memory.

use core::ops::Range;

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
    /// The slot.
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
