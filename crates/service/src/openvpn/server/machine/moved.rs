//! Clients that move: the data plane follows each packet, control asks it where a client is.
//!
//! A client may come from another address with each packet. So control does not hear of each: it asks where the client is
//! now, at once for the first move and once a second after that, and writes to the log once a minute.

use super::{Look, Machine, PlaneCall, line, peer};
use openvpn::server::ClientId;
use plane::Line;
use std::time::{Duration, Instant};

/// The least time between two questions where a client is.
const LOCATED_APART: Duration = Duration::from_secs(1);

/// The least time between two lines of the log about the moves of a client. Those between are debug lines.
const TOLD_APART: Duration = Duration::from_secs(60);

impl Machine<'_> {
    /// The data plane has heard the client at another address.
    pub(super) fn has_moved(&mut self, id: ClientId) {
        let now = self.now.instant;
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        // A connection is where it is.
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

    /// Asks where those are that have moved again soon after they were asked for.
    pub(super) fn locate_moved(&mut self) {
        let moved = self.clients.iter().filter(|(_, client)| client.moved);
        let moved: Vec<ClientId> = moved.map(|(id, _)| *id).collect();
        for id in moved {
            self.has_moved(id);
        }
    }

    /// The data plane reaches the client by this line now.
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
