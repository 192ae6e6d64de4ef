//! Changes how lines are used while there are peers.

use super::{Lines, number};
use crate::health::Fault;
use config::lines::LineMode;
use plane::LineId;
use std::time::Duration;

impl Lines {
    /// Uses lines in this mode from now on, whatever the configuration says.
    pub fn set_mode(&mut self, mode: LineMode) {
        if std::mem::replace(&mut self.settings.mode, mode) == mode {
            return;
        }
        let scheduler = self.scheduler();
        let open: Vec<LineId> = self.open().collect();
        let open: Vec<_> = open
            .into_iter()
            .map(|line| (line, self.line_settings(line)))
            .collect();
        for peer in self.peers.values_mut() {
            // Keeps the line in use.
            peer.scheduler = scheduler.clone();
            peer.spreads = mode.spreads();
            for (line, settings) in &open {
                peer.scheduler.add(*line, *settings);
            }
        }
    }

    /// Sets how often silent lines are probed. Metered ones keep their interval.
    pub fn set_idle(&mut self, interval: Duration) {
        let metered = |at: usize| self.settings.lines.get(at).is_some_and(|it| it.metered);
        for peer in self.peers.values_mut() {
            let lines = peer.lines.iter_mut().enumerate();
            for (_, of) in lines.filter(|(at, _)| !metered(*at)) {
                of.health.set_probe_interval(interval);
            }
        }
    }

    /// Reports a fault of a line to this peer only. A fault of the whole line, known to the host, takes precedence.
    /// Lasts until the host reports on the line again.
    pub fn set_fault(&mut self, id: plane::PeerId, line: LineId, fault: Option<Fault>) {
        let host = self.ends.get(line.index()).and_then(|end| end.fault);
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.fault(line, host.or(fault));
        }
    }

    /// Whether a line works, or nothing is known of it yet.
    pub fn may_work(&self, id: plane::PeerId, line: LineId) -> bool {
        let of = self
            .peers
            .get(&id)
            .and_then(|it| it.lines.get(line.index()));
        of.is_some_and(|of| of.health.state().0 != crate::health::LineState::Down)
    }

    /// All lines that have sockets.
    pub fn all_open(&self) -> Vec<LineId> {
        let all = (0..self.ends.len()).map(number);
        all.filter(|line| self.is_open(*line)).collect()
    }
}
