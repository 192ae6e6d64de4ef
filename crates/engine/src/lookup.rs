//! Look up: finds the peer of an outbound packet, or the session of an inbound one; once for each run of equal ones.

mod destination;
mod singly;

use crate::gso::Super;
use crate::ip::{self, IpPacket, encapsulate_ecn};
use crate::session::ReceiveKey;
use crate::shared::Shared;
use crate::slot::{InboundRun, InboundSlot, Item, OutboundRun, OutboundSlot};
use crate::stream::{RECORD_MAX, Stream};
use crate::ways::Way;
use destination::Destination;
use lines::inner::Reader;
use netio::tun::{GsoKind, VnetHdr};
use netio::udp::{Ecn, Endpoint};
use plane::{LineId, Notice, Packet, SessionName, Wire};
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

/// Outbound lookup, by destination address.
pub(crate) struct OutboundLookup<W: Wire> {
    shared: Arc<Shared<W>>,
    /// The last destination found. Valid within one batch only: everything in it may change between batches.
    last: Option<Destination>,
    /// The ways of the last destination, if it has a plan.
    ways: Vec<Way>,
    reader: Reader,
    /// Bytes of the last packet's header, the likely room for the next one's.
    head: usize,
    /// Length of a packet of the run, and what it is padded to. Packets of equal length are padded equally, so that
    /// they make one train even if the format pads at random.
    padding: (usize, usize),
}

/// A packet or super-packet that was read, and where it lies.
#[derive(Clone, Copy)]
struct Read {
    start: usize,
    len: usize,
    hdr: VnetHdr,
    parsed: Option<Super>,
    /// Whether this is an IP packet; control's own messages do not count as traffic.
    inner: bool,
    /// The line whose turn it is, among the lines that the packet may take.
    by: Option<LineId>,
}

impl<W: Wire> OutboundLookup<W> {
    pub(crate) fn new(shared: Arc<Shared<W>>) -> Self {
        Self {
            shared,
            last: None,
            ways: Vec::new(),
            reader: Reader::new(RandomState::new().hash_one(0_u8)),
            head: W::HEAD_MAX,
            padding: (usize::MAX, 0),
        }
    }

    /// Bytes to leave free in front of the next packet.
    pub(crate) fn head(&self) -> usize {
        self.head
    }

    fn find(
        shared: &Shared<W>,
        address: IpAddr,
        now: Instant,
        ways: &mut Vec<Way>,
    ) -> Option<Destination> {
        let peer = Arc::clone(shared.routes.load().lookup(address)?);
        Some(Destination::new(Some(address), peer, now, ways))
    }

    /// Looks up the destination of an address, unless it is the last one.
    fn look_up(&mut self, address: IpAddr, now: Instant) {
        let known = |last: &Destination| last.address == Some(address);
        if !self.last.as_ref().is_some_and(known) {
            self.last = Self::find(&self.shared, address, now, &mut self.ways);
        }
    }

    /// The only line that a packet may take now; `None` if it may take several, or has no destination.
    pub(crate) fn line_of(&mut self, packet: &[u8], now: Instant) -> Option<LineId> {
        self.look_up(IpPacket::parse(packet)?.dst, now);
        let to = self.last.as_ref()?;
        match &to.plan {
            Some(plan) => plan.line_of(&self.ways, &self.reader, packet, to.line),
            None => Some(to.line),
        }
    }

    /// Takes the packet or super-packet at `start` into the batch, or drops, stages or answers it.
    pub(crate) fn accept(
        &mut self,
        slot: &mut OutboundSlot,
        start: usize,
        len: usize,
        hdr: VnetHdr,
    ) {
        self.accept_by(slot, (start, len), hdr, None);
    }

    /// Accepts a packet, over line `by` if the packet may take that line.
    pub(crate) fn accept_by(
        &mut self,
        slot: &mut OutboundSlot,
        (start, len): (usize, usize),
        hdr: VnetHdr,
        by: Option<LineId>,
    ) {
        let drops = &self.shared.drops;
        let packet = &slot.memory[start..start + len];
        let Some(ip) = IpPacket::parse(packet) else {
            drops.tun_malformed.add(1);
            return;
        };
        let parsed = match hdr.gso {
            GsoKind::None => None,
            _ => match Super::parse(packet, &hdr) {
                Some(parsed) => Some(parsed),
                None => {
                    drops.tun_malformed.add(1);
                    return;
                }
            },
        };
        let count = parsed.as_ref().map_or(1, Super::count) as u64;
        let len = if parsed.is_some() { len } else { ip.len };

        self.look_up(ip.dst, slot.now);
        let drops = &self.shared.drops;
        let Some(to) = self.last.as_ref().filter(|to| to.endpoint.is_some()) else {
            let reason = match self.last {
                None => &drops.no_route,
                Some(_) => &drops.no_endpoint,
            };
            reason.add(count);
            self.shared
                .answer_unreachable(packet, self.shared.epoch.millis(slot.now));
            return;
        };
        if let Some((port, datagram)) = ip::udp_payload(packet)
            && to.loops(
                &self.shared.wire,
                &self.ways,
                datagram,
                (ip.dst, port).into(),
            )
        {
            drops.looped.add(count);
            return;
        }
        let ecn = if W::ECN {
            encapsulate_ecn(ip.ecn)
        } else {
            Ecn::NotEct
        };
        let read = Read {
            start,
            len,
            hdr,
            parsed,
            inner: true,
            by,
        };
        self.take_in(slot, read, ecn);
    }

    /// Lays out the datagrams of the packet read, for the last destination.
    fn take_in(&mut self, slot: &mut OutboundSlot, mut read: Read, ecn: Ecn) {
        let Some(to) = &self.last else { return };
        let Some(endpoint) = to.endpoint else { return };
        let drops = &self.shared.drops;
        let count = read.parsed.as_ref().map_or(1, Super::count);
        let Some(key) = &to.key else {
            if W::STAGES {
                self.stage(slot, &to.peer, &read);
            } else {
                drops.no_session.add(count as u64);
            }
            return;
        };
        let way = Way {
            line: to.line,
            endpoint,
        };
        let packet = &slot.memory[read.start..read.start + read.len];
        let (ways, reader) = (&self.ways, &self.reader);
        let chosen = to
            .plan
            .as_ref()
            .and_then(|plan| plan.choose(ways, reader, packet, (read.inner, read.by)));
        // The ways of a plan lead through UDP sockets, even if the line in use has a stream.
        let stream = to.stream.as_ref().filter(|_| chosen.is_none());
        let (way, copies) = chosen.unwrap_or((way, &[]));
        let same = |r: &OutboundRun| {
            Arc::ptr_eq(&r.key, key)
                && r.endpoint == way.endpoint
                && r.line == way.line
                && r.copies.len() == copies.len()
                && (copies.is_empty() || slot.copies[r.copies.clone()] == *copies)
        };
        if !slot.runs.last().is_some_and(same) {
            let first_copy = slot.copies.len();
            slot.copies.extend_from_slice(copies);
            slot.runs.push(OutboundRun {
                peer: Arc::clone(&to.peer),
                key: Arc::clone(key),
                endpoint: way.endpoint,
                line: way.line,
                stream: stream.cloned(),
                copies: first_copy..slot.copies.len(),
                first: slot.packets.len(),
                count: 0,
                first_train: slot.trains.len(),
                bytes: 0,
            });
            self.padding.0 = usize::MAX;
        }
        let head = key.format.head();
        self.head = head;
        if key.format.splits() {
            self.split(slot, &read, ecn);
            return;
        }
        let mtu = self.shared.mtu();
        let longest = read.parsed.as_ref().map_or(read.len, |s| s.len(0));
        if self.padding.0 != longest {
            self.padding = (longest, key.format.padded(longest, mtu));
        }
        let mut padded = self.padding.1;
        let mut tail = key.format.tail(padded);
        let stride = head + padded + tail;
        if stream.is_some() && stride > W::RECORD_HEADER + RECORD_MAX {
            // The 16-bit record length would wrap, and the peer would read the middle of this record as the next one.
            drops.too_long.add(count as u64);
            return;
        }
        let start = read.start.max(slot.used + head);
        if read.start < start {
            // This key's header is longer than the room left for it, or the packet begins too early in the slot.
            if start + read.len > slot.memory.len() {
                drops.tun_malformed.add(count as u64);
                return;
            }
            // Spreading moves a super-packet's packets anyway.
            if read.parsed.is_none() {
                slot.memory
                    .copy_within(read.start..read.start + read.len, start);
                read.start = start;
            }
        }
        if start + count * stride > slot.memory.len() {
            // Thousands of tiny segments in one super-packet: no kernel makes such a super-packet.
            drops.tun_malformed.add(count as u64);
            return;
        }
        let mut bytes = 0;
        for i in 0..count {
            let inner = read.parsed.as_ref().map_or(read.len, |s| s.len(i));
            // All segments but the last have the same length.
            if inner != longest {
                // Not beyond the others, whose train would end otherwise.
                padded = key.format.padded(inner, mtu).min(padded);
                tail = key.format.tail(padded);
            }
            let at = start + i * stride;
            slot.push(at, head, inner, padded, tail, ecn);
            bytes += inner as u64;
        }
        slot.items.push(Item {
            from: read.start,
            start,
            len: read.len,
            hdr: read.hdr,
            stride,
            run: slot.runs.len() - 1,
        });
        if read.parsed.is_some() {
            self.shared.outbound.super_packets.add(1);
        }
        if let Some(run) = slot.runs.last_mut() {
            run.count += count;
            run.bytes += if read.inner { bytes } else { 0 };
        }
    }

    /// Ends a batch and numbers its packets.
    pub(crate) fn finish(&mut self, slot: &mut OutboundSlot) {
        self.last = None;
        let shared = &self.shared;
        slot.number(|run| {
            shared.drops.expired.add(run.count as u64);
            shared.control.notify(run.peer.id(), Notice::NeedSession);
        });
    }
}

/// Inbound lookup, by our index of the session.
pub(crate) struct InboundLookup<W: Wire> {
    shared: Arc<Shared<W>>,
    last: Option<Arc<ReceiveKey<W>>>,
    /// The session of the batch's last run, while its packets come from the same origin.
    run: Option<SessionName>,
}

/// Address and line that a datagram came from.
#[derive(Clone, Copy)]
pub(crate) struct Origin<'a> {
    pub(crate) from: Endpoint,
    pub(crate) line: LineId,
    pub(crate) stream: Option<&'a Stream>,
    pub(crate) ecn: Ecn,
}

impl<W: Wire> InboundLookup<W> {
    pub(crate) fn new(shared: Arc<Shared<W>>) -> Self {
        Self {
            shared,
            last: None,
            run: None,
        }
    }

    /// Begins a train: its packets share one origin.
    pub(crate) fn begin_train(&mut self) {
        self.run = None;
    }

    /// Ends a batch, and releases the key while no packets come.
    pub(crate) fn finish(&mut self) {
        self.last = None;
        self.run = None;
    }

    /// Takes a data packet into the batch: `len` bytes at `start`, after its header. Returns whether its session exists.
    pub(crate) fn accept(
        &mut self,
        slot: &mut InboundSlot<W>,
        (start, len): (u32, u32),
        session: SessionName,
        counter: u64,
        origin: Origin<'_>,
    ) -> bool {
        let packet = Packet {
            start,
            len,
            counter,
            authentic: false,
        };
        // Most trains belong to one session, which is then looked up once.
        if self.run == Some(session)
            && let (Some(key), Some(run)) = (&self.last, slot.runs.last_mut())
            && counter < key.limits.messages_max
            && !key.removed()
        {
            slot.packets.push(packet);
            run.count += 1;
            return true;
        }
        self.run = None;
        let index = match (session, origin.stream) {
            (SessionName::Index(index), _) => Some(index),
            (SessionName::OfSender(number), Some(stream)) => {
                stream.sessions().map(|first| first + u32::from(number))
            }
            (SessionName::OfSender(number), None) => {
                self.shared.sessions.of_sender(origin.from.addr, number)
            }
        };
        let Some(index) = index else {
            return false;
        };
        if self
            .last
            .as_ref()
            .is_none_or(|key| key.index != index || key.removed())
        {
            self.last = self.shared.sessions.find(index);
        }
        let Some(key) = &self.last else {
            return false;
        };
        if slot.now >= key.limits.expires || counter >= key.limits.messages_max {
            self.shared.drops.expired.add(1);
            return true;
        }
        slot.packets.push(packet);
        self.run = Some(session);
        let Origin {
            from,
            line,
            stream,
            ecn,
        } = origin;
        let stream = stream.map(Stream::id);
        match slot.runs.last_mut() {
            Some(run)
                if Arc::ptr_eq(&run.key, key)
                    && (run.from, run.line, run.stream, run.ecn) == (from, line, stream, ecn) =>
            {
                run.count += 1;
            }
            _ => slot.runs.push(InboundRun {
                key: Arc::clone(key),
                from,
                line,
                stream,
                ecn,
                first: slot.packets.len() - 1,
                count: 1,
            }),
        }
        true
    }
}
