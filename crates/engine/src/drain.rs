//! Drain: what happens to a batch when its turn has come. One worker at a time, in order.
//!
//! Outbound: send the trains. Inbound: replay window, roaming, counters, then join and write.

use crate::control::Notice;
use crate::gro::{Coalescer, JOIN_MAX, Joins, Written};
use crate::shared::Shared;
use crate::slot::{BATCH_PACKETS, InboundRun, InboundSlot, Inner, OutboundRun, OutboundSlot};
use crate::wire::{Window, Wire};
use netio::udp::{Family, SendScratch, Train};
use netio::vnet::GsoKind;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::sync::PoisonError;

/// What draining outbound batches needs.
#[derive(Default)]
pub(crate) struct OutboundDrain {
    scratch: SendScratch,
}

impl OutboundDrain {
    pub(crate) fn drain<W: Wire>(&mut self, shared: &Shared<W>, slot: &mut OutboundSlot) {
        let stats = &shared.outbound;
        let sockets = shared.sockets.load();
        let mut trains = slot.trains.as_slice();
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
            stats.syscalls.add(report.syscalls);
            shared.drops.send_failed.add(report.dropped);
            if report.source_gone {
                for run in &slot.runs {
                    run.peer.clear_source();
                }
            }
        }
        let millis = shared.epoch.millis(slot.now);
        for run in slot.runs.iter().filter(|r| r.count > 0) {
            account::<W>(shared, run, slot, millis);
        }
        stats.batches.add(1);
    }
}

fn account<W: Wire>(shared: &Shared<W>, run: &OutboundRun, slot: &OutboundSlot, millis: u64) {
    let packets = &slot.packets[run.first..run.first + run.count];
    let bytes: u64 = packets.iter().map(|p| u64::from(p.len)).sum();
    run.peer
        .tx_bytes
        .add(bytes + (run.count * (W::HEADER + W::TAG)) as u64);
    shared.outbound.packets.add(run.count as u64);
    shared.outbound.bytes.add(run.bytes);
    run.peer.note_sent(millis, true);
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
}

impl Default for InboundDrain {
    fn default() -> Self {
        Self {
            coalescer: Coalescer::with_capacity(2 * BATCH_PACKETS),
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
            self.run(shared, run, slot, joins, millis);
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
        joins: Joins,
        millis: u64,
    ) {
        let (drops, peer) = (&shared.drops, &run.key.peer);
        let (mut heard, mut data, mut bytes, mut inner_bytes) = (0_u64, 0_u64, 0_u64, 0_u64);
        let range = run.first..run.first + run.count;
        let mut window = run
            .key
            .window
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for (packet, inner) in slot.packets[range.clone()].iter().zip(&slot.inner[range]) {
            if *inner == Inner::NotAuthentic {
                drops.not_authentic.add(1);
                continue;
            }
            if !window.accept(packet.counter) {
                drops.replayed.add(1);
                continue;
            }
            heard += 1;
            bytes += u64::from(packet.len) + (W::HEADER + W::TAG) as u64;
            match *inner {
                Inner::Packet { len, shape } => {
                    data += 1;
                    inner_bytes += u64::from(len);
                    self.coalescer
                        .push(&slot.memory, packet.start, len, shape, joins);
                }
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
        if heard == 0 {
            return;
        }
        peer.roam(run.from);
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

/// The same number on every Linux architecture.
const EINVAL: i32 = 22;
