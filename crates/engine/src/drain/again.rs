//! Sends packets again that the peer asked for.

use crate::peer::Peer;
use crate::sent::Missing;
use crate::shared::Shared;
use crate::slot::{InboundRun, OutboundSlot};
use crate::ways::Way;
use netio::udp::{Ecn, Family, SendScratch, Train};
use plane::Wire;
use std::net::SocketAddr;

/// Keeps the datagrams of a batch for peers that may request them again.
pub(super) fn keep<W: Wire>(shared: &Shared<W>, slot: &OutboundSlot) {
    for (run, trains) in slot.trains_of_runs() {
        // A TCP connection loses no packets.
        if run.count == 0 || run.stream.is_some() || !run.peer.lines.repairs() {
            continue;
        }
        let mut sent = run.peer.lines.sent();
        sent.begin(&run.key, &shared.kept_bytes);
        let packets = &slot.packets[run.first..run.first + run.count];
        let datagrams = trains.iter().flat_map(|train| {
            let bytes = &slot.memory[train.start as usize..(train.start + train.len) as usize];
            bytes.chunks(train.segment.max(1) as usize)
        });
        for (datagram, packet) in datagrams.zip(packets) {
            sent.keep(packet.counter, datagram);
        }
    }
}

/// State for sending packets again.
#[derive(Default)]
pub(super) struct Again {
    scratch: Option<Box<SendScratch>>,
    memory: Vec<u8>,
    /// Length of each datagram in `memory`.
    lens: Vec<u32>,
    trains: Vec<Train>,
}

impl Again {
    /// Sends missing packets over all lines, so that they are hardly lost again; the first time only over lines with a
    /// large share.
    pub(super) fn send<W: Wire>(
        &mut self,
        shared: &Shared<W>,
        run: &InboundRun<W>,
        missing: &Missing,
    ) {
        let peer = &run.key.peer;
        // Numbers refer to one key, so a request for another key's packets is ignored.
        let Some(key) = &run.key.answer else { return };
        self.memory.clear();
        self.lens.clear();
        let mut often = 0;
        {
            let mut sent = peer.lines.sent();
            if !sent.is_of(key) {
                return;
            }
            for number in missing.numbers() {
                if let Some((datagram, before)) = sent.again(number) {
                    self.memory.extend_from_slice(datagram);
                    self.lens.push(datagram.len() as u32);
                    often = often.max(before);
                }
            }
        }
        if self.lens.is_empty() {
            return;
        }
        let asked_by = Way {
            line: run.line,
            endpoint: run.from,
        };
        let mut ways = match often {
            0 => peer.lines.large_ways(),
            _ => peer.lines.ways_of_messages(),
        };
        if ways.is_empty() {
            ways.push(asked_by);
        }
        self.scratch.get_or_insert_default().begin_batch();
        peer.tx_bytes.add(self.memory.len() as u64);
        for way in ways {
            self.send_by(shared, peer, way);
        }
    }

    fn send_by<W: Wire>(&mut self, shared: &Shared<W>, peer: &Peer, way: Way) {
        let mut start = 0;
        self.trains.clear();
        for len in &self.lens {
            self.trains.push(Train {
                start,
                len: *len,
                segment: *len,
                endpoint: way.endpoint,
                ecn: Ecn::NotEct,
            });
            start += len;
        }
        let family = match way.endpoint.addr {
            SocketAddr::V4(_) => Family::V4,
            SocketAddr::V6(_) => Family::V6,
        };
        let lines = shared.lines.load();
        let Some(socket) = lines.socket(way.line, family) else {
            return;
        };
        let scratch = self.scratch.get_or_insert_default();
        let report = socket.send_trains(scratch, &self.memory, &self.trains);
        shared.outbound.syscalls.add(report.syscalls);
        shared.drops.send_failed.add(report.dropped);
        let (count, bytes) = (self.lens.len() as u64, self.memory.len() as u64);
        shared
            .carried
            .datagrams(way.line, family, report.sent, bytes);
        if let Some(line) = peer.lines.get(way.line) {
            line.counts.note_sent(count, bytes);
        }
    }
}
