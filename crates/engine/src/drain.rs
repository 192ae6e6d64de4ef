//! Drain: what happens to a batch when its turn has come. One worker at a time, in order.
//!
//! Outbound: send the trains. Inbound: replay window, roaming, counters, then join and write.

use crate::control::Notice;
use crate::format::{Format, Joined};
use crate::gro::{Coalescer, JOIN_MAX, Joins, Written};
use crate::ip::IpPacket;
use crate::peer::Peer;
use crate::shared::Shared;
use crate::slot::{BATCH_PACKETS, InboundRun, InboundSlot, Inner, OutboundRun, OutboundSlot};
use crate::stream::{self, Stream};
use crate::wire::{Window, Wire};
use netio::udp::{Family, SendScratch, Train};
use netio::vnet::{GsoKind, VnetHdr};
use std::io::IoSlice;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

/// What draining outbound batches needs.
#[derive(Default)]
pub(crate) struct OutboundDrain {
    scratch: SendScratch,
}

impl OutboundDrain {
    pub(crate) fn drain<W: Wire>(&mut self, shared: &Shared<W>, slot: &mut OutboundSlot) {
        self.scratch.begin_batch();
        if slot.runs.iter().all(|run| run.stream.is_none()) {
            self.send(shared, slot, &slot.trains);
        } else {
            let ends = slot.runs.iter().skip(1).map(|next| next.first_train);
            let ends = ends.chain([slot.trains.len()]);
            for (run, end) in slot.runs.iter().zip(ends) {
                let trains = &slot.trains[run.first_train..end];
                match &run.stream {
                    Some(stream) => write(shared, slot, run, stream, trains),
                    None => self.send(shared, slot, trains),
                }
            }
        }
        let millis = shared.epoch.millis(slot.now);
        for run in slot.runs.iter().filter(|r| r.count > 0) {
            account::<W>(shared, run, slot, millis);
        }
        shared.outbound.batches.add(1);
    }

    fn send<W: Wire>(&mut self, shared: &Shared<W>, slot: &OutboundSlot, mut trains: &[Train]) {
        let sockets = shared.sockets.load();
        while let Some(first) = trains.first() {
            // One call for everything of one family; mostly that is everything.
            let family = family_of(first);
            let same = trains.iter().take_while(|t| family_of(t) == family).count();
            let (now, later) = trains.split_at(same);
            trains = later;
            let Some(socket) = sockets.of(family) else {
                shared
                    .drops
                    .send_failed
                    .add(now.iter().map(|t| u64::from(t.count())).sum());
                continue;
            };
            let report = socket.send_trains(&mut self.scratch, &slot.memory, now);
            shared.outbound.syscalls.add(report.syscalls);
            shared.drops.send_failed.add(report.dropped);
            if report.source_gone {
                for run in &slot.runs {
                    run.peer.clear_source();
                }
            }
        }
    }
}

/// Writes the records of a run.
fn write<W: Wire>(
    shared: &Shared<W>,
    slot: &OutboundSlot,
    run: &OutboundRun,
    stream: &Stream,
    trains: &[Train],
) {
    let mut dropped = false;
    for train in trains.iter().filter(|train| train.len > 0) {
        let bytes = &slot.memory[train.start as usize..(train.start + train.len) as usize];
        match stream.write(bytes) {
            stream::Written::Waiting if shared.backpressure => shared.hold_back(stream),
            stream::Written::Dropped => dropped = true,
            stream::Written::Sent | stream::Written::Waiting => {}
        }
        shared.outbound.syscalls.add(1);
    }
    if dropped {
        shared.drops.stream_full.add(run.count as u64);
    }
}

/// Bytes that a format adds to a packet, its padding aside.
fn overhead(format: &dyn Format) -> usize {
    format.head() + format.tail(0)
}

fn account<W: Wire>(shared: &Shared<W>, run: &OutboundRun, slot: &OutboundSlot, millis: u64) {
    let packets = &slot.packets[run.first..run.first + run.count];
    let bytes: u64 = packets.iter().map(|p| u64::from(p.len)).sum();
    run.peer
        .tx_bytes
        .add(bytes + (run.count * overhead(&*run.key.format)) as u64);
    shared.outbound.packets.add(run.count as u64);
    shared.outbound.bytes.add(run.bytes);
    run.peer.note_sent(millis, run.bytes > 0);
    if run.peer.arm() {
        shared.control.notify(run.peer.id(), Notice::Active);
    }
    if run.key.should_refresh(slot.now) {
        shared.control.notify(
            run.peer.id(),
            Notice::Refresh {
                index: run.key.session,
            },
        );
    }
}

fn family_of(train: &Train) -> Family {
    match train.endpoint.addr {
        SocketAddr::V4(_) => Family::V4,
        SocketAddr::V6(_) => Family::V6,
    }
}

/// What draining inbound batches needs.
pub(crate) struct InboundDrain {
    coalescer: Coalescer,
    /// The packet that was joined or unpacked last.
    whole: Vec<u8>,
}

impl Default for InboundDrain {
    fn default() -> Self {
        Self {
            coalescer: Coalescer::with_capacity(2 * BATCH_PACKETS),
            whole: Vec::new(),
        }
    }
}

impl InboundDrain {
    pub(crate) fn drain<W: Wire>(&mut self, shared: &Shared<W>, slot: &mut InboundSlot<W>) {
        let joins = Joins {
            tcp: shared.tun.gro.on(),
            udp: shared.tun.uso.on(),
            most: shared.gso_max_segs.min(JOIN_MAX),
        };
        let millis = shared.epoch.millis(slot.now);
        for run in &slot.runs {
            let inner = &slot.inner[run.first..run.first + run.count];
            // Packets that are joined from pieces or unpacked lie elsewhere: all of such a run's are written one by
            // one, to keep their order.
            let singly = run.key.format.splits() || inner.contains(&Inner::Piece);
            if singly {
                self.write(shared, &mut slot.memory);
            }
            self.run(shared, run, slot, (joins, singly), millis);
        }
        self.write(shared, &mut slot.memory);
        shared.inbound.batches.add(1);
    }

    /// Judges the packets of one run and collects what is to be written.
    fn run<W: Wire>(
        &mut self,
        shared: &Shared<W>,
        run: &InboundRun<W>,
        slot: &InboundSlot<W>,
        (joins, singly): (Joins, bool),
        millis: u64,
    ) {
        let (drops, peer) = (&shared.drops, &run.key.peer);
        let (mut heard, mut data, mut bytes, mut inner_bytes) = (0_u64, 0_u64, 0_u64, 0_u64);
        let (mut greatest, mut forged) = (0, 0);
        let range = run.first..run.first + run.count;
        let stays = peer.refuses(run.from, run.stream);
        let hairpin = shared.hairpin.load(Ordering::Relaxed);
        let mut window = run
            .key
            .window
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for (packet, inner) in slot.packets[range.clone()].iter().zip(&slot.inner[range]) {
            if *inner == Inner::NotAuthentic {
                forged += 1;
                continue;
            }
            greatest = packet.counter.max(greatest);
            if stays {
                drops.wrong_address.add(1);
                continue;
            }
            if !window.accept(packet.counter) {
                drops.replayed.add(1);
                continue;
            }
            heard += 1;
            bytes += u64::from(packet.len) + overhead(&*run.key.format) as u64;
            let start = packet.start as usize;
            let payload = &slot.memory[start..start + packet.len as usize];
            match *inner {
                Inner::Packet { len, shape } => {
                    data += 1;
                    inner_bytes += u64::from(len);
                    let whole = &payload[..len as usize];
                    if hairpin && pass_on(shared, whole, peer) {
                        continue;
                    }
                    if singly {
                        write_one(shared, whole);
                    } else {
                        self.coalescer
                            .push(&slot.memory, packet.start, len, shape, joins);
                    }
                }
                Inner::Piece => {
                    data += 1;
                    let whole = &mut self.whole;
                    let joined = run.key.format.join(payload, whole);
                    match joined {
                        Joined::Packet => {}
                        Joined::Unpacked => shared.inbound.unpacked.add(1),
                        Joined::Waits => continue,
                        Joined::Compressed => drops.compressed.add(1),
                        Joined::Malformed => drops.inner_malformed.add(1),
                    }
                    if matches!(joined, Joined::Unpacked | Joined::Compressed)
                        && run.key.should_tell_compression()
                    {
                        let unpacked = joined == Joined::Unpacked;
                        let notice = Notice::Compressed { unpacked };
                        shared.control.notify(peer.id(), notice);
                    }
                    if !matches!(joined, Joined::Packet | Joined::Unpacked) {
                        continue;
                    }
                    run.key.format.adjust(whole);
                    inner_bytes += whole.len() as u64;
                    if !is_owned(shared, whole, peer) {
                        drops.wrong_source.add(1);
                    } else if !(hairpin && pass_on(shared, whole, peer)) {
                        write_one(shared, whole);
                    }
                }
                Inner::Message => shared.control.message(peer.id(), payload),
                Inner::Malformed => {
                    data += 1;
                    drops.inner_malformed.add(1);
                }
                Inner::WrongSource => {
                    data += 1;
                    drops.wrong_source.add(1);
                }
                Inner::Congestion => {
                    data += 1;
                    drops.congestion.add(1);
                }
                Inner::Keepalive | Inner::NotAuthentic => {}
            }
        }
        drop(window);
        drops.not_authentic.add(forged);
        run.key.note_opened(greatest, forged);
        if heard == 0 {
            return;
        }
        if run.stream.is_none() && peer.heard_from(run.from) {
            shared
                .control
                .notify(peer.id(), Notice::Moved { to: run.from.addr });
        }
        peer.rx_bytes.add(bytes);
        shared.inbound.packets.add(data);
        shared.inbound.bytes.add(inner_bytes);
        peer.note_received(millis, data > 0);
        if run.key.confirms() {
            run.key.switch_sending();
            shared.control.notify(
                peer.id(),
                Notice::Confirmed {
                    index: run.key.index,
                },
            );
        }
        if peer.arm() {
            shared.control.notify(peer.id(), Notice::Active);
        }
        if run.key.should_refresh(slot.now) {
            shared.control.notify(
                peer.id(),
                Notice::Refresh {
                    index: run.key.index,
                },
            );
        }
    }

    fn write<W: Wire>(&mut self, shared: &Shared<W>, memory: &mut [u8]) {
        let tun = &shared.tun;
        let (mut writes, mut supers) = (0, 0);
        self.coalescer.drain(memory, |memory, hdr, gather| {
            let hdr_bytes = hdr.emit();
            let mut parts = [IoSlice::new(&[]); JOIN_MAX + 1];
            let mut used = 0;
            if tun.vnet_hdr() {
                parts[0] = IoSlice::new(&hdr_bytes);
                used = 1;
            }
            for range in gather.ranges() {
                parts[used] = IoSlice::new(&memory[range]);
                used += 1;
            }
            writes += 1;
            let joined = hdr.gso != GsoKind::None;
            let rung = if hdr.gso == GsoKind::Udp {
                &tun.uso
            } else {
                &tun.gro
            };
            match tun.write(&parts[..used]) {
                Ok(_) if joined => {
                    supers += 1;
                    rung.accepted();
                }
                Ok(_) => {}
                Err(e) if joined && e.raw_os_error() == Some(EINVAL) => {
                    rung.rejected(format_args!("the kernel refused a super-packet: {e}"));
                    return Written::Refused;
                }
                Err(_) => shared.drops.tun_write.add(u64::from(gather.count)),
            }
            Written::Done
        });
        shared.inbound.syscalls.add(writes);
        shared.inbound.super_packets.add(supers);
    }
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

/// Passes a packet of one peer's on to the other peer that it is for, if it is for one. Returns
/// whether that was so.
fn pass_on<W: Wire>(shared: &Shared<W>, packet: &[u8], from: &Arc<Peer>) -> bool {
    if packet.len() > shared.mtu() {
        // Too long for this tunnel: the kernel fragments it, or tells its sender, as it does with
        // everything that is routed into the interface.
        return false;
    }
    let routes = shared.routes.load();
    let to = IpPacket::parse(packet).and_then(|ip| routes.lookup(ip.dst));
    let Some(to) = to.filter(|to| !Arc::ptr_eq(to, from)) else {
        return false;
    };
    shared.inject(to, packet);
    true
}

/// The same number on every Linux architecture.
const EINVAL: i32 = 22;
