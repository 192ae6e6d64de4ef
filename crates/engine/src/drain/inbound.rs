//! Inbound: replay window, roaming, counters, signals to senders, reorder window, then join and write.

use super::again::Again;
use super::overhead;
use crate::aqm::LastFlow;
use crate::gro::{Coalescer, JOIN_MAX, Joins};
use crate::interface;
use crate::ip::{self, IpPacket};
use crate::peer::Peer;
use crate::reorder::{HELD_MAX, Order};
use crate::sent::Missing;
use crate::session::{ReceiveKey, Received};
use crate::shared::Shared;
use crate::slot::{BATCH_PACKETS, InboundRun, InboundSlot, Inner};
use lines::inner::Reader;
use lines::reorder::Verdict;
use netio::tun::VnetHdr;
use plane::{Ecn, Joined, LineCounts, LineId, Notice, Packet, ReplayCheck, Window, Wire};
use std::hash::{BuildHasher, RandomState};
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// State for draining inbound batches.
pub(crate) struct InboundDrain<W: Wire> {
    coalescer: Coalescer,
    /// The packet that was last reassembled from pieces or decompressed.
    whole: Vec<u8>,
    reader: Reader,
    /// Sessions whose windows hold packets.
    holding: Vec<Arc<ReceiveKey<W>>>,
    /// Bytes that all reorder windows hold, except the window of the session being checked.
    held: usize,
    again: Again,
    last_flow: LastFlow,
    /// Whether a TCP segment of this batch is to be ECN-marked or dropped, so that its sender slows down.
    signals: bool,
}

impl<W: Wire> Default for InboundDrain<W> {
    fn default() -> Self {
        Self {
            coalescer: Coalescer::with_capacity(2 * BATCH_PACKETS),
            whole: Vec::new(),
            reader: Reader::new(RandomState::new().hash_one(0_u8)),
            holding: Vec::new(),
            held: 0,
            again: Again::default(),
            last_flow: LastFlow::default(),
            signals: false,
        }
    }
}

/// How the packets of a run are written.
#[derive(Clone, Copy)]
struct Manner {
    joins: Joins,
    /// Packets are written one by one, because reassembled or decompressed packets lie outside the batch.
    singly: bool,
    now: Instant,
}

impl<W: Wire> InboundDrain<W> {
    /// Writes held packets that are due.
    pub(crate) fn expire(&mut self, shared: &Shared<W>, now: Instant) {
        for key in &self.holding {
            let mut received = plane::lock(&key.received);
            if let Some(order) = &mut received.order {
                let before = order.held();
                while let Some(packet) = order.due(now) {
                    write_one(shared, &packet);
                }
                ask(shared, key, order, now);
                self.held = self.held - before + order.held();
                order.tell(&key.peer.order, now);
            }
        }
        self.look_ahead(shared);
    }

    /// Sets the alarm for the next held packet, and forgets sessions that hold none.
    fn look_ahead(&mut self, shared: &Shared<W>) {
        let mut earliest: Option<Instant> = None;
        self.holding.retain(|key| {
            let mut received = plane::lock(&key.received);
            let Some(order) = &mut received.order else {
                return false;
            };
            let deadline = order.deadline();
            earliest = earliest.into_iter().chain(deadline).min();
            order.listed = deadline.is_some();
            order.listed
        });
        if shared.alarm.set(earliest, shared.epoch) {
            shared.wake_receiver();
        }
    }

    pub(crate) fn drain(&mut self, shared: &Shared<W>, slot: &mut InboundSlot<W>) {
        let joins = Joins {
            tcp: shared.tun.gro.on(),
            udp: shared.tun.uso.on(),
            most: shared.gso_max_segs.min(JOIN_MAX),
        };
        self.signals = slot.signals;
        let memory = &mut slot.memory[..];
        for run in &slot.runs {
            let range = run.first..run.first + run.count;
            let (packets, inner) = (&slot.packets[range.clone()], &slot.inner[range]);
            // Reassembled and decompressed packets lie outside the batch. If a run has any, all its packets are written
            // one by one, to keep their order.
            let singly = run.key.format.splits() || inner.contains(&Inner::Piece);
            if singly {
                self.write(shared, memory);
            }
            let manner = Manner {
                joins,
                singly,
                now: slot.now,
            };
            self.run(shared, run, (packets, inner), memory, manner);
        }
        self.write(shared, memory);
        self.last_flow
            .follow(&slot.inner, &shared.cross_traffic, slot.now, shared.epoch);
        shared.inbound.batches.add(1);
        if !self.holding.is_empty() {
            self.look_ahead(shared);
        }
    }

    /// Checks the packets of one run and collects those to be written.
    fn run(
        &mut self,
        shared: &Shared<W>,
        run: &InboundRun<W>,
        (packets, inner): (&[Packet], &[Inner]),
        memory: &mut [u8],
        manner: Manner,
    ) {
        let (drops, peer) = (&shared.drops, &run.key.peer);
        let now = manner.now;
        let mut counts = LineCounts::default();
        let (mut heard, mut data, mut inner_bytes) = (0_u64, 0_u64, 0_u64);
        let (mut messages, mut message_bytes) = (false, 0);
        let (mut greatest, mut forged) = (0, 0);
        let refused = peer.refuses(run.line, run.from, run.stream);
        let hairpin = shared.hairpin.load(Ordering::Relaxed);
        let mut received = plane::lock(&run.key.received);
        let Received { replay, order } = &mut *received;
        self.held -= order.as_ref().map_or(0, |order| order.held());
        self.follow(shared, run, order, memory, now);
        let gathers = peer.gathers();
        let around = overhead(&*run.key.format) as u64;
        for (packet, inner) in packets.iter().zip(inner) {
            if *inner == Inner::NotAuthentic {
                forged += 1;
                continue;
            }
            greatest = packet.counter.max(greatest);
            if refused {
                drops.wrong_address.add(1);
                continue;
            }
            if let Some(order) = order
                && order.ends_before(packet.counter)
            {
                self.release(shared, order, memory, now);
            }
            let check = replay.accept(packet.counter);
            if check != ReplayCheck::New {
                let old = check == ReplayCheck::TooOld;
                counts.ancient += u64::from(old);
                counts.duplicated += u64::from(!old);
                if let Some(order) = order {
                    let line = match gathers {
                        // A copy may come from any address.
                        true => order.line_known_at(run.line, run.from.addr),
                        false => Some(run.line),
                    };
                    match line.filter(|_| !old) {
                        // A copy only tells the reorder window about its line.
                        Some(line) => {
                            order.passed(packet.counter, line, now);
                        }
                        None => order.dropped(),
                    }
                    self.release(shared, order, memory, now);
                }
                continue;
            }
            let line = match order {
                Some(order) if gathers => order.line_at(run.line, run.from.addr),
                _ => run.line,
            };
            heard += 1;
            counts.received_bytes += u64::from(packet.len) + around;
            let start = packet.start as usize;
            let payload = &mut memory[start..start + packet.len as usize];
            let inner = match *inner {
                Inner::Packet { len, .. } if self.signals => {
                    self.signal(shared, &mut payload[..len as usize], *inner)
                }
                inner => inner,
            };
            let payload = &memory[start..start + packet.len as usize];
            let mut verdict = Verdict::Deliver;
            match inner {
                Inner::Packet { len, shape } => {
                    data += 1;
                    inner_bytes += u64::from(len);
                    let whole = &payload[..len as usize];
                    let passed_on = hairpin && pass_on(shared, whole, peer);
                    if let Some(order) = order {
                        // The reorder window puts packets of several lines back into order.
                        let room = self.held + order.held() + whole.len() <= HELD_MAX;
                        let at = (packet.counter, line);
                        verdict = if passed_on {
                            order.passed(packet.counter, line, now)
                        } else {
                            order.arrived(at, whole, &self.reader, room, now)
                        };
                    }
                    if !passed_on && verdict.deliver() {
                        if manner.singly {
                            write_one(shared, whole);
                        } else {
                            self.coalescer
                                .push(memory, packet.start, len, shape, manner.joins);
                        }
                    }
                }
                _ => {
                    if let Some(order) = order {
                        verdict = order.passed(packet.counter, line, now);
                    }
                    inner_bytes += self.deal_with(shared, run, inner, payload, hairpin);
                    messages |= inner == Inner::Message;
                    let own = matches!(inner, Inner::Message | Inner::Keepalive);
                    message_bytes += u64::from(own) * (u64::from(packet.len) + around);
                    data += u64::from(!own);
                }
            }
            if let Some(order) = order {
                counts.late += u64::from(verdict == Verdict::DeliverLate);
                counts.buffered += u64::from(verdict == Verdict::Held);
                self.release(shared, order, memory, now);
            }
        }
        if let Some(order) = order {
            ask(shared, &run.key, order, now);
            self.held += order.held();
            order.tell(&peer.order, now);
            if !order.listed && order.deadline().is_some() {
                order.listed = true;
                self.holding.push(Arc::clone(&run.key));
            }
        }
        drop(received);
        drops.not_authentic.add(forged);
        run.key.note_opened(greatest, forged);
        counts.accepted = heard - counts.late;
        count(shared, peer, run.line, &counts);
        let millis = shared.epoch.millis(now);
        if heard == 0 {
            if counts.received() > 0 && run.stream.is_none() {
                peer.copies_from(run.line, run.from, millis);
            }
            return;
        }
        if run.stream.is_none() && peer.heard_from(run.line, run.from, millis) {
            let moved = Notice::Moved { line: run.line };
            shared.control.notify(peer.id(), moved);
        }
        peer.message_bytes.add(message_bytes);
        peer.rx_bytes.add(counts.received_bytes);
        shared.inbound.packets.add(data);
        shared.inbound.bytes.add(inner_bytes);
        peer.note_received(millis, data > 0 || (W::MESSAGES_ARE_DATA && messages));
        tell(shared, run, now);
    }

    /// Sets up or removes a session's reorder window, as control wants for its peer.
    fn follow(
        &mut self,
        shared: &Shared<W>,
        run: &InboundRun<W>,
        order: &mut Option<Box<Order>>,
        memory: &mut [u8],
        now: Instant,
    ) {
        let wanted = run.key.peer.order.settings();
        let listed = match (&mut *order, &wanted) {
            (None, None) => return,
            (Some(order), Some(wanted)) if order.has(wanted) => return,
            (None, Some(_)) => false,
            (Some(order), _) => {
                order.flush();
                self.release(shared, order, memory, now);
                order.tell(&run.key.peer.order, now);
                order.listed
            }
        };
        *order = wanted.map(|wanted| Order::new(&wanted, run.key.peer.order.reordering()));
        if let Some(order) = order {
            order.listed = listed;
        }
    }

    /// Signals congestion to the sender of a TCP segment: marks the segment, or drops it. Other packets stay as they
    /// are.
    fn signal(&mut self, shared: &Shared<W>, packet: &mut [u8], inner: Inner) -> Inner {
        if !ip::carries_tcp(packet) {
            return inner;
        }
        self.signals = false;
        shared.told.store(true, Ordering::Relaxed);
        match IpPacket::parse(packet) {
            Some(ip) if ip.ecn != Ecn::NotEct => ip::set_ecn(packet, Ecn::Ce),
            _ => return Inner::Signal,
        }
        inner
    }

    /// Writes packets of a session's reorder window that are due, after the packets collected so far.
    #[inline]
    fn release(&mut self, shared: &Shared<W>, order: &mut Order, memory: &mut [u8], now: Instant) {
        while let Some(packet) = order.due(now) {
            self.write(shared, memory);
            write_one(shared, &packet);
        }
    }

    /// Handles a payload that is not a whole packet. Returns the bytes of the packet that it completes.
    fn deal_with(
        &mut self,
        shared: &Shared<W>,
        run: &InboundRun<W>,
        inner: Inner,
        payload: &[u8],
        hairpin: bool,
    ) -> u64 {
        let (drops, peer) = (&shared.drops, &run.key.peer);
        match inner {
            Inner::Piece => return self.join(shared, run, payload, hairpin),
            Inner::Message => shared.control.message(peer.id(), payload),
            Inner::Malformed => match Missing::parse(payload) {
                Some(missing) => self.again.send(shared, run, &missing),
                None => drops.inner_malformed.add(1),
            },
            Inner::WrongSource => drops.wrong_source.add(1),
            Inner::Congestion => drops.congestion.add(1),
            Inner::Signal => drops.aqm.add(1),
            Inner::Keepalive | Inner::NotAuthentic | Inner::Packet { .. } => {}
        }
        0
    }

    /// Handles a piece of a packet, or a compressed packet. Returns the bytes of the packet that it completes.
    fn join(
        &mut self,
        shared: &Shared<W>,
        run: &InboundRun<W>,
        payload: &[u8],
        hairpin: bool,
    ) -> u64 {
        let (drops, peer) = (&shared.drops, &run.key.peer);
        let whole = &mut self.whole;
        let joined = run.key.format.join(payload, whole);
        match joined {
            Joined::Packet => {}
            Joined::Unpacked => shared.inbound.unpacked.add(1),
            Joined::Waits => return 0,
            Joined::Compressed => drops.compressed.add(1),
            Joined::Unframed | Joined::Malformed => drops.inner_malformed.add(1),
        }
        let notice = match joined {
            Joined::Unpacked => Some(Notice::Compressed { unpacked: true }),
            Joined::Compressed => Some(Notice::Compressed { unpacked: false }),
            Joined::Unframed => Some(Notice::Unframed),
            _ => None,
        };
        if let Some(notice) = notice
            && run.key.should_tell_compression()
        {
            shared.control.notify(peer.id(), notice);
        }
        if !matches!(joined, Joined::Packet | Joined::Unpacked) {
            return 0;
        }
        run.key.format.adjust(whole);
        if !is_owned(shared, whole, peer) {
            drops.wrong_source.add(1);
        } else if !(hairpin && pass_on(shared, whole, peer)) {
            write_one(shared, whole);
        }
        whole.len() as u64
    }

    fn write(&mut self, shared: &Shared<W>, memory: &mut [u8]) {
        let writes = interface::write(&shared.tun, &mut self.coalescer, memory);
        shared.inbound.syscalls.add(writes.calls);
        shared.inbound.super_packets.add(writes.super_packets);
        shared.drops.tun_write.add(writes.refused);
    }
}

/// Asks the peer for missing packets of the session in use, if the peer keeps the packets that it sends.
fn ask<W: Wire>(shared: &Shared<W>, key: &ReceiveKey<W>, order: &mut Order, now: Instant) {
    let sends = || {
        let sending = key.peer.send_key.load();
        let both = sending.as_ref().zip(key.answer.as_ref());
        both.is_some_and(|(sending, answer)| Arc::ptr_eq(sending, answer))
    };
    // A format that splits packets would split requests too.
    let asks = key.peer.lines.repairs() && !key.format.splits() && sends();
    let known = &key.peer.order;
    let mut request = order.missing(asks, known, now);
    while !request.is_empty() {
        shared.inject(&key.peer, None, &request.payload());
        request = order.missing(true, known, now);
    }
}

/// Notifies control of what a run of new packets means for its session.
fn tell<W: Wire>(shared: &Shared<W>, run: &InboundRun<W>, now: Instant) {
    let (control, key) = (&shared.control, &run.key);
    let (id, index) = (key.peer.id(), key.index);
    if key.confirms() {
        key.switch_sending();
        control.notify(id, Notice::Confirmed { index });
    }
    if key.peer.arm() {
        control.notify(id, Notice::Active);
    }
    if key.should_refresh(now) {
        control.notify(id, Notice::Refresh { index });
    }
}

/// Counts the packets that came over one line of a peer.
fn count<W: Wire>(shared: &Shared<W>, peer: &Peer, line: LineId, counts: &LineCounts) {
    if let Some(line) = peer.lines.get(line) {
        line.counts.note_received(counts);
    }
    // With several lines, packets older than the replay window are copies from the slower line.
    let several = counts.ancient > 0 && peer.has_several_lines();
    let (copies, replayed) = if several {
        (counts.duplicated + counts.ancient, 0)
    } else {
        (counts.duplicated, counts.ancient)
    };
    shared.drops.duplicate.add(copies);
    shared.drops.replayed.add(replayed);
}

/// Writes one packet to the TUN.
fn write_one<W: Wire>(shared: &Shared<W>, packet: &[u8]) {
    let hdr = VnetHdr::NONE.emit();
    let parts = [IoSlice::new(&hdr), IoSlice::new(packet)];
    let parts = if shared.tun.vnet_hdr() {
        &parts[..]
    } else {
        &parts[1..]
    };
    shared.inbound.syscalls.add(1);
    if shared.tun.write(parts).is_err() {
        shared.drops.tun_write.add(1);
    }
}

/// Whether the packet's source address belongs to `peer`.
fn is_owned<W: Wire>(shared: &Shared<W>, packet: &[u8], peer: &Arc<Peer>) -> bool {
    let routes = shared.routes.load();
    IpPacket::parse(packet)
        .and_then(|ip| routes.lookup(ip.src))
        .is_some_and(|owner| Arc::ptr_eq(owner, peer))
}

/// Passes a packet of one peer directly to the peer that owns its destination. Returns whether it did.
fn pass_on<W: Wire>(shared: &Shared<W>, packet: &[u8], from: &Arc<Peer>) -> bool {
    if packet.len() > shared.mtu() {
        // A packet too long for this tunnel goes to the kernel, which fragments it or answers its sender.
        return false;
    }
    let routes = shared.routes.load();
    let to = IpPacket::parse(packet).and_then(|ip| routes.lookup(ip.dst));
    let Some(to) = to.filter(|to| !Arc::ptr_eq(to, from)) else {
        return false;
    };
    shared.inject(to, None, packet);
    true
}
