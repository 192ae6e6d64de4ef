//! One key's data packets: `[length] opcode [peer-id] | head | framing, payload | tail`.
//!
//! The cipher writes and reads its own head and tail; this module handles the bytes around and within them.

use super::cipher::{self, CipherError};
use super::fragment::{self, Fragments};
use super::inband::{OCC_MAGIC, PING};
use super::lzo;
use super::wire::{RECORD_HEADER_LEN, V2_LEN};
use crate::session::DataKeys;
use crypto::PacketCipher;
use plane::{Batch, Format, Joined, Packet, Payload, mss};
use std::ops::Range;
use std::sync::Arc;

/// Packets in one epoch. AES-GCM may seal 2^36 blocks under a key; packets have 4,096 at most.
const EPOCH_PACKETS_LOG2: u32 = 24;

/// The properties that all keys of a peer share.
#[derive(Clone, Default)]
pub struct Shape {
    /// The bytes that `comp-lzo` or `compress` puts around payloads.
    pub framing: Framing,
    /// Packets go through TCP.
    pub stream: bool,
    /// `fragment`: cuts and rejoins packets, shared by all keys of the peer.
    pub fragments: Option<Arc<Fragments>>,
    /// `mssfix`: the largest TCP segment over IPv4, in bytes; 0 for any.
    pub mss: u16,
    /// Maximum number of bytes of an unpacked packet that the peer compressed; 0 drops such packets.
    pub unpacked_max: usize,
}

/// Compression framing: the marks that compression leaves on packets even where nothing is compressed.
///
/// Millrace never compresses, since compression tells listeners something of the plaintext (the VORACLE attack). The
/// peer may still insist on the framing, which says whether it has compressed a packet. Compressed packets are
/// unpacked.
///
/// | directive                                | framing | on the wire                                              |
/// |------------------------------------------|---------|----------------------------------------------------------|
/// | `comp-lzo` in any form, `compress lzo`   | Lzo     | `fa` before the packet; `66` if it is LZO                 |
/// | `compress`, `compress stub`, `... lz4`   | Swap    | `fb` for the first byte, which goes to the end; `69` if LZ4 |
/// | `compress stub-v2`, `compress lz4-v2`    | V2      | nothing, or `50 00` before a packet that begins with `50` |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Framing {
    /// No framing.
    #[default]
    None,
    /// A byte before the packet.
    Lzo,
    /// A byte in place of the first, which is moved to the end.
    Swap,
    /// An escape before packets that begin like one.
    V2,
}

const LZO_COMPRESSED: u8 = 0x66;
const LZ4_COMPRESSED: u8 = 0x69;
const PLAIN: u8 = 0xfa;
const PLAIN_SWAPPED: u8 = 0xfb;
const V2_INDICATOR: u8 = 0x50;
const V2_PLAIN: u8 = 0;
const V2_LZ4: u8 = 1;
const V2_LZO: u8 = 2;
/// The byte that stock writes for [`V2_PLAIN`]: its internal number of the method. Stock itself does not accept it.
const V2_PLAIN_OF_STOCK: u8 = 10;

/// How a peer has compressed a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compression {
    /// LZO1X.
    Lzo,
    /// LZ4.
    Lz4,
}

/// The content of the framing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unframed {
    /// A plain packet: its place in the buffer.
    Payload(Range<usize>),
    /// A compressed packet, unchanged: for [`Framing::unpack`].
    Compressed(Compression),
    /// The bytes do not have this framing, so the two ends differ in it. The packet is dropped.
    Malformed,
}

impl Framing {
    /// Bytes that [`frame`](Self::frame) may need in front of a packet.
    pub const HEAD_ROOM: usize = 2;
    /// Bytes that [`frame`](Self::frame) may need behind a packet.
    pub const TAIL_ROOM: usize = 1;

    /// Bytes that the framing adds to an ordinary packet.
    #[must_use]
    pub const fn overhead(self) -> usize {
        match self {
            Self::None | Self::V2 => 0,
            Self::Lzo | Self::Swap => 1,
        }
    }

    /// Puts the framing on the packet at `at` in `buffer` and returns its new place. `None` if the packet is empty, or
    /// if room is missing where the framing needs it: [`HEAD_ROOM`](Self::HEAD_ROOM) before the packet and
    /// [`TAIL_ROOM`](Self::TAIL_ROOM) after it.
    #[must_use]
    pub fn frame(self, buffer: &mut [u8], at: Range<usize>) -> Option<Range<usize>> {
        let first = *buffer.get(at.clone())?.first()?;
        match self {
            Self::None => Some(at),
            Self::V2 if first != V2_INDICATOR => Some(at),
            Self::V2 => {
                let start = at.start.checked_sub(2)?;
                buffer[start] = V2_INDICATOR;
                buffer[start + 1] = V2_PLAIN;
                Some(start..at.end)
            }
            Self::Lzo => {
                let start = at.start.checked_sub(1)?;
                buffer[start] = PLAIN;
                Some(start..at.end)
            }
            Self::Swap => {
                *buffer.get_mut(at.end)? = first;
                buffer[at.start] = PLAIN_SWAPPED;
                Some(at.start..at.end + 1)
            }
        }
    }

    /// Takes the framing off the packet at `at` in `buffer`.
    #[must_use]
    pub fn unframe(self, buffer: &mut [u8], at: Range<usize>) -> Unframed {
        let Some(framed) = buffer.get_mut(at.clone()) else {
            return Unframed::Malformed;
        };
        match (self, &mut *framed) {
            (Self::None, _) => Unframed::Payload(at),
            (_, []) => Unframed::Malformed,
            (Self::Lzo, [PLAIN, ..]) => Unframed::Payload(at.start + 1..at.end),
            (Self::Lzo, [LZO_COMPRESSED, ..]) => Unframed::Compressed(Compression::Lzo),
            (Self::Swap, [first @ PLAIN_SWAPPED, .., last]) => {
                *first = *last;
                Unframed::Payload(at.start..at.end - 1)
            }
            (Self::Swap, [LZ4_COMPRESSED, ..]) => Unframed::Compressed(Compression::Lz4),
            (Self::V2, [V2_INDICATOR, V2_PLAIN | V2_PLAIN_OF_STOCK, ..]) => {
                Unframed::Payload(at.start + 2..at.end)
            }
            (Self::V2, [V2_INDICATOR, V2_LZ4, ..]) => Unframed::Compressed(Compression::Lz4),
            (Self::V2, [V2_INDICATOR, V2_LZO, ..]) => Unframed::Compressed(Compression::Lzo),
            (Self::V2, [V2_INDICATOR, ..]) => Unframed::Malformed,
            (Self::V2, _) => Unframed::Payload(at),
            (Self::Lzo | Self::Swap, _) => Unframed::Malformed,
        }
    }

    /// Unpacks a compressed packet to the beginning of `unpacked`, and returns its length. `framed` is the whole packet
    /// for which [`unframe`](Self::unframe) returned [`Unframed::Compressed`]; its bytes are then of no use. `None` if
    /// the packet is corrupt or does not fit.
    #[must_use]
    pub fn unpack(self, framed: &mut [u8], unpacked: &mut [u8]) -> Option<usize> {
        let len = framed.len();
        let Unframed::Compressed(compression) = self.unframe(framed, 0..len) else {
            return None;
        };
        let packed = match self {
            Self::Swap => {
                // The mark took the place of the first compressed byte, which was moved to the end.
                framed[0] = framed[len - 1];
                &framed[..len - 1]
            }
            Self::V2 => &framed[2..],
            Self::None | Self::Lzo => &framed[1..],
        };
        match compression {
            Compression::Lzo => lzo::unpack(packed, unpacked).ok(),
            Compression::Lz4 => lz4_flex::block::decompress_into(packed, unpacked).ok(),
        }
    }
}

/// Bytes that a framing puts in front of a packet. (Version 2 adds bytes only in front of a first byte that no IP
/// packet and no in-band message of ours has.)
fn framing_head(framing: Framing) -> usize {
    usize::from(framing == Framing::Lzo)
}

/// Bytes that a framing puts behind a packet.
fn framing_tail(framing: Framing) -> usize {
    usize::from(framing == Framing::Swap)
}

/// One direction of one key.
pub struct DataFormat {
    prefix: [u8; V2_LEN],
    prefix_len: usize,
    cipher: Arc<dyn PacketCipher>,
    shape: Shape,
    /// The other direction's cipher, where packets have epochs: our epoch must not fall behind the peer's.
    peer_epoch: Option<Arc<dyn PacketCipher>>,
}

impl DataFormat {
    /// The formats to seal and to open with.
    ///
    /// # Errors
    /// A cipher that is insecure, unless `allow_insecure`, or that the layout cannot carry.
    pub fn pair(
        keys: &DataKeys,
        shape: &Shape,
        allow_insecure: bool,
    ) -> Result<(Arc<Self>, Arc<Self>), CipherError> {
        let make = if allow_insecure {
            cipher::new_insecure
        } else {
            cipher::new
        };
        let layout = keys.layout;
        let send = make(keys.cipher, keys.auth, &keys.send, layout)?;
        let receive = make(keys.cipher, keys.auth, &keys.receive, layout)?;
        let (prefix, prefix_len) = (layout.header(keys.key_id), layout.header_len());
        let one = |cipher: &Arc<dyn PacketCipher>, peer_epoch| {
            Arc::new(Self {
                prefix,
                prefix_len,
                cipher: Arc::clone(cipher),
                shape: shape.clone(),
                peer_epoch,
            })
        };
        let peer_epoch = layout.has_epochs().then(|| Arc::clone(&receive));
        Ok((one(&send, peer_epoch), one(&receive, None)))
    }

    /// The names of the cipher and of its back end.
    pub fn cipher(&self) -> (&'static str, &'static str) {
        (self.cipher.name(), self.cipher.backend())
    }

    /// The framing to put around whole payloads here: none with `fragment`, as pieces were framed before they were cut.
    fn frames(&self) -> Framing {
        if self.shape.fragments.is_some() {
            Framing::None
        } else {
            self.shape.framing
        }
    }

    /// The packet id of packet `n`, counted from 0.
    fn packet_id(&self, n: u64) -> u64 {
        match &self.peer_epoch {
            None => n + 1,
            Some(peer) => {
                // A new epoch begins after 2^24 packets, or when the peer has begun one. Ids continue instead of
                // restarting from 1, which every receiver accepts.
                let own = 1 + (n >> EPOCH_PACKETS_LOG2);
                (own.max(u64::from(peer.epoch())) << 48) | (n + 1)
            }
        }
    }
}

impl Format for DataFormat {
    fn head(&self) -> usize {
        let record = if self.shape.stream {
            RECORD_HEADER_LEN
        } else {
            0
        };
        record + self.prefix_len + self.cipher.head() + framing_head(self.frames())
    }

    fn tail(&self, len: usize) -> usize {
        let framing = self.frames();
        let (head, tail) = (framing_head(framing), framing_tail(framing));
        tail + self.cipher.tail(head + len + tail)
    }

    fn epoch(&self) -> u16 {
        self.cipher.epoch()
    }

    fn seal(&self, batch: &mut Batch<'_>) {
        let (framing, head) = (self.frames(), self.cipher.head());
        for packet in batch.packets.iter_mut() {
            let range = packet.start as usize..(packet.start + packet.len) as usize;
            // `frame` fails only for an empty packet, and empty packets are never sealed.
            let framed = framing.frame(batch.memory, range.clone()).unwrap_or(range);
            packet.start = framed.start as u32;
            packet.len = framed.len() as u32;
            packet.counter = self.packet_id(packet.counter);
            let prefix = framed.start - head - self.prefix_len;
            batch.memory[prefix..prefix + self.prefix_len]
                .copy_from_slice(&self.prefix[..self.prefix_len]);
            if self.shape.stream {
                let len = self.prefix_len + head + framed.len() + self.cipher.tail(framed.len());
                // Fits 16 bits: the engine has dropped longer packets.
                let len = (len as u16).to_be_bytes();
                batch.memory[prefix - RECORD_HEADER_LEN..prefix].copy_from_slice(&len);
            }
        }
        self.cipher.seal(batch);
    }

    fn open(&self, batch: &mut Batch<'_>) {
        self.cipher.open(batch);
        for packet in batch.packets.iter_mut() {
            // Ids begin with 1.
            packet.authentic &= packet.counter != 0;
        }
    }

    fn reveal(&self, memory: &mut [u8], packet: &mut Packet) -> Payload {
        let mut range = packet.start as usize..(packet.start + packet.len) as usize;
        if self.shape.fragments.is_some() {
            match memory[range.clone()].first_chunk::<{ fragment::HEADER_LEN }>() {
                Some([.., 0]) => range.start += fragment::HEADER_LEN,
                Some(_) => return Payload::Piece,
                None => return Payload::Malformed,
            }
        }
        match self.shape.framing.unframe(memory, range) {
            Unframed::Payload(range) => {
                packet.start = range.start as u32;
                packet.len = range.len() as u32;
                kind(&memory[range])
            }
            // Left to the caller: there is no room to unpack it here, and `Joined` says why a packet is refused.
            Unframed::Compressed(_) | Unframed::Malformed => Payload::Piece,
        }
    }

    fn adjust(&self, packet: &mut [u8]) {
        if self.shape.mss > 0 {
            mss::clamp(packet, self.shape.mss);
        }
    }

    fn splits(&self) -> bool {
        self.shape.fragments.is_some()
    }

    fn split(&self, packet: &[u8], emit: &mut dyn FnMut(&[u8], &[u8])) {
        let Some(fragments) = &self.shape.fragments else {
            return emit(&[], packet);
        };
        let framing = self.shape.framing;
        let head = framing_head(framing);
        let mut framed = vec![0; head + packet.len() + framing_tail(framing)];
        let range = head..head + packet.len();
        framed[range.clone()].copy_from_slice(packet);
        let Some(range) = framing.frame(&mut framed, range) else {
            return;
        };
        fragments.split(&framed[range], emit);
    }

    fn join(&self, piece: &[u8], whole: &mut Vec<u8>) -> Joined {
        whole.clear();
        match &self.shape.fragments {
            None => whole.extend_from_slice(piece),
            Some(fragments) => {
                if let Err(early) = fragments.join(piece, whole) {
                    return early;
                }
            }
        }
        let framed = whole.len();
        match self.shape.framing.unframe(whole, 0..framed) {
            Unframed::Payload(range) => {
                keep(whole, range);
                Joined::Packet
            }
            Unframed::Compressed(_) => {
                whole.resize(framed + self.shape.unpacked_max, 0);
                let (packed, unpacked) = whole.split_at_mut(framed);
                match self.shape.framing.unpack(packed, unpacked) {
                    Some(len) => {
                        keep(whole, framed..framed + len);
                        Joined::Unpacked
                    }
                    None => Joined::Compressed,
                }
            }
            Unframed::Malformed => Joined::Unframed,
        }
    }
}

/// Cuts `bytes` down to `range`.
fn keep(bytes: &mut Vec<u8>, range: Range<usize>) {
    bytes.truncate(range.end);
    bytes.drain(..range.start);
}

/// The kind of a payload without its framing. [`InBand`](super::inband::InBand) says which message.
fn kind(payload: &[u8]) -> Payload {
    // Fast, since every packet comes here and nearly all are IP packets: both magic numbers begin with the same four
    // bits.
    const MARK: u8 = PING[0] >> 4;
    const { assert!(OCC_MAGIC[0] >> 4 == MARK) };
    if payload.first().is_none_or(|first| first >> 4 != MARK) {
        Payload::Inner
    } else if *payload == PING {
        Payload::Keepalive
    } else if payload.starts_with(&OCC_MAGIC) {
        Payload::Message
    } else {
        Payload::Inner
    }
}

#[cfg(test)]
mod tests;
