//! The settings of a window.

use super::WINDOW;
use std::time::Duration;

/// The treatment of a packet whose number was given up before it came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Late {
    /// The packet is delivered, out of order: for WireGuard and OpenVPN, where each packet can be opened by itself.
    #[default]
    Deliver,
    /// The packet is dropped: for MPPE in stateful mode, which can open packets only in order.
    Drop,
}

/// The packets that wait for a gap in front of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// All packets wait: the window delivers in the order of the numbers.
    Strict,
    /// Packets wait if one of their inner flow waits already, or two of their flow have passed the gap.
    ///
    /// The promise: no packet that has come is overtaken by a later one of its flow. A missing packet is overtaken by
    /// at most two of its flow, and only while its number is waited for. That is too few to make TCP assume a loss (RFC
    /// 5681). So a flow with a packet each 20 ms passes gaps of 40 ms as if there were none, while a bulk transfer
    /// waits. Only packets with a known flow pass. An urgent packet neither waits nor holds anything up.
    #[default]
    ByFlow,
}

/// The meaning of a number far ahead of all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Jump {
    /// The numbers between count as lost: for protocols whose packets are authentic and whose numbers begin again only
    /// with each key (WireGuard, OpenVPN), with one window a key.
    #[default]
    Trusted,
    /// The jump is ignored until three packets in a row on one line agree: for GRE, where anybody can send a number and
    /// a peer that restarts begins with 0.
    Agreed,
}

/// The settings of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Maximum number of packets that wait, at most [`WINDOW`].
    pub packets_max: usize,
    /// Maximum bytes of packets that wait. One packet may wait whatever its size.
    pub bytes_max: usize,
    /// Minimum time that a gap is waited for while no rule says that its packets cannot come any more. At most `cap`.
    pub floor: Duration,
    /// Maximum time that a gap is waited for. It grows by itself to one and a half times the difference between lines.
    pub cap: Duration,
    /// The limit to which the cap may grow, at least `cap` and at most ten seconds.
    pub cap_max: Duration,
    /// The mean deviations by which a packet may be late, doubled: 8 means four, as in RFC 6298.
    pub deviations_doubled: u8,
    /// Whether the window gives up a gap when all lines have delivered numbers behind it (RFC 1990 section 4).
    pub line_rule: bool,
    /// The treatment of late packets.
    pub late: Late,
    /// The packets that wait.
    pub order: Order,
    /// The meaning of numbers far ahead.
    pub jump: Jump,
}

impl Default for Settings {
    /// 2048 packets or 4 MiB, and 333 ms, as the PPTP sequence window for OpenWrt kernels has; the cap may grow to a
    /// second.
    fn default() -> Self {
        Self {
            packets_max: WINDOW as usize,
            bytes_max: 4 << 20,
            floor: Duration::from_millis(2),
            cap: Duration::from_millis(333),
            cap_max: Duration::from_secs(1),
            deviations_doubled: 8,
            line_rule: true,
            late: Late::Deliver,
            order: Order::ByFlow,
            jump: Jump::Trusted,
        }
    }
}
