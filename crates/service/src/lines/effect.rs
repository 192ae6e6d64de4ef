//! Effects of the lines.

#[cfg(doc)]
use super::Lines;
use super::cap::LineUsage;
#[cfg(doc)]
use plane::DataPlane;
use plane::{LINES_MAX, Line, LineId, LineMode, PeerId};

/// A request of the lines, to be carried out in order.
#[derive(Debug)]
pub(crate) enum LineEffect {
    /// Read the host's facts about the lines, for [`Lines::read`].
    Read,
    /// Replace the open sockets of a line by new ones, and call [`Lines::opened`] with the result.
    Open {
        line: LineId,
        /// The UDP port; 0 for any.
        port: u16,
        /// The mark of packets that they send; 0 for none.
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
    /// Send the peer a message by this line that it answers at once.
    Probe {
        peer: PeerId,
        line: Line,
        /// No data has come recently: if the probe makes a new session, use it.
        renew: bool,
    },
    /// Send [`Lines::hello`] to the relay of a line.
    Hello {
        line: LineId,
        /// A peer answers by the line.
        works: bool,
        /// No peer has answered for some time: the relay may have moved.
        lost: bool,
    },
    /// Send the peer an empty packet, if there are keys for it.
    Keepalive(PeerId),
    /// [`DataPlane::carried`], for [`Lines::counted`].
    Count,
    /// Write the lines' bytes to their file.
    Keep(Vec<LineUsage>),
    /// Write to the log.
    Log(log::Level, String),
    /// Write to the log about a peer.
    LogPeer(PeerId, String),
}
