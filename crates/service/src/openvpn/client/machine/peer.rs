//! The server as the data plane's peer: its keys and their usage.

use super::connection::Connection;
use crate::openvpn::channel;
use crate::openvpn::client::host::{Cx, SERVER};
use crate::openvpn::statusdoc;
use crate::status::PeerStatus;
use openvpn::session::Output;
use plane::Now;
use plane::PeerState;

impl Connection {
    /// Reads the data plane's state of the server.
    pub(super) fn look(&mut self, cx: &Cx<'_>) -> PeerState {
        let state = cx.plane(|plane| self.channel.look(plane, SERVER));
        state.unwrap_or_default()
    }

    /// Carries out an output about keys and data packets. Returns whether it installed keys.
    pub(super) fn carry_out(&mut self, output: Output, insecure: bool, cx: &mut Cx<'_>) -> bool {
        let (channel, peer) = (&mut self.channel, (SERVER, self.remote));
        let done = cx.plane(|plane| channel.carry_out(output, plane, peer, insecure, cx.now));
        match done {
            Some(Ok(Some(keys))) => {
                let backend = keys.cipher.backend;
                cx.info(format!("Data Channel: cipher '{}', {backend}", keys.agreed));
                return true;
            }
            Some(Err(error)) => {
                self.fail(error);
                // They would use the keys.
                self.outputs.clear();
            }
            Some(Ok(None)) | None => {}
        }
        false
    }

    /// Checks the usage of the newest keys.
    pub(super) fn watch_keys(&mut self, now: Now, outputs: &mut Vec<Output>, cx: &Cx<'_>) {
        let Some(key_id) = self.session.newest_keys() else {
            return;
        };
        let channel = &mut self.channel;
        if let Some(Some(usage)) = cx.plane(|plane| channel.usage(plane, SERVER, key_id)) {
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
        statusdoc::peer(&self.channel, self.remote, state, &self.session, self.since)
    }
}
