//! Configurations that UAPI clients and files request.

use super::effect::{Effect, PlaneRequest, Refused};
use super::machine::{Machine, Turn};
use super::names::Name;
use super::peers::PeerEntry;
use super::port::Purpose;
use config::types::{self, AllowedIp, Key32};
use config::uapi::{AllowedIpChange, SetDevice, SetPeer};
use crypto::x25519::{PrivateKey, PublicKey};
use plane::{Endpoint, PeerId, RouteChange};
use wireguard::{AddPeerError, Output};

// Linux's `errno` values of the UAPI, the same on every architecture we build for.
const EPERM: i32 = 1;
const EBUSY: i32 = 16;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;

/// Most configurations that wait for the current one to end.
const WAITING_MAX: usize = 64;

/// Configuration request of a client.
#[derive(Debug)]
pub(super) struct Configuration {
    client: u64,
    set: SetDevice,
}

/// The configuration that is being applied.
#[derive(Debug)]
pub(super) struct Job {
    configuration: Configuration,
    step: Step,
}

/// What a job waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Mark,
    Port,
}

impl Machine {
    /// Applies a configuration, after those that came before it. After an error, settings before the fault stay
    /// applied, as with the kernel.
    pub(super) fn configure(&mut self, client: u64, set: SetDevice, turn: &mut Turn<'_>) {
        let configuration = Configuration { client, set };
        if self.job.is_none() {
            return self.begin(configuration, turn);
        }
        if self.waiting.len() < WAITING_MAX {
            return self.waiting.push_back(configuration);
        }
        let words = "too many configurations at once".to_owned();
        let errno = EBUSY;
        let result = Err(Refused { errno, words });
        turn.effects.push(Effect::Answer { client, result });
    }

    fn begin(&mut self, configuration: Configuration, turn: &mut Turn<'_>) {
        if let Some(key) = &configuration.set.private_key {
            self.set_private_key(key, turn);
        }
        let Some(mark) = configuration.set.fwmark else {
            return self.go_on_with_port(configuration, turn);
        };
        self.mark = mark;
        turn.effects.push(Effect::Mark(mark));
        let step = Step::Mark;
        self.job = Some(Job {
            configuration,
            step,
        });
    }

    /// Handles the result of [`Effect::Mark`].
    pub(super) fn marked(&mut self, result: Result<(), String>, turn: &mut Turn<'_>) {
        let Some(job) = self.job.take_if(|job| job.step == Step::Mark) else {
            return;
        };
        match result {
            Ok(()) => self.go_on_with_port(job.configuration, turn),
            Err(words) => {
                let words = format!("fwmark: {words}");
                self.answer(job.configuration.client, refused(EPERM, words), turn);
            }
        }
    }

    fn go_on_with_port(&mut self, configuration: Configuration, turn: &mut Turn<'_>) {
        let Some(port) = configuration.set.listen_port else {
            return self.go_on_with_peers(&configuration, turn);
        };
        let old = std::mem::replace(&mut self.port, port);
        let stays = port != 0 && self.bound == Some(port);
        if self.bound.is_none() || stays {
            return self.go_on_with_peers(&configuration, turn);
        }
        let step = Step::Port;
        // Stored first, as with lines the answer comes at once.
        self.job = Some(Job {
            configuration,
            step,
        });
        self.bind(Purpose::Port(old), turn);
    }

    /// Handles the result of opening the sockets that a job waits for.
    pub(super) fn port_done(&mut self, refused: Option<Refused>, turn: &mut Turn<'_>) {
        let Some(job) = self.job.take_if(|job| job.step == Step::Port) else {
            return;
        };
        match refused {
            None => self.go_on_with_peers(&job.configuration, turn),
            Some(refused) => self.answer(job.configuration.client, Err(refused), turn),
        }
    }

    fn go_on_with_peers(&mut self, configuration: &Configuration, turn: &mut Turn<'_>) {
        let Configuration { client, set } = configuration;
        let mut out = Vec::new();
        if set.replace_peers {
            for id in self.peers.keys().copied().collect::<Vec<_>>() {
                self.remove_peer(id, &mut out, turn);
            }
        }
        let mut peers = set.peers.iter();
        let result = peers.try_for_each(|peer| self.set_peer(peer, &mut out, turn));
        turn.commit_routes();
        self.translate(out, None, turn);
        self.answer(*client, result, turn);
    }

    fn answer(&mut self, client: u64, result: Result<(), Refused>, turn: &mut Turn<'_>) {
        turn.effects.push(Effect::Answer { client, result });
        if let Some(next) = self.waiting.pop_front() {
            self.begin(next, turn);
        }
    }

    fn set_private_key(&mut self, key: &Key32, turn: &mut Turn<'_>) {
        let private = (!key.is_zero()).then(|| PrivateKey::new(*key.as_bytes()));
        self.private_key = private
            .as_ref()
            .map(|private| Key32::new(*private.as_bytes()));
        let mut out = Vec::new();
        let now = turn.now.monotonic;
        self.device.set_private_key(private, now, &mut out);
        // A peer with our own key is removed before anything else is configured.
        self.translate(out, None, turn);
    }

    fn set_peer(
        &mut self,
        set: &SetPeer,
        out: &mut Vec<Output>,
        turn: &mut Turn<'_>,
    ) -> Result<(), Refused> {
        let now = turn.now.monotonic;
        let public = PublicKey::from(*set.public_key.as_bytes());
        let known = self.device.peer_by_public_key(&public);
        if set.remove {
            if let Some(id) = known {
                self.remove_peer(id, out, turn);
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
                    self.add_by_lines(id, turn);
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
            self.call_by_lines(id, Endpoint::new(addr), turn);
            // An address in a configuration replaces the name.
            self.names.remove(&id);
            self.device.set_endpoint(id, Some(addr), now, out);
        }
        if set.replace_allowed_ips
            && let Some(entry) = self.peers.get_mut(&id)
        {
            for range in std::mem::take(&mut entry.allowed_ips) {
                self.release(&range, turn);
            }
        }
        for change in &set.allowed_ips {
            self.change_allowed_ip(id, change, turn);
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

    fn change_allowed_ip(&mut self, id: PeerId, change: &AllowedIpChange, turn: &mut Turn<'_>) {
        let Some(entry) = self.peers.get_mut(&id) else {
            return;
        };
        match change {
            AllowedIpChange::Remove(range) => {
                if entry.allowed_ips.remove(range) {
                    self.release(range, turn);
                }
            }
            AllowedIpChange::Add(range) => {
                entry.allowed_ips.insert(*range);
                let before = self.owners.insert(*range, id).filter(|it| *it != id);
                if let Some(loser) = before.and_then(|it| self.peers.get_mut(&it)) {
                    loser.allowed_ips.remove(range);
                }
                turn.routes.push(RouteChange::Add {
                    address: range.addr(),
                    len: range.prefix(),
                    peer: id,
                });
            }
        }
    }

    /// Takes a range from the peer that owns it.
    fn release(&mut self, range: &AllowedIp, turn: &mut Turn<'_>) {
        if let Some(peer) = self.owners.remove(range) {
            turn.routes.push(RouteChange::Remove {
                address: range.addr(),
                len: range.prefix(),
                peer,
            });
        }
    }

    /// Removes a peer, after the effects that were put out before.
    fn remove_peer(&mut self, id: PeerId, out: &mut Vec<Output>, turn: &mut Turn<'_>) {
        self.device.remove_peer(id, out);
        self.translate(std::mem::take(out), None, turn);
        self.forget_peer(id, turn);
    }

    pub(super) fn forget_peer(&mut self, id: PeerId, turn: &mut Turn<'_>) {
        self.names.remove(&id);
        self.forget_lines(id);
        if let Some(entry) = self.peers.remove(&id) {
            for range in &entry.allowed_ips {
                self.owners.remove(range);
            }
            // Another peer may get the number, so the changes of routes for it must take effect first.
            turn.commit_routes();
            turn.plane(PlaneRequest::RemovePeer(id));
        }
    }

    /// Sets a peer's endpoint: an address, or a name that is looked up from now on.
    pub(super) fn set_endpoint(
        &mut self,
        public_key: &Key32,
        endpoint: &types::Endpoint,
        turn: &mut Turn<'_>,
    ) {
        let public = PublicKey::from(*public_key.as_bytes());
        let Some(id) = self.device.peer_by_public_key(&public) else {
            return;
        };
        if let Some(name) = Name::of(endpoint, turn.now.monotonic) {
            self.names.insert(id, name);
            return;
        }
        self.names.remove(&id);
        if let Some(addr) = endpoint.socket_addr() {
            self.call_at(id, Endpoint::new(addr), turn);
        }
    }

    /// Calls a peer at this address from now on, at once if a handshake waits for an address.
    pub(super) fn call_at(&mut self, id: PeerId, at: Endpoint, turn: &mut Turn<'_>) {
        if !self.peers.contains_key(&id) {
            return;
        }
        self.call_by_lines(id, at, turn);
        let mut out = Vec::new();
        let now = turn.now.monotonic;
        self.device.set_endpoint(id, Some(at.addr), now, &mut out);
        self.translate(out, None, turn);
    }
}

fn refused(errno: i32, words: String) -> Result<(), Refused> {
    Err(Refused { errno, words })
}
