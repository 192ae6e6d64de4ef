//! Lines of peers that call: what this end sees of them is where they call from.

use config::lines::{LineMode, Lines as Settings};
use plane::{LINES_MAX, LineId, LineSet};

/// How peers are answered that call by several lines of theirs, and whether what they send is put into order.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TheirLines {
    /// Each address from which a peer calls is a line of its own. `None`: it has moved there.
    pub(crate) gathered: Option<plane::LineMode>,
    /// Packets of peers are put into order.
    pub(crate) reorder: bool,
}

impl TheirLines {
    /// Only an interface without lines of its own answers on several of a peer's: a peer's address says nothing of which
    /// of ours leads there.
    pub(crate) fn new(settings: &Settings) -> Self {
        let first = LineSet::of(LineId::FIRST);
        let mut shares = [0; LINES_MAX];
        shares[LineId::FIRST.index()] = 1;
        let mode = match settings.mode {
            LineMode::Single | LineMode::Failover => None,
            LineMode::Duplicate => Some(plane::LineMode::Duplicate(first)),
            LineMode::Critical => Some(plane::LineMode::Critical(first)),
            LineMode::Balance => Some(plane::LineMode::Balance(shares)),
            LineMode::BalancePackets => Some(plane::LineMode::BalancePackets(shares)),
        };
        Self {
            gathered: mode.filter(|_| settings.lines.is_empty()),
            reorder: settings.reorder,
        }
    }
}
