//! Finds what limits the speed, from two documents of one daemon.

use super::{DataplaneStatus, PipelineStatus};

/// Packets a second below which nothing is reported: nothing limits an idle uplink.
const WORTH_A_WORD: u64 = 1000;

/// Says what limits the speed, from the counters of two documents that are `elapsed_ms` apart.
pub(super) fn limits(now: &DataplaneStatus, before: &DataplaneStatus, elapsed_ms: u64) -> String {
    let moved = |now: &PipelineStatus, before: &PipelineStatus| {
        Some((
            now.packets.checked_sub(before.packets)?,
            now.batches.checked_sub(before.batches)?,
            now.syscalls.checked_sub(before.syscalls)?,
        ))
    };
    let pipelines = [
        moved(&now.outbound, &before.outbound),
        moved(&now.inbound, &before.inbound),
    ];
    let Some((packets, batches, syscalls)) = pipelines.into_iter().flatten().max() else {
        return String::new();
    };
    if packets * 1000 < WORTH_A_WORD * elapsed_ms {
        return String::new();
    }
    let each = config::decimal(packets, batches, 1);
    // Nearly one system call for each packet: the kernel is the cost, not the cipher.
    let mut words = if syscalls * 2 > packets {
        format!("batches are small ({each} packets): system calls cost more than the cipher")
    } else {
        format!(
            "batches are well filled ({each} packets): the cipher and the kernel's copying cost most"
        )
    };
    for (name, state) in now.rungs.iter().filter(|(_, state)| *state != "on") {
        // A choice, not something that this data plane lacks.
        #[cfg(feature = "kernel")]
        if name == kernelspace::RUNG {
            continue;
        }
        words.push_str(&format!("; {name} is {state}"));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plane(packets: u64, batches: u64, syscalls: u64) -> DataplaneStatus {
        DataplaneStatus {
            outbound: PipelineStatus {
                packets,
                batches,
                syscalls,
                ..PipelineStatus::default()
            },
            ..DataplaneStatus::default()
        }
    }

    #[test]
    fn only_what_is_between_two_samples_counts() {
        // Full batches for hours, then single packets.
        let before = plane(9_000_000, 100_000, 200_000);
        let now = plane(9_002_000, 102_000, 204_000);
        assert!(limits(&now, &before, 1000).starts_with("batches are small (1.0 packets)"));
        let now = plane(9_090_000, 101_000, 202_000);
        assert!(limits(&now, &before, 1000).starts_with("batches are well filled (90.0 packets)"));
    }

    #[test]
    fn nothing_is_said_of_little_traffic_or_of_another_daemon() {
        let before = plane(5000, 100, 200);
        assert_eq!(limits(&plane(5010, 105, 210), &before, 1000), "");
        assert_eq!(limits(&plane(4000, 10, 20), &before, 1000), "");
    }
}
