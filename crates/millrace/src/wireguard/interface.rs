//! One WireGuard interface: configuration, state machine and data plane together.

use super::names::Name;
use super::peers::PeerEntry;
use super::sockets::SocketPlan;
use super::wire::WireGuard;
use crate::status::Refusals;
use config::types::{AllowedIp, Key32};
use config::uapi::{AllowedIpChange, DeviceState, PeerState, SetDevice, SetPeer};
use crypto::PacketCipher;
use crypto::x25519::{PrivateKey, PublicKey};
use engine::{Peer, Routes, Sockets, Tunnel};
use netio::netlink::Netlink;
use netio::udp::Endpoint;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use wireguard::{AddPeerError, Device, Output, PeerId};

/// `errno` values of the UAPI, the same on every architecture we build for.
const EADDRINUSE: i32 = 98;
const EINVAL: i32 = 22;
const EPERM: i32 = 1;
const ENOSPC: i32 = 28;

/// An endpoint that is a name.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    /// Whose it is.
    pub(crate) public_key: Key32,
    /// The name and the port.
    pub(crate) endpoint: config::types::Endpoint,
    /// Whether a look-up has ended, well or not.
    pub(crate) is_tried: bool,
    /// What was found; none yet if it is empty.
    pub(crate) addresses: Vec<SocketAddr>,
}

/// A running interface.
pub(crate) struct Interface {
    pub(super) tunnel: Tunnel<WireGuard>,
    pub(super) device: Device,
    pub(super) peers: HashMap<PeerId, PeerEntry>,
    /// Those of the peers whose endpoints are names.
    pub(super) names: HashMap<PeerId, Name>,
    routes: Routes<Arc<Peer>>,
    pub(super) sockets: SocketPlan,
    pub(super) private_key: Option<Key32>,
    /// Replaces the packets' cipher by none; for measuring the engine alone.
    #[cfg(feature = "null-cipher")]
    null_cipher: bool,
    /// Handshake messages that led to no keys.
    pub(super) refusals: Refusals,
    /// The sockets are open.
    up: bool,
    /// The link was up when last heard of.
    link_up: bool,
}

impl Interface {
    pub(super) fn new(
        tunnel: Tunnel<WireGuard>,
        sockets: SocketPlan,
        #[cfg(feature = "null-cipher")] null_cipher: bool,
    ) -> Self {
        let mut seed = [0; 8];
        crypto::random(&mut seed);
        let seed = u64::from_ne_bytes(seed);
        Self {
            tunnel,
            device: Device::new(Instant::now(), SystemTime::now(), seed),
            peers: HashMap::new(),
            names: HashMap::new(),
            routes: Routes::default(),
            sockets,
            private_key: None,
            #[cfg(feature = "null-cipher")]
            null_cipher,
            refusals: Refusals::new(wireguard::Dropped::ALL.map(wireguard::Dropped::name)),
            up: false,
            link_up: false,
        }
    }

    /// The moment, for the state machine, which is told the time of day at the same time: whatever it does next may begin
    /// a handshake, and the clock may have been set since it did last.
    pub(super) fn now(&mut self) -> Instant {
        let now = Instant::now();
        self.device.set_wall_clock(now, SystemTime::now());
        now
    }

    /// Opens the sockets, if they are not open.
    pub(super) fn bring_up(&mut self) -> Result<(), netio::udp::SocketError> {
        if !self.up {
            self.tunnel.set_sockets(self.sockets.open()?);
            self.up = true;
        }
        Ok(())
    }

    /// Closes the sockets: a link that is down neither sends nor answers.
    pub(super) fn bring_down(&mut self) {
        self.tunnel.set_sockets(Sockets::default());
        self.up = false;
    }

    /// Follows the link: one that goes down closes the sockets, one that comes up opens them.
    /// Before it is up for the first time they are open already, so that a handshake can be on
    /// its way while addresses are still being set.
    pub(super) fn link_state(&mut self, up: bool) {
        if up == self.link_up {
            return;
        }
        self.link_up = up;
        if !up {
            self.bring_down();
        } else if let Err(e) = self.bring_up() {
            log::warn!("{e}; trying again");
        }
    }

    /// Whether the link is up and the sockets could not be opened: somebody has the port, or a
    /// worker still holds the sockets that were closed a moment ago.
    pub(super) fn lacks_sockets(&self) -> bool {
        self.link_up && !self.up
    }

    /// The routing tables have changed. Peers that are now reached through another interface than
    /// the one their packets come in on are called from whatever address the kernel chooses,
    /// until they are heard from again. (The kernel module looks at every packet; here one look
    /// a change must do.)
    pub(super) fn routes_changed(&self, netlink: &mut Netlink) {
        for entry in self.peers.values() {
            let Some(Endpoint {
                addr,
                source: Some(source),
            }) = entry.engine.endpoint()
            else {
                continue;
            };
            // Without a key nothing is sent, and the handshake will bring a new source.
            if entry.engine.sent_on_key().is_none() {
                continue;
            }
            match netlink.route_get(addr.ip(), self.sockets.fwmark) {
                Ok(route) if route.dev == source.ifindex => {}
                _ => entry.engine.clear_source(),
            }
        }
    }

    pub(super) fn port(&self) -> u16 {
        let port = self
            .tunnel
            .sockets()
            .iter()
            .next()
            .map(netio::udp::UdpSocket::port);
        port.unwrap_or(self.sockets.port)
    }

    /// Applies a configuration. On error what came before it stays applied, as with the kernel.
    ///
    /// # Errors
    /// An `errno` for the `wg` tool, and words for a log.
    pub(crate) fn set(&mut self, set: &SetDevice) -> Result<(), (i32, String)> {
        let now = self.now();
        let mut out = Vec::new();
        if let Some(key) = &set.private_key {
            self.set_private_key(key, now, &mut out);
        }
        if let Some(fwmark) = set.fwmark {
            self.sockets.fwmark = fwmark;
            for socket in self.tunnel.sockets().iter() {
                let words = |e| (EPERM, format!("fwmark: {e}"));
                socket.set_fwmark(fwmark).map_err(words)?;
            }
        }
        if let Some(port) = set.listen_port {
            self.set_port(port)?;
        }
        if set.replace_peers {
            for id in self.peers.keys().copied().collect::<Vec<_>>() {
                self.remove_peer(id, &mut out);
            }
        }
        let result = set
            .peers
            .iter()
            .try_for_each(|peer| self.set_peer(peer, now, &mut out));
        self.tunnel.set_routes(self.routes.clone());
        self.perform(&mut out, now);
        result
    }

    fn set_private_key(&mut self, key: &Key32, now: Instant, out: &mut Vec<Output>) {
        let private = (!key.is_zero()).then(|| PrivateKey::new(*key.as_bytes()));
        self.private_key = private
            .as_ref()
            .map(|private| Key32::new(*private.as_bytes()));
        self.device.set_private_key(private, now, out);
        // A peer with our own key is gone before anything else is configured.
        self.perform(out, now);
    }

    fn set_port(&mut self, port: u16) -> Result<(), (i32, String)> {
        if port != 0 && port == self.port() && self.up {
            self.sockets.port = port;
            return Ok(());
        }
        let old = std::mem::replace(&mut self.sockets.port, port);
        if self.up {
            match self.sockets.open() {
                Ok(sockets) => self.tunnel.set_sockets(sockets),
                Err(e) => {
                    self.sockets.port = old;
                    return Err((EADDRINUSE, e.to_string()));
                }
            }
        }
        Ok(())
    }

    fn set_peer(
        &mut self,
        set: &SetPeer,
        now: Instant,
        out: &mut Vec<Output>,
    ) -> Result<(), (i32, String)> {
        let public = PublicKey::from(*set.public_key.as_bytes());
        let known = self.device.peer_by_public_key(&public);
        if set.remove {
            if let Some(id) = known {
                self.remove_peer(id, out);
            }
            return Ok(());
        }
        let id = match known {
            Some(id) => id,
            None if set.update_only => return Ok(()),
            None => match self.device.add_peer(public) {
                Ok(id) => {
                    let entry =
                        PeerEntry::new(id, set.public_key.clone(), self.tunnel.new_peer(id.0));
                    self.peers.insert(id, entry);
                    id
                }
                // As the kernel: a list of peers may contain oneself.
                Err(AddPeerError::OwnKey) => return Ok(()),
                Err(e) => return Err((ENOSPC, e.to_string())),
            },
        };
        let Some(entry) = self.peers.get_mut(&id) else {
            return Err((EINVAL, "peer vanished".to_owned()));
        };
        if let Some(key) = &set.preshared_key {
            entry.preshared_key = (!key.is_zero()).then(|| key.clone());
            self.device
                .set_preshared_key(id, crypto::Key::from(*key.as_bytes()));
        }
        if let Some(endpoint) = &set.endpoint {
            let Some(addr) = endpoint.socket_addr() else {
                return Err((EINVAL, format!("endpoint {endpoint}: must be an address")));
            };
            entry.engine.set_endpoint(Endpoint::new(addr));
            // Who gives an address means that one.
            self.names.remove(&id);
            self.device.set_endpoint(id, Some(addr), now, out);
        }
        if set.replace_allowed_ips {
            for ip in std::mem::take(&mut entry.allowed_ips) {
                release(&mut self.routes, &entry.engine, &ip);
            }
        }
        for change in &set.allowed_ips {
            self.change_allowed_ip(id, change);
        }
        if let Some(seconds) = set.persistent_keepalive {
            if let Some(entry) = self.peers.get_mut(&id) {
                entry.persistent_keepalive = seconds;
            }
            // The keepalive that this may send must find the routes and the address in place.
            self.device.set_persistent_keepalive(id, seconds, now, out);
        }
        Ok(())
    }

    fn change_allowed_ip(&mut self, id: PeerId, change: &AllowedIpChange) {
        let (AllowedIpChange::Add(ip) | AllowedIpChange::Remove(ip)) = change;
        let Some(entry) = self.peers.get_mut(&id) else {
            return;
        };
        if matches!(change, AllowedIpChange::Remove(_)) {
            if entry.allowed_ips.remove(ip) {
                release(&mut self.routes, &entry.engine, ip);
            }
            return;
        }
        entry.allowed_ips.insert(*ip);
        let engine = Arc::clone(&entry.engine);
        let before = self
            .routes
            .exact(ip.addr(), ip.prefix())
            .map(|p| PeerId(p.id()));
        if let Some(loser) = before
            .filter(|b| *b != id)
            .and_then(|b| self.peers.get_mut(&b))
        {
            loser.allowed_ips.remove(ip);
        }
        self.routes.insert(ip.addr(), ip.prefix(), engine);
    }

    fn remove_peer(&mut self, id: PeerId, out: &mut Vec<Output>) {
        self.device.remove_peer(id, out);
        self.perform(out, Instant::now());
        self.forget_peer(id);
    }

    pub(super) fn forget_peer(&mut self, id: PeerId) {
        self.names.remove(&id);
        if let Some(entry) = self.peers.remove(&id) {
            for ip in &entry.allowed_ips {
                release(&mut self.routes, &entry.engine, ip);
            }
            self.tunnel.drop_staged(&entry.engine);
            self.tunnel.set_routes(self.routes.clone());
        }
    }

    pub(super) fn cipher(&self, key: &[u8; 32]) -> Box<dyn PacketCipher> {
        #[cfg(feature = "null-cipher")]
        if self.null_cipher {
            return Box::new(crypto::Null);
        }
        Box::new(crypto::ChaCha20Poly1305::new(key))
    }

    /// Says where a peer is, by an address or a name, which is looked up from now on.
    pub(crate) fn set_endpoint(&mut self, public_key: &Key32, endpoint: &config::types::Endpoint) {
        let now = self.now();
        let public = PublicKey::from(*public_key.as_bytes());
        let Some(id) = self.device.peer_by_public_key(&public) else {
            return;
        };
        if let Some(name) = Name::of(endpoint, now) {
            self.names.insert(id, name);
            return;
        }
        self.names.remove(&id);
        if let (Some(addr), Some(entry)) = (endpoint.socket_addr(), self.peers.get(&id)) {
            let mut out = Vec::new();
            entry.engine.set_endpoint(Endpoint::new(addr));
            self.device.set_endpoint(id, Some(addr), now, &mut out);
            self.perform(&mut out, now);
        }
    }

    /// The network has changed: names that could not be found are looked up now.
    pub(super) fn hurry_names(&mut self) {
        let now = Instant::now();
        self.names.values_mut().for_each(|name| name.hurry(now));
    }

    /// The endpoints that are names, by their peers, with the addresses that were found.
    pub(crate) fn names(&self) -> Vec<Named> {
        let named = self.names.iter().filter_map(|(id, name)| {
            Some(Named {
                public_key: self.peers.get(id)?.public_key.clone(),
                endpoint: name.endpoint().clone(),
                is_tried: name.is_tried(),
                addresses: name.addresses().to_vec(),
            })
        });
        named.collect()
    }

    /// The configuration and the counters, for `wg show`.
    #[must_use]
    pub(crate) fn get(&self) -> (DeviceState, Vec<PeerState>) {
        let device = DeviceState {
            private_key: self.private_key.clone(),
            listen_port: self.port(),
            fwmark: self.sockets.fwmark,
        };
        let mut peers: Vec<&PeerEntry> = self.peers.values().collect();
        peers.sort_by_key(|p| p.id);
        (device, peers.into_iter().map(peer_state).collect())
    }
}

/// Takes a range from a peer, unless another has got it meanwhile.
fn release(routes: &mut Routes<Arc<Peer>>, peer: &Arc<Peer>, ip: &AllowedIp) {
    routes.remove_if(ip.addr(), ip.prefix(), |owner| Arc::ptr_eq(owner, peer));
}

fn peer_state(p: &PeerEntry) -> PeerState {
    let since_1970 = |at: SystemTime| at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let handshake = p
        .last_handshake
        .map(|(at, _)| since_1970(at))
        .unwrap_or_default();
    PeerState {
        public_key: p.public_key.clone(),
        preshared_key: p.preshared_key.clone(),
        endpoint: p.engine.endpoint().map(|e| e.addr.into()),
        last_handshake: (handshake.as_secs(), handshake.subsec_nanos()),
        rx_bytes: p.engine.rx_bytes.value(),
        tx_bytes: p.engine.tx_bytes.value(),
        persistent_keepalive: p.persistent_keepalive,
        allowed_ips: p.allowed_ips.iter().copied().collect(),
    }
}
