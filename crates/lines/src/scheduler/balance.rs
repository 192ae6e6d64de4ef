//! Packets shared among lines by their rates.

use crate::inner::Reader;
use plane::{LINES_MAX, LineId, LineMode, LineSet};

/// Places that flows share.
const PLACES: usize = 256;
const NO_LINE: u8 = u8::MAX;

/// The line of each flow: a table of places, each assigned to one line, in proportion to the lines' rates.
///
/// When lines or rates change, only the necessary places move, so most flows stay where they are.
#[derive(Clone, Debug)]
pub struct FlowTable {
    places: [u8; PLACES],
}

impl Default for FlowTable {
    fn default() -> Self {
        Self::new()
    }
}

impl FlowTable {
    /// Makes a table without lines.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            places: [NO_LINE; PLACES],
        }
    }

    /// The line of a flow.
    #[must_use]
    pub fn line(&self, flow: u32) -> Option<LineId> {
        let line = self.places[(flow.wrapping_mul(0x85eb_ca6b) >> 24) as usize];
        (line != NO_LINE).then_some(LineId(line))
    }

    /// Shares the places among lines by their weights.
    pub fn share(&mut self, weights: &[u64; LINES_MAX]) {
        let sum: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
        if sum == 0 {
            self.places = [NO_LINE; PLACES];
            return;
        }
        let mut quotas = [0_usize; LINES_MAX];
        let mut left = PLACES;
        for (quota, weight) in quotas.iter_mut().zip(weights) {
            *quota = (PLACES as u128 * u128::from(*weight) / sum) as usize;
            left -= *quota;
        }
        // The remainder of rounding goes to lines that have a weight, one place each, smallest weight first: no such
        // line is left out.
        while left > 0 {
            let weighed = (0..LINES_MAX).filter(|line| weights[*line] > 0);
            let Some(least) = weighed.min_by_key(|line| quotas[*line]) else {
                break;
            };
            quotas[least] += 1;
            left -= 1;
        }
        let mut kept = [0_usize; LINES_MAX];
        for place in &mut self.places {
            let line = usize::from(*place);
            if line < LINES_MAX && kept[line] < quotas[line] {
                kept[line] += 1;
            } else {
                *place = NO_LINE;
            }
        }
        let mut line = 0;
        for place in self.places.iter_mut().filter(|place| **place == NO_LINE) {
            while line < LINES_MAX && kept[line] == quotas[line] {
                line += 1;
            }
            if line == LINES_MAX {
                break;
            }
            *place = line as u8;
            kept[line] += 1;
        }
    }
}

/// Shares packets by rate: each line has a time at which it is done with its packets, and the next packet goes to the
/// line that will be done with it first.
#[derive(Clone, Debug)]
pub struct PacketShare {
    /// When each line is done, in bytes times `cost`.
    done: [u64; LINES_MAX],
    /// The price of a byte; lower for faster lines.
    cost: [u64; LINES_MAX],
    lines: LineSet,
}

impl Default for PacketShare {
    fn default() -> Self {
        Self::new()
    }
}

impl PacketShare {
    /// Makes a share without lines.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            done: [0; LINES_MAX],
            cost: [1; LINES_MAX],
            lines: LineSet::EMPTY,
        }
    }

    /// Shares bytes among lines by their weights from now on. A line that was away does not catch up on missed bytes.
    pub fn share(&mut self, weights: &[u64; LINES_MAX]) {
        let greatest = weights.iter().copied().max().unwrap_or(0).max(1);
        let begin = self.begin();
        let before = self.lines;
        self.lines = LineSet::EMPTY;
        for (line, weight) in weights
            .iter()
            .enumerate()
            .filter(|(_, weight)| **weight > 0)
        {
            let id = LineId(line as u8);
            self.done[line] = if before.contains(id) {
                self.done[line] - begin
            } else {
                0
            };
            // Weights below a thousandth of the greatest count as a thousandth.
            self.cost[line] =
                (u128::from(greatest) * 1024 / u128::from(*weight)).min(1 << 20) as u64;
            self.lines = self.lines.with(id);
        }
    }

    /// Whether a line's share is at least a quarter of the greatest.
    #[must_use]
    pub fn is_large(&self, line: LineId) -> bool {
        self.lines.contains(line) && self.cost[line.index()] <= 4 * 1024
    }

    /// The line for a packet of this many bytes.
    #[inline]
    pub fn next(&mut self, bytes: usize) -> Option<LineId> {
        let done = |line: LineId| self.done[line.index()] + bytes as u64 * self.cost[line.index()];
        let line = self.lines.min_by_key(|line| done(*line))?;
        self.done[line.index()] = done(line);
        if self.done[line.index()] > u64::MAX / 2 {
            // Subtracts the common part: only differences matter.
            let begin = self.begin();
            for done in &mut self.done {
                *done = done.saturating_sub(begin);
            }
        }
        Some(line)
    }

    /// When the first line is done.
    fn begin(&self) -> u64 {
        let done = self.lines.map(|line| self.done[line.index()]);
        done.min().unwrap_or(0)
    }
}

/// Chooses the lines, or addresses, over which each packet of a peer goes.
#[derive(Debug)]
pub struct Spread {
    mode: LineMode,
    reader: Reader,
    flows: Box<FlowTable>,
    packets: PacketShare,
}

impl Default for Spread {
    /// Sends each packet over the line in use.
    fn default() -> Self {
        let mut seed = [0; 8];
        crypto::random(&mut seed);
        Self {
            mode: LineMode::Single,
            reader: Reader::new(u64::from_le_bytes(seed)),
            flows: Box::default(),
            packets: PacketShare::default(),
        }
    }
}

impl Spread {
    /// Spreads packets in this mode from now on.
    pub fn set_mode(&mut self, mode: LineMode) {
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
    pub fn pick(&mut self, packet: &[u8], used: LineId) -> LineSet {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn weights(of: &[u64]) -> [u64; LINES_MAX] {
        let mut weights = [0; LINES_MAX];
        weights[..of.len()].copy_from_slice(of);
        weights
    }

    #[test]
    fn flows_are_shared_by_weight_and_stay() {
        let mut table = FlowTable::new();
        assert_eq!(table.line(1), None);
        table.share(&weights(&[100, 50]));
        let lines = |table: &FlowTable| -> Vec<u8> {
            (0..30_000)
                .map(|flow| table.line(flow).unwrap().0)
                .collect()
        };
        let before = lines(&table);
        let second = before.iter().filter(|line| **line == 1).count();
        assert!((9_300..10_700).contains(&second), "{second}");
        table.share(&weights(&[100, 60]));
        let after = lines(&table);
        let moved = before.iter().zip(&after).filter(|(a, b)| a != b).count();
        assert!(moved < 2000, "{moved}");
        table.share(&weights(&[100, 0]));
        let alone = lines(&table);
        assert!(alone.iter().all(|line| *line == 0));
        let moved = after.iter().zip(&alone).filter(|(a, b)| a != b).count();
        let were = after.iter().filter(|line| **line == 1).count();
        assert_eq!(moved, were, "flows of the other stay");
    }

    #[test]
    fn a_slow_line_is_not_left_out() {
        let mut table = FlowTable::new();
        table.share(&weights(&[1_000_000, 1, 1_000_000]));
        assert!((0..10_000).any(|flow| table.line(flow) == Some(LineId(1))));
    }

    #[test]
    fn packets_are_shared_by_bytes() {
        let mut share = PacketShare::new();
        assert_eq!(share.next(100), None);
        share.share(&weights(&[100, 50]));
        let mut bytes = [0; 2];
        for number in 0..3000 {
            let size = if number % 3 == 0 { 1400 } else { 100 };
            bytes[share.next(size).unwrap().index()] += size;
        }
        let ratio = bytes[0] as f64 / bytes[1] as f64;
        assert!((1.9..2.1).contains(&ratio), "{bytes:?}");
        assert!(share.is_large(LineId(1)) && !share.is_large(LineId(2)));
        share.share(&weights(&[100, 5]));
        assert!(share.is_large(LineId(0)) && !share.is_large(LineId(1)));
        share.share(&weights(&[0, 50]));
        assert_eq!(share.next(100), Some(LineId(1)));
        share.share(&weights(&[100, 50]));
        let first = (0..300)
            .filter(|_| share.next(1000) == Some(LineId(0)))
            .count();
        assert!(
            (190..=210).contains(&first),
            "it does not catch up: {first}"
        );
    }

    const BOTH: LineSet = LineSet::of(LineId(0)).with(LineId(1));

    #[test]
    fn a_packet_has_a_line_whatever_the_mode_is_left_with() {
        let mut spread = Spread::default();
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
        let mut spread = Spread::default();
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
