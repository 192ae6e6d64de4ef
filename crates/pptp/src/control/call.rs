//! The calls of one control connection (RFC 2637, sections 3.2 and 3.3).

use std::collections::BTreeMap;
use std::time::Instant;

use crate::control::codes::{ErrorCode, OutgoingResult};

/// How far a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Outgoing-Call-Request was sent; until then the reply must come.
    Requested(Instant),
    /// Packets flow.
    Up,
    /// Call-Clear-Request was sent; until then the notice of its end must come.
    Clearing(Instant),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) state: State,
    /// 0 until the reply is there; 0 may be the peer's call ID as well.
    pub(super) peer_call_id: u16,
}

/// Calls by our call ID, and requests that wait for an answer, by the peer's.
#[derive(Debug, Default)]
pub(super) struct Calls {
    pub(super) by_id: BTreeMap<u16, Call>,
    /// Invariant: with `by_id` not more than the connection's `max_calls`.
    pub(super) offered: Vec<u16>,
}

impl Calls {
    pub(super) fn len(&self) -> usize {
        self.by_id.len() + self.offered.len()
    }

    /// The call that has this ID at the peer.
    pub(super) fn by_peer(&self, peer_call_id: u16) -> Option<u16> {
        self.by_id
            .iter()
            .find(|(_, call)| {
                call.peer_call_id == peer_call_id && !matches!(call.state, State::Requested(_))
            })
            .map(|(&call_id, _)| call_id)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.by_id.values().filter_map(|call| call.deadline()).min()
    }
}

impl Call {
    pub(super) const fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Requested(until) | State::Clearing(until) => Some(until),
            State::Up => None,
        }
    }
}

/// A server's answer to a request for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The call is there, with this ID on our side.
    Accept {
        /// Our call ID. No two calls of one server should have the same, as clients may share an address.
        call_id: u16,
    },
    /// There will be none.
    Refuse {
        /// Why.
        result: OutgoingResult,
        /// More, if that is a general error.
        error: ErrorCode,
    },
}

/// Why a call was not opened or answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The control connection is not established.
    #[error("the control connection is not established")]
    NotEstablished,
    /// The call ID is taken.
    #[error("there is a call with ID {0}")]
    Taken(u16),
    /// The connection has as many calls as it may.
    #[error("the control connection has {0} calls, which is the most that it may have")]
    Full(u16),
    /// No such call or request.
    #[error("there is no call with ID {0}")]
    Unknown(u16),
    /// Only clients open calls, only servers answer them.
    #[error("only clients open calls, and only servers answer them")]
    Role,
}
