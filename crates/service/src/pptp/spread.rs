//! Chooses the lines, or addresses, by which each packet goes.

use super::machine::Way;
use super::order::Order;
use crate::status::PeerStatus;
use ::lines::inner::Reader;
use ::lines::scheduler::{FlowTable, PacketShare};
use plane::{
    Endpoint, LINES_MAX, Line, LineCounts, LineId, LineMode, LineSet, LineState, PeerLines,
    Transport,
};
use std::net::IpAddr;
use std::time::Instant;

/// How the packets of one call are spread.
pub(super) struct Spread {
    mode: LineMode,
    reader: Reader,
    flows: Box<FlowTable>,
    packets: PacketShare,
}

impl Spread {
    /// Sends each packet by the line in use.
    pub(super) fn new() -> Self {
        let mut seed = [0; 8];
        crypto::random(&mut seed);
        Self {
            mode: LineMode::Single,
            reader: Reader::new(u64::from_le_bytes(seed)),
            flows: Box::default(),
            packets: PacketShare::default(),
        }
    }

    /// Spreads packets in this mode from now on.
    pub(super) fn set_mode(&mut self, mode: LineMode) {
        if self.mode == mode {
            return;
        }
        self.mode = mode;
        match &mode {
            LineMode::Balance(shares) => self.flows.share(shares),
            LineMode::BalancePackets(shares) => self.packets.share(shares),
            LineMode::Single | LineMode::Duplicate(_) | LineMode::Critical(_) => {}
        }
    }

    /// The lines of a packet, at least one.
    pub(super) fn pick(&mut self, packet: &[u8], used: LineId) -> LineSet {
        let inner = || self.reader.read(packet);
        let critical = || inner().is_some_and(|it| it.critical());
        let line = match self.mode {
            LineMode::Duplicate(lines) if !lines.is_empty() => return lines,
            LineMode::Critical(lines) if critical() => return lines.with(used),
            LineMode::Balance(_) => inner().and_then(|it| self.flows.line(it.flow)),
            LineMode::BalancePackets(_) if !critical() => self.packets.next(packet.len()),
            _ => None,
        };
        LineSet::of(line.unwrap_or(used))
    }
}

/// The packets of one call on its lines.
pub(super) struct Traffic {
    pub(super) spread: Spread,
    counts: [LineCounts; LINES_MAX],
}

impl Traffic {
    pub(super) fn new() -> Self {
        Self {
            spread: Spread::new(),
            counts: [LineCounts::default(); LINES_MAX],
        }
    }

    /// Chooses the ways of a packet that takes `sealed` bytes of GRE, and counts it. Returns one way, and appends the
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

    /// Counts a packet that has come by a line.
    pub(super) fn received(&mut self, line: LineId, bytes: usize, first: bool) {
        if let Some(counts) = self.counts.get_mut(line.index()) {
            counts.received_bytes += bytes as u64;
            counts.accepted += u64::from(first);
        }
    }

    /// Returns the counts of these lines for the status, and sets those of the order. A line has the other end's address
    /// and the time at which it was last heard.
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

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: LineSet = LineSet::of(LineId(0)).with(LineId(1));

    #[test]
    fn a_packet_has_a_line_whatever_the_mode_is_left_with() {
        let mut spread = Spread::new();
        let packet = [0x45; 1200];
        let used = LineId(1);
        let shares = std::array::from_fn(|at| u64::from(at < 2));
        for mode in [
            LineMode::Single,
            LineMode::Duplicate(BOTH),
            LineMode::Critical(BOTH),
            LineMode::Balance(shares),
            LineMode::BalancePackets(shares),
        ] {
            spread.set_mode(mode.among(LineSet::EMPTY));
            assert_eq!(spread.pick(&packet, used), LineSet::of(used), "{mode:?}");
            spread.set_mode(mode);
            let picked: Vec<usize> = (0..100).map(|_| spread.pick(&packet, used).len()).collect();
            let copies = usize::from(matches!(mode, LineMode::Duplicate(_))) + 1;
            assert_eq!(picked, [copies; 100], "{mode:?}");
            assert!(mode.lines().is_empty() || mode.lines() == BOTH);
        }
    }

    #[test]
    fn balanced_packets_go_by_turns() {
        let mut spread = Spread::new();
        let shares = std::array::from_fn(|at| u64::from(at < 2));
        spread.set_mode(LineMode::BalancePackets(shares));
        let mut packet = vec![0; 1200];
        packet[0] = 0x45;
        packet[9] = 6;
        packet[32] = 0x50;
        let mut sent = [0; 2];
        for _ in 0..100 {
            sent[spread.pick(&packet, LineId(0)).first().unwrap().index()] += 1;
        }
        assert_eq!(sent, [50, 50]);
    }
}
