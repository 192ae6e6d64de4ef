//! The server as the data plane's peer: its line, its keys and their usage.

use super::connection::Connection;
use crate::now::Now;
use crate::openvpn::client::effect::{Effects, PlaneCall, SERVER};
use crate::openvpn::client::event::Event;
use crate::openvpn::device;
use crate::openvpn::plane_call::Look;
use crate::openvpn::statusdoc::Known;
use openvpn::data::format::Shape;
use openvpn::data::protocol::{self, Material, session};
use openvpn::session::{DataKeys, Output, Times};
use plane::{CipherName, Endpoint, Line, Moving, PeerState, StreamId};
use std::net::SocketAddr;

/// State of the server's data channel.
pub(super) struct Peer {
    /// Packet properties that all its keys share.
    pub(super) shape: Shape,
    /// Key id of the newest keys.
    pub(super) key: Option<u8>,
    /// Bytes of its data packets, both directions, at the last count.
    bytes: u64,
    /// Value of `bytes` when the newest keys were installed.
    bytes_before: u64,
    /// When the newest keys were installed.
    renewed: Option<Now>,
    /// Cipher of the newest keys.
    cipher: Option<CipherName>,
}

impl Peer {
    /// Makes a server without keys, behind the dialled socket; `by_lines` if it is reached by several lines.
    pub(super) fn new(
        remote: SocketAddr,
        stream: Option<StreamId>,
        float: bool,
        by_lines: bool,
        out: &mut Effects,
    ) -> Self {
        let endpoint = Endpoint::new(remote);
        let line = match stream {
            Some(stream) => {
                out.plane(PlaneCall::AddStream(stream));
                Line::tcp(endpoint, stream)
            }
            None => Line::udp(endpoint),
        };
        let moving = if float { Moving::Tell } else { Moving::Stay };
        if by_lines {
            // Each line is set when it opens.
            out.plane(PlaneCall::AddPeer(SERVER, moving));
        } else {
            PlaneCall::new_peer(SERVER, line, moving).for_each(|call| out.plane(call));
        }
        let routes = device::everywhere(SERVER).to_vec();
        out.plane(PlaneCall::ChangeRoutes(routes));
        Self {
            shape: Shape {
                stream: stream.is_some(),
                ..Shape::default()
            },
            key: None,
            bytes: 0,
            bytes_before: 0,
            renewed: None,
            cipher: None,
        }
    }
}

impl Connection {
    /// Installs these keys: the data plane opens packets with them from now on.
    pub(super) fn install(&mut self, keys: Box<DataKeys>, allow_insecure: bool, out: &mut Effects) {
        self.peer.key = Some(keys.key_id);
        let material = Material {
            keys,
            shape: self.peer.shape.clone(),
            allow_insecure,
        };
        PlaneCall::new_keys(SERVER, self.remote, material).for_each(|call| out.plane(call));
    }

    /// Removes the keys of this key id.
    pub(super) fn remove_keys(&mut self, key_id: u8, out: &mut Effects) {
        self.peer.key = self.peer.key.filter(|newest| *newest != key_id);
        out.plane(PlaneCall::RemoveKeys(SERVER, session(SERVER, key_id)));
    }

    /// Requests the usage of the newest keys; the bytes were requested just before.
    pub(super) fn watch_keys(&self, out: &mut Effects) {
        if let Some(key_id) = self.peer.key {
            out.plane(PlaneCall::KeyUsage(SERVER, key_id));
        }
    }

    /// Handles an answer from the data plane.
    pub(super) fn answered(&mut self, event: &Event, now: Now, outputs: &mut Vec<Output>) {
        match *event {
            Event::PeerState(look, state) => {
                self.peer.bytes = state.rx_bytes + state.tx_bytes;
                if look == Look::Timers {
                    self.timers(&state, now, outputs);
                }
            }
            Event::KeysAdded(key_id, cipher) if self.peer.key == Some(key_id) => {
                self.peer.cipher = Some(cipher);
                self.peer.renewed = Some(now);
                self.peer.bytes_before = self.peer.bytes;
            }
            Event::KeyUsed(key_id, usage) if self.peer.key == Some(key_id) => {
                let bytes = self.peer.bytes.saturating_sub(self.peer.bytes_before);
                let usage = protocol::usage(key_id, usage, bytes);
                self.session.traffic(&usage, now.monotonic, outputs);
            }
            _ => {}
        }
    }

    /// Runs the session's due timers.
    fn timers(&mut self, state: &PeerState, now: Now, outputs: &mut Vec<Output>) {
        self.session.activity(Times {
            last_received: match self.incoming {
                None => state.times.last_received,
                // The keys that would open the server's packets are not installed yet.
                Some(_) => Some(now.monotonic),
            },
            last_sent: state.times.last_sent,
            payload_bytes: state.payload_bytes(),
        });
        let deadline = self.session.next_deadline();
        if deadline.is_some_and(|at| at <= now.monotonic) {
            self.session.expired(now.monotonic, outputs);
        }
    }

    /// Returns the server's part of the status. `state` comes from the data plane.
    pub(in crate::openvpn::client) fn known<'a>(&'a self, state: &'a PeerState) -> Known<'a> {
        let peer = &self.peer;
        Known {
            address: self.remote,
            stream: self.stream.is_some(),
            renewed: peer.renewed.map(|at| (at.wall, at.monotonic)),
            backend: peer.cipher.map(|it| it.backend),
            state,
            control: self.session.control_traffic(),
        }
    }
}
