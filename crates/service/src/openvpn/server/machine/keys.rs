//! A client's keys in the data plane, and their usage limits.

use super::{ClientKey, Look, Machine, PlaneCall, line};
use crate::openvpn::sizes;
use openvpn::data::protocol::{self, Material};
use openvpn::server::ClientId;
use openvpn::session::{CloseReason, DataKeys, Session, Times};
use plane::{CipherName, KeyUsage, PeerState};

impl Machine<'_> {
    /// Installs a session's new keys: the data plane opens packets with them from now on.
    pub(super) fn install(&mut self, id: ClientId, keys: Box<DataKeys>) {
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
                Ok(wanted) => client.shape = wanted,
                Err(error) => {
                    line!(self, Error, "{error}");
                    return self.with(id, |session, _, out| {
                        session.close(CloseReason::Local, out);
                    });
                }
            }
        }
        let (key, shape) = (client.key(id), client.shape.clone());
        line!(self, Info, "Data Channel: cipher '{}'", keys.cipher.name());
        let material = Material {
            keys,
            shape,
            allow_insecure: self.config.data.allow_insecure,
        };
        for call in PlaneCall::new_keys(key, address, material) {
            self.plane(call);
        }
    }

    /// Handles the data plane's answer about new keys.
    pub(super) fn keys_added(
        &mut self,
        id: ClientId,
        key_id: u8,
        added: Result<CipherName, String>,
    ) {
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        match added {
            Ok(cipher) => {
                client.cipher = Some(cipher);
                client.renewed = Some(self.now);
                if let Some(before) = client.bytes_before.get_mut(usize::from(key_id)) {
                    *before = client.bytes;
                }
            }
            Err(why) => {
                line!(self, Error, "{why}");
                self.with(id, |session, _, out| session.close(CloseReason::Local, out));
            }
        }
    }

    /// Requests the usage of each client's newest keys.
    pub(super) fn watch_keys(&mut self) {
        let mut watched = Vec::new();
        for (id, client) in &self.clients {
            let session = self.listener.session(*id);
            if let Some(key_id) = session.and_then(Session::newest_keys) {
                watched.push((client.key(*id), key_id));
            }
        }
        for (key, key_id) in watched {
            self.plane(PlaneCall::Peer(key, Look::Bytes));
            self.plane(PlaneCall::KeyUsage(key, key_id));
        }
    }

    /// Handles a peer's state from the data plane.
    pub(super) fn peer_state(&mut self, key: ClientKey, look: Look, state: &PeerState) {
        if !self.is_there(key) {
            return self.removed(key.number, state);
        }
        let Some(client) = self.clients.get_mut(&key.id) else {
            return;
        };
        client.bytes = state.rx_bytes + state.tx_bytes;
        match look {
            Look::Bytes => return,
            Look::Moved => {
                return self.about(key.id, |machine| machine.follow(key.id, state.line));
            }
            Look::Timers | Look::Lines => {}
        }
        let times = Times {
            last_received: state.times.last_received,
            last_sent: state.times.last_sent,
            payload_bytes: state.payload_bytes(),
        };
        self.with(key.id, |session, now, out| {
            session.activity(times);
            session.expired(now, out);
        });
    }

    /// Handles the usage of a client's keys.
    pub(super) fn key_used(&mut self, id: ClientId, key_id: u8, usage: KeyUsage) {
        let Some(client) = self.clients.get(&id) else {
            return;
        };
        let before = client.bytes_before.get(usize::from(key_id));
        let bytes = client.bytes.saturating_sub(before.copied().unwrap_or(0));
        let usage = protocol::usage(key_id, usage, bytes);
        self.with(id, |session, now, out| session.traffic(&usage, now, out));
    }
}
