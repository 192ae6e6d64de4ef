//! The packets of one call on its lines, or addresses: which each goes over, and how many.

use super::machine::Way;
use super::order::Order;
use crate::status::PeerStatus;
use ::lines::scheduler::Spread;
use plane::{Endpoint, LINES_MAX, Line, LineCounts, LineId, LineState, PeerLines, Transport};
use std::net::IpAddr;
use std::time::Instant;

/// The packets of one call on its lines.
pub(super) struct Traffic {
    pub(super) spread: Spread,
    counts: [LineCounts; LINES_MAX],
}

impl Traffic {
    pub(super) fn new() -> Self {
        Self {
            spread: Spread::default(),
            counts: [LineCounts::default(); LINES_MAX],
        }
    }

    /// Chooses the paths of a packet with `sealed` bytes of GRE, and counts it. Returns one path, and appends the
    /// others to `copies`, which is empty before.
    pub(super) fn send(
        &mut self,
        (packet, sealed): (&[u8], usize),
        used: LineId,
        way: impl Fn(LineId) -> Option<Way>,
        copies: &mut Vec<Way>,
    ) -> Option<Way> {
        for line in self.spread.pick(packet, used) {
            let Some(way) = way(line) else { continue };
            if let Some(counts) = self.counts.get_mut(line.index()) {
                counts.sent += 1;
                counts.sent_bytes += sealed as u64;
            }
            copies.push(way);
        }
        copies.pop()
    }

    /// Counts a packet that has come over a line.
    pub(super) fn received(&mut self, line: LineId, bytes: usize, first: bool) {
        if let Some(counts) = self.counts.get_mut(line.index()) {
            counts.received_bytes += bytes as u64;
            counts.accepted += u64::from(first);
        }
    }

    /// Returns the counts of these lines for the status, and sets those of the order. A line has the other end's
    /// address and the time at which it was last heard.
    pub(super) fn describe(
        &self,
        order: Option<&Order>,
        lines: impl Iterator<Item = (LineId, IpAddr, Option<Instant>)>,
        peer: &mut PeerStatus,
    ) -> PeerLines {
        let state = |(id, ip, heard): (LineId, IpAddr, _)| {
            let counts = self.counts[id.index()];
            LineState {
                line: Line {
                    id,
                    endpoint: Endpoint::new((ip, 0).into()),
                    transport: Transport::Gre,
                },
                heard,
                counts: order.map_or(counts, |order| order.counts_of(id, counts)),
            }
        };
        let mut known = PeerLines {
            lines: lines.map(state).collect(),
            ..PeerLines::default()
        };
        if let Some(order) = order {
            known.order = order.counts();
            peer.order = Some(crate::status::lines::order_status(&known));
        }
        known
    }
}
