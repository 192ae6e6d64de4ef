//! The work of a data plane, for people.

/// The work of one direction of a tunnel since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PipelineCounts {
    /// Batches drained.
    pub batches: u64,
    /// Inner packets in them.
    pub packets: u64,
    /// Inner bytes.
    pub bytes: u64,
    /// Super-packets read from or written to the TUN.
    pub super_packets: u64,
    /// Inner packets that the peer had compressed.
    pub unpacked: u64,
    /// Reads, writes, sends and receives.
    pub syscalls: u64,
    /// Batches that several workers may have shared.
    pub parallel_batches: u64,
    /// How long packets have waited for this direction lately, on average by bytes, in microseconds; 0 where that is not known.
    pub waited_us: u64,
}

/// The work of a data plane and how it is run. Counters that a data plane does not keep are 0 or absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// From the interface to peers.
    pub outbound: PipelineCounts,
    /// From peers to the interface.
    pub inbound: PipelineCounts,
    /// Packets dropped, by reason, in the order of a packet's way.
    pub drops: Vec<(&'static str, u64)>,
    /// Kernel features by name: `on`, or `off` and why. For several sockets, the state of the one that has fewer
    /// features.
    pub rungs: Vec<(&'static str, String)>,
    /// Threads that move packets; 0 where the kernel does.
    pub workers: usize,
    /// Whether several of them may share one direction.
    pub parallel: bool,
}
