//! Checks whether a packet continues a super-packet, by comparing it with the first packet.

use crate::ip::IPV6_HEADER;

/// Headers without options, in bytes.
const IPV4_HEADER: usize = 20;
const TCP_HEADER: usize = 20;

/// One write: a single packet, or several joined.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) hash: u32,
    /// Whether packets may still be joined to this write.
    pub(super) open: bool,
    pub(super) flow: bool,
    pub(super) udp: bool,
    pub(super) v6: bool,
    pub(super) header: u16,
    /// Payload bytes per packet.
    pub(super) size: u16,
    /// Sequence number that the next TCP packet must have.
    pub(super) next_seq: u32,
    /// Identification that the next IPv4 packet must have if it may be fragmented.
    pub(super) next_id: u16,
    /// Length of the super-packet so far, headers included.
    pub(super) total: u32,
    pub(super) count: u32,
    pub(super) first: u32,
    pub(super) last: u32,
}

/// Whether `new` continues the super-packet that began with `old`: everything but lengths, identification, sequence
/// number, PSH and checksums must be equal.
///
/// Compares whole words, with masks for bits that may differ. Fixed-size arrays keep the bounds checks few.
pub(super) fn same_flow(item: &Item, old: &[u8], new: &[u8]) -> bool {
    if !item.flow || new.len() < usize::from(item.header) {
        return false;
    }
    let l4 = if item.v6 {
        let (Some(old), Some(new)) = (
            words::<{ IPV6_HEADER / 4 }>(old),
            words::<{ IPV6_HEADER / 4 }>(new),
        ) else {
            return false;
        };
        // Version, class and label; next header and hop limit; addresses.
        let first = differs(old[0], new[0], ALL) | differs(old[1], new[1], LAST_TWO);
        if first != 0 || old[2..] != new[2..] {
            return false;
        }
        IPV6_HEADER
    } else {
        let (Some(old), Some(new)) = (
            words::<{ IPV4_HEADER / 4 }>(old),
            words::<{ IPV4_HEADER / 4 }>(new),
        ) else {
            return false;
        };
        // Version and TOS; fragment word; TTL and protocol; addresses.
        let first = differs(old[0], new[0], FIRST_TWO) | differs(old[1], new[1], LAST_TWO);
        let second = differs(old[2], new[2], FIRST_TWO) | differs(old[3], new[3], ALL);
        if first | second | differs(old[4], new[4], ALL) != 0 {
            return false;
        }
        let dont_fragment = new[1][2] & 0x40 != 0;
        let id = u16::from_be_bytes([new[1][0], new[1][1]]);
        if !dont_fragment && id != item.next_id {
            return false;
        }
        IPV4_HEADER
    };
    let (old, new) = (&old[l4..], &new[l4..]);
    if item.udp {
        // Ports.
        return old.first_chunk::<4>() == new.first_chunk();
    }
    let (Some(head), Some(new_head)) = (
        words::<{ TCP_HEADER / 4 }>(old),
        words::<{ TCP_HEADER / 4 }>(new),
    ) else {
        return false;
    };
    // Ports; acknowledgement; data offset and window; urgent pointer. `gro.rs` checks the flags.
    let first = differs(head[0], new_head[0], ALL) | differs(head[2], new_head[2], ALL);
    let second = differs(head[3], new_head[3], ALL_BUT_FLAGS);
    let all = first | second | differs(head[4], new_head[4], LAST_TWO);
    let options = TCP_HEADER..usize::from(item.header) - l4;
    u32::from_be_bytes(new_head[1]) == item.next_seq
        && all == 0
        && same_words(&old[options.clone()], &new[options])
}

const ALL: [u8; 4] = [0xff; 4];
const FIRST_TWO: [u8; 4] = [0xff, 0xff, 0, 0];
const LAST_TWO: [u8; 4] = [0, 0, 0xff, 0xff];
const ALL_BUT_FLAGS: [u8; 4] = [0xff, 0, 0xff, 0xff];

/// The bits of four bytes that differ.
#[inline(always)]
fn differs(old: [u8; 4], new: [u8; 4], mask: [u8; 4]) -> u32 {
    let [old, new, mask] = [old, new, mask].map(u32::from_ne_bytes);
    (old ^ new) & mask
}

/// The first words of a header.
#[inline(always)]
fn words<const N: usize>(header: &[u8]) -> Option<&[[u8; 4]; N]> {
    header.as_chunks().0.first_chunk()
}

/// Whether TCP's options are equal. Options are whole words; comparing bytes would cost as much as the rest of the
/// header.
#[inline(always)]
fn same_words(old: &[u8], new: &[u8]) -> bool {
    let words = old.as_chunks::<4>().0.iter();
    words.eq(new.as_chunks().0)
}
