//! How a window is to behave.

use super::WINDOW;
use std::time::Duration;
use thiserror::Error;

/// The treatment of a packet whose number was given up before it came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Late {
    /// It is delivered, out of order: for WireGuard and OpenVPN, where each packet can be opened by itself.
    #[default]
    Deliver,
    /// It is dropped: for MPPE in stateful mode, which can open packets in order only.
    Drop,
}

/// Which packets wait for a gap in front of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// All: delivered is what came, in the order of the numbers.
    Strict,
    /// Packets of an inner flow of which a packet waits already, or of which two have gone past the gap.
    ///
    /// The promise: no packet that has come is overtaken by a later one of its flow; a packet that is still missing is
    /// overtaken by at most two of its flow, and for no longer than its number is waited for. That is fewer than make
    /// TCP believe in a loss (RFC 5681), so a flow with a packet each 20 ms passes gaps of 40 ms as if there were none,
    /// and a bulk transfer waits as it must. Only packets with a known flow pass. An urgent packet waits for nothing,
    /// and holds nothing up.
    #[default]
    ByFlow,
}

/// The meaning of a number far ahead of all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Jump {
    /// The numbers between are lost: for protocols whose packets are authentic and whose numbers begin anew with each
    /// key only (WireGuard, OpenVPN), with one window a key.
    #[default]
    Trusted,
    /// Nothing, until three packets in a row on one line agree: for GRE, where anybody can send a number and a peer that
    /// begins anew starts from 0.
    Agreed,
}

/// The settings of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Most packets that wait, at most [`WINDOW`].
    pub packets_max: usize,
    /// Most bytes of packets that wait. One packet may wait whatever its size.
    pub bytes_max: usize,
    /// Least time that a gap is waited for when no rule says that its packets cannot come any more.
    pub floor: Duration,
    /// Most time that a gap is waited for. It grows by itself to one and a half times the difference between lines.
    pub cap: Duration,
    /// How far the cap may grow.
    pub cap_max: Duration,
    /// How many mean deviations a packet may be late, doubled: 8 is four, as in RFC 6298.
    pub deviations_doubled: u8,
    /// Whether a gap ends when all lines have delivered numbers behind it (RFC 1990 section 4).
    pub line_rule: bool,
    /// The treatment of late packets.
    pub late: Late,
    /// Which packets wait.
    pub order: Order,
    /// The meaning of numbers far ahead.
    pub jump: Jump,
}

impl Default for Settings {
    /// 2048 packets or 4 MiB, and 333 ms, as the PPTP sequence window for OpenWrt kernels has; up to a second.
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

/// Settings that make no sense. It is the fault of who wrote them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SettingsError {
    /// No packet may wait, or more than the window has places for.
    #[error("the window holds 1 to {WINDOW} packets, not {0}")]
    Packets(usize),
    /// The times are not in ascending order, or longer than ten seconds.
    #[error("floor, cap and greatest cap must ascend, up to ten seconds")]
    Times,
}

impl Settings {
    /// Checks the settings.
    ///
    /// # Errors
    ///
    /// [`SettingsError`] says what makes no sense.
    pub fn check(&self) -> Result<(), SettingsError> {
        if !(1..=WINDOW as usize).contains(&self.packets_max) {
            return Err(SettingsError::Packets(self.packets_max));
        }
        let ascending = self.floor <= self.cap && self.cap <= self.cap_max;
        if !ascending || self.cap_max > Duration::from_secs(10) {
            return Err(SettingsError::Times);
        }
        Ok(())
    }
}
