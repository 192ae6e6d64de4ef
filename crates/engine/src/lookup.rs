//! Look up: whom a packet is for, or whose it is; once for each run of equal ones.

use crate::control::Notice;
use crate::gso::{self, Super};
use crate::ip::{self, IpPacket, encapsulate_ecn};
use crate::key::SendKey;
use crate::peer::Peer;
use crate::session::ReceiveKey;
use crate::shared::Shared;
use crate::slot::{InboundRun, InboundSlot, Item, OutboundRun, OutboundSlot};
use crate::stream::{RECORD_HEADER, RECORD_MAX, Stream};
use crate::wire::{SessionName, Wire};
use crypto::Packet;
use netio::udp::{Ecn, Endpoint, Train};
use netio::vnet::{GsoKind, VnetHdr};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

/// Outbound: by destination address.
pub(crate) struct OutboundLookup<W: Wire> {
    shared: Arc<Shared<W>>,
    /// The last answer. Only good within one batch: everything in it may change between batches.
    last: Option<Destination>,
    /// The head of the last packet: where to read the next one to, most likely.
    head: usize,
}

/// Where packets for an address go, as of now.
struct Destination {
    address: Option<IpAddr>,
    peer: Arc<Peer>,
    endpoint: Option<Endpoint>,
    stream: Option<Arc<Stream>>,
    /// `None`: no session, or one past its end.
    key: Option<Arc<SendKey>>,
}

impl Destination {
    fn new(address: Option<IpAddr>, peer: Arc<Peer>, now: Instant) -> Self {
        let key = peer.send_key.load_full().filter(|key| key.alive(now));
        Self {
            address,
            endpoint: peer.endpoint(),
            stream: peer.stream(),
            key,
            peer,
        }
    }
}

/// What was read: where it lies, and whether it is one packet or stands for many.
#[derive(Clone, Copy)]
struct Read {
    start: usize,
    len: usize,
    hdr: VnetHdr,
    parsed: Option<Super>,
    /// An IP packet; otherwise a message of control's, which is no traffic.
    inner: bool,
}

impl<W: Wire> OutboundLookup<W> {
    pub(crate) fn new(shared: Arc<Shared<W>>) -> Self {
        Self {
            shared,
            last: None,
            head: W::HEAD_MAX,
        }
    }

    /// Bytes to leave free before the next packet.
    pub(crate) fn head(&self) -> usize {
        self.head
    }

    fn find(&self, address: IpAddr, now: Instant) -> Option<Destination> {
        let peer = Arc::clone(self.shared.routes.load().lookup(address)?);
        Some(Destination::new(Some(address), peer, now))
    }

    /// Takes the packet (or super-packet) at `start` into the batch, or deals with it otherwise.
    pub(crate) fn accept(
        &mut self,
        slot: &mut OutboundSlot,
        start: usize,
        len: usize,
        hdr: VnetHdr,
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

        let known = |last: &Destination| last.address == Some(ip.dst);
        if !self.last.as_ref().is_some_and(known) {
            self.last = self.find(ip.dst, slot.now);
        }
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
        if let (Some(key), Some(endpoint)) = (&to.key, &to.endpoint)
            && let Some((port, datagram)) = ip::udp_payload(packet)
            && W::loops(datagram, (ip.dst, port).into(), key.index, endpoint)
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
        };
        self.take_in(slot, read, ecn);
    }

    /// Takes a payload of ours for `peer` into the batch.
    pub(crate) fn inject(&mut self, slot: &mut OutboundSlot, peer: &Arc<Peer>, payload: &[u8]) {
        let start = slot.used + self.head;
        if start + payload.len() + W::TAIL_MAX > slot.memory.len() {
            self.shared.drops.staged.add(1);
            return;
        }
        slot.memory[start..start + payload.len()].copy_from_slice(payload);
        self.last = Some(Destination::new(None, Arc::clone(peer), slot.now));
        let read = Read {
            start,
            len: payload.len(),
            hdr: VnetHdr::NONE,
            parsed: None,
            inner: IpPacket::parse(payload).is_some(),
        };
        self.take_in(slot, read, Ecn::NotEct);
    }

    /// Lays out the datagrams of what was read, for the last destination.
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
        let same = |r: &OutboundRun| Arc::ptr_eq(&r.key, key) && r.endpoint == endpoint;
        if !slot.runs.last().is_some_and(same) {
            slot.runs.push(OutboundRun {
                peer: Arc::clone(&to.peer),
                key: Arc::clone(key),
                endpoint,
                stream: to.stream.clone(),
                first: slot.packets.len(),
                count: 0,
                first_train: slot.trains.len(),
                bytes: 0,
            });
        }
        let head = key.format.head();
        self.head = head;
        if key.format.splits() {
            self.split(slot, &read, ecn);
            return;
        }
        let mtu = self.shared.mtu();
        let longest = read.parsed.as_ref().map_or(read.len, |s| s.len(0));
        let padded = W::padded(longest, mtu);
        let stride = head + padded + key.format.tail(padded);
        if to.stream.is_some() && stride > RECORD_HEADER + RECORD_MAX {
            // Its length would wrap, and the peer would take its middle for the next record.
            drops.too_long.add(count as u64);
            return;
        }
        if read.start < slot.used + head {
            // Another key's head is longer than the one that room was left for.
            let start = slot.used + head;
            if start + read.len > slot.memory.len() {
                drops.tun_malformed.add(count as u64);
                return;
            }
            slot.memory
                .copy_within(read.start..read.start + read.len, start);
            read.start = start;
        }
        if read.start + count * stride > slot.memory.len() {
            // Thousands of tiny segments in one super-packet: no kernel makes them.
            drops.tun_malformed.add(count as u64);
            return;
        }
        let mut bytes = 0;
        for i in 0..count {
            let inner = read.parsed.as_ref().map_or(read.len, |s| s.len(i));
            let padded = W::padded(inner, mtu);
            let tail = key.format.tail(padded);
            let at = read.start + i * stride;
            slot.push(at, head, inner, padded, tail, endpoint, ecn);
            bytes += inner as u64;
        }
        slot.items.push(Item {
            start: read.start,
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

    /// A format that cuts packets itself: they are copied out, which is slow, and rare.
    fn split(&self, slot: &mut OutboundSlot, read: &Read, ecn: Ecn) {
        let Some(run) = slot.runs.last() else { return };
        let (key, endpoint) = (Arc::clone(&run.key), run.endpoint);
        let head = key.format.head();
        for mut packet in cut(slot, read) {
            if read.parsed.is_none() && !gso::complete_checksum(&mut packet, &read.hdr) {
                self.shared.drops.tun_malformed.add(1);
                return;
            }
            key.format.adjust(&mut packet);
            let mut pieces = 0;
            key.format.split(&packet, &mut |front, rest| {
                let len = front.len() + rest.len();
                let (at, tail) = (slot.used + head, key.format.tail(len));
                if at + len + tail > slot.memory.len() {
                    self.shared.drops.tun_malformed.add(1);
                    return;
                }
                slot.memory[at..at + front.len()].copy_from_slice(front);
                slot.memory[at + front.len()..at + len].copy_from_slice(rest);
                slot.push(at, head, len, len, tail, endpoint, ecn);
                pieces += 1;
            });
            if let Some(run) = slot.runs.last_mut() {
                run.count += pieces;
                run.bytes += if read.inner { packet.len() as u64 } else { 0 };
            }
        }
    }

    /// No session: the packets wait, cut up already, and control is told.
    fn stage(&self, slot: &mut OutboundSlot, peer: &Peer, read: &Read) {
        for mut packet in cut(slot, read) {
            if read.parsed.is_none() && !gso::complete_checksum(&mut packet, &read.hdr) {
                self.shared.drops.tun_malformed.add(1);
                return;
            }
            self.shared.drops.staged.add(peer.stage(&packet));
        }
        self.shared.control.notify(peer.id(), Notice::NeedSession);
    }

    /// Ends a batch: its packets get their numbers.
    pub(crate) fn finish(&mut self, slot: &mut OutboundSlot) {
        self.last = None;
        let shared = &self.shared;
        slot.number(|run| {
            shared.drops.expired.add(run.count as u64);
            shared.control.notify(run.peer.id(), Notice::NeedSession);
        });
    }
}

/// The packets that were read, each by itself.
fn cut(slot: &OutboundSlot, read: &Read) -> Vec<Vec<u8>> {
    let bytes = &slot.memory[read.start..read.start + read.len];
    let Some(parsed) = &read.parsed else {
        return vec![bytes.to_vec()];
    };
    let stride = parsed.len(0);
    let mut memory = vec![0; parsed.count() * stride];
    let room = memory.len().max(bytes.len());
    memory.resize(room, 0);
    memory[..bytes.len()].copy_from_slice(bytes);
    parsed.spread(&mut memory, 0, stride);
    (0..parsed.count())
        .map(|i| memory[i * stride..i * stride + parsed.len(i)].to_vec())
        .collect()
}

impl OutboundSlot {
    /// Numbers the packets, one `fetch_add` a run, in the order in which they will leave: a key may
    /// have several runs in a batch. Nothing of a run whose key is used up will be sent.
    fn number(&mut self, mut used_up: impl FnMut(&OutboundRun)) {
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
    #[allow(clippy::too_many_arguments)]
    fn push(
        &mut self,
        at: usize,
        head: usize,
        inner: usize,
        padded: usize,
        tail: usize,
        endpoint: Endpoint,
        ecn: Ecn,
    ) {
        self.packets.push(Packet {
            start: at as u32,
            len: padded as u32,
            counter: 0,
            authentic: false,
        });
        self.lens.push(inner as u32);
        self.used = at + padded + tail;
        let (start, len) = ((at - head) as u32, (head + padded + tail) as u32);
        let (same_run, in_stream) = self.runs.last().map_or((false, false), |r| {
            (r.first_train < self.trains.len(), r.stream.is_some())
        });
        if let Some(train) = self.trains.last_mut()
            && same_run
            && train.endpoint == endpoint
            && train.ecn == ecn
            && train.start + train.len == start
            // A stream does not care where a datagram ends.
            && (in_stream || (train.len.is_multiple_of(train.segment) && len <= train.segment))
        {
            train.len += len;
            return;
        }
        self.trains.push(Train {
            start,
            len,
            segment: len,
            endpoint,
            ecn,
        });
    }
}

/// Inbound: by our name for the session.
pub(crate) struct InboundLookup<W: Wire> {
    shared: Arc<Shared<W>>,
    last: Option<Arc<ReceiveKey<W>>>,
}

/// Where a datagram came from.
#[derive(Clone, Copy)]
pub(crate) struct Origin<'a> {
    pub(crate) from: Endpoint,
    pub(crate) stream: Option<&'a Stream>,
    pub(crate) ecn: Ecn,
}

impl<W: Wire> InboundLookup<W> {
    pub(crate) fn new(shared: Arc<Shared<W>>) -> Self {
        Self { shared, last: None }
    }

    /// Ends a batch: a key is not held on to while nothing comes.
    pub(crate) fn finish(&mut self) {
        self.last = None;
    }

    /// Takes a data packet into the batch: what is left of it, `len` bytes at `start`.
    pub(crate) fn accept(
        &mut self,
        slot: &mut InboundSlot<W>,
        (start, len): (u32, u32),
        session: SessionName,
        counter: u64,
        origin: Origin<'_>,
    ) {
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
            self.shared.drops.no_session.add(1);
            return;
        };
        if self
            .last
            .as_ref()
            .is_none_or(|key| key.index != index || key.removed())
        {
            self.last = self.shared.sessions.find(index);
        }
        let Some(key) = &self.last else {
            self.shared.drops.no_session.add(1);
            return;
        };
        if slot.now >= key.limits.expires || counter >= key.limits.messages_max {
            self.shared.drops.expired.add(1);
            return;
        }
        slot.packets.push(Packet {
            start,
            len,
            counter,
            authentic: false,
        });
        let Origin { from, stream, ecn } = origin;
        let stream = stream.map(Stream::id);
        match slot.runs.last_mut() {
            Some(run)
                if Arc::ptr_eq(&run.key, key)
                    && (run.from, run.stream, run.ecn) == (from, stream, ecn) =>
            {
                run.count += 1;
            }
            _ => slot.runs.push(InboundRun {
                key: Arc::clone(key),
                from,
                stream,
                ecn,
                first: slot.packets.len() - 1,
                count: 1,
            }),
        }
    }
}

#[cfg(test)]
mod tests;
