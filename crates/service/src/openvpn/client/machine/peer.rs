//! The server as the data plane's peer: its keys and their usage.

use super::connection::Connection;
use crate::openvpn::channel::{self, Channel};
use crate::openvpn::client::host::{Cx, SERVER};
use crate::openvpn::statusdoc;
use crate::status::PeerStatus;
use openvpn::data::protocol::session;
use openvpn::session::{DataKeys, Output};
use plane::Now;
use plane::PeerState;

/// State of the server's data channel.
pub(super) struct Peer {
    pub(super) channel: Channel,
    /// Key id of the newest keys.
    pub(super) key: Option<u8>,
}

impl Connection {
    /// Reads the data plane's state of the server.
    pub(super) fn look(&mut self, cx: &Cx<'_>) -> PeerState {
        let state = cx.plane(|plane| self.peer.channel.look(plane, SERVER));
        state.unwrap_or_default()
    }

    /// Installs these keys: the data plane opens packets with them from now on.
    pub(super) fn install(&mut self, keys: Box<DataKeys>, allow_insecure: bool, cx: &mut Cx<'_>) {
        self.peer.key = Some(keys.key_id);
        let agreed = keys.cipher.name();
        let (channel, peer) = (&mut self.peer.channel, (SERVER, self.remote));
        match cx.plane(|plane| channel.install(plane, peer, keys, allow_insecure, cx.now)) {
            Some(Ok(cipher)) => {
                let backend = cipher.backend;
                cx.info(format!("Data Channel: cipher '{agreed}', {backend}"));
            }
            Some(Err(error)) => {
                self.fail(error);
                // Discards outputs that would use the keys.
                self.outputs.clear();
            }
            None => {}
        }
    }

    /// Removes the keys of this key id.
    pub(super) fn remove_keys(&mut self, key_id: u8, cx: &Cx<'_>) {
        self.peer.key = self.peer.key.filter(|newest| *newest != key_id);
        cx.plane(|plane| plane.remove_keys(SERVER, session(SERVER, key_id)));
    }

    /// Checks the usage of the newest keys.
    pub(super) fn watch_keys(&mut self, now: Now, outputs: &mut Vec<Output>, cx: &Cx<'_>) {
        let Some(key_id) = self.peer.key else { return };
        let channel = &mut self.peer.channel;
        if let Some(usage) = cx.plane(|plane| channel.usage(plane, SERVER, key_id)) {
            self.session.traffic(&usage, now.monotonic, outputs);
        }
    }

    /// Runs the session's due timers.
    pub(super) fn timers(&mut self, state: &PeerState, now: Now, outputs: &mut Vec<Output>) {
        let mut times = channel::times(state);
        if self.incoming.is_some() {
            // The keys that would open the server's packets are not installed yet.
            times.last_received = Some(now.monotonic);
        }
        self.session.activity(times);
        let deadline = self.session.next_deadline();
        if deadline.is_some_and(|at| at <= now.monotonic) {
            self.session.expired(now.monotonic, outputs);
        }
    }

    /// Returns the server's part of the status. `state` comes from the data plane.
    pub(in crate::openvpn::client) fn status(&self, state: &PeerState) -> PeerStatus {
        let channel = &self.peer.channel;
        statusdoc::peer(channel, self.remote, state, &self.session, self.since)
    }
}
