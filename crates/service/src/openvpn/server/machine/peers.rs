//! Clients as peers of the data plane: their keys, their usage, and their addresses.
//!
//! A client may change its address with each packet, so the data plane does not report every change. The machine looks
//! at once after the first move, then once a second, and logs a move once a minute.

use super::{Cx, Machine, channel, line, peer};
use openvpn::server::ClientId;
use openvpn::session::{CloseReason, DataKeys, Session};
use openvpn_host::sizes;
use std::time::{Duration, Instant};

/// Minimum interval between two looks at a client's address.
const LOCATED_APART: Duration = Duration::from_secs(1);

/// Minimum interval between two log lines about a client's moves; those between are debug lines.
const TOLD_APART: Duration = Duration::from_secs(60);

impl Machine<'_> {
    /// Installs a session's new keys: the data plane opens packets with them from now on.
    pub(super) fn install(&mut self, cx: &mut Cx<'_>, id: ClientId, keys: Box<DataKeys>) {
        let agreed = self.listener.session(id).and_then(Session::data_channel);
        let stream = self.clients.get(&id).is_some_and(|it| it.is_stream());
        let connection = self.connection_of(stream);
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        let address = client.from.address;
        if let (0, Some(agreed)) = (keys.key_id, agreed) {
            let wanted = sizes::shape(
                self.config,
                connection,
                agreed,
                client.framing,
                self.mtu,
                address,
            );
            match wanted {
                Ok(wanted) => client.channel.shape = wanted,
                Err(error) => {
                    line!(cx, Error, "{error}");
                    return self.close(cx, id, CloseReason::Local);
                }
            }
        }
        line!(cx, Info, "Data Channel: cipher '{}'", keys.cipher.name());
        let (insecure, peer) = (self.config.data.allow_insecure, (peer(id), address));
        let installed = (client.channel).install(cx.plane, peer, keys, insecure, cx.now);
        if let Err(why) = installed {
            line!(cx, Error, "{why}");
            self.close(cx, id, CloseReason::Local);
        }
    }

    /// Checks the usage of each client's newest keys.
    pub(super) fn watch_keys(&mut self, cx: &mut Cx<'_>) {
        let newest = |id: &ClientId| Some((*id, self.listener.session(*id)?.newest_keys()?));
        let watched: Vec<(ClientId, u8)> = self.clients.keys().filter_map(newest).collect();
        for (id, key_id) in watched {
            if let Some(client) = self.clients.get_mut(&id) {
                let usage = client.channel.usage(cx.plane, peer(id), key_id);
                self.with(cx, id, |session, now, out| {
                    session.traffic(&usage, now, out);
                });
            }
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
                false => line!(cx, Warn, "it may not take the address {to} of another"),
                true => line!(cx, Debug, "it may not take the address {to} of another"),
            }
            if let Some(stays) = self.listener.line(id) {
                cx.plane.set_line(peer(id), stays);
            }
        }
        self.perform(cx, out);
    }
}
