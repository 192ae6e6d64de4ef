//! A peer's data channel: its keys in the data plane, their usage, and its address.

use openvpn::data::format::Shape;
use openvpn::data::inband::PING;
use openvpn::data::protocol::{self, Material, session, session_keys};
use openvpn::data::wire::{KEYS_PER_PEER, OpenVpn as Packets};
use openvpn::session::{DataKeys, KeyUsage, Output, Times};
use plane::Now;
use plane::{CipherName, DataPlane, Line, Moving, PeerId, PeerState, Sender, Transport};
use std::net::SocketAddr;

/// Data plane of a client or server, as their machines call it.
pub(crate) type Plane = dyn DataPlane<Protocol = Packets>;

/// State of a peer's data channel.
#[derive(Default)]
pub(crate) struct Channel {
    /// Packet properties that all keys of the channel share.
    pub(crate) shape: Shape,
    /// Cipher of the newest keys.
    pub(crate) cipher: Option<CipherName>,
    /// When the newest keys were installed.
    pub(crate) renewed: Option<Now>,
    /// Bytes of data packets in both directions, at the last count.
    bytes: u64,
    /// Value of `bytes` when each key id's keys were installed; `None` while it has no keys.
    bytes_before: [Option<u64>; KEYS_PER_PEER as usize],
}

/// Keys that the data plane opens packets with from now on.
pub(crate) struct Installed {
    /// The cipher that the peers agreed on.
    pub(crate) agreed: &'static str,
    pub(crate) cipher: CipherName,
}

impl Channel {
    /// Makes a channel without keys; `stream` for one over TCP.
    pub(crate) fn new(stream: bool) -> Self {
        let shape = Shape {
            stream,
            ..Shape::default()
        };
        Self {
            shape,
            ..Self::default()
        }
    }

    /// Reads the peer's state from the data plane; the default state for an unknown peer.
    pub(crate) fn look(&mut self, plane: &Plane, id: PeerId) -> PeerState {
        let state = plane.peer(id).unwrap_or_default();
        self.bytes = state.rx_bytes + state.tx_bytes;
        state
    }

    /// Whether the data plane has keys of the peer.
    pub(crate) fn has_keys(&self) -> bool {
        self.bytes_before.iter().any(Option::is_some)
    }

    /// Carries out an output about the keys and data packets of the peer at this address; any other does nothing.
    /// Returns keys that it installed.
    ///
    /// # Errors
    /// Says why the keys cannot be used.
    pub(crate) fn carry_out(
        &mut self,
        output: Output,
        plane: &Plane,
        (id, address): (PeerId, SocketAddr),
        allow_insecure: bool,
        now: Now,
    ) -> Result<Option<Installed>, String> {
        match output {
            Output::InstallKeys(keys) => {
                let agreed = keys.cipher.name();
                let cipher = self.install(plane, (id, address), keys, allow_insecure, now)?;
                return Ok(Some(Installed { agreed, cipher }));
            }
            Output::UseForSending { key_id } => plane.send_with(id, session(id, key_id)),
            Output::RemoveKeys { key_id } => {
                plane.remove_keys(id, session(id, key_id));
                self.set_bytes_before(key_id, None);
            }
            Output::SendPing => plane.inject(id, &PING),
            Output::SendData(payload) => plane.inject(id, &payload),
            _ => {}
        }
        Ok(None)
    }

    fn install(
        &mut self,
        plane: &Plane,
        (id, address): (PeerId, SocketAddr),
        keys: Box<DataKeys>,
        allow_insecure: bool,
        now: Now,
    ) -> Result<CipherName, String> {
        if !self.shape.stream {
            // Packets without a peer-id are matched by source address.
            plane.set_sender(id, Sender::Address(address), session(id, 0));
        }
        // Bytes are read before the keys: later bytes count for the new keys.
        self.look(plane, id);
        let key_id = keys.key_id;
        let material = Material {
            keys,
            shape: self.shape.clone(),
            allow_insecure,
        };
        let added = plane.add_keys(id, session_keys(id, material, now.monotonic));
        let cipher = added.map_err(|error| error.to_string())?;
        self.cipher = Some(cipher);
        self.renewed = Some(now);
        self.set_bytes_before(key_id, Some(self.bytes));
        Ok(cipher)
    }

    fn set_bytes_before(&mut self, key_id: u8, bytes: Option<u64>) {
        if let Some(before) = self.bytes_before.get_mut(usize::from(key_id)) {
            *before = bytes;
        }
    }

    /// Returns the usage of the keys with this key id; `None` if the data plane does not have them.
    pub(crate) fn usage(&mut self, plane: &Plane, id: PeerId, key_id: u8) -> Option<KeyUsage> {
        let before = (*self.bytes_before.get(usize::from(key_id))?)?;
        self.look(plane, id);
        let bytes = self.bytes.saturating_sub(before);
        let used = plane.key_usage(id, session(id, key_id));
        Some(protocol::usage(key_id, used, bytes))
    }
}

/// Returns the part of a peer's state that its session's timers need.
pub(crate) const fn times(state: &PeerState) -> Times {
    Times {
        last_received: state.times.last_received,
        last_sent: state.times.last_sent,
        payload_bytes: state.payload_bytes(),
    }
}

/// Adds a peer that is reached over this line.
pub(crate) fn add_peer(plane: &Plane, id: PeerId, line: Line, moving: Moving) {
    plane.add_peer(id, moving);
    plane.set_line(id, line);
    if let Transport::Tcp(stream) = line.transport {
        // Packets without a peer-id belong to the peer at the other end of the connection.
        plane.set_sender(id, Sender::Stream(stream), session(id, 0));
    }
}

/// Follows a UDP peer to a new address.
pub(crate) fn follow(plane: &Plane, id: PeerId, from: SocketAddr, to: SocketAddr) {
    plane.clear_sender(id, Sender::Address(from));
    plane.set_sender(id, Sender::Address(to), session(id, 0));
}

#[cfg(test)]
mod tests;
