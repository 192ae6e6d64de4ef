//! Puts packets that came over several lines back into order.
//!
//! A [`Window`] stands where the copies of one peer's packets meet, whichever line they came over. It delivers each
//! number once, in order, and a packet behind a gap waits for as long as the missing packets can still come. The window
//! gives up a gap by the earliest of three rules:
//!
//! 1. Each line that is alive has delivered a number behind the gap, and its *slack* has passed since: the time by
//!    which the line itself was seen to reorder packets (RFC 1990 section 4, for lines that do not keep order). Until
//!    that is known, the slack is large.
//! 2. The gap is older than packets are late. Lateness is how long after the first line the slowest line that is alive
//!    delivers. The limit is its mean and four mean deviations (RFC 6298's estimate), or the latest packet of the last
//!    half minute. Copies of one number and the numbers of several lines are compared with each other, so neither
//!    clocks nor stamps are needed. If more than one packet in a thousand comes too late, the window waits for more
//!    deviations.
//! 3. The gap is older than the cap, or more packets or bytes wait than allowed.
//!
//! Where the sender keeps sent packets, the window can request a number that all lines have passed
//! ([`Window::set_repair`]). It then waits a little longer, and gives up the number if it does not come.
//!
//! The limit of a window is the least number that has neither come nor been given up. Below it, one bit a number tells
//! a late packet from a duplicate, for [`REMEMBERED`] numbers back.
//!
//! The window is a replay window as well: it delivers no number twice. Copies must reach it, or it learns less about
//! the lines. So it replaces any other replay window, behind authentication.
//!
//! [`Extender`] extends numbers of 32 bits to 64, so that the window need not handle wrapping.

use plane::LineId;

mod history;
mod line;
#[cfg(test)]
mod properties;
mod repair;
mod settings;
mod store;
#[cfg(test)]
mod tests;
mod trail;
mod window;

pub use line::{Copies, Reordering};
pub use repair::{Learnt, Repairs};
pub use settings::{Jump, Late, Order, Settings};
pub use window::{Counters, Window};

/// Maximum span of a window's numbers, from the one it waits for to the greatest that has come. A power of two, so that
/// places in rings stay consecutive when numbers of 32 bits wrap.
pub const WINDOW: u64 = 2048;
const _: () = assert!(WINDOW.is_power_of_two());

/// Numbers of which a window knows whether they have come, counted back from the greatest one.
pub const REMEMBERED: u64 = history::REMEMBERED;

/// The facts about a packet that a window needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The packet's number; see [`Extender`] for protocols that have 32 bits.
    pub number: u64,
    /// The line that the packet came over.
    pub line: LineId,
    /// The packet's size in memory.
    pub bytes: usize,
    /// A hash of the packet's inner flow, if known.
    pub flow: Option<u32>,
    /// Whether the packet is delivered as soon as it comes, in any order.
    pub urgent: bool,
}

impl Arrival {
    /// A packet of which only number, line and size are known.
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
    /// Deliver the packet: it is in order.
    Deliver,
    /// Deliver the packet, though numbers in front of it are missing: [`Order::ByFlow`], or it is urgent.
    DeliverPast,
    /// Deliver the packet, though it came after its number was given up: [`Late::Deliver`].
    DeliverLate,
    /// The window has taken the packet, and makes it due later.
    Held,
    /// Drop the packet: its number has already come.
    Duplicate,
    /// Drop the packet: its number was given up: [`Late::Drop`].
    Late,
    /// Drop the packet: its number is too old to know whether it has come.
    Ancient,
    /// Drop the packet: its number is too far ahead ([`Jump::Agreed`]), or the caller does not fetch due packets.
    Ignored,
}

impl Verdict {
    /// Whether the packet is to be delivered now.
    #[must_use]
    pub const fn deliver(self) -> bool {
        matches!(self, Self::Deliver | Self::DeliverPast | Self::DeliverLate)
    }
}

/// Extends numbers of 32 bits to 64 by the greatest accepted one.
///
/// A number is extended to the value nearest to the greatest so far, as in RFC 4303 appendix A2: at most 2^31 - 1 in
/// front of it, at most 2^31 behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extender {
    greatest: Option<u64>,
}

impl Extender {
    /// Makes an extender that has seen nothing. The first number is used as it is.
    #[must_use]
    pub const fn new() -> Self {
        Self { greatest: None }
    }

    /// Returns the number whose low 32 bits are `low`; `None` if it would be below 0.
    ///
    /// This changes nothing: call [`Self::taken`] once the packet has proved to be authentic, or to be in its window.
    #[must_use]
    pub const fn extend(&self, low: u32) -> Option<u64> {
        let Some(greatest) = self.greatest else {
            return Some(low as u64);
        };
        // The wrapped difference, read as a signed number, is the shorter way between the two.
        let ahead = low.wrapping_sub(greatest as u32).cast_signed();
        greatest.checked_add_signed(ahead as i64)
    }

    /// Records that the packet with this number, which [`Self::extend`] returned, is authentic.
    pub const fn taken(&mut self, number: u64) {
        match self.greatest {
            Some(greatest) if greatest >= number => {}
            _ => self.greatest = Some(number),
        }
    }

    /// Forgets the greatest number, because the peer has restarted: the next number is used as it is.
    pub const fn restart(&mut self) {
        self.greatest = None;
    }
}
