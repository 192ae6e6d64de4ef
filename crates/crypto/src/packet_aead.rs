//! AEADs for batches of packets: one loop for every protocol's layout.

use core::ops::Range;

use aws_lc_rs::aead::{
    AES_128_GCM, AES_192_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce,
    UnboundKey,
};

#[cfg(target_arch = "x86_64")]
use crate::avx512::{Avx512, Group};
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
    fn library(self) -> &'static Algorithm {
        match self {
            Self::Aes128Gcm => &AES_128_GCM,
            Self::Aes192Gcm => &AES_192_GCM,
            Self::Aes256Gcm => &AES_256_GCM,
            Self::ChaCha20Poly1305 => &CHACHA20_POLY1305,
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
        self.library().key_len()
    }
}

/// An AEAD with its key and its layout.
///
/// The library's "less safe" key is the one that lets the caller number the packets, which the protocols require.
///
/// Runs of packets of one length under ChaCha20-Poly1305 go through this crate's own AVX-512 code where the machine has
/// the instructions, all others through AWS-LC.
pub(crate) struct PacketAead<L> {
    algorithm: AeadAlgorithm,
    key: LessSafeKey,
    #[cfg(target_arch = "x86_64")]
    groups: Option<Avx512>,
    layout: L,
}

/// Packets of one length that are worth a group, whatever the length. Empty lanes cost as much as the others: with four
/// of 1420 bytes a group is a little faster than the library, fewer were not tried.
#[cfg(target_arch = "x86_64")]
const GROUP_MIN: usize = 4;

/// Where one packet's parts are, and its nonce.
pub(crate) struct Place {
    pub(crate) aad: Range<usize>,
    pub(crate) text: Range<usize>,
    pub(crate) tag: usize,
    pub(crate) nonce: [u8; 12],
}

impl<L: Layout> PacketAead<L> {
    /// Prepares a key once, for all packets: the first bytes of `key`, as many as the algorithm takes. The caller's copy
    /// stays the caller's to erase.
    ///
    /// # Panics
    /// If `key` is shorter than the algorithm's.
    pub(crate) fn new(algorithm: AeadAlgorithm, key: &[u8], layout: L) -> Self {
        let library = algorithm.library();
        let key = &key[..library.key_len()];
        #[cfg(target_arch = "x86_64")]
        let groups = match algorithm {
            AeadAlgorithm::ChaCha20Poly1305 => key.try_into().ok().and_then(Avx512::new),
            _ => None,
        };
        // A key of the algorithm's own length is the only condition, and the line above has cut it so.
        #[allow(clippy::unwrap_used)]
        let key = LessSafeKey::new(UnboundKey::new(library, key).unwrap());
        Self {
            algorithm,
            key,
            #[cfg(target_arch = "x86_64")]
            groups,
            layout,
        }
    }

    /// The same, but every packet goes through the library whatever the machine has: to compare with.
    pub(crate) fn library_only(self) -> Self {
        Self {
            #[cfg(target_arch = "x86_64")]
            groups: None,
            ..self
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

    fn seal_one(&self, memory: &mut [u8], place: &Place) {
        let (aad, text, tag_at) = parts::<L>(memory, place);
        let nonce = Nonce::assume_unique_for_key(place.nonce);
        match self
            .key
            .seal_in_place_separate_tag(nonce, Aad::from(aad), text)
        {
            Ok(tag) => tag_at.copy_from_slice(tag.as_ref()),
            // Only a text beyond 64 GiB fails, and `len` has 32 bits. Should a later library find another reason, the
            // plaintext must still not leave this machine.
            Err(_) => {
                text.fill(0);
                tag_at.fill(0);
            }
        }
    }

    fn open_one(&self, memory: &mut [u8], place: &Place) -> bool {
        let (aad, text, tag) = parts::<L>(memory, place);
        let nonce = Nonce::assume_unique_for_key(place.nonce);
        let opened = self
            .key
            .open_in_place_separate_tag(nonce, Aad::from(aad), tag, text);
        let authentic = opened.is_ok();
        if !authentic {
            // AWS-LC decrypts while it authenticates and then clears; that is its choice, this is our promise.
            text.fill(0);
        }
        authentic
    }

    /// The first packets as a group, if they make one.
    #[cfg(target_arch = "x86_64")]
    fn group(
        &self,
        packets: &[Packet],
        mut place: impl FnMut(&Packet) -> Option<Place>,
    ) -> Option<(&Avx512, Group)> {
        let avx512 = self.groups.as_ref()?;
        // Nearly always the second packet tells whether there is a run at all.
        let alike = packets
            .iter()
            .take_while(|packet| packet.len == packets[0].len);
        if alike.take(GROUP_MIN).count() < GROUP_MIN {
            return None;
        }
        let mut group = Group::new(&place(&packets[0])?)?;
        for packet in &packets[1..] {
            if !place(packet).is_some_and(|place| group.push(&place)) {
                break;
            }
        }
        (group.filled() >= GROUP_MIN).then_some((avx512, group))
    }
}

/// A packet's associated data, text and tag as slices.
fn parts<'a, L: Layout>(
    memory: &'a mut [u8],
    place: &Place,
) -> (&'a [u8], &'a mut [u8], &'a mut [u8]) {
    let (front, rest) = memory.split_at_mut(place.aad.end);
    let aad = &front[place.aad.start..];
    if L::TAG_BEHIND {
        let (text, tag) = rest.split_at_mut(place.tag - place.aad.end);
        let tag = &mut tag[..TAG_LEN];
        (aad, text, tag)
    } else {
        let (tag, text) = rest[..TAG_LEN + place.text.len()].split_at_mut(TAG_LEN);
        (aad, text, tag)
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
        let mut rest = &batch.packets[..];
        while let Some((packet, others)) = rest.split_first() {
            #[cfg(target_arch = "x86_64")]
            if let Some((avx512, group)) = self.group(rest, |packet| self.prepared(packet, memory))
            {
                avx512.seal(memory, &group);
                rest = &rest[group.filled()..];
                continue;
            }
            if let Some(place) = self.prepared(packet, memory) {
                self.seal_one(memory, &place);
            }
            rest = others;
        }
    }

    fn open(&self, batch: &mut Batch<'_>) {
        let memory = &mut *batch.memory;
        let mut rest = &mut batch.packets[..];
        while !rest.is_empty() {
            #[cfg(target_arch = "x86_64")]
            if let Some((avx512, group)) =
                self.group(rest, |packet| self.opening(&mut { *packet }, memory))
            {
                let authentic = avx512.open(memory, &group);
                let (packets, others) = rest.split_at_mut(group.filled());
                for (packet, authentic) in packets.iter_mut().zip(authentic) {
                    packet.authentic = false;
                    if let Some(place) = self.opening(packet, memory)
                        && authentic
                    {
                        packet.accept(&place.text);
                    }
                }
                rest = others;
                continue;
            }
            let (packet, others) = rest.split_at_mut(1);
            let packet = &mut packet[0];
            packet.authentic = false;
            if let Some(place) = self.opening(packet, memory)
                && self.open_one(memory, &place)
            {
                packet.accept(&place.text);
            }
            rest = others;
        }
    }

    fn name(&self) -> &'static str {
        self.algorithm.name()
    }

    fn backend(&self) -> &'static str {
        #[cfg(target_arch = "x86_64")]
        if self.groups.is_some() {
            return "own (avx512-ifma) for runs of equal length, aws-lc (avx2) for the rest";
        }
        match self.algorithm {
            AeadAlgorithm::ChaCha20Poly1305 => chacha_backend(),
            _ => gcm_backend(),
        }
    }
}

/// What AWS-LC picks for ChaCha20-Poly1305.
fn chacha_backend() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
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

/// What AWS-LC picks for AES-GCM.
fn gcm_backend() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        let aes = is_x86_feature_detected!("aes") && is_x86_feature_detected!("pclmulqdq");
        if is_x86_feature_detected!("vaes")
            && is_x86_feature_detected!("vpclmulqdq")
            && is_x86_feature_detected!("avx512bw")
        {
            return "aws-lc (vaes, avx512)";
        }
        if aes && is_x86_feature_detected!("avx") && is_x86_feature_detected!("movbe") {
            return "aws-lc (aes-ni stitched with pclmulqdq)";
        }
        if aes {
            return "aws-lc (aes-ni)";
        }
        if is_x86_feature_detected!("ssse3") {
            return "aws-lc (ssse3)";
        }
    }
    #[cfg(target_arch = "aarch64")]
    if std::arch::is_aarch64_feature_detected!("aes") {
        return "aws-lc (aes instructions)";
    } else {
        return "aws-lc (neon)";
    }
    #[cfg(target_arch = "arm")]
    return "aws-lc (arm, neon where present)";
    #[cfg(not(any(target_arch = "aarch64", target_arch = "arm")))]
    "aws-lc (portable)"
}
