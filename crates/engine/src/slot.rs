//! Slots: the memory of one batch and what is known of the packets in it.

use crate::gro::Shape;
use crate::key::SendKey;
use crate::peer::Peer;
use crate::session::ReceiveKey;
use crate::stream::Stream;
use crate::wire::Wire;
use crypto::Packet;
use netio::udp::{Ecn, Endpoint, TRAIN_ROOM, Train};
use netio::vnet::VnetHdr;
use std::sync::Arc;
use std::time::Instant;

/// A batch is full at this many bytes.
pub(crate) const BATCH_BYTES: usize = 64 << 10;

/// A batch is full at this many packets: two trains of the kernel's limit.
pub(crate) const BATCH_PACKETS: usize = 128;

/// Room that spreading one super-packet can need beyond its own size, in bytes: a 64 KiB one with
/// the smallest segment that Linux makes (48 bytes) gains 1,366 headers, tunnel headers and tags.
const SPREAD_ROOM: usize = 192 << 10;

/// One read of the TUN.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    /// First byte of the inner packet.
    pub(crate) start: usize,
    /// Bytes read, without the `virtio_net_hdr`.
    pub(crate) len: usize,
    pub(crate) hdr: VnetHdr,
    /// Bytes from one packet's start to the next, where it is a super-packet.
    pub(crate) stride: usize,
    /// Its run, in [`OutboundSlot::runs`].
    pub(crate) run: usize,
}

/// Packets in a row for one peer.
pub(crate) struct OutboundRun {
    pub(crate) peer: Arc<Peer>,
    pub(crate) key: Arc<SendKey>,
    pub(crate) endpoint: Endpoint,
    /// The connection that its trains are written to, where there is one.
    pub(crate) stream: Option<Arc<Stream>>,
    pub(crate) first: usize,
    pub(crate) count: usize,
    /// Its trains, in [`OutboundSlot::trains`].
    pub(crate) first_train: usize,
    /// Inner bytes, padding not counted.
    pub(crate) bytes: u64,
}

/// A batch on its way from the TUN to UDP.
pub(crate) struct OutboundSlot {
    pub(crate) memory: Box<[u8]>,
    pub(crate) used: usize,
    pub(crate) items: Vec<Item>,
    /// Payloads, padding included.
    pub(crate) packets: Vec<Packet>,
    /// Unpadded length of each packet.
    pub(crate) lens: Vec<u32>,
    pub(crate) runs: Vec<OutboundRun>,
    pub(crate) trains: Vec<Train>,
    pub(crate) now: Instant,
}

impl OutboundSlot {
    pub(crate) fn new() -> Self {
        // Zeroed pages cost nothing until they are touched, and few ever are.
        let size = BATCH_BYTES + TRAIN_ROOM + SPREAD_ROOM;
        Self {
            memory: vec![0; size].into_boxed_slice(),
            used: 0,
            items: Vec::with_capacity(BATCH_PACKETS),
            packets: Vec::with_capacity(2 * BATCH_PACKETS),
            lens: Vec::with_capacity(2 * BATCH_PACKETS),
            runs: Vec::with_capacity(BATCH_PACKETS),
            trains: Vec::with_capacity(BATCH_PACKETS),
            now: Instant::now(),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.used = 0;
        self.items.clear();
        self.packets.clear();
        self.lens.clear();
        self.runs.clear();
        self.trains.clear();
    }

    pub(crate) fn is_full(&self) -> bool {
        self.used >= BATCH_BYTES || self.packets.len() >= BATCH_PACKETS
    }
}

/// What became of an inner packet before its turn to be committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inner {
    /// To be written.
    Packet {
        /// Without padding.
        len: u32,
        shape: Shape,
    },
    Keepalive,
    /// For the protocol's state machine.
    Message,
    /// A piece of a packet, to be joined, or a compressed one.
    Piece,
    Malformed,
    WrongSource,
    Congestion,
    NotAuthentic,
}

/// Packets in a row of one session, from one address.
pub(crate) struct InboundRun<W: Wire> {
    pub(crate) key: Arc<ReceiveKey<W>>,
    pub(crate) from: Endpoint,
    /// The stream that it came through, whose other end cannot move.
    pub(crate) stream: Option<u64>,
    pub(crate) ecn: Ecn,
    pub(crate) first: usize,
    pub(crate) count: usize,
}

/// A batch on its way from UDP to the TUN.
pub(crate) struct InboundSlot<W: Wire> {
    pub(crate) memory: Box<[u8]>,
    pub(crate) used: usize,
    pub(crate) packets: Vec<Packet>,
    pub(crate) inner: Vec<Inner>,
    pub(crate) runs: Vec<InboundRun<W>>,
    pub(crate) now: Instant,
}

impl<W: Wire> InboundSlot<W> {
    pub(crate) fn new() -> Self {
        Self {
            memory: vec![0; BATCH_BYTES + TRAIN_ROOM].into_boxed_slice(),
            used: 0,
            packets: Vec::with_capacity(2 * BATCH_PACKETS),
            inner: Vec::with_capacity(2 * BATCH_PACKETS),
            runs: Vec::with_capacity(BATCH_PACKETS),
            now: Instant::now(),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.used = 0;
        self.packets.clear();
        self.inner.clear();
        self.runs.clear();
    }

    pub(crate) fn is_full(&self) -> bool {
        self.used >= BATCH_BYTES || self.packets.len() >= BATCH_PACKETS
    }
}
