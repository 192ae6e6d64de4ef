//! The cipher that does nothing, to measure what everything else costs.

use crate::{Batch, PacketCipher, TAG_LEN};

/// Moves packets without protecting them: sealing writes a tag of zeros, opening accepts everything.
///
/// It exists so that a benchmark can tell the price of the data plane from the price of cryptography. Shipped programs
/// do not contain it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Null;

impl PacketCipher for Null {
    fn head(&self) -> usize {
        0
    }

    fn tail(&self, _: usize) -> usize {
        TAG_LEN
    }

    fn seal(&self, batch: &mut Batch<'_>) {
        for packet in batch.packets.iter() {
            let payload = packet.range(0, TAG_LEN, batch.memory.len());
            debug_assert!(payload.is_some(), "packet outside of its slot: {packet:?}");
            if let Some(payload) = payload {
                batch.memory[payload.end..][..TAG_LEN].fill(0);
            }
        }
    }

    fn open(&self, batch: &mut Batch<'_>) {
        for packet in batch.packets.iter_mut() {
            packet.authentic = false;
            if let Some(bytes) = packet.range(0, 0, batch.memory.len())
                && bytes.len() >= TAG_LEN
            {
                packet.accept(&(bytes.start..bytes.end - TAG_LEN));
            }
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

        packets[0].len = 3 + 16;
        let short = Packet {
            start: 30,
            len: 15,
            ..Packet::default()
        };
        let outside = Packet { start: 31, ..short };
        let mut packets = [packets[0], short, outside];
        Null.open(&mut Batch {
            memory: &mut memory,
            packets: &mut packets,
        });
        assert_eq!(packets.map(|packet| packet.authentic), [true, false, false]);
        assert_eq!((packets[0].start, packets[0].len), (2, 3));
    }
}
