//! The cipher that does nothing, to measure what everything else costs.

use crate::{Batch, PacketCipher, TAG_LEN};

/// Moves packets without protecting them: sealing writes a tag of zeros, opening believes everything.
///
/// It exists so that a benchmark can tell the price of the data plane from the price of cryptography. No configuration
/// of a tunnel can select it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Null;

impl PacketCipher for Null {
    fn tag_len(&self) -> usize {
        TAG_LEN
    }

    fn seal(&self, batch: &mut Batch<'_>) {
        for packet in batch.packets.iter() {
            let ranges = packet.ranges(TAG_LEN, batch.memory.len());
            debug_assert!(ranges.is_some(), "packet outside of its slot: {packet:?}");
            if let Some((_, tag)) = ranges {
                batch.memory[tag].fill(0);
            }
        }
    }

    fn open(&self, batch: &mut Batch<'_>) {
        for packet in batch.packets.iter_mut() {
            packet.authentic = packet.ranges(TAG_LEN, batch.memory.len()).is_some();
        }
    }

    fn name(&self) -> &'static str {
        "null"
    }

    fn backend(&self) -> &'static str {
        "none"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Packet;

    #[test]
    fn keeps_the_bytes_and_believes_what_fits() {
        let mut memory = [7u8; 40];
        let mut packets = [Packet {
            start: 2,
            len: 3,
            ..Packet::default()
        }];
        Null.seal(&mut Batch {
            memory: &mut memory,
            packets: &mut packets,
        });
        assert_eq!(memory[..5], [7; 5]);
        assert_eq!(memory[5..21], [0; 16]);
        assert_eq!(memory[21..], [7; 19]);

        let mut packets = [
            packets[0],
            Packet {
                start: 30,
                len: 1,
                ..Packet::default()
            },
        ];
        Null.open(&mut Batch {
            memory: &mut memory,
            packets: &mut packets,
        });
        assert!(packets[0].authentic);
        assert!(!packets[1].authentic);
    }
}
