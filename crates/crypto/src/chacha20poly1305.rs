//! ChaCha20-Poly1305 (RFC 8439) as WireGuard uses it for packets.

use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};

#[cfg(target_arch = "x86_64")]
use crate::avx512::{Avx512, Group, LANES};
use crate::{Batch, Packet, PacketCipher, TAG_LEN};

/// ChaCha20-Poly1305 with the nonce of WireGuard: four zero bytes, then the counter in little-endian order. No
/// associated data.
///
/// The library's "less safe" key is the one that lets the caller number the packets, which the protocol requires.
///
/// Runs of packets of one length go through this crate's own AVX-512 code where the machine has the instructions, all
/// others through AWS-LC.
pub struct ChaCha20Poly1305 {
    key: LessSafeKey,
    #[cfg(target_arch = "x86_64")]
    groups: Option<Avx512>,
}

/// Packets of one length that are worth a group, whatever the length. Empty lanes cost as much as the others: with four
/// of 1420 bytes a group is a little faster than the library, fewer were not tried.
#[cfg(target_arch = "x86_64")]
const GROUP_MIN: usize = 4;

impl ChaCha20Poly1305 {
    /// Prepares a key once, for all packets. The caller's copy of the key stays the caller's to erase.
    #[must_use]
    pub fn new(key: &[u8; 32]) -> Self {
        Self {
            key: library_key(key),
            #[cfg(target_arch = "x86_64")]
            groups: Avx512::new(key),
        }
    }

    /// As [`new`](Self::new), but every packet goes through the library whatever the machine has: to compare with.
    #[must_use]
    pub fn library_only(key: &[u8; 32]) -> Self {
        Self {
            #[cfg(target_arch = "x86_64")]
            groups: None,
            ..Self::new(key)
        }
    }

    /// Seals with a nonce per packet and associated data of the caller's; the one loop behind `seal`.
    pub(crate) fn seal_with(
        &self,
        batch: &mut Batch<'_>,
        nonce: impl Fn(&Packet) -> [u8; 12],
        aad: &[u8],
    ) {
        let mut rest = &batch.packets[..];
        while let Some((packet, others)) = rest.split_first() {
            #[cfg(target_arch = "x86_64")]
            if let Some((avx512, group)) = self.group(rest, batch.memory.len(), &nonce) {
                avx512.seal(batch.memory, &group, aad);
                rest = &rest[group.filled..];
                continue;
            }
            self.seal_one(batch.memory, packet, nonce(packet), aad);
            rest = others;
        }
    }

    fn seal_one(&self, memory: &mut [u8], packet: &Packet, nonce: [u8; 12], aad: &[u8]) {
        let ranges = packet.ranges(TAG_LEN, memory.len());
        debug_assert!(ranges.is_some(), "packet outside of its slot: {packet:?}");
        let Some((text, tag_at)) = ranges else {
            return;
        };
        let nonce = Nonce::assume_unique_for_key(nonce);
        match self
            .key
            .seal_in_place_separate_tag(nonce, Aad::from(aad), &mut memory[text.clone()])
        {
            Ok(tag) => memory[tag_at].copy_from_slice(tag.as_ref()),
            // Only a text beyond 256 GiB fails, and `len` has 32 bits. Should a later library find another reason, the
            // plaintext must still not leave this machine.
            Err(_) => memory[text.start..tag_at.end].fill(0),
        }
    }

    /// Opens with a nonce per packet and associated data of the caller's; the one loop behind `open`.
    pub(crate) fn open_with(
        &self,
        batch: &mut Batch<'_>,
        nonce: impl Fn(&Packet) -> [u8; 12],
        aad: &[u8],
    ) {
        let mut rest = &mut batch.packets[..];
        while !rest.is_empty() {
            #[cfg(target_arch = "x86_64")]
            if let Some((avx512, group)) = self.group(rest, batch.memory.len(), &nonce) {
                let authentic = avx512.open(batch.memory, &group, aad);
                let (packets, others) = rest.split_at_mut(group.filled);
                for (packet, authentic) in packets.iter_mut().zip(authentic) {
                    packet.authentic = authentic;
                }
                rest = others;
                continue;
            }
            let (packet, others) = rest.split_at_mut(1);
            let nonce = nonce(&packet[0]);
            packet[0].authentic = self.open_one(batch.memory, &packet[0], nonce, aad);
            rest = others;
        }
    }

    fn open_one(&self, memory: &mut [u8], packet: &Packet, nonce: [u8; 12], aad: &[u8]) -> bool {
        let Some((text, tag)) = packet.ranges(TAG_LEN, memory.len()) else {
            return false;
        };
        let nonce = Nonce::assume_unique_for_key(nonce);
        let opened =
            self.key
                .open_in_place(nonce, Aad::from(aad), &mut memory[text.start..tag.end]);
        let authentic = opened.is_ok();
        if !authentic {
            // AWS-LC decrypts while it authenticates and then clears; that is its choice, this is our promise.
            memory[text].fill(0);
        }
        authentic
    }

    /// The first packets as a group, if they make one.
    #[cfg(target_arch = "x86_64")]
    fn group(
        &self,
        packets: &[Packet],
        memory_len: usize,
        nonce: impl Fn(&Packet) -> [u8; 12],
    ) -> Option<(&Avx512, Group)> {
        let avx512 = self.groups.as_ref()?;
        let (first, _) = packets.first()?.ranges(TAG_LEN, memory_len)?;
        let len = first.len();
        // ChaCha20's own counter has 32 bits. No packet of a network is even near.
        if len > usize::from(u16::MAX) {
            return None;
        }
        let mut group = Group {
            starts: [first.start; LANES],
            nonces: [[0; 12]; LANES],
            filled: 0,
            len,
        };
        for packet in packets.iter().take(LANES) {
            match packet.ranges(TAG_LEN, memory_len) {
                Some((text, _)) if text.len() == len => {
                    group.starts[group.filled] = text.start;
                    group.nonces[group.filled] = nonce(packet);
                    group.filled += 1;
                }
                _ => break,
            }
        }
        (group.filled >= GROUP_MIN).then_some((avx512, group))
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
    fn tag_len(&self) -> usize {
        TAG_LEN
    }

    fn seal(&self, batch: &mut Batch<'_>) {
        self.seal_with(batch, |packet| counter_nonce(packet.counter), &[]);
    }

    fn open(&self, batch: &mut Batch<'_>) {
        self.open_with(batch, |packet| counter_nonce(packet.counter), &[]);
    }

    fn name(&self) -> &'static str {
        "chacha20-poly1305"
    }

    fn backend(&self) -> &'static str {
        #[cfg(target_arch = "x86_64")]
        {
            if self.groups.is_some() {
                return "own (avx512-ifma) for runs of equal length, aws-lc (avx2) for the rest";
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2") {
                return "aws-lc (avx2)";
            }
            if is_x86_feature_detected!("sse4.1") {
                return "aws-lc (sse4.1)";
            }
        }
        #[cfg(target_arch = "aarch64")]
        return "aws-lc (neon)";
        #[cfg(target_arch = "arm")]
        return "aws-lc (arm, neon where present)";
        #[cfg(not(any(target_arch = "aarch64", target_arch = "arm")))]
        "aws-lc (portable)"
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
        let mut received = [
            packets[0],
            packets[1],
            packets[2],
            at(385, 0, 3),
            at(u32::MAX, 1, 4),
        ];
        cipher.open(&mut Batch {
            memory: &mut memory,
            packets: &mut received,
        });
        assert_eq!(
            received.map(|packet| packet.authentic),
            [true, true, false, false, false]
        );
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
