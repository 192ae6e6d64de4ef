//! Fill: reading a batch from the TUN or from the sockets, until nothing waits or the slot is full.

use crate::lookup::{InboundLookup, OutboundLookup};
use crate::shared::{Shared, tun_is_gone};
use crate::slot::{BATCH_PACKETS, InboundSlot, OutboundSlot};
use crate::wire::{Class, Wire};
use netio::udp::{Endpoint, ReceivedTrain, RecvScratch, TRAIN_ROOM, UdpSocket};
use netio::vnet::{VNET_HDR_LEN, VnetHdr};
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Instant;

/// System calls made to fill one slot at most.
const READS_MAX: u64 = 2 * BATCH_PACKETS as u64;

/// Why filling stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    /// Nothing waits any more.
    Drained,
    /// The slot is full, and more may wait.
    Full,
    /// The interface was deleted.
    Gone,
}

/// The producer of the outbound lane.
pub(crate) struct OutboundFill<W: Wire> {
    shared: Arc<Shared<W>>,
    lookup: OutboundLookup<W>,
}

impl<W: Wire> OutboundFill<W> {
    pub(crate) fn new(shared: Arc<Shared<W>>) -> Self {
        Self {
            lookup: OutboundLookup::new(Arc::clone(&shared)),
            shared,
        }
    }

    /// Reads packets and finds out whom they are for.
    pub(crate) fn fill(&mut self, slot: &mut OutboundSlot) -> Filled {
        slot.clear();
        slot.now = Instant::now();
        let vnet = if self.shared.tun.vnet_hdr() {
            VNET_HDR_LEN
        } else {
            0
        };
        let mut reads = 0;
        let filled = loop {
            // The second: packets that go nowhere fill no slot, and must not keep a worker here.
            if slot.is_full() || reads >= READS_MAX {
                break Filled::Full;
            }
            // The packet is read to where it will be sent from. The kernel's header comes to lie
            // where the tunnel's will be, or on the previous packet's tag, which is yet to come.
            let start = slot.used + W::HEADER.max(if slot.used == 0 { vnet } else { 0 });
            let from = start - vnet;
            let room = (from + vnet + TRAIN_ROOM).min(slot.memory.len());
            reads += 1;
            match self.shared.tun.read(&mut slot.memory[from..room]) {
                Ok(n) => {
                    let hdr = if vnet == 0 {
                        Some(VnetHdr::NONE)
                    } else {
                        VnetHdr::parse(&slot.memory[from..from + n])
                    };
                    match (hdr, n.checked_sub(vnet)) {
                        (Some(hdr), Some(len)) if len > 0 => {
                            self.lookup.accept(slot, start, len, hdr);
                        }
                        _ => self.shared.drops.tun_malformed.add(1),
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => break Filled::Drained,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if tun_is_gone(&e) => break Filled::Gone,
                // EIO: the interface is down.
                Err(_) => break Filled::Drained,
            }
        };
        self.shared.outbound.syscalls.add(reads);
        self.lookup.finish(slot);
        filled
    }
}

/// The producer of the inbound lane.
pub(crate) struct InboundFill<W: Wire> {
    shared: Arc<Shared<W>>,
    scratch: RecvScratch,
    lookup: InboundLookup<W>,
}

impl<W: Wire> InboundFill<W> {
    pub(crate) fn new(shared: Arc<Shared<W>>) -> Self {
        let lookup = InboundLookup::new(Arc::clone(&shared));
        Self {
            shared,
            scratch: RecvScratch::new(),
            lookup,
        }
    }

    /// Receives datagrams, hands control what is control's, and finds out whose the rest is.
    pub(crate) fn fill(&mut self, slot: &mut InboundSlot<W>, socket: &UdpSocket) -> Filled {
        slot.clear();
        slot.now = Instant::now();
        // A datagram of our own MTU and a little more; longer ones make the socket switch to
        // full-size receives.
        let stride = (self.shared.mtu() + W::HEADER + W::TAG + 64).clamp(2048, TRAIN_ROOM);
        let mut receives = 0;
        let filled = loop {
            let full = slot.is_full() || slot.used + TRAIN_ROOM > slot.memory.len();
            if full || receives >= READS_MAX {
                break Filled::Full;
            }
            receives += 1;
            let base = slot.used;
            let mut trains = Trains::default();
            let limit = BATCH_PACKETS.saturating_sub(slot.packets.len());
            let result = socket.recv_trains(
                &mut self.scratch,
                &mut slot.memory[base..],
                stride,
                limit.clamp(1, trains.all.len()),
                |train| trains.push(train),
            );
            match result {
                Ok((used, dropped)) => {
                    self.shared.drops.truncated.add(dropped);
                    slot.used += used;
                    for mut train in trains.iter() {
                        train.start += base as u32;
                        self.train(slot, &train);
                    }
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                // Errors that ICMP left behind are consumed by being reported.
                Err(e) if e.kind() == ErrorKind::ConnectionRefused => {}
                // Nothing waits, or an error that the next wait will report again.
                Err(_) => break Filled::Drained,
            }
        };
        self.shared.inbound.syscalls.add(receives);
        self.lookup.finish();
        filled
    }

    fn train(&mut self, slot: &mut InboundSlot<W>, train: &ReceivedTrain) {
        let from = Endpoint {
            addr: train.from,
            source: train.local,
        };
        let end = train.start + train.len;
        let mut start = train.start;
        while start < end {
            let len = train.segment.min(end - start);
            let datagram = &slot.memory[start as usize..(start + len) as usize];
            match W::classify(datagram) {
                Class::Data { index, counter } if datagram.len() >= W::HEADER + W::TAG => {
                    self.lookup
                        .accept(slot, start, len, (index, counter), from, train.ecn);
                }
                Class::Control => {
                    if !self.shared.control.datagram(from, datagram) {
                        self.shared.drops.handshake_queue_full.add(1);
                    }
                }
                _ => self.shared.drops.not_ours.add(1),
            }
            start += len;
        }
    }
}

/// The trains of one receive call.
struct Trains {
    all: [Option<ReceivedTrain>; 64],
    count: usize,
}

impl Default for Trains {
    fn default() -> Self {
        Self {
            all: [None; 64],
            count: 0,
        }
    }
}

impl Trains {
    fn push(&mut self, train: ReceivedTrain) {
        if let Some(place) = self.all.get_mut(self.count) {
            *place = Some(train);
            self.count += 1;
        }
    }

    fn iter(&self) -> impl Iterator<Item = ReceivedTrain> + '_ {
        self.all[..self.count].iter().flatten().copied()
    }
}
