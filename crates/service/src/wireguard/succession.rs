//! New keys for clients. A client that got a new file is a second peer without ranges, which replaces the first one: at
//! the second peer's first session, it gets the ranges of the first, which is removed. A third peer may replace the
//! second, and so on: the first session of one ends all that it replaces.
//!
//! A session needs the private key of the new file. For a server it begins with the client's first packet under the new
//! session, so a recorded handshake message that someone sends again ends nothing.

use super::machine::{Cx, Machine};
use config::types::Key32;
use config::uapi::{AllowedIpChange, SetDevice, SetPeer};
use plane::PeerId;
use std::borrow::Cow;
use std::collections::HashMap;

impl Machine {
    /// Gives a peer that has a session the ranges of the peers that it replaces, and removes these.
    pub(super) fn succeed(&mut self, id: PeerId, cx: &mut Cx<'_>) {
        let Some(entry) = self.peers.get_mut(&id) else {
            return;
        };
        let public_key = entry.public_key.clone();
        let mut next = entry.replaces.take();
        let (mut ranges, mut gone) = (Vec::new(), Vec::new());
        while let Some(old) = next {
            let before = self.peer_of(&old).filter(|it| *it != id);
            let Some(before) = before.and_then(|it| self.peers.get_mut(&it)) else {
                break;
            };
            ranges.extend(before.allowed_ips.iter().copied());
            // Taken: a circle of keys ends where it began.
            next = before.replaces.take();
            gone.push(*old);
        }
        if gone.is_empty() {
            return;
        }
        for entry in self.peers.values_mut() {
            if let Some(replaced) = entry.replaces.as_mut().filter(|it| gone.contains(it)) {
                **replaced = public_key.clone();
            }
        }
        let successor = SetPeer {
            public_key,
            allowed_ips: ranges.into_iter().map(AllowedIpChange::Add).collect(),
            ..SetPeer::default()
        };
        let gone = gone.into_iter().map(|public_key| SetPeer {
            public_key,
            remove: true,
            ..SetPeer::default()
        });
        self.log_peer(id, "uses its new file; its old key is out", cx);
        // All these peers exist, and the change has no setting that could be refused.
        let _ = self.set_device(
            &SetDevice {
                peers: [successor].into_iter().chain(gone).collect(),
                ..SetDevice::default()
            },
            cx,
        );
    }

    /// The configuration without the peers that were replaced already: a file names them until a command settles it.
    pub(super) fn settled<'a>(&self, set: &'a SetDevice) -> Cow<'a, SetDevice> {
        let mut settled = Cow::Borrowed(set);
        if set.peers.iter().all(|it| it.replaces.is_none()) {
            return settled;
        }
        let has_session = |peer: &SetPeer| {
            let entry = self.peer_of(&peer.public_key);
            let entry = entry.and_then(|id| self.peers.get(&id));
            entry.is_some_and(|it| it.last_handshake.is_some())
        };
        let peers = set.peers.iter().enumerate();
        let places: HashMap<&Key32, usize> = peers
            .filter(|(_, it)| !it.remove)
            .map(|(at, it)| (&it.public_key, at))
            .collect();
        // The peers that replaced others, by the keys of these.
        let mut heirs: HashMap<&Key32, usize> = HashMap::new();
        for (at, peer) in set.peers.iter().enumerate() {
            if settled.peers[at].remove || peer.replaces.is_none() || !has_session(peer) {
                continue;
            }
            let peers = &mut settled.to_mut().peers;
            let mut next = peers[at].replaces.take();
            while let Some(before) = next.and_then(|old| places.get(&*old).copied())
                && before != at
            {
                let old = &mut peers[before];
                old.remove = true;
                next = old.replaces.take();
                let ranges = std::mem::take(&mut old.allowed_ips);
                peers[at].allowed_ips.extend(ranges);
                heirs.insert(&set.peers[before].public_key, at);
            }
        }
        if let Cow::Owned(settled) = &mut settled {
            for peer in settled.peers.iter_mut().filter(|it| !it.remove) {
                while let Some(old) = &mut peer.replaces
                    && let Some(heir) = heirs.get(&**old)
                {
                    **old = set.peers[*heir].public_key.clone();
                }
            }
        }
        settled
    }
}
