//! Lines (uplinks): the paths over which a tunnel reaches its peers, and how a peer's packets use them.

use crate::Endpoint;
use std::time::Duration;

/// The maximum number of lines of one tunnel. A router has a handful of uplinks.
pub const LINES_MAX: usize = 16;

/// The number of a line of a tunnel, below [`LINES_MAX`]. A tunnel with one line has number 0 only.
///
/// A line of the tunnel is a local end: sockets that are bound to an address, a device or a mark. All peers share it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LineId(pub u8);

impl LineId {
    /// The only line of a tunnel with one, and the first of a tunnel with several.
    pub const FIRST: Self = Self(0);

    /// The number as an index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The number of a connection (TCP), unique among those that a data plane has at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u64);

/// The transport of a peer's packets on one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// UDP datagrams, through the sockets of the line.
    Udp,
    /// Records of a TCP connection, each after its length in 16 bits.
    Tcp(StreamId),
    /// Packets of GRE (RFC 2637, enhanced GRE), through a raw socket of the line.
    Gre,
}

/// One line of one peer: the local end, the peer's address, and the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Line {
    /// The local end.
    pub id: LineId,
    /// The peer's address, and the local address that the peer sends to, if known.
    pub endpoint: Endpoint,
    /// The transport of the packets.
    pub transport: Transport,
}

impl Line {
    /// Datagrams to `endpoint` through the first line.
    #[must_use]
    pub const fn udp(endpoint: Endpoint) -> Self {
        Self {
            id: LineId::FIRST,
            endpoint,
            transport: Transport::Udp,
        }
    }

    /// Records to `endpoint` through this connection, which belongs to the first line.
    #[must_use]
    pub const fn tcp(endpoint: Endpoint, stream: StreamId) -> Self {
        Self {
            id: LineId::FIRST,
            endpoint,
            transport: Transport::Tcp(stream),
        }
    }
}

/// The lines over which a peer's packets are sent.
///
/// Lines that the peer does not have are skipped, and so are streams (TCP), which take neither copies nor a share of
/// the packets. If no line is left, a packet goes over the line in use
/// ([`DataPlane::use_line`](crate::DataPlane::use_line)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineMode {
    /// Each packet over the line in use.
    #[default]
    Single,
    /// Each packet over each of these lines: sealed once, so that the copies are equal.
    Duplicate(LineSet),
    /// Critical packets over each of these lines: those marked CS5 and above, small UDP, TCP's SYN and pure
    /// acknowledgements. All others over the line in use.
    Critical(LineSet),
    /// Each inner flow over one line, in proportion to the lines' shares, by line number. A line with share 0 gets no
    /// flow. Shares may have any unit, such as bits a second.
    Balance([u64; LINES_MAX]),
    /// Each packet over one line, in proportion of bytes to the lines' shares. One inner flow fills all lines, and
    /// arrives out of order, so the peer must put packets back into order ([`Reorder`]). [Critical](Self::Critical)
    /// packets go over the line in use.
    BalancePackets([u64; LINES_MAX]),
}

impl LineMode {
    /// The lines that packets go over besides the line in use.
    #[must_use]
    pub fn lines(self) -> LineSet {
        match self {
            Self::Single => LineSet::EMPTY,
            Self::Duplicate(lines) | Self::Critical(lines) => lines,
            Self::Balance(shares) | Self::BalancePackets(shares) => {
                let numbered = (0..).map(LineId).zip(shares);
                let sharing = numbered.filter(|(_, share)| *share > 0);
                sharing.map(|(line, _)| line).collect()
            }
        }
    }

    /// Narrows the mode to these lines.
    #[must_use]
    pub fn among(self, lines: LineSet) -> Self {
        let both = |of: LineSet| of.filter(|line| lines.contains(*line)).collect();
        let shares = |mut of: [u64; LINES_MAX]| {
            for (line, share) in (0..).map(LineId).zip(&mut of) {
                if !lines.contains(line) {
                    *share = 0;
                }
            }
            of
        };
        match self {
            Self::Single => Self::Single,
            Self::Duplicate(of) => Self::Duplicate(both(of)),
            Self::Critical(of) => Self::Critical(both(of)),
            Self::Balance(of) => Self::Balance(shares(of)),
            Self::BalancePackets(of) => Self::BalancePackets(shares(of)),
        }
    }
}

/// How packets are put back into order before they are written.
///
/// A packet waits for missing packets before it while they can still come over one of the lines, within the limits
/// below. Two packets of an inner flow may pass a gap, except TCP data.
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

/// A set of lines on which a packet is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineSet(u16);
const _: () = assert!(LINES_MAX <= u16::BITS as usize);

impl LineSet {
    /// Set without lines.
    pub const EMPTY: Self = Self(0);

    /// A set of this line only.
    #[must_use]
    pub const fn of(line: LineId) -> Self {
        Self::EMPTY.with(line)
    }

    /// Returns the set with `line` added.
    #[must_use]
    pub const fn with(self, line: LineId) -> Self {
        if line.index() < LINES_MAX {
            Self(self.0 | 1 << line.0)
        } else {
            self
        }
    }

    /// Whether the set contains the line.
    #[must_use]
    pub const fn contains(self, line: LineId) -> bool {
        line.index() < LINES_MAX && self.0 & 1 << line.0 != 0
    }

    /// The number of lines in the set.
    #[must_use]
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The line with the lowest number.
    #[must_use]
    pub fn first(self) -> Option<LineId> {
        (!self.is_empty()).then(|| LineId(self.0.trailing_zeros() as u8))
    }
}

impl Iterator for LineSet {
    type Item = LineId;

    fn next(&mut self) -> Option<LineId> {
        let first = self.first()?;
        self.0 &= self.0 - 1;
        Some(first)
    }
}

impl FromIterator<LineId> for LineSet {
    fn from_iter<I: IntoIterator<Item = LineId>>(lines: I) -> Self {
        lines.into_iter().fold(Self::EMPTY, Self::with)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_in() {
        let lines = [LineId(0), LineId(3), LineId(15)];
        let set: LineSet = lines.into_iter().collect();
        assert_eq!((set.len(), set.first()), (3, Some(LineId(0))));
        assert!(set.contains(LineId(3)) && !set.contains(LineId(4)));
        assert_eq!(set.collect::<Vec<_>>(), lines);
        assert_eq!(LineSet::EMPTY.with(LineId(16)), LineSet::EMPTY);
        assert!(!LineSet::EMPTY.contains(LineId(200)));
    }
}
