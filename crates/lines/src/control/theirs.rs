//! Lines of peers that call, told apart by the addresses from which they call.

use config::lines::{LineMode, Lines as Settings};
use plane::{LINES_MAX, LineId, LineSet};

/// How peers with several lines are answered, and whether their packets are put into order.
#[derive(Clone, Copy, Debug, Default)]
pub struct TheirLines {
    /// Treats each address from which a peer calls as a line of its own. `None`: the peer has moved to the new
    /// address.
    pub gathered: Option<plane::LineMode>,
    /// Puts packets of peers into order.
    pub reorder: bool,
}

impl TheirLines {
    /// Only an interface without lines of its own answers on several lines of a peer: a peer's address does not show
    /// which of our lines leads there.
    pub fn new(settings: &Settings) -> Self {
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
