//! Calls of the data plane.

use super::Executor;
use crate::openvpn::plane_call::PlaneAnswer;
use crate::openvpn::server::machine::{Event, PlaneCall};
use log::Level;
use plane::{PeerId, PeerState};
use std::io::ErrorKind;

impl<'a> Executor<'a> {
    /// Makes one call. Its result becomes an event for the machine.
    pub(super) fn call(&mut self, call: PlaneCall) -> Option<Event<'a>> {
        let listeners = &mut self.listeners;
        let answer = call.perform(&*self.plane, |id| listeners.take(id))?;
        Some(match answer {
            PlaneAnswer::StreamRefused(id, error) => {
                // The client closed the connection itself: worth a debug line only.
                let gone = error.kind() == ErrorKind::NotConnected;
                let level = if gone { Level::Debug } else { Level::Warn };
                log::log!(level, "{error}");
                Event::StreamClosed(id)
            }
            PlaneAnswer::PeerState(client, look, state) => Event::PeerState(client, look, state),
            PlaneAnswer::KeysAdded(client, key_id, added) => {
                Event::KeysAdded(client, key_id, added)
            }
            PlaneAnswer::KeyUsed(client, key_id, usage) => Event::KeyUsed(client, key_id, usage),
        })
    }

    /// Returns the data plane's state of a client, or the default for an unknown client.
    pub(super) fn peer_state(&self, id: PeerId) -> PeerState {
        self.plane.peer(id).unwrap_or_default()
    }
}
