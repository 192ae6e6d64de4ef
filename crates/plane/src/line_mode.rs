//! How the lines of a peer are used.

use crate::{LINES_MAX, LineSet};
use std::time::Duration;

/// Over which of its lines a peer's packets are sent.
///
/// Lines that the peer does not have, and those with a stream (TCP), which take neither copies nor a part of the packets,
/// are passed over. Where none is left a packet goes by the line in use
/// ([`DataPlane::use_line`](crate::DataPlane::use_line)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineMode {
    /// Each packet by the line in use.
    #[default]
    Single,
    /// Each packet by each of these lines: sealed once, so that the copies are equal.
    Duplicate(LineSet),
    /// Packets whose loss hurts more than their size says by each of these lines: those marked CS5 and above, small UDP,
    /// TCP's SYN and pure acknowledgements. All others by the line in use.
    Critical(LineSet),
    /// Each inner flow by one line: as many to a line as its share of the sum, by number. A line of share 0 gets none. The
    /// unit is of no account: bits a second, or anything.
    Balance([u64; LINES_MAX]),
    /// Each packet by one line: of the bytes, as large a part as its share of the sum. One inner flow fills all lines,
    /// and arrives out of order, so the peer must put packets back into order ([`Reorder`]). What is
    /// [critical](Self::Critical) goes by the line in use.
    BalancePackets([u64; LINES_MAX]),
}

/// How packets are put back into order before they are written.
///
/// A packet waits for those in front of it for as long as they can still come by one of the lines, and no longer than is
/// said here. Two of an inner flow may go past a gap, but for TCP's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reorder {
    /// Most packets that wait, 1 to 2048.
    pub packets: usize,
    /// Most bytes of packets that wait.
    pub bytes: usize,
    /// The longest time that a packet waits, up to ten seconds. It is 333 ms at most until the lines are seen to differ by
    /// more, and mostly it is less.
    pub longest: Duration,
}

impl Default for Reorder {
    /// 2048 packets and 4 MiB, as the PPTP sequence window for OpenWrt kernels has, and one second.
    fn default() -> Self {
        Self {
            packets: 2048,
            bytes: 4 << 20,
            longest: Duration::from_secs(1),
        }
    }
}
