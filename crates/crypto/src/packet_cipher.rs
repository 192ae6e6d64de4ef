//! The packet cipher as the data plane uses it; and a cipher that does nothing, to measure what everything else costs.

use crate::Batch;
#[cfg(feature = "null")]
use crate::TAG_LEN;

/// A cipher with its key, which seals and opens batches in place.
///
/// ```text
/// ... | header | head | payload | tail
///       ------   ----             ----
///       protocol's, constant      the cipher's
/// ```
///
/// The header (type, receiver's number, or whatever the protocol has) is the same for all packets of a key. The caller
/// writes it before sealing, because some ciphers authenticate it. The head and the tail hold the cipher's additions:
/// packet number, tag, initialisation vector, padding.
///
/// The control thread makes keys and shares them with every worker, hence `Send + Sync` and `&self`.
pub trait PacketCipher: Send + Sync {
    /// Bytes directly in front of the payload that the cipher writes. The same for all packets of a key.
    fn head(&self) -> usize;

    /// Bytes directly behind a payload of `len` bytes that the cipher writes.
    fn tail(&self, len: usize) -> usize;

    /// Encrypts the payload of every packet in place and writes its head and tail. `start` and `len` still describe the
    /// payload afterwards.
    ///
    /// The caller must never use a counter twice under one key. A packet whose head and tail exceed the memory is a
    /// fault of the caller: a debug build panics, and a release build leaves the packet unchanged.
    fn seal(&self, batch: &mut Batch<'_>);

    /// Verifies and decrypts every packet in place and sets its `authentic`.
    ///
    /// A packet's `start` is the first byte of its head and its `len` counts from there to the end of the datagram; the
    /// memory must also contain the header in front. Opening changes both to the payload's, and sets `counter` to the
    /// packet's number if the head carries one.
    ///
    /// A packet that fails leaves no plaintext behind: its bytes from the head on are zeroed in part or whole, or
    /// untouched if nothing was decrypted. Its `start`, `len` and `counter` are then meaningless. A failed packet does
    /// not affect the others.
    fn open(&self, batch: &mut Batch<'_>);

    /// The highest epoch of an opened packet, for ciphers that change their key by the packet's number (OpenVPN's epoch
    /// format). A sender must not stay behind it. 0 for all other ciphers.
    fn epoch(&self) -> u16 {
        0
    }

    /// The cipher's name for status reports, for example `chacha20-poly1305`.
    fn name(&self) -> &'static str;

    /// The code that runs, and the instructions it uses on this machine, for example `aws-lc (avx2)`.
    fn backend(&self) -> &'static str;
}

/// Moves packets without protecting them: sealing writes a tag of zeros, opening accepts everything.
///
/// The null cipher lets a benchmark separate the cost of the data plane from the cost of cryptography. Shipped programs
/// do not contain it.
#[cfg(feature = "null")]
#[derive(Clone, Copy, Debug, Default)]
pub struct Null;

#[cfg(feature = "null")]
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

#[cfg(all(test, feature = "null"))]
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
