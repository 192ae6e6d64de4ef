//! One key's data packets: `[length] opcode [peer-id] | head | framing, payload | tail`.
//!
//! The cipher writes and reads its own head and tail; here is what stands around them.

use crypto::openvpn::{self as ciphers, DataChannelError, KeyMaterial};
use crypto::{Batch, Packet, PacketCipher};
use engine::{Format, Joined, Payload, RECORD_HEADER};
use openvpn::data::fragment::{self, Fragmenter, Reassembled, Reassembler};
use openvpn::data::framing::{Framing, Unframed};
use openvpn::data::mss;
use openvpn::data::signal::Signal;
use openvpn::session::{DataFormat as Layout, DataKeys};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// `DATA_V1` and `DATA_V2`, as they stand in a packet's first byte.
const DATA_V1: u8 = 6 << 3;
const DATA_V2: u8 = 9 << 3;

/// Packets in one epoch. AES-GCM may seal 2^36 blocks under a key; packets have 4,096 at most.
const EPOCH_PACKETS_LOG2: u32 = 24;

/// What all keys of a peer have in common.
#[derive(Clone, Default)]
pub(crate) struct Shape {
    /// The bytes that `comp-lzo` or `compress` puts around payloads.
    pub(crate) framing: Framing,
    /// Packets go through TCP.
    pub(crate) stream: bool,
    /// `fragment`: pieces out and in, across keys.
    pub(crate) fragments: Option<Arc<Fragments>>,
    /// `mssfix`: the largest TCP segment over IPv4, in bytes; 0 for any.
    pub(crate) mss: u16,
    /// Bytes that a packet which the peer compressed may have when it is unpacked; 0: it is dropped.
    pub(crate) unpacked_max: usize,
}

/// `fragment`, both ways.
pub(crate) struct Fragments {
    out: Mutex<Fragmenter>,
    back: Mutex<Reassembler>,
}

impl Fragments {
    /// Pieces of at most `most` bytes, of packets of at most `longest` bytes.
    pub(crate) fn new(most: usize, longest: usize) -> Self {
        let mut number = [0];
        crypto::random(&mut number);
        Self {
            out: Mutex::new(Fragmenter::new(most, number[0])),
            back: Mutex::new(Reassembler::new(longest)),
        }
    }
}

/// Bytes that a framing puts in front of a packet. (That of version 2 puts some in front of packets
/// that begin with a byte that no IP packet and no signal of ours begins with.)
fn framing_head(framing: Framing) -> usize {
    usize::from(framing == Framing::Lzo)
}

/// Bytes that a framing puts behind a packet.
fn framing_tail(framing: Framing) -> usize {
    usize::from(framing == Framing::Swap)
}

/// One direction of one key.
pub(crate) struct DataFormat {
    prefix: [u8; 4],
    prefix_len: usize,
    cipher: Arc<dyn PacketCipher>,
    shape: Shape,
    /// The other direction's cipher where packets have epochs: ours must not fall behind the peer's.
    peer_epoch: Option<Arc<dyn PacketCipher>>,
}

impl DataFormat {
    /// The formats to seal and to open with.
    ///
    /// # Errors
    /// A cipher that is insecure, unless `allow_insecure`, or that the layout cannot carry.
    pub(crate) fn pair(
        keys: &DataKeys,
        shape: &Shape,
        allow_insecure: bool,
    ) -> Result<(Arc<Self>, Arc<Self>), DataChannelError> {
        let layout = match keys.format {
            Layout::V1 => ciphers::Format::V1,
            Layout::V2 { .. } => ciphers::Format::V2,
            Layout::Epoch { .. } => ciphers::Format::Epoch,
        };
        let make = if allow_insecure {
            ciphers::legacy::data_channel
        } else {
            ciphers::data_channel
        };
        let material = |keys: &openvpn::keys::KeyMaterial| KeyMaterial {
            cipher: keys.cipher,
            hmac: keys.hmac,
        };
        let send = make(keys.cipher, keys.auth, &material(&keys.send), layout)?;
        let receive = make(keys.cipher, keys.auth, &material(&keys.receive), layout)?;
        let (prefix, prefix_len) = match keys.format {
            Layout::V1 => ([DATA_V1 | keys.key_id, 0, 0, 0], 1),
            Layout::V2 { peer_id } | Layout::Epoch { peer_id } => {
                let mut prefix = peer_id.to_be_bytes();
                prefix[0] = DATA_V2 | keys.key_id;
                (prefix, 4)
            }
        };
        let one = |cipher: &Arc<dyn PacketCipher>, peer_epoch| {
            Arc::new(Self {
                prefix,
                prefix_len,
                cipher: Arc::clone(cipher),
                shape: shape.clone(),
                peer_epoch,
            })
        };
        let epochs = layout == ciphers::Format::Epoch;
        let peer_epoch = epochs.then(|| Arc::clone(&receive));
        Ok((one(&send, peer_epoch), one(&receive, None)))
    }

    /// The cipher's name and whose code runs.
    pub(crate) fn cipher(&self) -> (&'static str, &'static str) {
        (self.cipher.name(), self.cipher.backend())
    }

    /// The epoch that seals; 0 where packets have none.
    pub(crate) fn epoch(&self) -> u16 {
        self.cipher.epoch()
    }

    /// Whether the framing is put around whole payloads here; pieces were framed before they were
    /// cut.
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
                // An epoch begins anew after so many packets, or when the peer has begun one. Ids
                // go on instead of starting from 1, which no receiver minds.
                let own = 1 + (n >> EPOCH_PACKETS_LOG2);
                (own.max(u64::from(peer.epoch())) << 48) | (n + 1)
            }
        }
    }
}

impl Format for DataFormat {
    fn head(&self) -> usize {
        let record = if self.shape.stream { RECORD_HEADER } else { 0 };
        record + self.prefix_len + self.cipher.head() + framing_head(self.frames())
    }

    fn tail(&self, len: usize) -> usize {
        let framing = self.frames();
        let (head, tail) = (framing_head(framing), framing_tail(framing));
        tail + self.cipher.tail(head + len + tail)
    }

    fn seal(&self, batch: &mut Batch<'_>) {
        let (framing, head) = (self.frames(), self.cipher.head());
        for packet in batch.packets.iter_mut() {
            let range = packet.start as usize..(packet.start + packet.len) as usize;
            // Nothing but an empty packet has no frame, and none is sealed.
            let framed = framing.frame(batch.memory, range.clone()).unwrap_or(range);
            packet.start = framed.start as u32;
            packet.len = framed.len() as u32;
            packet.counter = self.packet_id(packet.counter);
            let prefix = framed.start - head - self.prefix_len;
            batch.memory[prefix..prefix + self.prefix_len]
                .copy_from_slice(&self.prefix[..self.prefix_len]);
            if self.shape.stream {
                let len = self.prefix_len + head + framed.len() + self.cipher.tail(framed.len());
                // The engine has dropped what would be longer than this can say.
                let len = (len as u16).to_be_bytes();
                batch.memory[prefix - RECORD_HEADER..prefix].copy_from_slice(&len);
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
            // What it unpacks to has no room here.
            Unframed::Compressed(_) => Payload::Piece,
            Unframed::Malformed => Payload::Malformed,
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
        let framed = &framed[range];
        let mut out = fragments.out.lock().unwrap_or_else(PoisonError::into_inner);
        match out.cut(framed.len()) {
            Ok(pieces) => pieces.for_each(|piece| emit(&piece.header, &framed[piece.range])),
            Err(error) => log::debug!("{error}"),
        }
    }

    fn join(&self, piece: &[u8], whole: &mut Vec<u8>) -> Joined {
        whole.clear();
        match &self.shape.fragments {
            None => whole.extend_from_slice(piece),
            Some(fragments) => {
                let mut back = fragments
                    .back
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                let now = Instant::now();
                back.expire(now);
                match back.receive(piece, now) {
                    Ok(Reassembled::Complete(joined)) => whole.extend_from_slice(joined),
                    // It was long enough for a header.
                    Ok(Reassembled::Whole) => {
                        whole.extend_from_slice(&piece[fragment::HEADER_LEN..]);
                    }
                    Ok(Reassembled::Waiting) => return Joined::Waits,
                    Err(error) => {
                        log::debug!("{error}");
                        return Joined::Malformed;
                    }
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
            Unframed::Malformed => Joined::Malformed,
        }
    }
}

/// Leaves nothing of `bytes` but what is in `range`.
fn keep(bytes: &mut Vec<u8>, range: Range<usize>) {
    bytes.truncate(range.end);
    bytes.drain(..range.start);
}

/// What a payload is without its framing.
fn kind(payload: &[u8]) -> Payload {
    match Signal::of(payload) {
        None => Payload::Inner,
        Some(Signal::Ping) => Payload::Keepalive,
        Some(_) => Payload::Message,
    }
}

#[cfg(test)]
mod tests;
