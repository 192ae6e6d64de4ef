//! Follows clients that move: the data plane tracks each packet, and the machine asks it for the address.
//!
//! A client may change its address with each packet, so the data plane does not report every change. The machine asks
//! at once after the first move, then once a second, and logs a move once a minute.

use super::{Look, Machine, PlaneCall, line, peer};
use openvpn::server::ClientId;
use plane::Line;
use std::time::{Duration, Instant};

/// Minimum interval between two requests for a client's address.
const LOCATED_APART: Duration = Duration::from_secs(1);

/// Minimum interval between two log lines about a client's moves; those between are debug lines.
const TOLD_APART: Duration = Duration::from_secs(60);

impl Machine<'_> {
    /// Handles the notice that a client's packets come from another address.
    pub(super) fn has_moved(&mut self, id: ClientId) {
        let now = self.now.instant;
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        // A TCP client cannot move.
        if client.is_stream() {
            return;
        }
        let early = client.located.is_some_and(|at| now < at + LOCATED_APART);
        client.moved = early;
        if !early {
            client.located = Some(now);
            let key = client.key(id);
            self.plane(PlaneCall::Peer(key, Look::Moved));
        }
    }

    /// Requests the address of clients that moved again within the interval.
    pub(super) fn locate_moved(&mut self) {
        let moved = self.clients.iter().filter(|(_, client)| client.moved);
        let moved: Vec<ClientId> = moved.map(|(id, _)| *id).collect();
        for id in moved {
            self.has_moved(id);
        }
    }

    /// Takes the line by which the data plane now reaches the client.
    pub(super) fn follow(&mut self, id: ClientId, line: Option<Line>) {
        let now = self.now.instant;
        let (Some(client), Some(to)) = (self.clients.get_mut(&id), line.map(|it| it.endpoint))
        else {
            return;
        };
        let (before, mut out) = (client.from.address, Vec::new());
        let may = self.listener.floated(id, to, &mut out);
        if may && to.addr == before {
            return self.perform(out);
        }
        let again = |at: Instant| now < at + TOLD_APART;
        let (lately, to) = (client.move_told.is_some_and(again), to.addr);
        if !lately {
            client.move_told = Some(now);
        }
        if may {
            client.from.address = to;
            client.environment.set_peer("trusted", to);
            match lately {
                false => line!(self, Info, "peer {} floated from {before} to {to}", id.0),
                true => line!(self, Debug, "peer {} floated from {before} to {to}", id.0),
            }
            for call in PlaneCall::moved(peer(id), before, to) {
                self.plane(call);
            }
        } else {
            match lately {
                false => line!(self, Warn, "it may not take the address {to} of another"),
                true => line!(self, Debug, "it may not take the address {to} of another"),
            }
            if let Some(stays) = self.listener.line(id) {
                self.plane(PlaneCall::SetLine(peer(id), stays));
            }
        }
        self.perform(out);
    }
}
