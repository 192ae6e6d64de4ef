//! The calls of one control connection (RFC 2637, sections 3.2 and 3.3).

use std::collections::BTreeMap;
use std::time::Instant;

use crate::control::codes::{ErrorCode, OutgoingResult};

/// The state of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Call request sent; the reply must arrive by this time.
    Requested(Instant),
    /// The call is up.
    Up,
    /// Call-Clear-Request sent; the notice of the call's end must arrive by this time.
    Clearing(Instant),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) state: State,
    /// 0 before the reply; a peer's call ID may also be 0.
    pub(super) peer_call_id: u16,
}

/// Calls by our call ID, and unanswered requests by the peer's call ID.
#[derive(Debug, Default)]
pub(super) struct Calls {
    pub(super) by_id: BTreeMap<u16, Call>,
    /// Invariant: together with `by_id` at most the connection's `max_calls`.
    pub(super) offered: Vec<u16>,
}

impl Calls {
    pub(super) fn len(&self) -> usize {
        self.by_id.len() + self.offered.len()
    }

    /// Our ID of the call that has this ID at the peer.
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
    /// The call is accepted with our ID.
    Accept {
        /// Our call ID. Unique within a server, because clients may share an address.
        call_id: u16,
    },
    /// The call is refused.
    Refuse {
        /// Result code for the client.
        result: OutgoingResult,
        /// The general error, if `result` says so.
        error: ErrorCode,
    },
}
