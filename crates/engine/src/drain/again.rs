//! Packets that are sent once more because the peer has asked for them.

use crate::missing::Missing;
use crate::peer::Peer;
use crate::shared::Shared;
use crate::slot::{InboundRun, OutboundSlot};
use crate::ways::Way;
use netio::udp::{Ecn, Family, SendScratch, Train};
use plane::Wire;
use std::net::SocketAddr;

/// Keeps the datagrams of a batch for peers that may ask for them.
pub(super) fn keep(slot: &OutboundSlot) {
    for (run, trains) in slot.trains_of_runs() {
        // What goes through a connection is not lost.
        if run.count == 0 || run.stream.is_some() || !run.peer.lines.repairs() {
            continue;
        }
        let packets = &slot.packets[run.first..run.first + run.count];
        let mut numbers = packets.iter().map(|packet| packet.counter);
        run.key.with_sent(|sent| {
            for train in trains {
                let bytes = &slot.memory[train.start as usize..(train.start + train.len) as usize];
                let datagrams = bytes.chunks(train.segment.max(1) as usize);
                for (number, datagram) in numbers.by_ref().zip(datagrams) {
                    sent.keep(number, datagram);
                }
            }
        });
    }
}

/// What sending once more needs.
#[derive(Default)]
pub(super) struct Again {
    scratch: Option<Box<SendScratch>>,
    memory: Vec<u8>,
    /// Bytes of each datagram in the memory.
    lens: Vec<u32>,
    trains: Vec<Train>,
}

impl Again {
    /// Sends what is missing by all lines that are shared, so that it is hardly lost again.
    pub(super) fn send<W: Wire>(
        &mut self,
        shared: &Shared<W>,
        run: &InboundRun<W>,
        missing: &Missing,
    ) {
        let Some(key) = run.key.answer.as_ref().filter(|key| key.has_sent()) else {
            return;
        };
        self.memory.clear();
        self.lens.clear();
        key.with_sent(|sent| {
            for number in missing.numbers() {
                if let Some(datagram) = sent.again(number) {
                    self.memory.extend_from_slice(datagram);
                    self.lens.push(datagram.len() as u32);
                }
            }
        });
        if self.lens.is_empty() {
            return;
        }
        let peer = &run.key.peer;
        let mut ways = peer.lines.ways_of_messages();
        if ways.is_empty() {
            ways.push(Way {
                line: run.line,
                endpoint: run.from,
            });
        }
        self.scratch.get_or_insert_default().begin_batch();
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
        peer.tx_bytes.add(bytes);
        if let Some(line) = peer.lines.get(way.line) {
            line.counts.note_sent(count, bytes);
        }
    }
}
