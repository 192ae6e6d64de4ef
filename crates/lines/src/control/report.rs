//! Reports on a peer's lines.

use super::cap::CapReport;
use super::{Lines, number, why};
use crate::health::Loss;
use plane::{LineId, PeerId};
use std::time::{Duration, Instant};

/// One line of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineReport {
    /// The line's number.
    pub line: LineId,
    /// The line's name.
    pub name: String,
    /// `unknown`, `up`, `degraded` or `down`.
    pub state: String,
    /// Reason for the state, in words.
    pub reason: String,
    /// When the state changed; `None` before the first change.
    pub since: Option<Instant>,
    /// The line carries packets to the peer, all of them or a part.
    pub in_use: bool,
    /// The smoothed round trip.
    pub round_trip: Option<Duration>,
    /// The usual difference of two round trips in a row.
    pub jitter: Option<Duration>,
    /// The share of lost probes, if enough were sent.
    pub loss: Option<Loss>,
    /// The monthly allowance and its use, if there is one.
    pub cap: Option<CapReport>,
}

impl Lines {
    /// The lines of a peer; empty for a peer that connects to this host only.
    pub fn reports(&self, id: PeerId) -> Vec<LineReport> {
        let Some(peer) = self.peers.get(&id) else {
            return Vec::new();
        };
        let all = self.settings.lines.iter().zip(&peer.lines).enumerate();
        let report = all.map(|(at, (settings, of))| {
            let state = of.health.state();
            let line = number(at);
            LineReport {
                line,
                name: settings.name.clone(),
                state: state.0.to_string(),
                reason: why(state),
                since: of.health.since(),
                in_use: peer.uses(line),
                round_trip: of.health.smoothed(),
                jitter: of.health.jitter(),
                loss: of.health.loss(),
                cap: self.caps.report(line),
            }
        });
        report.collect()
    }
}
