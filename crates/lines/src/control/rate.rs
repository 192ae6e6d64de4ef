//! The rates of lines with a configured rate, for which our own queues hold packets back.

use super::peer::PeerLines;
use super::{Lines, Outside};
use config::lines::LineMode;
use plane::{LINES_MAX, LineId};

/// The rates for the data plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// Bits a second of all lines in use together: each packet goes over one line, or over all.
    Together(u64),
    /// Bits a second of each line in use, by number; 0 for other lines.
    Each([u64; LINES_MAX]),
}

impl Lines {
    /// Sets the rates in the data plane, if they have changed. While no line works the last rates stay.
    pub(super) fn tell_rate(&mut self, out: &mut dyn Outside) {
        if self.settings.shape
            && let Some(told) = self.rates_in_use()
            && self.rate.replace(told) != Some(told)
        {
            out.on_plane(|plane| match told {
                Told::Together(rate) => plane.set_rate(rate),
                Told::Each(rates) => plane.set_line_rates(rates),
            });
        }
    }

    /// The rates of the lines in use. If each packet goes over all of them, the slowest line sets the rate.
    fn rates_in_use(&self) -> Option<Told> {
        let mode = self.settings.mode;
        let carries = |peer: &PeerLines, line| match mode {
            // Only few packets are copied to other lines.
            LineMode::Critical => peer.used == Some(line),
            _ => peer.uses(line),
        };
        // Peers without a configured endpoint are answered on the line that they use.
        let idle = self.peers.is_empty() && self.callers.is_empty();
        let in_use = |line: &LineId| {
            idle || self.callers.iter().any(|(_, called)| called == line)
                || self.peers.values().any(|peer| carries(peer, *line))
        };
        let lines = self.open().filter(in_use);
        let rates = lines.filter_map(|line| Some((line, self.line_settings(line).rate?)));
        match mode {
            LineMode::Duplicate => Some(Told::Together(rates.map(|it| it.1).min()?)),
            LineMode::Balance | LineMode::BalancePackets => {
                let mut each = [0; LINES_MAX];
                for (line, rate) in rates {
                    each[line.index()] = rate;
                }
                (each != [0; LINES_MAX]).then_some(Told::Each(each))
            }
            _ => {
                let sum = rates.fold(0, |sum: u64, (_, rate)| sum.saturating_add(rate));
                Some(Told::Together(sum)).filter(|_| sum > 0)
            }
        }
    }
}
