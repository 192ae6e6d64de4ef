//! Drain: sends or writes a batch when its turn has come. One worker at a time, in order.
//!
//! Outbound: send the trains. Inbound: replay window, roaming, counters, reorder window, then join and write.

mod again;
mod inbound;

pub(crate) use inbound::InboundDrain;

use crate::shared::Shared;
use crate::slot::{OutboundRun, OutboundSlot};
use crate::stream::{Stream, Written};
use netio::udp::{Family, SendScratch, Train};
use plane::{Format, LINES_MAX, LineId, Notice, Wire};
use std::net::SocketAddr;

/// State for draining outbound batches.
#[derive(Default)]
pub(crate) struct OutboundDrain {
    scratch: SendScratch,
    /// The trains of each line, for a batch that leaves over several lines.
    by_line: [Vec<Train>; LINES_MAX],
}

impl OutboundDrain {
    pub(crate) fn drain<W: Wire>(&mut self, shared: &Shared<W>, slot: &mut OutboundSlot) {
        // Kept before sending: the peer may ask another worker for a packet before the sending call returns.
        if slot.runs.iter().any(|run| run.peer.lines.repairs()) {
            again::keep(shared, slot);
        }
        self.scratch.begin_batch();
        let one = slot.runs.first().map_or(LineId::FIRST, |run| run.line);
        let plain =
            |run: &OutboundRun| run.stream.is_none() && run.line == one && run.copies.is_empty();
        if slot.runs.iter().all(plain) {
            self.send(shared, slot, one, &slot.trains);
        } else {
            self.spread(shared, slot);
        }
        let millis = shared.epoch.millis(slot.now);
        for run in slot.runs.iter().filter(|r| r.count > 0) {
            account::<W>(shared, run, slot, millis);
        }
        shared.outbound.batches.add(1);
    }

    /// Sends each run over its own paths: all trains of one line together, in the order of their numbers.
    fn spread<W: Wire>(&mut self, shared: &Shared<W>, slot: &OutboundSlot) {
        let mut by_line = std::mem::take(&mut self.by_line);
        for (run, trains) in slot.trains_of_runs() {
            if let Some(stream) = &run.stream {
                write(shared, slot, run, stream, trains);
                continue;
            }
            if let Some(line) = by_line.get_mut(run.line.index()) {
                line.extend_from_slice(trains);
            }
            for way in &slot.copies[run.copies.clone()] {
                let copies = trains.iter().map(|train| Train {
                    endpoint: way.endpoint,
                    ..*train
                });
                if let Some(line) = by_line.get_mut(way.line.index()) {
                    line.extend(copies);
                }
            }
        }
        for (line, trains) in (0..).map(LineId).zip(&mut by_line) {
            self.send(shared, slot, line, trains);
            trains.clear();
        }
        self.by_line = by_line;
    }

    /// Sends trains over one line.
    fn send<W: Wire>(
        &mut self,
        shared: &Shared<W>,
        slot: &OutboundSlot,
        line: LineId,
        mut trains: &[Train],
    ) {
        let lines = shared.lines.load();
        while let Some(first) = trains.first() {
            // One call sends all trains of one address family; most batches have only one.
            let family = family_of(first);
            let same = trains.iter().take_while(|t| family_of(t) == family).count();
            let (now, later) = trains.split_at(same);
            trains = later;
            let Some(socket) = lines.socket(line, family) else {
                shared
                    .drops
                    .send_failed
                    .add(now.iter().map(|t| u64::from(t.count())).sum());
                continue;
            };
            let report = socket.send_trains(&mut self.scratch, &slot.memory, now);
            shared.outbound.syscalls.add(report.syscalls);
            shared.drops.send_failed.add(report.dropped);
            let bytes = now.iter().map(|train| u64::from(train.len)).sum();
            shared.carried.datagrams(line, family, report.sent, bytes);
            if shared.wire.prefix() > 0
                && report.too_long()
                && let Some(run) = slot.runs.iter().find(|run| run.line == line)
            {
                shared.control.notify(run.peer.id(), Notice::TooLong);
            }
            if report.source_gone {
                let copies = |run: &OutboundRun| {
                    let mut copies = slot.copies[run.copies.clone()].iter();
                    copies.any(|way| way.line == line)
                };
                let by_it = |run: &&OutboundRun| run.line == line || copies(run);
                for run in slot.runs.iter().filter(by_it) {
                    if let Some(line) = run.peer.lines.get(line) {
                        line.clear_source();
                    }
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
        dropped |= shared.write(stream, bytes) == Written::Dropped;
        shared.outbound.syscalls.add(1);
    }
    if dropped {
        shared.drops.stream_full.add(run.count as u64);
    }
}

/// Bytes that a format adds to a packet, without padding.
fn overhead(format: &dyn Format) -> usize {
    format.head() + format.tail(0)
}

fn account<W: Wire>(shared: &Shared<W>, run: &OutboundRun, slot: &OutboundSlot, millis: u64) {
    let packets = &slot.packets[run.first..run.first + run.count];
    let bytes: u64 = packets.iter().map(|p| u64::from(p.len)).sum();
    let bytes = bytes + (run.count * overhead(&*run.key.format)) as u64;
    if run.bytes == 0 {
        run.peer.message_bytes.add(bytes);
    }
    run.peer.tx_bytes.add(bytes);
    let copies = slot.copies[run.copies.clone()].iter().map(|way| way.line);
    for line in copies.chain([run.line]) {
        if let Some(line) = run.peer.lines.get(line) {
            line.counts.note_sent(run.count as u64, bytes);
        }
    }
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
