//! Effects of the lines.

#[cfg(doc)]
use super::Lines;
use super::cap::LineUsage;
use plane::{DataPlane, LINES_MAX, Line, LineId, LineMode, PeerId};
use std::net::{IpAddr, SocketAddr};

/// A request of the lines, to be carried out in order.
#[derive(Debug)]
pub enum LineEffect {
    /// Read the host's facts about the lines, for [`Lines::read`].
    Read,
    /// Replace the open sockets of a line by new ones, and call [`Lines::opened`] with the result.
    Open {
        /// The line.
        line: LineId,
        /// The UDP port; 0 for any.
        port: u16,
        /// The mark of packets that they send; 0 for none.
        mark: u32,
    },
    /// Call the data plane.
    Plane(PlaneCall),
    /// Send the peer a message by this line that it answers at once.
    Probe {
        /// The peer.
        peer: PeerId,
        /// The line.
        line: Line,
        /// No data has come recently: if the probe makes a new session, use it.
        renew: bool,
    },
    /// Send [`Lines::hello`] to the relay of a line.
    Hello(LineId),
    /// A relay has this address now.
    RelayAt(SocketAddr),
    /// Write to a file that a peer answers by a relay at this address of this name.
    KeepAddress(String, IpAddr),
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

/// A call of the data plane, or of what stands for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaneCall {
    /// [`DataPlane::close_line`].
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
}

impl PlaneCall {
    /// Makes the call.
    pub fn on<P: DataPlane + ?Sized>(self, plane: &P) {
        match self {
            Self::Close(line) => plane.close_line(line),
            Self::SetLine(id, line) => plane.set_line(id, line),
            Self::UseLine(id, line) => plane.use_line(id, line),
            Self::SetLineMode(id, mode) => plane.set_line_mode(id, mode),
            Self::SetRate(rate) => plane.set_rate(Some(rate)),
            Self::SetLineRates(rates) => plane.set_line_rates(rates),
        }
    }
}

impl From<PlaneCall> for LineEffect {
    fn from(call: PlaneCall) -> Self {
        Self::Plane(call)
    }
}
