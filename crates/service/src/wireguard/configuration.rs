//! Configurations that UAPI clients and files request.

use super::host::Refused;
use super::machine::{Cx, Machine};
use super::peers::PeerEntry;
#[cfg(feature = "amnezia")]
use config::amnezia::Change;
use config::types::{self, AllowedIp, Key32};
use config::uapi::{AllowedIpChange, SetDevice, SetPeer};
use crypto::x25519::{PrivateKey, PublicKey};
use lines::names::Name;
use plane::{Endpoint, PeerId, RouteChange};
#[cfg(feature = "postquantum")]
use std::collections::BTreeMap;
#[cfg(feature = "amnezia")]
use wireguard::amnezia::Profile;
use wireguard::{AddPeerError, Output};

// Linux's `errno` values of the UAPI, the same on every architecture we build for.
const EPERM: i32 = 1;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;
const EADDRINUSE: i32 = 98;

impl Machine {
    /// Applies a configuration. After an error, settings before the fault stay applied, as with the kernel.
    ///
    /// # Errors
    /// The first setting that is refused.
    pub fn configure(&mut self, set: &SetDevice, cx: &mut Cx<'_>) -> Result<(), Refused> {
        #[cfg(feature = "server")]
        let set = &*self.settled(set);
        #[cfg(feature = "server")]
        self.tell_removed(set, cx);
        self.turn(cx, |machine, cx| machine.set_device(set, cx))
    }

    /// Writes to the log which clients a change removes. Peers with an endpoint are servers, of which a pool changes often.
    #[cfg(feature = "server")]
    fn tell_removed(&self, set: &SetDevice, cx: &mut Cx<'_>) {
        let is_client = |id: &PeerId| {
            let entry = self.peers.get(id);
            entry.is_some_and(|it| it.configured.is_none()) && !self.names.contains_key(id)
        };
        let removed = set.peers.iter().filter(|it| it.remove);
        let removed = removed.filter_map(|it| self.peer_of(&it.public_key));
        for id in removed.filter(is_client) {
            self.log_peer(id, "is removed: its key is refused from now on", cx);
        }
    }

    pub(super) fn set_device(&mut self, set: &SetDevice, cx: &mut Cx<'_>) -> Result<(), Refused> {
        #[cfg(feature = "amnezia")]
        if !set.amnezia.is_empty() {
            self.set_amnezia(&set.amnezia, cx)?;
        }
        if let Some(key) = &set.private_key {
            self.set_private_key(key, cx);
        }
        if let Some(mark) = set.fwmark {
            self.mark = mark;
            let marked = cx.host.set_mark(mark);
            marked.or_else(|words| refused(EPERM, format!("fwmark: {words}")))?;
        }
        if let Some(port) = set.listen_port {
            self.set_port(port, cx)?;
        }
        let mut out = Vec::new();
        // `wg setconf` names the peers anew, and no policies: a peer that remains keeps its own.
        #[cfg(feature = "postquantum")]
        let kept = match set.replace_peers {
            true => self.policies(),
            false => BTreeMap::new(),
        };
        if set.replace_peers {
            for id in self.peers.keys().copied().collect::<Vec<_>>() {
                self.remove_peer(id, &mut out, cx);
            }
        }
        let mut peers = set.peers.iter();
        let result = peers.try_for_each(|peer| {
            self.set_peer(peer, &mut out, cx)?;
            #[cfg(feature = "postquantum")]
            let kept = || kept.get(peer.public_key.as_bytes()).copied();
            #[cfg(feature = "postquantum")]
            if let Some(policy) = peer.post_quantum.or_else(kept)
                && let Some(id) = self.peer_of(&peer.public_key)
            {
                self.set_post_quantum(id, policy, &mut out);
            }
            Ok(())
        });
        cx.commit_routes();
        self.translate(out, None, cx);
        result
    }

    /// Changes AmneziaWG's settings, or refuses them before anything has changed. Packets that wait for a session keep
    /// waiting: they are laid out for the next.
    #[cfg(feature = "amnezia")]
    fn set_amnezia(&mut self, change: &Change, cx: &mut Cx<'_>) -> Result<(), Refused> {
        let current = self.device.settings();
        let settings = match change.apply(&current) {
            Ok(settings) if settings == current => return Ok(()),
            Ok(settings) => settings,
            Err(words) => return refused(EINVAL, words),
        };
        let hints = settings.hints((self.mtu > 0).then_some(self.mtu));
        let profile = match Profile::new(settings) {
            Ok(profile) => profile,
            Err(fault) => return refused(EINVAL, fault.to_string()),
        };
        for hint in hints {
            cx.log(log::Level::Warn, &hint.to_string());
        }
        let (mut out, now) = (Vec::new(), cx.now.monotonic);
        self.device.set_profile(profile.clone(), now, &mut out);
        cx.host.set_profile(profile);
        if self.device.settings().prefix != current.prefix {
            // The MTU depends on `S4`.
            cx.host.changed();
        }
        for peer in self.peers.values_mut() {
            peer.difference = None;
        }
        self.translate(out, None, cx);
        #[cfg(feature = "postquantum")]
        self.follow_all_post_quantum(cx);
        Ok(())
    }

    fn set_port(&mut self, port: u16, cx: &mut Cx<'_>) -> Result<(), Refused> {
        let old = std::mem::replace(&mut self.port, port);
        let stays = port != 0 && self.bound == Some(port);
        if self.bound.is_none() || stays {
            return Ok(());
        }
        self.bind(cx).or_else(|words| {
            self.port = old;
            refused(EADDRINUSE, words)
        })
    }

    fn set_private_key(&mut self, key: &Key32, cx: &mut Cx<'_>) {
        let private = (!key.is_zero()).then(|| PrivateKey::new(*key.as_bytes()));
        self.private_key = private
            .as_ref()
            .map(|private| Key32::new(*private.as_bytes()));
        let mut out = Vec::new();
        let now = cx.now.monotonic;
        self.device.set_private_key(private, now, &mut out);
        // A peer with our own key is removed before anything else is configured.
        self.translate(out, None, cx);
    }

    fn set_peer(
        &mut self,
        set: &SetPeer,
        out: &mut Vec<Output>,
        cx: &mut Cx<'_>,
    ) -> Result<(), Refused> {
        let now = cx.now.monotonic;
        let public = PublicKey::from(*set.public_key.as_bytes());
        let known = self.device.peer_by_public_key(&public);
        if set.remove {
            if let Some(id) = known {
                self.remove_peer(id, out, cx);
            }
            return Ok(());
        }
        let id = match known {
            Some(id) => id,
            None if set.update_only => return Ok(()),
            None => match self.device.add_peer(public) {
                Ok(id) => {
                    let entry = PeerEntry::new(set.public_key.clone());
                    self.peers.insert(id, entry);
                    self.add_by_lines(id, cx);
                    id
                }
                // Ignored, as in the kernel: a list of peers may contain oneself.
                Err(AddPeerError::OwnKey) => return Ok(()),
                Err(e) => return refused(ENOSPC, e.to_string()),
            },
        };
        let Some(entry) = self.peers.get_mut(&id) else {
            return refused(EINVAL, "peer vanished".to_owned());
        };
        if let Some(key) = &set.preshared_key {
            entry.preshared_key = (!key.is_zero()).then(|| key.clone());
            self.device
                .set_preshared_key(id, crypto::Key::from(*key.as_bytes()));
        }
        if let Some(endpoint) = &set.endpoint {
            let Some(addr) = endpoint.socket_addr() else {
                let words = format!("endpoint {endpoint}: must be an address");
                return refused(EINVAL, words);
            };
            entry.call_at(Some(addr));
            self.call_by_lines(id, Endpoint::new(addr), cx);
            // An address in a configuration replaces the name.
            self.names.remove(&id);
            self.device.set_endpoint(id, Some(addr), now, out);
        }
        if set.replace_allowed_ips
            && let Some(entry) = self.peers.get_mut(&id)
        {
            entry.replaces.clone_from(&set.replaces);
            for range in std::mem::take(&mut entry.allowed_ips) {
                self.release(&range, cx);
            }
        }
        for change in &set.allowed_ips {
            self.change_allowed_ip(id, change, cx);
        }
        if let Some(seconds) = set.persistent_keepalive {
            if let Some(entry) = self.peers.get_mut(&id) {
                entry.persistent_keepalive = seconds;
            }
            // Comes last: the keepalive that this may send needs the routes and the address.
            self.device.set_persistent_keepalive(id, seconds, now, out);
        }
        Ok(())
    }

    fn change_allowed_ip(&mut self, id: PeerId, change: &AllowedIpChange, cx: &mut Cx<'_>) {
        let Some(entry) = self.peers.get_mut(&id) else {
            return;
        };
        match change {
            AllowedIpChange::Remove(range) => {
                if entry.allowed_ips.remove(range) {
                    self.release(range, cx);
                }
            }
            AllowedIpChange::Add(range) => {
                entry.allowed_ips.insert(*range);
                let before = self.owners.insert(*range, id).filter(|it| *it != id);
                if let Some(loser) = before.and_then(|it| self.peers.get_mut(&it)) {
                    loser.allowed_ips.remove(range);
                }
                cx.routes.push(RouteChange::Add {
                    address: range.addr(),
                    len: range.prefix(),
                    peer: id,
                });
            }
        }
    }

    /// Takes a range from the peer that owns it.
    fn release(&mut self, range: &AllowedIp, cx: &mut Cx<'_>) {
        if let Some(peer) = self.owners.remove(range) {
            cx.routes.push(RouteChange::Remove {
                address: range.addr(),
                len: range.prefix(),
                peer,
            });
        }
    }

    /// Removes a peer, after the outputs of before.
    fn remove_peer(&mut self, id: PeerId, out: &mut Vec<Output>, cx: &mut Cx<'_>) {
        self.device.remove_peer(id, out);
        self.translate(std::mem::take(out), None, cx);
        self.forget_peer(id, cx);
    }

    pub(super) fn forget_peer(&mut self, id: PeerId, cx: &mut Cx<'_>) {
        self.names.remove(&id);
        self.forget_lines(id);
        if let Some(entry) = self.peers.remove(&id) {
            for range in &entry.allowed_ips {
                self.owners.remove(range);
            }
            // Another peer may get the number, so the changes of routes for it must take effect first.
            cx.commit_routes();
            cx.plane.remove_peer(id);
        }
    }

    /// Sets a peer's endpoint: an address, or a name that is looked up from now on.
    pub(super) fn set_endpoint(
        &mut self,
        public_key: &Key32,
        endpoint: &types::Endpoint,
        cx: &mut Cx<'_>,
    ) {
        let public = PublicKey::from(*public_key.as_bytes());
        let Some(id) = self.device.peer_by_public_key(&public) else {
            return;
        };
        if let Some(entry) = self.peers.get_mut(&id) {
            entry.call_at(endpoint.socket_addr());
        }
        if let Some(name) = Name::of(endpoint, cx.now.monotonic) {
            self.names.insert(id, name);
            return;
        }
        self.names.remove(&id);
        if let Some(addr) = endpoint.socket_addr() {
            self.call_at(id, Endpoint::new(addr), cx);
        }
    }

    /// Calls a peer at this address from now on, at once if a handshake waits for an address.
    pub(super) fn call_at(&mut self, id: PeerId, at: Endpoint, cx: &mut Cx<'_>) {
        if !self.peers.contains_key(&id) {
            return;
        }
        self.call_by_lines(id, at, cx);
        let mut out = Vec::new();
        let now = cx.now.monotonic;
        self.device.set_endpoint(id, Some(at.addr), now, &mut out);
        self.translate(out, None, cx);
    }
}

fn refused(errno: i32, words: String) -> Result<(), Refused> {
    Err(Refused { errno, words })
}

#[cfg(all(test, feature = "amnezia"))]
mod tests;
