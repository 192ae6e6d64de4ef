//! Slots: the memory of one batch, and metadata of its packets.

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

/// Room that spreading one super-packet can need beyond its own size, in bytes. A 64 KiB super-packet of Linux's
/// smallest segments (48 bytes) gains 1,366 headers, tunnel headers and tags.
const SPREAD_ROOM: usize = 192 << 10;

/// Bytes that alignment may leave free in front of received data.
const APART: usize = 8;

/// Bytes of the memory of an outbound batch.
pub(crate) const OUTBOUND_BYTES: usize = BATCH_BYTES + TRAIN_ROOM + SPREAD_ROOM;

/// One read of the TUN.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    /// First byte of the data read.
    pub(crate) from: usize,
    /// First byte of the inner packet, or of a super-packet's first packet; at or after `from`.
    pub(crate) start: usize,
    /// Bytes read, without the `virtio_net_hdr`.
    pub(crate) len: usize,
    pub(crate) hdr: VnetHdr,
    /// Bytes from one packet's start to the next, in a super-packet.
    pub(crate) stride: usize,
    /// Index of the packet's run in [`OutboundSlot::runs`].
    pub(crate) run: usize,
}

/// Consecutive packets for one peer.
pub(crate) struct OutboundRun {
    pub(crate) peer: Arc<Peer>,
    pub(crate) key: Arc<SendKey>,
    pub(crate) endpoint: Endpoint,
    /// The line that the run's trains leave through.
    pub(crate) line: LineId,
    /// The connection that the run's trains are written to, if any.
    pub(crate) stream: Option<Arc<Stream>>,
    /// The ways of the run's copies, in [`OutboundSlot::copies`].
    pub(crate) copies: Range<usize>,
    pub(crate) first: usize,
    pub(crate) count: usize,
    /// The run's first train in [`OutboundSlot::trains`].
    pub(crate) first_train: usize,
    /// Inner bytes without padding.
    pub(crate) bytes: u64,
}

/// A batch in transit from the TUN to UDP.
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
    /// Whether the last datagram of the last train is as long as the first. A stored flag saves a division, which ARMv7
    /// may lack.
    whole: bool,
    /// Ways that copies of the runs take; empty if each packet is sent once.
    pub(crate) copies: Vec<Way>,
    pub(crate) now: Instant,
}

impl OutboundSlot {
    pub(crate) fn new() -> Self {
        // Zeroed pages cost nothing until touched, and few are ever touched.
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

    /// Numbers the packets in the order in which they will leave, with one `fetch_add` per run. A key may have several
    /// runs in a batch. Runs with a used-up key are not sent.
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
                    // The key was used up between two batches.
                    used_up(run);
                    for train in &mut self.trains[trains] {
                        train.len = 0;
                    }
                    run.count = 0;
                }
            }
        }
    }

    /// Adds the packet whose payload lies at `at` to the last run. Its datagram joins the last train or starts another.
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
        // A run's trains share its line and endpoint.
        if let Some(train) = self.trains.last_mut()
            && same_run
            && train.ecn == ecn
            && train.start + train.len == start
            // A stream has no datagram boundaries.
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

/// Result of the transform for an inner packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inner {
    /// A packet to be written.
    Packet {
        /// Length without padding.
        len: u32,
        shape: Shape,
    },
    Keepalive,
    /// A message for the protocol's state machine.
    Message,
    /// A compressed packet, or a piece of a packet to be reassembled.
    Piece,
    Malformed,
    WrongSource,
    Congestion,
    /// A packet dropped to make its sender slow down.
    Signal,
    NotAuthentic,
}

/// Consecutive packets of one session, from one address.
pub(crate) struct InboundRun<W: Wire> {
    pub(crate) key: Arc<ReceiveKey<W>>,
    pub(crate) from: Endpoint,
    /// The line that the packets came through.
    pub(crate) line: LineId,
    /// The stream that the packets came through, whose other end cannot move.
    pub(crate) stream: Option<StreamId>,
    pub(crate) ecn: Ecn,
    pub(crate) first: usize,
    pub(crate) count: usize,
}

/// A batch in transit from UDP to the TUN.
pub(crate) struct InboundSlot<W: Wire> {
    pub(crate) memory: Box<[u8]>,
    pub(crate) used: usize,
    pub(crate) packets: Vec<Packet>,
    pub(crate) inner: Vec<Inner>,
    pub(crate) runs: Vec<InboundRun<W>>,
    pub(crate) now: Instant,
    /// Whether the first new TCP segment must tell its sender to slow down.
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
