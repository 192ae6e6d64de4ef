//! Packets that came by several lines, put back into order.
//!
//! A [`Window`] stands where the copies of one peer's packets meet, whichever line they came by: each number is delivered
//! once, in order, and a packet behind a gap waits for as long as what is missing can still come. The gap is given up by
//! the earliest of three rules:
//!
//! 1. Each line that is alive has delivered a number behind the gap, and its *slack* has passed since: the time by which
//!    the line itself is seen to reorder packets (RFC 1990 section 4, for lines that do not keep order). Until that has
//!    been seen, packets are expected to be overtaken by a good deal.
//! 2. The gap is older than packets are late: mean and four mean deviations of how long after the first line the
//!    slowest that is alive delivers (RFC 6298's estimate), or the latest packet of the last half minute. Copies of one
//!    number and the numbers of several lines are compared with each other, so neither clocks nor stamps are needed. If
//!    more than one packet in a thousand comes too late, more deviations are waited for.
//! 3. The gap is older than the cap, or more packets or bytes wait than may.
//!
//! Where the sender keeps what it has sent, a number that all lines have passed can be asked for instead
//! ([`Window::set_repair`]): it is waited for a little longer, and given up if it does not come.
//!
//! The limit of a window is the least number whose fate is open. All below have come or were given up, so one bit a
//! number tells a late packet from a duplicate, for [`REMEMBERED`] numbers back.
//!
//! The window is a replay window as well: it delivers no number twice. Copies must reach it, or it learns less of the
//! lines; so where it is used it stands in the place of another replay window, behind authentication.

mod counters;
mod history;
mod line;
mod overtaking;
#[cfg(test)]
mod properties;
mod repair;
mod restart;
mod settings;
mod store;
#[cfg(test)]
mod tests;
mod trail;
mod window;

pub use counters::{Copies, Counters, PptpCounters};
pub use line::Reordering;
pub use repair::{Learnt, Repairs};
pub use settings::{Jump, Late, Order, Settings, SettingsError};
pub use window::Window;

use plane::LineId;

/// Numbers that a window spans at most, from the one it waits for to the greatest that has come. A power of two, so that
/// places in rings follow one another when numbers of 32 bits wrap.
pub const WINDOW: u64 = 2048;
const _: () = assert!(WINDOW.is_power_of_two());

/// Numbers of which a window knows whether they have come, counted back from the greatest one.
pub const REMEMBERED: u64 = history::REMEMBERED;

/// Facts about a packet for a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Its number, see [`Extender`](crate::number::Extender) for protocols that have 32 bits.
    pub number: u64,
    /// The line that it came by.
    pub line: LineId,
    /// Its size in memory.
    pub bytes: usize,
    /// A hash of its inner flow, where that is known.
    pub flow: Option<u32>,
    /// It is delivered as soon as it comes, in whatever order.
    pub urgent: bool,
}

impl Arrival {
    /// A packet of which no more is known.
    #[must_use]
    pub const fn new(number: u64, line: LineId, bytes: usize) -> Self {
        Self {
            number,
            line,
            bytes,
            flow: None,
            urgent: false,
        }
    }
}

/// The verdict on a packet that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Deliver it: it is in order.
    Deliver,
    /// Deliver it, though numbers in front of it are missing: [`Order::ByFlow`], or it is urgent.
    DeliverPast,
    /// Deliver it, though it comes after its number was given up: [`Late::Deliver`].
    DeliverLate,
    /// It was taken and will be due later.
    Held,
    /// Drop it: its number has come.
    Duplicate,
    /// Drop it: its number was given up: [`Late::Drop`].
    Late,
    /// Drop it: whether its number has come is forgotten.
    Ancient,
    /// Drop it: its number is too far ahead ([`Jump::Agreed`]), or what is due is not fetched.
    Ignored,
}

impl Verdict {
    /// Whether the packet is to be delivered now.
    #[must_use]
    pub const fn deliver(self) -> bool {
        matches!(self, Self::Deliver | Self::DeliverPast | Self::DeliverLate)
    }
}
