//! Batches of packets under a block cipher in CBC mode or none, with an HMAC in front or none.
//!
//! `HMAC[L], IV[block], CBC(number:u32, payload, padding)`: encrypt, then MAC; the packet's number is encrypted too.
//! Without a block cipher there is no IV and no padding. The HMAC covers everything behind it, and is verified before
//! anything is decrypted; it does not cover the header in front. Numbers are big-endian.

use core::ops::Range;

use zeroize::Zeroize;

use crate::blocks::BlockCipher;
use crate::implementations::{Backend, CHUNK, Chain, Hmac, List, Mac, MacImplementation, Pair};
use crate::random::unpredictable;
use crate::{Batch, Cipher, Digest, Packet, PacketCipher};

/// Bytes of the packet's number, the first of the encrypted bytes.
const NUMBER: usize = 4;

/// A block cipher and an HMAC with their keys.
pub struct PacketCbc {
    cipher: Cipher,
    blocks: Option<BlockCipher>,
    hmac: Option<Pair<dyn MacImplementation>>,
    /// Bytes of HMAC in a packet.
    mac_len: usize,
}

impl PacketCbc {
    /// Prepares both keys once, for all packets: the first bytes of each, as many as cipher and digest take. The caller
    /// must erase its own copies. [`Digest::None`] leaves packets unauthenticated, [`Cipher::None`] readable.
    ///
    /// `backend` narrows the choice to one kind of code; without it the choice made for this process applies. `None` if
    /// `cipher` is an AEAD, or the machine has no such back end for either the cipher or the digest. If it has one for
    /// only one of them, the other uses the choice made for this process.
    #[must_use]
    pub fn new(
        backend: Option<Backend>,
        (cipher, key): (Cipher, &[u8; 64]),
        (digest, mac_key): (Digest, &[u8; 64]),
    ) -> Option<Self> {
        let blocks_on = |backend| BlockCipher::new(backend, cipher, key);
        let key = Hmac::new(digest, &mac_key[..digest.len()]);
        let hmac_on = |backend| Pair::mac(backend, key.as_ref()?);
        let (mut blocks, mut hmac) = (blocks_on(backend), hmac_on(backend));
        if let Some(wanted) = backend {
            if blocks.is_none() && hmac.is_none() && wanted != Backend::Portable {
                return None;
            }
            blocks = blocks.or_else(|| blocks_on(None));
            hmac = hmac.or_else(|| hmac_on(None));
        }
        if blocks.is_none() && cipher != Cipher::None {
            return None;
        }
        Some(Self {
            cipher,
            blocks,
            hmac,
            mac_len: digest.len(),
        })
    }

    /// Makes a cipher with these implementations, to test them.
    #[cfg(test)]
    fn with_implementations(
        (cipher, key): (Cipher, &[u8; 64]),
        (digest, mac_key): (Digest, &[u8; 64]),
        cbc: usize,
        mac: usize,
    ) -> Option<Self> {
        use crate::implementations::{CBCS, MACS};

        let mut made = Self::new(None, (cipher, key), (digest, mac_key))?;
        if let Some(BlockCipher::Aes(..)) = made.blocks {
            let key = &key[..cipher.key_len()];
            let one = || Some(Pair::only((CBCS[cbc].make)(key)?));
            made.blocks = Some(BlockCipher::Aes(one()?, one()?));
        }
        if let Some(key) = Hmac::new(digest, &mac_key[..digest.len()]) {
            made.hmac = Some(Pair::only((MACS[mac].make)(&key)?));
        }
        Some(made)
    }

    /// The range that the HMAC covers, in a packet that begins at `head` and whose text ends at `end`.
    fn covered(&self, head: usize, end: usize) -> Range<usize> {
        head + self.mac_len..end
    }

    /// The range of the text, behind the IV.
    fn text(&self, head: usize, end: usize) -> Range<usize> {
        head + self.mac_len + self.cipher.iv_len()..end
    }

    /// Writes number and padding; `None`, with the plaintext erased, if the packet must not be sealed.
    fn prepared(&self, packet: &Packet, memory: &mut [u8]) -> Option<Range<usize>> {
        let len = usize::try_from(packet.len).ok()?;
        let tail = self.tail(len);
        let payload = packet.range(self.head(), tail, memory.len());
        debug_assert!(payload.is_some(), "packet outside of its slot: {packet:?}");
        let payload = payload?;
        let number = u32::try_from(packet.counter);
        debug_assert!(number.is_ok(), "packet number out of range: {packet:?}");
        let Ok(number) = number else {
            memory[payload].fill(0);
            return None;
        };
        memory[payload.start - NUMBER..payload.start].copy_from_slice(&number.to_be_bytes());
        // PKCS #7: each byte of padding has the number of padding bytes as its value. No padding without a block
        // cipher.
        memory[payload.end..payload.end + tail].fill(tail as u8);
        Some(payload.start - self.head()..payload.end + tail)
    }

    fn seal_chunk(&self, memory: &mut [u8], packets: &[Packet]) {
        let mut places = List::new();
        for packet in packets {
            if let Some(place) = self.prepared(packet, memory) {
                places.push(place);
            }
        }

        if let Some(blocks) = &self.blocks {
            let iv_len = self.cipher.iv_len();
            let mut chains = List::new();
            unpredictable(|fill| {
                for place in &*places {
                    let text = self.text(place.start, place.end);
                    fill(&mut memory[text.start - iv_len..text.start]);
                    chains.push(Chain::new(&text, iv_len));
                }
            });
            blocks.encrypt(memory, &chains);
        }
        if let Some(hmac) = &self.hmac {
            let mut covered = List::new();
            for place in &*places {
                covered.push(self.covered(place.start, place.end));
            }
            let mut macs = [Mac::EMPTY; CHUNK];
            let macs = &mut macs[..covered.len()];
            hmac.of(covered.len()).sign_each(memory, &covered, macs);
            for (place, mac) in places.iter().zip(macs) {
                memory[place.start..][..self.mac_len].copy_from_slice(mac.as_bytes());
            }
        }
    }

    fn open_chunk(&self, memory: &mut [u8], packets: &mut [Packet]) {
        // The packets that can be genuine, by their places and lengths.
        let mut covered = [const { 0..0 }; CHUNK];
        let mut which = [0; CHUNK];
        let mut filled = 0;
        for (index, packet) in packets.iter_mut().enumerate() {
            packet.authentic = false;
            if let Some(bytes) = packet.range(0, 0, memory.len())
                && self.is_possible(bytes.len())
            {
                covered[filled] = self.covered(bytes.start, bytes.end);
                which[filled] = index;
                filled += 1;
            }
        }

        if let Some(hmac) = &self.hmac {
            let mut macs = [Mac::EMPTY; CHUNK];
            hmac.of(filled)
                .sign_each(memory, &covered[..filled], &mut macs[..filled]);
            let mut genuine = 0;
            for at in 0..filled {
                let received = &memory[covered[at].start - self.mac_len..covered[at].start];
                if macs[at].equals(received) {
                    covered[genuine] = covered[at].clone();
                    which[genuine] = which[at];
                    genuine += 1;
                }
            }
            filled = genuine;
        }
        if let Some(blocks) = &self.blocks {
            let iv_len = self.cipher.iv_len();
            let mut chains = [Chain::default(); CHUNK];
            for (covered, chain) in covered[..filled].iter().zip(&mut chains) {
                *chain = Chain::new(&(covered.start + iv_len..covered.end), iv_len);
            }
            blocks.decrypt(memory, &chains[..filled]);
        }
        for (covered, &index) in covered[..filled].iter().zip(&which) {
            let text = covered.start + self.cipher.iv_len()..covered.end;
            let packet = &mut packets[index];
            match self.unpadded(&memory[text.clone()]) {
                Some(len) => {
                    let number = &memory[text.start..text.start + NUMBER];
                    packet.counter = number
                        .iter()
                        .fold(0, |number, &byte| number << 8 | u64::from(byte));
                    packet.accept(&(text.start + NUMBER..text.start + len));
                }
                None => memory[text].zeroize(),
            }
        }
    }

    /// Whether a datagram can have `len` bytes behind its header.
    fn is_possible(&self, len: usize) -> bool {
        let Some(text) = len.checked_sub(self.mac_len + self.cipher.iv_len()) else {
            return false;
        };
        text >= NUMBER && text.is_multiple_of(self.cipher.block_len())
    }

    /// Bytes of number and payload in front of a valid padding.
    ///
    /// A packet that fails here has passed the HMAC, so the failure tells nothing about the key. Without an HMAC an
    /// attacker can change packets anyway.
    fn unpadded(&self, text: &[u8]) -> Option<usize> {
        if self.blocks.is_none() {
            return Some(text.len());
        }
        let &padding = text.last()?;
        let padding = usize::from(padding);
        let len = text.len().checked_sub(padding)?;
        let right = (1..=self.cipher.block_len()).contains(&padding)
            && text[len..].iter().all(|&byte| usize::from(byte) == padding);
        (right && len >= NUMBER).then_some(len)
    }
}

impl PacketCipher for PacketCbc {
    fn head(&self) -> usize {
        self.mac_len + self.cipher.iv_len() + NUMBER
    }

    fn tail(&self, len: usize) -> usize {
        match self.cipher.block_len() {
            1 => 0,
            block => block - (NUMBER + len) % block,
        }
    }

    fn seal(&self, batch: &mut Batch<'_>) {
        for packets in batch.packets.chunks(CHUNK) {
            self.seal_chunk(batch.memory, packets);
        }
    }

    fn open(&self, batch: &mut Batch<'_>) {
        for packets in batch.packets.chunks_mut(CHUNK) {
            self.open_chunk(batch.memory, packets);
        }
    }

    fn name(&self) -> &'static str {
        self.cipher.name()
    }

    fn backend(&self) -> &'static str {
        match &self.blocks {
            Some(blocks) => blocks.backend(),
            None => self
                .hmac
                .as_ref()
                .map_or("none", |hmac| hmac.many().describe()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::implementations::{CBCS, MACS};

    fn keys() -> [[u8; 64]; 2] {
        let mut keys = [[0; 64]; 2];
        crate::random(keys.as_flattened_mut());
        keys
    }

    /// A slot of packets of these lengths, with head and tail, and the same packets as they will be received.
    fn slot(cipher: &PacketCbc, lens: &[usize]) -> (Vec<u8>, Vec<Packet>, Vec<Packet>) {
        let (mut memory, mut sent, mut received) = (Vec::new(), Vec::new(), Vec::new());
        for (number, &len) in lens.iter().enumerate() {
            memory.resize(memory.len() + number % 19, 0xee);
            let packet = Packet {
                start: (memory.len() + cipher.head()) as u32,
                len: len as u32,
                counter: number as u64 + 1,
                authentic: false,
            };
            let whole = cipher.head() + len + cipher.tail(len);
            sent.push(packet);
            received.push(Packet {
                start: memory.len() as u32,
                len: whole as u32,
                ..Packet::default()
            });
            memory.extend((0..whole).map(|at| (at * 31 + number * 7) as u8));
        }
        (memory, sent, received)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

        /// One back end opens packets of any length that the other seals.
        #[test]
        fn back_ends_agree(
            cipher in prop::sample::select(Cipher::ALL.to_vec()).prop_filter("no AEAD", |cipher| !cipher.is_aead()),
            digest in prop::sample::select(Digest::ALL.to_vec()),
            runs in prop::collection::vec((prop_oneof![3 => 0..300_usize, 1 => 0..9000_usize], 1..40_usize), 0..6),
            candidates: [usize; 4],
        ) {
            let [key, mac_key] = keys();
            // A candidate that this machine lacks, or that lacks this digest, is replaced by the first.
            let one = |cbc, mac| PacketCbc::with_implementations((cipher, &key), (digest, &mac_key), cbc % CBCS.len(), mac % MACS.len());
            let one = |cbc, mac| one(cbc, mac).or_else(|| one(0, 0)).unwrap();
            let [a, b, c, d] = candidates;
            let (sealer, opener) = (one(a, b), one(c, d));
            let lens: Vec<_> = runs.iter().flat_map(|&(len, count)| vec![len; count]).collect();
            let (mut memory, mut sent, mut received) = slot(&sealer, &lens);
            let plain = memory.clone();
            sealer.seal(&mut Batch { memory: &mut memory, packets: &mut sent });
            opener.open(&mut Batch { memory: &mut memory, packets: &mut received });
            for (opened, sent) in received.iter().zip(&sent) {
                prop_assert_eq!(opened, &Packet { authentic: true, ..*sent });
                let payload = sent.range(0, 0, memory.len()).unwrap();
                prop_assert_eq!(&memory[payload.clone()], &plain[payload]);
            }
        }
    }

    #[test]
    fn wrong_paddings_are_not_packets() {
        let [key, mac_key] = keys();
        let cipher = (Cipher::Aes128Cbc, &key);
        let cipher = PacketCbc::new(None, cipher, (Digest::None, &mac_key)).unwrap();
        for (end, right) in [
            (vec![0; 16], false),
            (vec![16; 16], true),
            (vec![17; 16], false),
            ([vec![0; 13], vec![3; 3]].concat(), true),
            ([vec![0; 13], vec![2, 3, 3]].concat(), false),
            ([vec![0; 15], vec![255]].concat(), false),
        ] {
            let mut memory = [vec![0; 32], end].concat();
            let chain = Chain::new(&(16..48), 16);
            let blocks = cipher.blocks.as_ref().unwrap();
            blocks.encrypt(&mut memory, &[chain]);
            let mut packets = [Packet {
                start: 0,
                len: 48,
                ..Packet::default()
            }];
            cipher.open(&mut Batch {
                memory: &mut memory,
                packets: &mut packets,
            });
            assert_eq!(packets[0].authentic, right, "{memory:?}");
            assert!(right || memory[16..] == [0; 32]);
        }
    }
}
