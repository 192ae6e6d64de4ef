//! AEADs for batches of packets: one loop for every protocol's layout.

use core::ops::Range;

use crate::backend::Backend;
use crate::kernels::{AeadKernel, CHUNK, List, Pair, Place};
use crate::select::Algorithm;
use crate::{Batch, Packet, PacketCipher, TAG_LEN};

/// Where a protocol puts the packet's number and its tag, and how it makes nonces.
///
/// ```text
/// header | number | [tag] | text | [tag]
/// ------------------ associated data: header and number
/// ```
pub(crate) trait Layout: Send + Sync {
    /// Bytes of the number at the beginning of the head.
    const NUMBER: usize;
    /// Whether the tag stands behind the text, and not between number and text.
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

/// Which AEAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AeadAlgorithm {
    Aes128Gcm,
    Aes192Gcm,
    Aes256Gcm,
    ChaCha20Poly1305,
}

impl AeadAlgorithm {
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

    /// What code is chosen for: it does not depend on the length of a key.
    pub(crate) fn family(self) -> Algorithm {
        match self {
            Self::Aes128Gcm | Self::Aes192Gcm | Self::Aes256Gcm => Algorithm::AesGcm,
            Self::ChaCha20Poly1305 => Algorithm::ChaCha20Poly1305,
        }
    }
}

/// An AEAD with its key and its layout. The kernels of [`crate::kernels`] do the arithmetic.
pub(crate) struct PacketAead<L> {
    algorithm: AeadAlgorithm,
    kernels: Pair<dyn AeadKernel>,
    layout: L,
}

impl<L: Layout> PacketAead<L> {
    /// Prepares a key once, for all packets: the first bytes of `key`, as many as the algorithm takes. The caller's copy
    /// stays the caller's to erase. `None` if the machine has no such back end for the algorithm; without a wish it has.
    ///
    /// # Panics
    /// If `key` is shorter than the algorithm's.
    pub(crate) fn new(
        backend: Option<Backend>,
        algorithm: AeadAlgorithm,
        key: &[u8],
        layout: L,
    ) -> Option<Self> {
        let kernels = Pair::aead(backend, algorithm, &key[..algorithm.key_len()])?;
        Some(Self {
            algorithm,
            kernels,
            layout,
        })
    }

    /// As [`new`](Self::new), but on the CPU where that would be an accelerator, which has sessions for few keys.
    pub(crate) fn sparing(
        backend: Option<Backend>,
        algorithm: AeadAlgorithm,
        key: &[u8],
        layout: L,
    ) -> Option<Self> {
        let kernels = Pair::aead_sparing(backend, algorithm, &key[..algorithm.key_len()])?;
        Some(Self {
            algorithm,
            kernels,
            layout,
        })
    }

    /// With this one kernel, to test it.
    #[cfg(test)]
    pub(crate) fn with_kernel(
        kernel: Box<dyn AeadKernel>,
        algorithm: AeadAlgorithm,
        layout: L,
    ) -> Self {
        Self {
            algorithm,
            kernels: Pair::only(kernel),
            layout,
        }
    }

    const HEAD: usize = L::NUMBER + if L::TAG_BEHIND { 0 } else { TAG_LEN };
    const TAIL: usize = if L::TAG_BEHIND { TAG_LEN } else { 0 };

    /// The parts of a packet to be sealed. Its bounds are checked here, once.
    fn sealing(&self, packet: &Packet, memory_len: usize) -> Option<Place> {
        let header = self.layout.header();
        let text = packet.range(header + Self::HEAD, Self::TAIL, memory_len)?;
        Some(self.place(text.start - Self::HEAD, text, packet.counter))
    }

    /// The parts of a packet to be opened, with its number in `packet.counter`.
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

    /// Writes the number and says where everything is; `None` for what must not be sealed.
    fn prepared(&self, packet: &Packet, memory: &mut [u8]) -> Option<Place> {
        let place = self.sealing(packet, memory.len());
        debug_assert!(place.is_some(), "packet outside of its slot: {packet:?}");
        let place = place?;
        let number = &mut memory[place.aad.end - L::NUMBER..place.aad.end];
        let fits = self.layout.write_number(packet.counter, number);
        debug_assert!(fits, "packet number out of range: {packet:?}");
        if !fits {
            // Whatever the caller does with it, the plaintext must not leave this machine.
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
            self.kernels.of(places.len()).seal(memory, &places);
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
            self.kernels
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
        self.kernels.many().describe()
    }
}
