//! Fill: reading a batch from the TUN or from the sockets, until nothing waits or the slot is full.

use crate::alignment::Alignment;
use crate::aqm::Aqm;
use crate::coalescing::{Cadence, Coalescing};
use crate::lookup::{InboundLookup, Origin, OutboundLookup};
use crate::shaper::{Gone, Shaper};
use crate::shared::{Shared, tun_is_gone};
use crate::slot::{BATCH_PACKETS, InboundSlot, OutboundSlot};
use crate::stream::{RECORD_MAX, Stream};
use netio::tun::{GsoKind, VNET_HDR_LEN, VnetHdr};
use netio::udp::{Ecn, Endpoint, ReceivedTrain, RecvScratch, TRAIN_ROOM, UdpSocket};
use plane::{Class, Line, LineId, Record, Transport, Wire};
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Instant;

/// Maximum number of system calls made to fill one slot.
const READS_MAX: u64 = 2 * BATCH_PACKETS as u64;

/// Datagrams that the first receive of a batch requests when datagrams arrive one at a time.
const AT_FIRST: usize = 8;

/// Bytes from which the fill asks the kernel how long a batch has waited. Smaller batches count as not having waited.
const BULK: u64 = 16_384;

/// Why filling stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    /// No more packets wait.
    Drained,
    /// The slot is full; more packets may wait.
    Full,
    /// The interface was deleted.
    Gone,
}

/// The producer of the outbound pipeline.
pub(crate) struct OutboundFill<W: Wire> {
    shared: Arc<Shared<W>>,
    lookup: OutboundLookup<W>,
    /// Queues in front of the lines; present only while lines have a rate.
    shaper: Option<Box<Shaper>>,
    cadence: Cadence,
    pub(crate) coalescing: Coalescing,
    alignment: Alignment,
    /// Whether the last packet read was a super-packet. The next may be one too, and spreading it moves the payload
    /// anyway.
    bulk: bool,
}

impl<W: Wire> OutboundFill<W> {
    pub(crate) fn new(shared: Arc<Shared<W>>) -> Self {
        Self {
            coalescing: Coalescing::new(shared.coalescing.on()),
            lookup: OutboundLookup::new(Arc::clone(&shared)),
            shared,
            shaper: None,
            cadence: Cadence::default(),
            alignment: Alignment::default(),
            bulk: false,
        }
    }

    /// Whether the last read took one packet and did not look for more.
    pub(crate) const fn took_one(&self) -> bool {
        self.cadence.took_one()
    }

    /// Reads packets and finds their peers.
    pub(crate) fn fill(&mut self, slot: &mut OutboundSlot) -> Filled {
        slot.clear();
        slot.now = Instant::now();
        for injected in self.shared.take_injected() {
            self.lookup.inject(slot, &injected);
        }
        self.follow_rate();
        let filled = if self.shaper.is_some() {
            self.take_shaped(slot)
        } else {
            self.read(slot)
        };
        self.lookup.finish(slot);
        self.coalescing.read(slot.packets.len(), slot.now);
        // Payloads that control injected earlier do not wake the worker again, so it must come back for them.
        if filled == Filled::Drained && self.shared.has_injected() {
            return Filled::Full;
        }
        filled
    }

    /// Reads packets from the TUN into the slot.
    fn read(&mut self, slot: &mut OutboundSlot) -> Filled {
        let vnet = if self.shared.tun.vnet_hdr() {
            VNET_HDR_LEN
        } else {
            0
        };
        let one = self.cadence.one(slot.now);
        let mut reads = 0;
        let filled = loop {
            // The limit on reads bounds the loop when packets without a destination never fill the slot.
            if slot.is_full() || reads >= READS_MAX {
                self.cadence.found(reads.max(2));
                break Filled::Full;
            }
            if self.shared.congested() {
                break Filled::Drained;
            }
            // The TUN writes the packet where it will be sent from, with the kernel's header in front. If the tunnel's
            // header is shorter, the bytes that the kernel's header overwrites are saved and restored.
            let mut start = (slot.used + self.lookup.head()).max(vnet);
            let shift = self.alignment.shift(start);
            let shifts = self.bulk && slot.used + vnet + shift <= start;
            if shifts {
                start -= shift;
            }
            let from = start - vnet;
            let room = (from + vnet + TRAIN_ROOM).min(slot.memory.len());
            let covered: Option<[u8; VNET_HDR_LEN]> = match from < slot.used {
                true => slot.memory[from..].first_chunk().copied(),
                false => None,
            };
            reads += 1;
            let begun = (shifts && self.alignment.tries()).then(Instant::now);
            let read = self.shared.tun.read(&mut slot.memory[from..room]);
            let took = begun.map(|begun| begun.elapsed());
            let hdr = match vnet {
                0 => Some(VnetHdr::NONE),
                _ => VnetHdr::parse(&slot.memory[from..start]),
            };
            if let Some(covered) = covered {
                slot.memory[from..start].copy_from_slice(&covered[..vnet]);
            }
            match read {
                Ok(n) => {
                    if shifts {
                        self.alignment.note(n as u64, took);
                    }
                    self.bulk = hdr.is_some_and(|hdr| hdr.gso != GsoKind::None);
                    match (hdr, n.checked_sub(vnet)) {
                        (Some(hdr), Some(len)) if len > 0 => {
                            self.lookup.accept(slot, start, len, hdr);
                        }
                        _ => self.shared.drops.tun_malformed.add(1),
                    }
                    if one && !slot.is_full() {
                        break Filled::Drained;
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    self.cadence.found(reads - 1);
                    break Filled::Drained;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if tun_is_gone(&e) => break Filled::Gone,
                // EIO: the interface is down.
                Err(_) => break Filled::Drained,
            }
        };
        self.shared.outbound.syscalls.add(reads);
        filled
    }

    /// When packets that wait for a line may leave; `None` while a stream is congested.
    pub(crate) fn deadline(&self, now: Instant) -> Option<Instant> {
        let shaper = self.shaper.as_ref()?;
        if self.shared.congested() {
            return None;
        }
        shaper.deadline(now)
    }

    /// Whether packets wait for lines at all; reads no clock.
    pub(crate) const fn shapes(&self) -> bool {
        self.shaper.is_some()
    }

    /// Whether control changed the lines' rates since the shaper last took them over.
    pub(crate) fn rate_changed(&self) -> bool {
        let followed = self.shaper.as_ref().map_or(0, |shaper| shaper.word());
        followed != self.shared.rates.word()
    }

    /// Creates, updates or removes the shaper according to the lines' rates.
    fn follow_rate(&mut self) {
        let word = self.shared.rates.word();
        if word == 0 && self.shaper.is_none() {
            return;
        }
        let shaper = self
            .shaper
            .get_or_insert_with(|| Box::new(Shaper::new(&self.shared.wire)));
        if shaper.word() != word {
            shaper.follow(self.shared.rates.get());
        }
        if !shaper.engaged() {
            self.shaper = None;
        }
    }

    /// Reads everything from the TUN into the queue, and takes out the packets that may leave.
    fn take_shaped(&mut self, slot: &mut OutboundSlot) -> Filled {
        let Some(shaper) = &mut self.shaper else {
            return Filled::Drained;
        };
        let mut reads = 0;
        let mut more = !self.shared.congested();
        while more && reads < READS_MAX {
            reads += 1;
            let lookup = &mut self.lookup;
            let line_of = |packet: &[u8]| lookup.line_of(packet, slot.now);
            more = match shaper.read(&self.shared, slot.now, line_of) {
                Ok(more) => more,
                Err(Gone) => return Filled::Gone,
            };
        }
        self.shared.outbound.syscalls.add(reads);
        let mut taken = 0;
        while !slot.is_full() && !self.shared.congested() {
            let Some((held, by)) = shaper.pop(slot.now) else {
                break;
            };
            taken += 1;
            let (used, packets) = (slot.used, slot.packets.len());
            let start = slot.used + self.lookup.head();
            let len = held.packet.len();
            // A slot that is not full always has room for a super-packet.
            slot.memory[start..start + len].copy_from_slice(&held.packet);
            self.lookup.accept_by(slot, (start, len), held.hdr, by);
            // If the packet added nothing, the last run belongs to another packet, and zero datagrams are charged.
            let run = slot.runs.last();
            let line = run.map_or(LineId::FIRST, |run| run.line);
            let v6 = run.is_some_and(|run| run.endpoint.addr.is_ipv6());
            let datagrams = slot.packets.len() - packets;
            shaper.settle((line, v6), datagrams, slot.used - used, slot.now);
        }
        self.shared.drops.queue.add(shaper.dropped());
        // If no packet may leave, the rest of the TUN's packets can wait until other descriptors had their turn.
        if slot.is_full() || (more && taken > 0) {
            Filled::Full
        } else {
            Filled::Drained
        }
    }
}

/// The producer of the inbound pipeline.
pub(crate) struct InboundFill<W: Wire> {
    shared: Arc<Shared<W>>,
    scratch: RecvScratch,
    /// The trains that the last receive call returned.
    trains: Vec<ReceivedTrain>,
    alignment: Alignment,
    lookup: InboundLookup<W>,
    reader: W::Reader,
    cadence: Cadence,
    pub(crate) coalescing: Coalescing,
    aqm: Aqm,
}

impl<W: Wire> InboundFill<W> {
    pub(crate) fn new(shared: Arc<Shared<W>>) -> Self {
        let lookup = InboundLookup::new(Arc::clone(&shared));
        Self {
            coalescing: Coalescing::new(shared.coalescing.on()),
            shared,
            scratch: RecvScratch::new(),
            trains: Vec::with_capacity(TRAINS),
            alignment: Alignment::default(),
            lookup,
            reader: W::Reader::default(),
            cadence: Cadence::default(),
            aqm: Aqm::default(),
        }
    }

    /// Whether the last read took one packet and did not look for more.
    pub(crate) const fn took_one(&self) -> bool {
        self.cadence.took_one()
    }

    /// Receives datagrams of a line, hands control messages to control, and finds the sessions of the others.
    pub(crate) fn fill(
        &mut self,
        slot: &mut InboundSlot<W>,
        line: LineId,
        socket: &UdpSocket,
    ) -> Filled {
        slot.clear();
        slot.now = Instant::now();
        self.shared.wire.prepare(&mut self.reader);
        // The longest datagram that fits our MTU, and a little more; a longer one makes the socket switch to full-size
        // receives.
        let stride = self.shared.longest_datagram().clamp(2048, TRAIN_ROOM);
        let one = self.cadence.one(slot.now);
        let (mut receives, mut received, mut bytes) = (0, 0, 0);
        let filled = loop {
            let base = self.alignment.place(slot.used);
            let full = slot.is_full() || base + TRAIN_ROOM > slot.memory.len();
            if full || receives >= READS_MAX {
                self.cadence.found(received.max(2));
                break Filled::Full;
            }
            receives += 1;
            let mut trains = std::mem::take(&mut self.trains);
            trains.clear();
            let limit = match (one, receives) {
                (true, _) => 1,
                // Each receive prepares room for as many datagrams as it requests, so the first requests few.
                (_, 1) => AT_FIRST,
                _ => BATCH_PACKETS.saturating_sub(slot.packets.len()),
            };
            let begun = self.alignment.tries().then(Instant::now);
            let result = socket.recv_trains(
                &mut self.scratch,
                &mut slot.memory[base..],
                stride,
                limit.clamp(1, TRAINS),
                |train| trains.push(train),
            );
            let took = begun.map(|begun| begun.elapsed());
            let received_bytes = &slot.memory[base..];
            let of_train = |train: &ReceivedTrain| {
                let bytes = &received_bytes[train.start as usize..][..train.len as usize];
                bytes.chunks(train.segment.max(1) as usize)
            };
            let all = trains.iter().flat_map(of_train);
            self.shared.wire.look_ahead(&mut self.reader, all);
            let (mut datagrams, mut these) = (0, 0);
            for train in &mut trains {
                train.start += base as u32;
                these += u64::from(train.len);
                datagrams += self.train(slot, line, train);
            }
            self.trains = trains;
            match result {
                Ok(got) => {
                    self.shared.drops.truncated.add(got.dropped);
                    slot.used = base + got.used;
                    self.alignment.note(these, took);
                    let carried = &self.shared.carried;
                    carried.datagrams(line, socket.family(), datagrams, these);
                    bytes += these;
                    received += datagrams + got.dropped;
                    if got.drained {
                        self.cadence.found(received);
                    }
                    if got.drained || (one && !slot.is_full()) {
                        break Filled::Drained;
                    }
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                // ConnectionRefused is an ICMP error from an earlier send; reporting it clears it.
                Err(e) if e.kind() == ErrorKind::ConnectionRefused => {}
                // No packet waits, or the next wait reports the error again.
                Err(_) => {
                    self.cadence.found(received);
                    break Filled::Drained;
                }
            }
        };
        self.watch(slot, socket, bytes);
        self.coalescing.read(slot.packets.len(), slot.now);
        self.shared.inbound.syscalls.add(receives);
        self.lookup.finish();
        filled
    }

    /// Measures how long packets wait in the socket, if the batch is large.
    fn watch(&mut self, slot: &mut InboundSlot<W>, socket: &UdpSocket, bytes: u64) {
        if bytes == 0 || !socket.aqm.on() {
            return;
        }
        let waited = (bytes >= BULK).then(|| socket.waited()).flatten();
        let (waited, shared) = (waited.unwrap_or_default(), &self.shared);
        let several = shared.cross_traffic.is_there(slot.now, shared.epoch);
        let aqm = &mut self.aqm;
        slot.signals = aqm.note(slot.now, waited, bytes, several, &shared.told);
        let mean = aqm.mean().as_micros() as u64;
        shared.inbound.waited_us.store(mean);
    }

    /// Reads records, hands control messages to control, and finds the sessions of the others. `None` if the stream has
    /// ended or the peer sent an invalid record.
    pub(crate) fn fill_stream(
        &mut self,
        slot: &mut InboundSlot<W>,
        stream: &Stream,
    ) -> Option<Filled> {
        slot.clear();
        slot.now = Instant::now();
        self.shared.wire.prepare(&mut self.reader);
        let longest = self.shared.longest_datagram();
        let longest = longest.clamp(RECORD_MIN, RECORD_MAX);
        let origin = Origin {
            from: stream.endpoint(),
            line: stream.line(),
            stream: Some(stream),
            ecn: Ecn::NotEct,
        };
        let mut partial = plane::lock(&stream.partial);
        slot.memory[..partial.len()].copy_from_slice(&partial);
        self.lookup.begin_train();
        let (mut parsed, mut receives) = (0, 0);
        slot.used = partial.len();
        let before = slot.used;
        let filled = loop {
            loop {
                match W::record(&slot.memory[parsed..slot.used], longest) {
                    Record::Partial => break,
                    Record::Whole { len } => {
                        let start = parsed + W::RECORD_HEADER;
                        parsed = start + len;
                        self.datagram(slot, start as u32, len as u32, origin);
                    }
                    Record::Malformed => {
                        partial.clear();
                        return None;
                    }
                }
            }
            // The record that has begun must fit as a whole. The longest record nearly fills an empty slot, so a lone
            // record is read to its end.
            let full = parsed > 0 && slot.is_full();
            if full || parsed + W::RECORD_HEADER + longest > slot.memory.len() {
                break Some(Filled::Full);
            }
            receives += 1;
            match stream.read(&mut slot.memory[slot.used..]) {
                Ok(0) => break None,
                Ok(n) => slot.used += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break Some(Filled::Drained),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => break None,
            }
        };
        let read = (slot.used - before) as u64;
        self.shared.carried.stream(stream.line(), read);
        self.coalescing.read(slot.packets.len(), slot.now);
        partial.clear();
        partial.extend_from_slice(&slot.memory[parsed..slot.used]);
        if partial.is_empty() {
            // An idle stream gives its buffer back: there may be a thousand of them.
            *partial = Vec::new();
        }
        self.shared.inbound.syscalls.add(receives);
        self.lookup.finish();
        filled
    }

    /// Takes the datagrams of a train. Returns their count.
    fn train(&mut self, slot: &mut InboundSlot<W>, line: LineId, train: &ReceivedTrain) -> u64 {
        let origin = Origin {
            from: Endpoint {
                addr: train.from,
                source: train.local,
            },
            line,
            stream: None,
            ecn: train.ecn,
        };
        self.lookup.begin_train();
        let end = train.start + train.len;
        let (mut start, mut count) = (train.start, 0);
        while start < end {
            let len = train.segment.min(end - start);
            self.datagram(slot, start, len, origin);
            start += len;
            count += 1;
        }
        count
    }

    fn datagram(&mut self, slot: &mut InboundSlot<W>, start: u32, len: u32, origin: Origin<'_>) {
        let datagram = &slot.memory[start as usize..(start + len) as usize];
        let class = self.shared.wire.classify(&self.reader, datagram);
        let (is_control, drop) = match class {
            Class::Data {
                session,
                counter,
                header,
                or_control,
            } if header <= datagram.len() => {
                let rest = (start + header as u32, len - header as u32);
                if self.lookup.accept(slot, rest, session, counter, origin) {
                    return;
                }
                (or_control, &self.shared.drops.no_session)
            }
            class => (class == Class::Control, &self.shared.drops.not_ours),
        };
        if !is_control {
            drop.add(1);
            return;
        }
        let datagram = &slot.memory[start as usize..(start + len) as usize];
        let from = Line {
            id: origin.line,
            endpoint: origin.from,
            transport: origin
                .stream
                .map_or(Transport::Udp, |stream| Transport::Tcp(stream.id())),
        };
        if !self.shared.control.datagram(from, datagram) {
            self.shared.drops.handshake_queue_full.add(1);
        }
    }
}

/// Records may always be this long, in bytes, even if packets are short: control messages are longer.
const RECORD_MIN: usize = 4096;

/// Maximum number of trains that one receive call returns.
const TRAINS: usize = 64;
