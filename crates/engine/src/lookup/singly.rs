//! Packets copied one by one, which is slow but rare: inbound, packets not read from the TUN; outbound, packets for a
//! format that splits them, or for a peer without a session.

use super::{Destination, OutboundLookup, Read};
use crate::gso;
use crate::ip::IpPacket;
use crate::peer::Peer;
use crate::shared::Injected;
use crate::slot::OutboundSlot;
use netio::tun::VnetHdr;
use netio::udp::Ecn;
use plane::{Notice, Wire};
use std::sync::Arc;

impl<W: Wire> OutboundLookup<W> {
    /// Takes an injected payload into the batch.
    pub(crate) fn inject(&mut self, slot: &mut OutboundSlot, injected: &Injected) {
        let Injected {
            peer,
            line,
            payload,
        } = injected;
        let start = slot.used + self.head;
        if start + payload.len() + W::TAIL_MAX > slot.memory.len() {
            self.shared.drops.staged.add(1);
            return;
        }
        slot.memory[start..start + payload.len()].copy_from_slice(payload);
        let mut to = Destination::new(None, Arc::clone(peer), slot.now, &mut self.ways);
        if let Some(line) = *line {
            to = to.only_by(line);
        }
        self.last = Some(to);
        let read = Read {
            start,
            len: payload.len(),
            hdr: VnetHdr::NONE,
            parsed: None,
            inner: IpPacket::parse(payload).is_some(),
            by: None,
        };
        self.take_in(slot, read, Ecn::NotEct);
    }

    /// Copies packets out for a format that splits them itself, which is slow but rare.
    pub(super) fn split(&self, slot: &mut OutboundSlot, read: &Read, ecn: Ecn) {
        let Some(run) = slot.runs.last() else { return };
        let key = Arc::clone(&run.key);
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
                slot.push(at, head, len, len, tail, ecn);
                pieces += 1;
            });
            if let Some(run) = slot.runs.last_mut() {
                run.count += pieces;
                run.bytes += if read.inner { packet.len() as u64 } else { 0 };
            }
        }
    }

    /// Stages the packets of a peer without a session, cut up already, and tells control.
    pub(super) fn stage(&self, slot: &mut OutboundSlot, peer: &Peer, read: &Read) {
        for mut packet in cut(slot, read) {
            if read.parsed.is_none() && !gso::complete_checksum(&mut packet, &read.hdr) {
                self.shared.drops.tun_malformed.add(1);
                return;
            }
            self.shared.drops.staged.add(peer.stage(&packet));
        }
        self.shared.control.notify(peer.id(), Notice::NeedSession);
    }
}

/// Cuts the read super-packet into its packets; a plain packet is returned as it is.
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
    parsed.spread(&mut memory, 0, 0, stride);
    (0..parsed.count())
        .map(|i| memory[i * stride..i * stride + parsed.len(i)].to_vec())
        .collect()
}
