//! AEADs for batches of packets: one loop for every layout.
//!
//! [`new`] and [`sparing`] make one with a layout of [`AeadLayout`]. The loop is compiled once for each layout, in this
//! crate and with its optimisation, whichever crate calls it.

use core::ops::Range;
use std::sync::Arc;

use crate::algorithm::Algorithm;
use crate::implementations::{AeadImplementation, Backend, CHUNK, List, Pair, Place};
use crate::{Batch, Cipher, Packet, PacketCipher, TAG_LEN};

/// The places of number and tag in an AEAD's packets, and how the number makes the nonce. Numbers are big-endian.
#[derive(Clone, Copy)]
pub enum AeadLayout {
    /// `number:u32, tag[16], text`. The nonce is the number followed by the salt.
    Number32 {
        /// Bytes in front of the number that are authenticated with it.
        header: usize,
        /// Part of the key, and secret.
        salt: [u8; 8],
    },
    /// `number:u64, text, tag[16]`. The nonce is the IV, with the number XORed into its first eight bytes.
    Number64 {
        /// Bytes in front of the number that are authenticated with it.
        header: usize,
        /// Part of the key, and secret.
        iv: [u8; 12],
    },
    /// `text, tag[16]`. The caller finds the number in a header of its own. The nonce is that of the Noise framework:
    /// four zero bytes, then the number in little-endian order. Nothing else is authenticated.
    NoNumber,
}

/// Prepares a key once, for all packets: the first bytes of `key`, as many as the cipher takes. The caller must erase
/// its own copy.
///
/// `backend` narrows the choice to one kind of code; without it the choice made for this process applies. `None` if
/// `cipher` is no AEAD, or the machine has no such back end for it.
///
/// # Panics
/// If `key` is shorter than the cipher's.
#[must_use]
pub fn new(
    backend: Option<Backend>,
    cipher: Cipher,
    key: &[u8],
    layout: AeadLayout,
) -> Option<Arc<dyn PacketCipher>> {
    let algorithm = AeadAlgorithm::of(cipher)?;
    let implementations = Pair::aead(backend, algorithm, &key[..algorithm.key_len()])?;
    Some(with_layout(algorithm, implementations, layout))
}

/// Makes a cipher like [`new`], but on the CPU instead of an accelerator, which has sessions for few keys: for keys of
/// which most will never be used.
///
/// # Panics
/// If `key` is shorter than the cipher's.
#[must_use]
pub fn sparing(
    backend: Option<Backend>,
    cipher: Cipher,
    key: &[u8],
    layout: AeadLayout,
) -> Option<Arc<dyn PacketCipher>> {
    let algorithm = AeadAlgorithm::of(cipher)?;
    let implementations = Pair::aead_sparing(backend, algorithm, &key[..algorithm.key_len()])?;
    Some(with_layout(algorithm, implementations, layout))
}

fn with_layout(
    algorithm: AeadAlgorithm,
    implementations: Pair<dyn AeadImplementation>,
    layout: AeadLayout,
) -> Arc<dyn PacketCipher> {
    fn aead<L: Layout + 'static>(
        algorithm: AeadAlgorithm,
        implementations: Pair<dyn AeadImplementation>,
        layout: L,
    ) -> Arc<dyn PacketCipher> {
        Arc::new(PacketAead {
            algorithm,
            implementations,
            layout,
        })
    }
    match layout {
        AeadLayout::Number32 { header, salt } => {
            aead(algorithm, implementations, Number32 { header, salt })
        }
        AeadLayout::Number64 { header, iv } => {
            aead(algorithm, implementations, Number64 { header, iv })
        }
        AeadLayout::NoNumber => aead(algorithm, implementations, NoNumber),
    }
}

/// The places of the packet's number and tag, and how nonces are made.
///
/// ```text
/// header | number | [tag] | text | [tag]
/// ------------------ associated data: header and number
/// ```
pub(crate) trait Layout: Send + Sync {
    /// Bytes of the number at the beginning of the head.
    const NUMBER: usize;
    /// Whether the tag is behind the text, rather than between number and text.
    const TAG_BEHIND: bool;

    /// Bytes of header in front of the head that are authenticated.
    fn header(&self) -> usize;

    /// Writes the number into [`NUMBER`](Self::NUMBER) bytes; `false` if it does not fit.
    fn write_number(&self, counter: u64, bytes: &mut [u8]) -> bool;

    /// The number from [`NUMBER`](Self::NUMBER) bytes; `given` if the layout does not carry it.
    fn read_number(&self, bytes: &[u8], given: u64) -> u64;

    /// The nonce of the packet `counter`.
    fn nonce(&self, counter: u64) -> [u8; 12];
}

/// [`AeadLayout::Number32`].
struct Number32 {
    header: usize,
    salt: [u8; 8],
}

impl Layout for Number32 {
    const NUMBER: usize = 4;
    const TAG_BEHIND: bool = false;

    fn header(&self) -> usize {
        self.header
    }

    fn write_number(&self, counter: u64, bytes: &mut [u8]) -> bool {
        let Ok(number) = u32::try_from(counter) else {
            return false;
        };
        bytes.copy_from_slice(&number.to_be_bytes());
        true
    }

    fn read_number(&self, bytes: &[u8], _: u64) -> u64 {
        bytes
            .iter()
            .fold(0, |number, &byte| number << 8 | u64::from(byte))
    }

    fn nonce(&self, counter: u64) -> [u8; 12] {
        let mut nonce = [0; 12];
        // Only numbers that fit in 32 bits come here with a packet to be sealed or opened.
        nonce[..4].copy_from_slice(&(counter as u32).to_be_bytes());
        nonce[4..].copy_from_slice(&self.salt);
        nonce
    }
}

/// [`AeadLayout::Number64`].
struct Number64 {
    header: usize,
    iv: [u8; 12],
}

impl Layout for Number64 {
    const NUMBER: usize = 8;
    const TAG_BEHIND: bool = true;

    fn header(&self) -> usize {
        self.header
    }

    fn write_number(&self, counter: u64, bytes: &mut [u8]) -> bool {
        bytes.copy_from_slice(&counter.to_be_bytes());
        true
    }

    fn read_number(&self, bytes: &[u8], given: u64) -> u64 {
        bytes.try_into().map_or(given, u64::from_be_bytes)
    }

    fn nonce(&self, counter: u64) -> [u8; 12] {
        let mut nonce = self.iv;
        for (byte, id) in nonce.iter_mut().zip(counter.to_be_bytes()) {
            *byte ^= id;
        }
        nonce
    }
}

/// [`AeadLayout::NoNumber`].
struct NoNumber;

impl Layout for NoNumber {
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

/// Noise's nonce (revision 34, section 12.3): 32 zero bits, then 64 bits of counter, little-endian.
pub(crate) fn counter_nonce(counter: u64) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&counter.to_le_bytes());
    nonce
}

/// The [`Cipher`]s that are AEADs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AeadAlgorithm {
    Aes128Gcm,
    Aes192Gcm,
    Aes256Gcm,
    ChaCha20Poly1305,
}

impl AeadAlgorithm {
    /// The AEAD of a cipher, if it is one.
    pub(crate) fn of(cipher: Cipher) -> Option<Self> {
        match cipher {
            Cipher::Aes128Gcm => Some(Self::Aes128Gcm),
            Cipher::Aes192Gcm => Some(Self::Aes192Gcm),
            Cipher::Aes256Gcm => Some(Self::Aes256Gcm),
            Cipher::ChaCha20Poly1305 => Some(Self::ChaCha20Poly1305),
            _ => None,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Aes128Gcm => "aes-128-gcm",
            Self::Aes192Gcm => "aes-192-gcm",
            Self::Aes256Gcm => "aes-256-gcm",
            Self::ChaCha20Poly1305 => "chacha20-poly1305",
        }
    }

    /// Bytes of key.
    pub(crate) fn key_len(self) -> usize {
        match self {
            Self::Aes128Gcm => 16,
            Self::Aes192Gcm => 24,
            Self::Aes256Gcm | Self::ChaCha20Poly1305 => 32,
        }
    }

    /// The algorithm for choosing code, which does not depend on the key length.
    pub(crate) fn family(self) -> Algorithm {
        match self {
            Self::Aes128Gcm | Self::Aes192Gcm | Self::Aes256Gcm => Algorithm::AesGcm,
            Self::ChaCha20Poly1305 => Algorithm::ChaCha20Poly1305,
        }
    }
}

/// An AEAD with its key and its layout. The implementations of [`crate::implementations`] do the computing.
pub(crate) struct PacketAead<L> {
    algorithm: AeadAlgorithm,
    implementations: Pair<dyn AeadImplementation>,
    layout: L,
}

impl<L: Layout> PacketAead<L> {
    /// Makes a cipher with this one implementation, to test it.
    #[cfg(test)]
    pub(crate) fn with_implementation(
        implementation: Box<dyn AeadImplementation>,
        algorithm: AeadAlgorithm,
        layout: L,
    ) -> Self {
        Self {
            algorithm,
            implementations: Pair::only(implementation),
            layout,
        }
    }

    const HEAD: usize = L::NUMBER + if L::TAG_BEHIND { 0 } else { TAG_LEN };
    const TAIL: usize = if L::TAG_BEHIND { TAG_LEN } else { 0 };

    /// The parts of a packet to be sealed. Checks their bounds, once.
    fn sealing(&self, packet: &Packet, memory_len: usize) -> Option<Place> {
        let header = self.layout.header();
        let text = packet.range(header + Self::HEAD, Self::TAIL, memory_len)?;
        Some(self.place(text.start - Self::HEAD, text, packet.counter))
    }

    /// The parts of a packet to be opened. Sets `packet.counter` to its number.
    fn opening(&self, packet: &mut Packet, memory: &[u8]) -> Option<Place> {
        let bytes = packet.range(self.layout.header(), 0, memory.len())?;
        if bytes.len() < Self::HEAD + Self::TAIL {
            return None;
        }
        let number = &memory[bytes.start..][..L::NUMBER];
        packet.counter = self.layout.read_number(number, packet.counter);
        let text = bytes.start + Self::HEAD..bytes.end - Self::TAIL;
        Some(self.place(bytes.start, text, packet.counter))
    }

    fn place(&self, head: usize, text: Range<usize>, counter: u64) -> Place {
        Place {
            aad: head - self.layout.header()..head + L::NUMBER,
            tag: if L::TAG_BEHIND {
                text.end
            } else {
                head + L::NUMBER
            },
            text,
            nonce: self.layout.nonce(counter),
        }
    }

    /// Writes the number and returns the packet's parts; `None` if the packet must not be sealed.
    fn prepared(&self, packet: &Packet, memory: &mut [u8]) -> Option<Place> {
        let place = self.sealing(packet, memory.len());
        debug_assert!(place.is_some(), "packet outside of its slot: {packet:?}");
        let place = place?;
        let number = &mut memory[place.aad.end - L::NUMBER..place.aad.end];
        let fits = self.layout.write_number(packet.counter, number);
        debug_assert!(fits, "packet number out of range: {packet:?}");
        if !fits {
            // The plaintext must not leave this machine, however the caller uses it.
            memory[place.text].fill(0);
            return None;
        }
        Some(place)
    }
}

impl<L: Layout> PacketCipher for PacketAead<L> {
    fn head(&self) -> usize {
        Self::HEAD
    }

    fn tail(&self, _: usize) -> usize {
        Self::TAIL
    }

    fn seal(&self, batch: &mut Batch<'_>) {
        let memory = &mut *batch.memory;
        for packets in batch.packets.chunks(CHUNK) {
            let mut places = List::new();
            for packet in packets {
                if let Some(place) = self.prepared(packet, memory) {
                    places.push(place);
                }
            }
            self.implementations.of(places.len()).seal(memory, &places);
        }
    }

    fn open(&self, batch: &mut Batch<'_>) {
        let memory = &mut *batch.memory;
        for packets in batch.packets.chunks_mut(CHUNK) {
            let mut places = List::new();
            let mut which = List::new();
            for (index, packet) in packets.iter_mut().enumerate() {
                packet.authentic = false;
                if let Some(place) = self.opening(packet, memory) {
                    places.push(place);
                    which.push(index);
                }
            }
            let mut authentic = [false; CHUNK];
            let authentic = &mut authentic[..places.len()];
            self.implementations
                .of(places.len())
                .open(memory, &places, authentic);
            for ((place, &index), &mut authentic) in places.iter().zip(&*which).zip(authentic) {
                if authentic {
                    packets[index].accept(&place.text);
                }
            }
        }
    }

    fn name(&self) -> &'static str {
        self.algorithm.name()
    }

    fn backend(&self) -> &'static str {
        self.implementations.many().describe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_packet_leaves_zeros_and_spares_its_neighbours() {
        let cipher = Cipher::ChaCha20Poly1305;
        let cipher = new(None, cipher, &[9; 32], AeadLayout::NoNumber).unwrap();
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
