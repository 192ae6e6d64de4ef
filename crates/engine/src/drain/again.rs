//! Packets that are sent once more because the peer has asked for them.

use crate::missing::Missing;
use crate::shared::Shared;
use crate::slot::{InboundRun, OutboundSlot};
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
    trains: Vec<Train>,
}

impl Again {
    /// Sends what is missing to where the request for it came from, by the same line.
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
        self.trains.clear();
        key.with_sent(|sent| {
            for number in missing.numbers() {
                if let Some(datagram) = sent.again(number) {
                    let (start, len) = (self.memory.len() as u32, datagram.len() as u32);
                    self.memory.extend_from_slice(datagram);
                    self.trains.push(Train {
                        start,
                        len,
                        segment: len,
                        endpoint: run.from,
                        ecn: Ecn::NotEct,
                    });
                }
            }
        });
        let family = match run.from.addr {
            SocketAddr::V4(_) => Family::V4,
            SocketAddr::V6(_) => Family::V6,
        };
        let count = self.trains.len() as u64;
        let lines = shared.lines.load();
        let Some(socket) = lines.socket(run.line, family).filter(|_| count > 0) else {
            return;
        };
        let scratch = self.scratch.get_or_insert_default();
        scratch.begin_batch();
        let report = socket.send_trains(scratch, &self.memory, &self.trains);
        shared.outbound.syscalls.add(report.syscalls);
        shared.drops.send_failed.add(report.dropped);
        let bytes = self.memory.len() as u64;
        run.key.peer.tx_bytes.add(bytes);
        if let Some(line) = run.key.peer.lines.get(run.line) {
            line.counts.note_sent(count, bytes);
        }
    }
}
