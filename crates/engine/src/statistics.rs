//! Statistics of a tunnel, as control asks for them.

use crate::stats::PipelineStats;
use crate::tunnel::Tunnel;
use netio::rung::Rung;
use plane::{PipelineCounts, Statistics, Wire};

impl<W: Wire> Tunnel<W> {
    /// Statistics since the start.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        Statistics {
            outbound: counts(self.outbound()),
            inbound: counts(self.inbound()),
            drops: self.drops().iter().collect(),
            rungs: self.rungs(),
            workers: self.workers(),
            parallel: self.is_parallel(),
        }
    }

    fn rungs(&self) -> Vec<(&'static str, String)> {
        let tun = self.tun();
        let read = [&tun.tso, &tun.uso].map(|rung| match rung.on() && tun.gives_singly() {
            true => (
                rung.name(),
                "off (packets wait one by one for an uplink)".to_owned(),
            ),
            false => (rung.name(), rung.to_string()),
        });
        let mut rungs = Vec::from(read);
        rungs.push((tun.gro.name(), tun.gro.to_string()));
        let coalescing = &self.shared().coalescing;
        rungs.push((coalescing.name(), coalescing.to_string()));
        let lines = self.shared().lines.load();
        let mut note = |rung: &Rung| match rungs.iter_mut().find(|(name, _)| *name == rung.name()) {
            // All sockets try the same rungs; the one that got less far is reported.
            Some((_, state)) if state == "on" => *state = rung.to_string(),
            Some(_) => {}
            None => rungs.push((rung.name(), rung.to_string())),
        };
        for socket in lines.iter() {
            for rung in [&socket.gso, &socket.gro, &socket.mmsg, &socket.aqm] {
                note(rung);
            }
        }
        rungs
    }
}

fn counts(stats: &PipelineStats) -> PipelineCounts {
    PipelineCounts {
        batches: stats.batches.value(),
        packets: stats.packets.value(),
        bytes: stats.bytes.value(),
        super_packets: stats.super_packets.value(),
        unpacked: stats.unpacked.value(),
        syscalls: stats.syscalls.value(),
        parallel_batches: stats.parallel_batches.value(),
        waited_us: stats.waited.value(),
    }
}
