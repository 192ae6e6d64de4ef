//! ChaCha20-Poly1305 (RFC 8439) as WireGuard uses it for packets.

use aws_lc_rs::aead::{CHACHA20_POLY1305, LessSafeKey, UnboundKey};

use crate::backend::Backend;
use crate::packet_aead::{AeadAlgorithm, Layout, PacketAead};
use crate::{Batch, PacketCipher};

/// ChaCha20-Poly1305 with the nonce of WireGuard: four zero bytes, then the counter in little-endian order. No head, the
/// tag behind the text, no associated data. The counter is the caller's to find in the header.
pub struct ChaCha20Poly1305(PacketAead<WireGuard>);

impl ChaCha20Poly1305 {
    /// Prepares a key once, for all packets, with the back end that was chosen for this process. The caller's copy of the
    /// key stays the caller's to erase.
    #[must_use]
    pub fn new(key: &[u8; 32]) -> Self {
        // Without a wish there is always one.
        #[allow(clippy::unwrap_used)]
        Self::on(None, key).unwrap()
    }

    /// As [`new`](Self::new), with the fastest code of one kind; `None` if there is none on this machine.
    #[must_use]
    pub fn on(backend: Option<Backend>, key: &[u8; 32]) -> Option<Self> {
        let algorithm = AeadAlgorithm::ChaCha20Poly1305;
        PacketAead::new(backend, algorithm, key, WireGuard).map(Self)
    }
}

struct WireGuard;

impl Layout for WireGuard {
    const NUMBER: usize = 0;
    const TAG_BEHIND: bool = true;

    fn header(&self) -> usize {
        0
    }

    fn write_number(&self, _: u64, _: &mut [u8]) -> bool {
        true
    }

    fn read_number(&self, _: &[u8], given: u64) -> u64 {
        given
    }

    fn nonce(&self, counter: u64) -> [u8; 12] {
        counter_nonce(counter)
    }
}

/// The key in the library's form.
pub(crate) fn library_key(key: &[u8; 32]) -> LessSafeKey {
    // A key of the algorithm's own length is the only condition, and the type of `key` meets it.
    #[allow(clippy::unwrap_used)]
    LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, key).unwrap())
}

/// WireGuard's nonce: 32 zero bits, then 64 bits of counter, little-endian.
pub(crate) fn counter_nonce(counter: u64) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&counter.to_le_bytes());
    nonce
}

impl PacketCipher for ChaCha20Poly1305 {
    fn head(&self) -> usize {
        self.0.head()
    }

    fn tail(&self, len: usize) -> usize {
        self.0.tail(len)
    }

    fn seal(&self, batch: &mut Batch<'_>) {
        self.0.seal(batch);
    }

    fn open(&self, batch: &mut Batch<'_>) {
        self.0.open(batch);
    }

    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn backend(&self) -> &'static str {
        self.0.backend()
    }
}

impl core::fmt::Debug for ChaCha20Poly1305 {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("ChaCha20Poly1305 { key: .. }")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Packet, TAG_LEN};

    #[test]
    fn a_bad_packet_leaves_zeros_and_spares_its_neighbours() {
        let cipher = ChaCha20Poly1305::new(&[9; 32]);
        let mut memory = vec![0x55u8; 400];
        let at = |start, len, counter| Packet {
            start,
            len,
            counter,
            authentic: false,
        };
        let mut packets = [at(1, 60, 0), at(77, 0, 1), at(95, 100, u64::MAX)];
        let before = memory.clone();
        cipher.seal(&mut Batch {
            memory: &mut memory,
            packets: &mut packets,
        });
        memory[100] ^= 1;
        let whole = packets.map(|packet| Packet {
            len: packet.len + TAG_LEN as u32,
            ..packet
        });
        let mut received = [
            whole[0],
            whole[1],
            whole[2],
            at(385, 16, 3),
            at(380, 15, 3),
            at(u32::MAX, 17, 4),
        ];
        cipher.open(&mut Batch {
            memory: &mut memory,
            packets: &mut received,
        });
        assert_eq!(
            received.map(|packet| packet.authentic),
            [true, true, false, false, false, false]
        );
        assert_eq!((received[0].start, received[0].len), (1, 60));
        assert_eq!((received[1].start, received[1].len), (77, 0));
        assert_eq!(memory[1..61], before[1..61]);
        assert_eq!(memory[95..195], [0; 100]);
    }

    #[test]
    fn the_nonce_is_the_counter_in_little_endian() {
        assert_eq!(
            counter_nonce(0x0102_0304_0506_0708),
            [0, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1]
        );
    }
}
