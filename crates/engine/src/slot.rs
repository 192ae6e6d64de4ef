//! Slots: the memory of one batch and what is known of the packets in it.

use crate::gro::Shape;
use crate::key::SendKey;
use crate::peer::Peer;
use crate::session::ReceiveKey;
use crate::stream::Stream;
use crate::ways::Way;
use netio::tun::VnetHdr;
use netio::udp::{Ecn, Endpoint, TRAIN_ROOM, Train};
use plane::LineId;
use plane::Packet;
use plane::StreamId;
use plane::Wire;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// A batch is full at this many bytes.
pub(crate) const BATCH_BYTES: usize = 64 << 10;

/// A batch is full at this many packets: two trains of the kernel's limit.
pub(crate) const BATCH_PACKETS: usize = 128;

/// Room that spreading one super-packet can need beyond its own size, in bytes: a 64 KiB one with
/// the smallest segment that Linux makes (48 bytes) gains 1,366 headers, tunnel headers and tags.
const SPREAD_ROOM: usize = 192 << 10;

/// Bytes that may be left free in front of what is received.
const APART: usize = 8;

/// Bytes of the memory of an outbound batch.
pub(crate) const OUTBOUND_BYTES: usize = BATCH_BYTES + TRAIN_ROOM + SPREAD_ROOM;

/// One read of the TUN.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    /// First byte of what was read.
    pub(crate) from: usize,
    /// First byte of the inner packet, or of the first of a super-packet's: there or behind.
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
    /// The line that its trains leave by.
    pub(crate) line: LineId,
    /// The connection that its trains are written to, where there is one.
    pub(crate) stream: Option<Arc<Stream>>,
    /// The ways of its copies, in [`OutboundSlot::copies`].
    pub(crate) copies: Range<usize>,
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
    /// The last datagram of the last train is as long as the first. Kept, as a remainder would tell it only by a division,
    /// which ARMv7 need not have.
    whole: bool,
    /// Ways that runs take beside their own. Empty where each packet leaves once.
    pub(crate) copies: Vec<Way>,
    pub(crate) now: Instant,
}

impl OutboundSlot {
    pub(crate) fn new() -> Self {
        // Zeroed pages cost nothing until they are touched, and few ever are.
        Self {
            memory: vec![0; OUTBOUND_BYTES].into_boxed_slice(),
            used: 0,
            items: Vec::with_capacity(BATCH_PACKETS),
            packets: Vec::with_capacity(2 * BATCH_PACKETS),
            lens: Vec::with_capacity(2 * BATCH_PACKETS),
            runs: Vec::with_capacity(BATCH_PACKETS),
            trains: Vec::with_capacity(BATCH_PACKETS),
            whole: false,
            copies: Vec::new(),
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
        self.copies.clear();
    }

    pub(crate) fn is_full(&self) -> bool {
        self.used >= BATCH_BYTES || self.packets.len() >= BATCH_PACKETS
    }

    /// Each run with its trains.
    pub(crate) fn trains_of_runs(&self) -> impl Iterator<Item = (&OutboundRun, &[Train])> {
        let ends = self.runs.iter().skip(1).map(|next| next.first_train);
        let ends = ends.chain([self.trains.len()]);
        let runs = self.runs.iter().zip(ends);
        runs.map(|(run, end)| (run, &self.trains[run.first_train..end]))
    }

    /// Numbers the packets, one `fetch_add` a run, in the order in which they will leave: a key may
    /// have several runs in a batch. Nothing of a run whose key is used up will be sent.
    pub(crate) fn number(&mut self, mut used_up: impl FnMut(&OutboundRun)) {
        for at in 0..self.runs.len() {
            let next = self.runs.get(at + 1).map(|run| run.first_train);
            let trains = self.runs[at].first_train..next.unwrap_or(self.trains.len());
            let run = &mut self.runs[at];
            let packets = &mut self.packets[run.first..run.first + run.count];
            match run.key.take(packets.len() as u64) {
                Some(first) => {
                    for (packet, counter) in packets.iter_mut().zip(first..) {
                        packet.counter = counter;
                    }
                }
                None => {
                    // Used up between two batches.
                    used_up(run);
                    for train in &mut self.trains[trains] {
                        train.len = 0;
                    }
                    run.count = 0;
                }
            }
        }
    }

    /// Adds the packet whose payload lies at `at` to the last run, and couples its datagram to the
    /// last train, or starts another.
    pub(crate) fn push(
        &mut self,
        at: usize,
        head: usize,
        inner: usize,
        padded: usize,
        tail: usize,
        ecn: Ecn,
    ) {
        let Some(run) = self.runs.last() else { return };
        let endpoint = run.endpoint;
        let (same_run, in_stream) = (run.first_train < self.trains.len(), run.stream.is_some());
        self.packets.push(Packet {
            start: at as u32,
            len: padded as u32,
            counter: 0,
            authentic: false,
        });
        self.lens.push(inner as u32);
        self.used = at + padded + tail;
        let (start, len) = ((at - head) as u32, (head + padded + tail) as u32);
        // A run has one line and one endpoint, and so have its trains.
        if let Some(train) = self.trains.last_mut()
            && same_run
            && train.ecn == ecn
            && train.start + train.len == start
            // A stream does not care where a datagram ends.
            && (in_stream || (self.whole && len <= train.segment))
        {
            train.len += len;
            self.whole = len == train.segment;
            return;
        }
        self.whole = true;
        self.trains.push(Train {
            start,
            len,
            segment: len,
            endpoint,
            ecn,
        });
    }
}

/// The fate of an inner packet before its turn to be committed.
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
    /// Dropped to tell its sender to send slower.
    Signal,
    NotAuthentic,
}

/// Packets in a row of one session, from one address.
pub(crate) struct InboundRun<W: Wire> {
    pub(crate) key: Arc<ReceiveKey<W>>,
    pub(crate) from: Endpoint,
    /// The line that it came by.
    pub(crate) line: LineId,
    /// The stream that it came through, whose other end cannot move.
    pub(crate) stream: Option<StreamId>,
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
    /// The first TCP segment that is new shall tell its sender to send slower.
    pub(crate) signals: bool,
}

impl<W: Wire> InboundSlot<W> {
    pub(crate) fn new() -> Self {
        Self {
            memory: vec![0; BATCH_BYTES + TRAIN_ROOM + APART].into_boxed_slice(),
            used: 0,
            packets: Vec::with_capacity(2 * BATCH_PACKETS),
            inner: Vec::with_capacity(2 * BATCH_PACKETS),
            runs: Vec::with_capacity(BATCH_PACKETS),
            now: Instant::now(),
            signals: false,
        }
    }

    pub(crate) fn clear(&mut self) {
        self.used = 0;
        self.signals = false;
        self.packets.clear();
        self.inner.clear();
        self.runs.clear();
    }

    pub(crate) fn is_full(&self) -> bool {
        self.used >= BATCH_BYTES || self.packets.len() >= BATCH_PACKETS
    }
}

#[cfg(test)]
mod tests;
