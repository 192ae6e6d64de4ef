//! Transform: the work that several workers may do at once, each on a slot of its own.
//!
//! Outbound: cut super-packets, complete checksums, pad, write headers, seal. Inbound: open, inspect the inner packet,
//! verify packets that may be joined.

use crate::gro::{self, Shape};
use crate::gso::{self, Super};
use crate::ip::{IpPacket, decapsulate_ecn};
use crate::shared::Shared;
use crate::slot::{InboundRun, InboundSlot, Inner, OutboundSlot};
use netio::tun::GsoKind;
use plane::Payload;
use plane::Wire;
use plane::{Batch, Packet};
use std::net::IpAddr;
use std::sync::Arc;

pub(crate) fn outbound(slot: &mut OutboundSlot) {
    let OutboundSlot {
        memory,
        items,
        packets,
        lens,
        runs,
        ..
    } = slot;
    for item in items.iter() {
        let packet = &mut memory[item.from..item.from + item.len];
        if item.hdr.gso == GsoKind::None {
            // A checksum that points outside its packet is left wrong: the receiver drops it.
            gso::complete_checksum(packet, &item.hdr);
            runs[item.run].key.format.adjust(packet);
        } else if let Some(parsed) = Super::parse(packet, &item.hdr) {
            parsed.spread(memory, item.from, item.start, item.stride);
        }
    }
    for run in runs.iter() {
        let range = run.first..run.first + run.count;
        for (packet, len) in packets[range.clone()].iter().zip(&lens[range.clone()]) {
            let start = packet.start as usize;
            memory[start + *len as usize..start + packet.len as usize].fill(0);
        }
        run.key.format.seal(&mut Batch {
            memory,
            packets: &mut packets[range],
        });
    }
}

pub(crate) fn inbound<W: Wire>(shared: &Shared<W>, slot: &mut InboundSlot<W>) {
    let InboundSlot {
        memory,
        packets,
        inner,
        runs,
        ..
    } = slot;
    let joins = shared.tun.gro.on() || shared.tun.uso.on();
    for run in runs.iter() {
        let packets = &mut packets[run.first..run.first + run.count];
        run.key.format.open(&mut Batch { memory, packets });
        let routes = shared.routes.load();
        let mut owned: Option<IpAddr> = None;
        for packet in packets.iter_mut() {
            inner.push(look_inside(memory, packet, run, joins, |src| {
                if owned == Some(src) {
                    return true;
                }
                let owner = routes
                    .lookup(src)
                    .is_some_and(|p| Arc::ptr_eq(p, &run.key.peer));
                if owner {
                    owned = Some(src);
                }
                owner
            }));
        }
    }
}

fn look_inside<W: Wire>(
    memory: &mut [u8],
    packet: &mut Packet,
    run: &InboundRun<W>,
    joins: bool,
    mut owned: impl FnMut(IpAddr) -> bool,
) -> Inner {
    if !packet.authentic {
        return Inner::NotAuthentic;
    }
    match run.key.format.reveal(memory, packet) {
        Payload::Inner => {}
        Payload::Keepalive => return Inner::Keepalive,
        Payload::Message => return Inner::Message,
        Payload::Piece => return Inner::Piece,
        Payload::Malformed => return Inner::Malformed,
    }
    let start = packet.start as usize;
    let bytes = &mut memory[start..start + packet.len as usize];
    let Some(ip) = IpPacket::parse(bytes) else {
        return Inner::Malformed;
    };
    if !owned(ip.src) {
        return Inner::WrongSource;
    }
    let bytes = &mut bytes[..ip.len];
    run.key.format.adjust(bytes);
    if W::ECN && !decapsulate_ecn(bytes, ip.ecn, run.ecn) {
        return Inner::Congestion;
    }
    let shape = if joins {
        gro::inspect(bytes)
    } else {
        Shape::Plain
    };
    Inner::Packet {
        len: ip.len as u32,
        shape,
    }
}
