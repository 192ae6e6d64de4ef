//! What the lines carry together, where packets wait for that in a queue of ours.

use super::peer::PeerLines;
use super::{LineEffect, Lines};
use config::lines::LineMode;
use plane::LineId;

impl Lines {
    /// Tells the data plane at which rate packets may go, if that has changed. While no line works the last one holds.
    pub(super) fn tell_rate(&mut self, out: &mut Vec<LineEffect>) {
        if self.settings.shape
            && let Some(rate) = self.rate_in_use()
            && self.rate.replace(rate) != Some(rate)
        {
            out.push(LineEffect::SetRate(rate));
        }
    }

    /// Bits a second that the lines in use carry. Where each packet goes by all of them it is what the slowest carries.
    fn rate_in_use(&self) -> Option<u64> {
        let mode = self.settings.mode;
        let carries = |peer: &PeerLines, line| match mode {
            // Copies are few.
            LineMode::Critical => peer.used == Some(line),
            _ => peer.uses(line),
        };
        // Peers that are not called are answered on the line that they called by.
        let idle = self.peers.is_empty() && self.callers.is_empty();
        let in_use = |line: &LineId| {
            idle || self.callers.values().any(|called| called == line)
                || self.peers.values().any(|peer| carries(peer, *line))
        };
        let lines = self.open().filter(in_use);
        let rates = lines.filter_map(|line| self.line_settings(line).rate);
        let rate = match mode {
            LineMode::Duplicate => rates.min()?,
            _ => rates.fold(0, u64::saturating_add),
        };
        Some(rate).filter(|rate| *rate > 0)
    }
}
