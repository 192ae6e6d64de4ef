//! Lines of peers that call: what this end sees of them is where they call from.

use crate::wireguard::effect::PlaneRequest;
use crate::wireguard::machine::{Machine, Turn};
use config::lines::{LineMode, Lines as Settings};
use plane::{LINES_MAX, LineId, LineSet, Moving, PeerId};

/// How peers are answered that call by several lines of theirs, and whether what they send is put into order.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::wireguard) struct TheirLines {
    /// Each address from which a peer calls is a line of its own. `None`: it has moved there.
    gathered: Option<plane::LineMode>,
    reorder: bool,
}

impl TheirLines {
    /// Only an interface without lines of its own answers on several of a peer's: a peer's address says nothing of which
    /// of ours leads there.
    pub(in crate::wireguard) fn new(settings: &Settings) -> Self {
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

impl Machine {
    /// A new peer.
    pub(in crate::wireguard) fn add_by_lines(&self, id: PeerId, turn: &mut Turn<'_>) {
        let moving = match self.theirs.gathered {
            Some(_) => Moving::Gather,
            None => Moving::Follow,
        };
        turn.plane(PlaneRequest::AddPeer(id, moving));
        if let Some(mode) = self.theirs.gathered {
            turn.plane(PlaneRequest::SetLineMode(id, mode));
        }
        if self.theirs.reorder {
            turn.plane(PlaneRequest::Reorder(id));
        }
    }

    /// Whether the answer to a handshake goes where it came from, in place of where the peer was last heard: by that it
    /// learns that the line works.
    pub(in crate::wireguard) const fn answers_by_line(&self) -> bool {
        self.lines.is_some() || self.theirs.gathered.is_some()
    }

    /// Whether packets of peers are put into order.
    pub(in crate::wireguard) const fn reorders(&self) -> bool {
        self.theirs.reorder
    }

    /// Whether each address of a peer is a line of its own.
    pub(in crate::wireguard) const fn gathers(&self) -> bool {
        self.theirs.gathered.is_some()
    }
}
