//! A batch: packets of one key, in order, in one slot of memory.

use core::ops::Range;

/// One packet of a batch. Offsets are bytes into the batch's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    /// First byte of the plaintext, which is also the first byte of the ciphertext.
    pub start: u32,
    /// Bytes of plaintext, for sealing and for opening; the tag that follows is not counted.
    pub len: u32,
    /// The packet's number under its key, from which the nonce is made. Always 64 bits, on every machine.
    pub counter: u64,
    /// Set by [`PacketCipher::open`](crate::PacketCipher::open): the tag was right and `memory` holds the plaintext.
    pub authentic: bool,
}

impl Packet {
    /// The plaintext and the tag in a memory of `memory_len` bytes, or `None` if they do not fit in it.
    pub(crate) fn ranges(
        &self,
        tag_len: usize,
        memory_len: usize,
    ) -> Option<(Range<usize>, Range<usize>)> {
        let start = usize::try_from(self.start).ok()?;
        let end = start.checked_add(usize::try_from(self.len).ok()?)?;
        let tag_end = end.checked_add(tag_len)?;
        (tag_end <= memory_len).then_some((start..end, end..tag_end))
    }
}

/// Packets of one key, in one slot of memory.
///
/// The packets must not overlap; if they do, what is sealed or opened is garbage, never memory outside the slot.
#[derive(Debug)]
pub struct Batch<'a> {
    /// The slot.
    pub memory: &'a mut [u8],
    /// Where the packets are in it.
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
        assert_eq!(packet(4, 8).ranges(16, 28), Some((4..12, 12..28)));
        assert_eq!(packet(4, 8).ranges(16, 27), None);
        assert_eq!(packet(u32::MAX, u32::MAX).ranges(16, 65536), None);
        assert_eq!(packet(0, 0).ranges(16, 15), None);
        assert_eq!(packet(0, 0).ranges(0, 0), Some((0..0, 0..0)));
    }
}
