//! Lines of peers that connect to this host, told apart by the peers' addresses.

use super::number;
use config::lines::{LineMode, Lines as Settings};
use plane::{LineId, LineSet};

/// How peers with several lines are answered, and whether their packets are put into order.
#[derive(Clone, Copy, Debug, Default)]
pub struct TheirLines {
    /// Treats each address from which a peer sends as a line of its own. `None`: the peer has moved to the new
    /// address.
    pub gathered: Option<plane::LineMode>,
    /// Puts packets of peers into order.
    pub reorder: bool,
}

impl TheirLines {
    /// Only an interface without lines of its own answers on several lines of a peer: a peer's address does not show
    /// which of our lines leads there.
    pub fn new(settings: &Settings) -> Self {
        let several = settings.lines.is_empty() && settings.mode.spreads();
        Self {
            gathered: several.then(|| evenly(settings.mode, LineSet::of(LineId::FIRST))),
            reorder: settings.reorder,
        }
    }
}

/// The configured mode for a data plane, over these lines with equal shares.
pub fn evenly(mode: LineMode, lines: LineSet) -> plane::LineMode {
    let shares = std::array::from_fn(|at| u64::from(lines.contains(number(at))));
    match mode {
        LineMode::Single | LineMode::Failover => plane::LineMode::Single,
        LineMode::Duplicate => plane::LineMode::Duplicate(lines),
        LineMode::Critical => plane::LineMode::Critical(lines),
        LineMode::Balance => plane::LineMode::Balance(shares),
        LineMode::BalancePackets => plane::LineMode::BalancePackets(shares),
    }
}
