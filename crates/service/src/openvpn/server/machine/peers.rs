//! Clients as peers of the data plane: their keys, their usage, and their addresses.
//!
//! A client may change its address with each packet, so the data plane does not report every change. The machine looks
//! at once after the first move, then once a second, and logs a move once a minute.

use super::{Cx, Machine, channel, line, peer};
use openvpn::server::ClientId;
use openvpn::session::Session;
use std::time::{Duration, Instant};

/// Minimum interval between two looks at a client's address.
const LOCATED_APART: Duration = Duration::from_secs(1);

/// Minimum interval between two log lines about a client's moves; those between are debug lines.
const TOLD_APART: Duration = Duration::from_secs(60);

impl Machine<'_> {
    /// Checks the usage of each client's newest keys.
    pub(super) fn watch_keys(&mut self, cx: &mut Cx<'_>) {
        let mut watched = Vec::new();
        for (id, client) in &mut self.clients {
            let newest = self.listener.session(*id).and_then(Session::newest_keys);
            let usage = newest.and_then(|it| client.channel.usage(cx.plane, peer(*id), it));
            watched.extend(usage.map(|usage| (*id, usage)));
        }
        for (id, usage) in watched {
            self.with(cx, id, |session, now, out| {
                session.traffic(&usage, now, out);
            });
        }
    }

    /// Handles the notice that a client's packets come from another address.
    pub(super) fn has_moved(&mut self, cx: &mut Cx<'_>, id: ClientId) {
        let now = cx.now.monotonic;
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
            let state = client.channel.look(cx.plane, peer(id));
            self.follow(cx, id, state.line);
        }
    }

    /// Reads the address of clients that moved again within the interval.
    pub(super) fn locate_moved(&mut self, cx: &mut Cx<'_>) {
        let moved = self.clients.iter().filter(|(_, client)| client.moved);
        let moved: Vec<ClientId> = moved.map(|(id, _)| *id).collect();
        for id in moved {
            let _about = self.about(id);
            self.has_moved(cx, id);
        }
    }

    /// Takes the line over which the data plane now reaches the client.
    fn follow(&mut self, cx: &mut Cx<'_>, id: ClientId, line: Option<plane::Line>) {
        let now = cx.now.monotonic;
        let (Some(client), Some(to)) = (self.clients.get_mut(&id), line.map(|it| it.endpoint))
        else {
            return;
        };
        let (before, mut out) = (client.from.address, Vec::new());
        let may = self.listener.floated(id, to, &mut out);
        if may && to.addr == before {
            return self.perform(cx, out);
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
                false => line!(cx, Info, "peer {} floated from {before} to {to}", id.0),
                true => line!(cx, Debug, "peer {} floated from {before} to {to}", id.0),
            }
            channel::follow(cx.plane, peer(id), before, to);
        } else {
            match lately {
                false => line!(
                    cx,
                    Warn,
                    "it may not take the address {to} of another client"
                ),
                true => line!(
                    cx,
                    Debug,
                    "it may not take the address {to} of another client"
                ),
            }
            if let Some(stays) = self.listener.line(id) {
                cx.plane.set_line(peer(id), stays);
            }
        }
        self.perform(cx, out);
    }
}
