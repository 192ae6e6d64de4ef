//! Requests of lines.

#[cfg(doc)]
use super::Lines;
use super::cap::LineUsage;
#[cfg(doc)]
use plane::DataPlane;
use plane::{LINES_MAX, Line, LineId, LineMode, PeerId};

/// Something to do, in the order in which it comes.
#[derive(Debug)]
pub(crate) enum LineEffect {
    /// Read what the host says of the lines, for [`Lines::read`].
    Read,
    /// Open the sockets of a line in the place of those that are open; [`Lines::opened`] is to be told how it went.
    Open {
        line: LineId,
        /// The UDP port; 0 for any.
        port: u16,
        /// The mark of what they send; 0 for none.
        mark: u32,
    },
    /// Close the sockets of a line.
    Close(LineId),
    /// [`DataPlane::set_line`].
    SetLine(PeerId, Line),
    /// [`DataPlane::use_line`].
    UseLine(PeerId, LineId),
    /// [`DataPlane::set_line_mode`].
    SetLineMode(PeerId, LineMode),
    /// [`DataPlane::set_rate`], in bits a second.
    SetRate(u64),
    /// [`DataPlane::set_line_rates`], in bits a second.
    SetLineRates([u64; LINES_MAX]),
    /// Send the peer something by this line that it answers at once.
    Probe {
        peer: PeerId,
        line: Line,
        /// Data has not come of late: if the probe makes a new session, it is to be used.
        renew: bool,
    },
    /// Send [`Lines::hello`] to the relay of a line.
    Hello {
        line: LineId,
        /// A peer answers by it.
        works: bool,
        /// None has for some time: the relay may be elsewhere.
        lost: bool,
    },
    /// Send the peer an empty packet, if there are keys for it.
    Keepalive(PeerId),
    /// [`DataPlane::carried`], for [`Lines::counted`].
    Count,
    /// Write down what lines have carried.
    Keep(Vec<LineUsage>),
    /// Write to the log.
    Log(log::Level, String),
    /// Write to the log about a peer.
    LogPeer(PeerId, String),
}
