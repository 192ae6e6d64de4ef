//! The data plane's part of the document, for every protocol.

use plane::{PipelineCounts, Statistics};

use super::{DataplaneStatus, PipelineStatus};

/// Counters of the data plane. The protocol fills in the ciphers.
pub fn dataplane(statistics: Statistics) -> DataplaneStatus {
    let rungs = statistics.rungs.into_iter();
    let drops = statistics.drops.into_iter();
    DataplaneStatus {
        accelerators: Some(crypto::accelerator::BUILT),
        rungs: rungs.map(|(k, v)| (k.to_owned(), v)).collect(),
        outbound: pipeline(&statistics.outbound),
        inbound: pipeline(&statistics.inbound),
        drops: drops.map(|(k, v)| (k.to_owned(), v)).collect(),
        ..DataplaneStatus::default()
    }
}

fn pipeline(counts: &PipelineCounts) -> PipelineStatus {
    PipelineStatus {
        batches: counts.batches,
        packets: counts.packets,
        packets_per_batch: if counts.batches == 0 {
            0.0
        } else {
            counts.packets as f64 / counts.batches as f64
        },
        bytes: counts.bytes,
        super_packets: counts.super_packets,
        syscalls: counts.syscalls,
        parallel_batches: counts.parallel_batches,
        waited_us: counts.waited_us,
        unpacked: counts.unpacked,
        ..PipelineStatus::default()
    }
}
