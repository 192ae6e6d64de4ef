//! The tests of a bench.

named! {
    /// A test: one measurement. They run in this order: memory last, after all loads.
    Test {
        Setup = "setup",
        Ping = "ping",
        Tcp1 = "tcp1",
        Tcp1Back = "tcp1-back",
        Tcp4 = "tcp4",
        Tcp4Both = "tcp4-both",
        Udp1300 = "udp1300",
        Udp64 = "udp64",
        PingLoaded = "ping-load",
        Http = "http",
        Memory = "memory",
    }
}

impl Test {
    /// Estimated seconds per implementation when a load runs for `seconds`.
    pub(super) fn duration(self, seconds: u32) -> f64 {
        let seconds = f64::from(seconds);
        match self {
            Self::Setup => 0.5,
            Self::Memory => 0.0,
            Self::Ping => seconds * 0.1,
            // The number of requests is fixed, so the time depends on the speed.
            Self::Http => 10.0,
            // Eight rates and one more, some of them measured twice.
            Self::Udp1300 | Self::Udp64 => 15.0 * (seconds / 6.0 + 0.2),
            _ => seconds + 0.3,
        }
    }
}

/// A figure that a test produces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Metric {
    /// Mbit/s of payload that arrived, all streams together.
    Rate,
    /// Kilobytes (1024 bytes) of files per second, as `ab` counts them.
    Kbytes,
    /// Files per second.
    Requests,
    /// Thousand datagrams per second that arrived.
    Packets,
    /// Processor seconds of the sending end's tunnel process per gigabyte (1e9 bytes) of payload.
    CpuSend,
    /// Processor time of the receiving end.
    CpuReceive,
    /// Mean round trip time, in microseconds.
    Mean,
    /// Round trip time that 99 % do not exceed, in microseconds.
    P99,
    /// Fraction of packets lost, in percent.
    Loss,
    /// Milliseconds from the configuration of the connecting end to the first answer.
    SetUp,
    /// Memory in RAM of the larger end, in MB (1e6 bytes).
    Rss,
    /// Peak memory in RAM of the larger end, in MB.
    RssPeak,
    /// Processors of the whole machine that were busy on average.
    Busy,
    /// Processors that the hypervisor gave to other machines on average.
    Stolen,
}

impl Metric {
    /// The metric's name in documents, with the unit.
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Rate => "mbit_per_s",
            Self::Kbytes => "kbyte_per_s",
            Self::Requests => "requests_per_s",
            Self::Packets => "kilopackets_per_s",
            Self::CpuSend => "cpu_send_s_per_gb",
            Self::CpuReceive => "cpu_receive_s_per_gb",
            Self::Mean => "mean_us",
            Self::P99 => "p99_us",
            Self::Loss => "loss_percent",
            Self::SetUp => "setup_ms",
            Self::Rss => "rss_mb",
            Self::RssPeak => "rss_peak_mb",
            Self::Busy => "busy_processors",
            Self::Stolen => "stolen_processors",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_different_and_found() {
        for one in Test::ALL {
            assert_eq!(Test::named(one.name()), Some(one));
        }
        assert_eq!(Test::named("tcp2"), None);
    }
}
