//! How the lines of a peer are used.

use crate::{LINES_MAX, LineSet};
use std::time::Duration;

/// The lines over which a peer's packets are sent.
///
/// Lines that the peer does not have are skipped, and so are streams (TCP), which take neither copies nor a share of
/// the packets. If no line is left, a packet goes by the line in use
/// ([`DataPlane::use_line`](crate::DataPlane::use_line)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineMode {
    /// Each packet by the line in use.
    #[default]
    Single,
    /// Each packet by each of these lines: sealed once, so that the copies are equal.
    Duplicate(LineSet),
    /// Critical packets by each of these lines: those marked CS5 and above, small UDP, TCP's SYN and pure
    /// acknowledgements. All others by the line in use.
    Critical(LineSet),
    /// Each inner flow by one line, in proportion to the lines' shares, by line number. A line with share 0 gets no
    /// flow. Shares may have any unit, such as bits a second.
    Balance([u64; LINES_MAX]),
    /// Each packet by one line, in proportion of bytes to the lines' shares. One inner flow fills all lines, and
    /// arrives out of order, so the peer must put packets back into order ([`Reorder`]). [Critical](Self::Critical)
    /// packets go by the line in use.
    BalancePackets([u64; LINES_MAX]),
}

/// How packets are put back into order before they are written.
///
/// A packet waits for missing packets before it while they can still come by one of the lines, within the limits below.
/// Two packets of an inner flow may pass a gap, except TCP data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reorder {
    /// Maximum number of packets that wait, 1 to 2048.
    pub packets: usize,
    /// Maximum bytes of packets that wait.
    pub bytes: usize,
    /// The longest time that a packet waits, up to ten seconds. The wait is 333 ms at most until the lines are seen to
    /// differ by more, and mostly it is shorter.
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
