//! New keys for clients. A client that got a new file is a second peer without ranges, which replaces the first one: at
//! the second peer's first session, it gets the ranges of the first, which is removed.
//!
//! A session needs the private key of the new file. For a server it begins with the client's first packet under the new
//! session, so a recorded handshake message that someone sends again ends nothing.

use super::machine::{Cx, Machine};
use config::uapi::{AllowedIpChange, SetDevice, SetPeer};
use crypto::x25519::PublicKey;
use plane::PeerId;
use std::borrow::Cow;

impl Machine {
    /// Gives a peer that has a session the ranges of the peer that it replaces, and removes that peer.
    pub(super) fn succeed(&mut self, id: PeerId, cx: &mut Cx<'_>) {
        let Some(entry) = self.peers.get_mut(&id) else {
            return;
        };
        let Some(old) = entry.replaces.take() else {
            return;
        };
        let public_key = entry.public_key.clone();
        let known = PublicKey::from(*old.as_bytes());
        let known = self.device.peer_by_public_key(&known);
        let Some(before) = known
            .filter(|it| *it != id)
            .and_then(|it| self.peers.get(&it))
        else {
            return;
        };
        let ranges = before.allowed_ips.iter().copied();
        let successor = SetPeer {
            public_key,
            allowed_ips: ranges.map(AllowedIpChange::Add).collect(),
            ..SetPeer::default()
        };
        let gone = SetPeer {
            public_key: *old,
            remove: true,
            ..SetPeer::default()
        };
        self.log_peer(id, "uses its new file; its old key is out", cx);
        // Both peers exist, and the change has no setting that could be refused.
        let _ = self.set_device(
            &SetDevice {
                peers: vec![successor, gone],
                ..SetDevice::default()
            },
            cx,
        );
    }

    /// The configuration without the peers that were replaced already: a file names them until a command settles it.
    pub(super) fn settled<'a>(&self, set: &'a SetDevice) -> Cow<'a, SetDevice> {
        let has_session = |peer: &SetPeer| {
            let key = PublicKey::from(*peer.public_key.as_bytes());
            let known = self.device.peer_by_public_key(&key);
            let entry = known.and_then(|id| self.peers.get(&id));
            entry.is_some_and(|it| it.last_handshake.is_some())
        };
        let mut settled = Cow::Borrowed(set);
        for (at, peer) in set.peers.iter().enumerate() {
            let Some(old) = peer.replaces.as_ref().filter(|_| has_session(peer)) else {
                continue;
            };
            let mut peers = set.peers.iter();
            let Some(before) = peers.position(|it| it.public_key == **old && !it.remove) else {
                continue;
            };
            let peers = &mut settled.to_mut().peers;
            let ranges = std::mem::take(&mut peers[before].allowed_ips);
            peers[before].remove = true;
            peers[at].allowed_ips.extend(ranges);
            peers[at].replaces = None;
        }
        settled
    }
}
