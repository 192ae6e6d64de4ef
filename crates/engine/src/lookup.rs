//! Look up: whom a packet is for, or whose it is; once for each run of equal ones.

use crate::control::Notice;
use crate::gso::Super;
use crate::ip::{self, IpPacket, encapsulate_ecn};
use crate::key::SendKey;
use crate::peer::Peer;
use crate::session::ReceiveKey;
use crate::shared::Shared;
use crate::slot::{InboundRun, InboundSlot, Item, OutboundRun, OutboundSlot};
use crate::wire::{Class, Wire};
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
}

/// Where packets for an address go, as of now.
struct Destination {
    address: IpAddr,
    peer: Arc<Peer>,
    endpoint: Option<Endpoint>,
    /// `None`: no session, or one past its end.
    key: Option<Arc<SendKey>>,
}

impl<W: Wire> OutboundLookup<W> {
    pub(crate) fn new(shared: Arc<Shared<W>>) -> Self {
        Self { shared, last: None }
    }

    fn find(&self, address: IpAddr, now: Instant) -> Option<Destination> {
        let peer = Arc::clone(self.shared.routes.load().lookup(address)?);
        let endpoint = peer.endpoint();
        let key = peer.send_key.load_full().filter(|key| key.alive(now));
        Some(Destination {
            address,
            peer,
            endpoint,
            key,
        })
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
        let count = parsed.as_ref().map_or(1, Super::count);
        let len = if parsed.is_some() { len } else { ip.len };

        if self.last.as_ref().is_none_or(|last| last.address != ip.dst) {
            self.last = self.find(ip.dst, slot.now);
        }
        let Some(Destination {
            peer,
            endpoint,
            key,
            ..
        }) = &self.last
        else {
            drops.no_route.add(count as u64);
            self.shared
                .answer_unreachable(packet, self.shared.epoch.millis(slot.now));
            return;
        };
        let Some(endpoint) = *endpoint else {
            drops.no_endpoint.add(count as u64);
            self.shared
                .answer_unreachable(packet, self.shared.epoch.millis(slot.now));
            return;
        };

        let mtu = self.shared.mtu();
        let longest = parsed.as_ref().map_or(len, |s| s.len(0));
        let stride = W::HEADER + W::padded(longest, mtu) + W::TAG;
        if start + count * stride > slot.memory.len() {
            // Thousands of tiny segments in one super-packet: no kernel makes them.
            drops.tun_malformed.add(count as u64);
            return;
        }
        let Some(key) = key else {
            self.stage(slot, peer, start, len, hdr, parsed.as_ref(), stride);
            return;
        };

        if is_datagram_of::<W>(packet, key.index) {
            drops.looped.add(count as u64);
            return;
        }

        let same = |r: &OutboundRun| Arc::ptr_eq(&r.key, key) && r.endpoint == endpoint;
        if !slot.runs.last().is_some_and(same) {
            slot.runs.push(OutboundRun {
                peer: Arc::clone(peer),
                key: Arc::clone(key),
                endpoint,
                first: slot.packets.len(),
                count: 0,
                first_train: slot.trains.len(),
                bytes: 0,
            });
        }
        let first = slot.packets.len();
        for i in 0..count {
            let inner = parsed.as_ref().map_or(len, |s| s.len(i));
            let padded = W::padded(inner, mtu);
            let at = start + i * stride;
            slot.packets.push(Packet {
                start: at as u32,
                len: padded as u32,
                counter: 0,
                authentic: false,
            });
            slot.lens.push(inner as u32);
            couple(
                slot,
                at - W::HEADER,
                W::HEADER + padded + W::TAG,
                endpoint,
                encapsulate_ecn(ip.ecn),
            );
            slot.used = at + padded + W::TAG;
        }
        slot.items.push(Item {
            start,
            len,
            hdr,
            stride,
        });
        if parsed.is_some() {
            self.shared.outbound.super_packets.add(1);
        }
        if let Some(run) = slot.runs.last_mut() {
            run.count += count;
            run.bytes += slot.lens[first..]
                .iter()
                .map(|l| u64::from(*l))
                .sum::<u64>();
        }
    }

    /// No session: the packets wait, cut up already, and control is told.
    #[allow(clippy::too_many_arguments)]
    fn stage(
        &self,
        slot: &mut OutboundSlot,
        peer: &Peer,
        start: usize,
        len: usize,
        hdr: VnetHdr,
        parsed: Option<&Super>,
        stride: usize,
    ) {
        if let Some(parsed) = parsed {
            parsed.spread(&mut slot.memory, start, stride);
            for i in 0..parsed.count() {
                let at = start + i * stride;
                let dropped = peer.stage(&slot.memory[at..at + parsed.len(i)]);
                self.shared.drops.staged.add(dropped);
            }
        } else {
            let packet = &mut slot.memory[start..start + len];
            if !crate::gso::complete_checksum(packet, &hdr) {
                self.shared.drops.tun_malformed.add(1);
                return;
            }
            self.shared.drops.staged.add(peer.stage(packet));
        }
        self.shared.control.notify(peer.id(), Notice::NeedSession);
    }

    /// Numbers the packets: one `fetch_add` a run.
    pub(crate) fn finish(&mut self, slot: &mut OutboundSlot) {
        self.last = None;
        let mut next_train = slot.trains.len();
        for run in slot.runs.iter_mut().rev() {
            let trains = run.first_train..std::mem::replace(&mut next_train, run.first_train);
            let packets = &mut slot.packets[run.first..run.first + run.count];
            match run.key.take(packets.len() as u64) {
                Some(first) => {
                    for (packet, counter) in packets.iter_mut().zip(first..) {
                        packet.counter = counter;
                    }
                }
                None => {
                    // Used up between two batches. Nothing of this run may be sealed or sent.
                    self.shared.drops.expired.add(run.count as u64);
                    self.shared
                        .control
                        .notify(run.peer.id(), Notice::NeedSession);
                    for train in &mut slot.trains[trains] {
                        train.len = 0;
                    }
                    run.count = 0;
                }
            }
        }
    }
}

/// Whether an inner packet is a datagram that was sealed for this very session: the way to the
/// peer's endpoint leads into the tunnel. Wrapped once more it would come back, longer each time
/// and in the end in pieces, and each piece would go round as well.
fn is_datagram_of<W: Wire>(packet: &[u8], receiver: u32) -> bool {
    let class = ip::udp_payload(packet).map(W::classify);
    matches!(class, Some(Class::Data { index, .. }) if index == receiver)
}

/// Couples a datagram to the last train, or starts another.
fn couple(slot: &mut OutboundSlot, start: usize, len: usize, endpoint: Endpoint, ecn: Ecn) {
    let (start, len) = (start as u32, len as u32);
    let same_run = slot
        .runs
        .last()
        .is_some_and(|r| r.first_train < slot.trains.len());
    if let Some(train) = slot.trains.last_mut()
        && same_run
        && train.endpoint == endpoint
        && train.ecn == ecn
        && train.start + train.len == start
        && train.len.is_multiple_of(train.segment)
        && len <= train.segment
    {
        train.len += len;
        return;
    }
    slot.trains.push(Train {
        start,
        len,
        segment: len,
        endpoint,
        ecn,
    });
}

/// Inbound: by our name for the session.
pub(crate) struct InboundLookup<W: Wire> {
    shared: Arc<Shared<W>>,
    last: Option<Arc<ReceiveKey<W>>>,
}

impl<W: Wire> InboundLookup<W> {
    pub(crate) fn new(shared: Arc<Shared<W>>) -> Self {
        Self { shared, last: None }
    }

    /// Ends a batch: a key is not held on to while nothing comes.
    pub(crate) fn finish(&mut self) {
        self.last = None;
    }

    /// Takes the data packet in the datagram at `start` into the batch.
    pub(crate) fn accept(
        &mut self,
        slot: &mut InboundSlot<W>,
        start: u32,
        len: u32,
        (index, counter): (u32, u64),
        from: Endpoint,
        ecn: Ecn,
    ) {
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
            start: start + W::HEADER as u32,
            len: len - (W::HEADER + W::TAG) as u32,
            counter,
            authentic: false,
        });
        match slot.runs.last_mut() {
            Some(run) if Arc::ptr_eq(&run.key, key) && run.from == from && run.ecn == ecn => {
                run.count += 1;
            }
            _ => slot.runs.push(InboundRun {
                key: Arc::clone(key),
                from,
                ecn,
                first: slot.packets.len() - 1,
                count: 1,
            }),
        }
    }
}
