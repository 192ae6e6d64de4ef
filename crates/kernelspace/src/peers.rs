//! The peers of an interface: translates control's calls into the order of calls that the kernel needs.
//!
//! Control adds a peer, sets its address, gives it keys and then networks. The kernel needs another order: it makes a
//! peer by the number that its packets carry (known from the key material) and, on a server, by an inner address. So
//! a peer is made in the kernel with its first keys, or with its first inner address where it needs one.
//! [`Peers::hear`] turns the kernel's news into events for control.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::Sockets;
use netio::netlink::{NetlinkError, OvpnEvent, OvpnPeer, OvpnSlot, PeerEnd};
use netio::udp::{Family, UdpSocket};
use openvpn::data::protocol::Material;
use plane::{Endpoint, Line, LineId, Notice, PeerId, RouteChange};

use crate::kernel::Kernel;
use crate::keys::{self, Slots};
use crate::peer::{Inside, Peer, Timers};

#[cfg(test)]
mod tests;

/// Age up to which cached figures answer the question of key use, which control asks right after it has looked at the
/// peer.
const FRESH: Duration = Duration::from_millis(100);

/// All peers, with the handle to the kernel.
pub(crate) struct Peers<K> {
    kernel: K,
    /// The interface has several peers, each with an inner address.
    several: bool,
    sockets: Arc<Sockets>,
    peers: BTreeMap<PeerId, Peer>,
    /// The peers by their numbers in the kernel.
    numbers: BTreeMap<u32, PeerId>,
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PeerError {
    /// Control named a peer that does not exist.
    #[error("there is no peer {}", .0.0)]
    NoPeer(PeerId),
    /// The kernel cannot carry such packets.
    #[error(transparent)]
    Unfit(#[from] keys::Unfit),
    /// The kernel refuses.
    #[error(transparent)]
    Kernel(#[from] NetlinkError),
    /// The peer's address is not known, or no socket leads there.
    #[error("no socket leads to the peer")]
    NoSocket,
}

impl<K: Kernel> Peers<K> {
    pub(crate) fn new(kernel: K, several: bool) -> Self {
        Self {
            kernel,
            several,
            sockets: Arc::default(),
            peers: BTreeMap::new(),
            numbers: BTreeMap::new(),
        }
    }

    pub(crate) fn sockets(&self) -> Arc<Sockets> {
        Arc::clone(&self.sockets)
    }

    /// Sets the sockets for new peers; existing peers keep theirs. Returns the sockets before.
    pub(crate) fn set_sockets(&mut self, sockets: Sockets) -> Arc<Sockets> {
        std::mem::replace(&mut self.sockets, Arc::new(sockets))
    }

    pub(crate) fn add(&mut self, id: PeerId) -> bool {
        let new = !self.peers.contains_key(&id);
        if new {
            self.peers.insert(id, Peer::default());
        }
        new
    }

    pub(crate) fn remove(&mut self, id: PeerId) {
        let Some(peer) = self.peers.remove(&id) else {
            return;
        };
        for (network, via) in peer.routed {
            let _ = self.kernel.remove_route(network, via);
        }
        if let Some(number) = peer.kernel {
            self.forget(number, peer.silent);
        }
    }

    /// Removes a peer from the kernel, which may have removed it already.
    fn forget(&mut self, number: u32, silent: bool) {
        self.numbers.remove(&number);
        if let Err(error) = self.kernel.remove_peer(number)
            && !(silent || error.is_not_found())
        {
            log::warn!("{error}: the kernel goes on taking its packets");
        }
    }

    /// Sets the address where the peer is from now on.
    ///
    /// # Errors
    /// The kernel refuses to send packets for the peer there.
    pub(crate) fn set_line(&mut self, id: PeerId, line: Line) -> Result<(), PeerError> {
        let peer = self.peers.get_mut(&id).ok_or(PeerError::NoPeer(id))?;
        let before = peer.line.replace(line);
        if let Some(number) = peer.kernel
            && before.is_none_or(|before| before.endpoint.addr != line.endpoint.addr)
        {
            let socket = self.sockets.of(family(line.endpoint));
            let local = local(line.endpoint, socket);
            self.kernel.move_peer(number, line.endpoint.addr, local)?;
        }
        Ok(())
    }

    pub(crate) fn remove_line(&mut self, id: PeerId) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.line = None;
        }
    }

    pub(crate) fn line(&self, id: PeerId) -> Option<Line> {
        self.peers.get(&id)?.line
    }

    pub(crate) fn forget_source(&mut self, id: PeerId) {
        if let Some(line) = self.peers.get_mut(&id).and_then(|it| it.line.as_mut()) {
            line.endpoint.source = None;
        }
    }

    /// Opens packets of a session from now on, or on a server once the peer has an inner address.
    ///
    /// # Errors
    /// The kernel cannot carry such packets, or refuses.
    pub(crate) fn add_keys(
        &mut self,
        id: PeerId,
        session: u32,
        material: Material,
    ) -> Result<(), PeerError> {
        let number = keys::peer_id(&material)?;
        let several = self.several;
        let peer = self.peers.get_mut(&id).ok_or(PeerError::NoPeer(id))?;
        if peer.kernel.is_none() && several && peer.inside() == (None, None) {
            peer.waiting.retain(|(it, _)| *it != session);
            peer.waiting.push((session, material));
            return Ok(());
        }
        self.appear(id, number)?;
        self.give(id, session, &material)
    }

    /// Makes the peer in the kernel, if the kernel has not got it.
    fn appear(&mut self, id: PeerId, number: u32) -> Result<(), PeerError> {
        let peer = self.peers.get_mut(&id).ok_or(PeerError::NoPeer(id))?;
        if peer.kernel.is_some() {
            return Ok(());
        }
        let endpoint = peer.line.ok_or(PeerError::NoSocket)?.endpoint;
        let socket = self.sockets.of(family(endpoint));
        let socket = socket.ok_or(PeerError::NoSocket)?;
        let (inside_v4, inside_v6) = match self.several {
            true => peer.inside(),
            false => (None, None),
        };
        self.kernel.add_peer(&OvpnPeer {
            id: number,
            socket: socket.as_fd(),
            remote: endpoint.addr,
            local: local(endpoint, Some(socket)),
            inside_v4,
            inside_v6,
        })?;
        peer.kernel = Some(number);
        peer.told = (inside_v4, inside_v6);
        peer.silent = false;
        peer.timed = None;
        peer.count_anew();
        self.numbers.insert(number, id);
        if let Some(Timers { ping, silence, .. }) = peer.timers {
            self.kernel.keep_alive(number, ping, silence)?;
        }
        Ok(())
    }

    /// Installs keys in the second slot of a peer that is in the kernel.
    fn give(&mut self, id: PeerId, session: u32, material: &Material) -> Result<(), PeerError> {
        let peer = self.peers.get_mut(&id).ok_or(PeerError::NoPeer(id))?;
        let number = peer.kernel.ok_or(PeerError::NoSocket)?;
        let key = keys::key(number, material)?;
        if peer.slots.primary == Some(session) {
            self.kernel.remove_key(number, OvpnSlot::Primary)?;
            peer.slots.primary = None;
        }
        self.kernel.add_key(&key)?;
        peer.slots.secondary = Some(session);
        peer.count_from_now(session);
        Ok(())
    }

    /// Seals packets with the keys of this session from now on.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn send_with(&mut self, id: PeerId, session: u32) -> Result<(), PeerError> {
        let peer = self.peers.get_mut(&id).ok_or(PeerError::NoPeer(id))?;
        if peer.waiting.iter().any(|(it, _)| *it == session) {
            peer.seals = Some(session);
        }
        if let Some(number) = peer.kernel
            && peer.slots.find(session) == Some(OvpnSlot::Secondary)
        {
            self.kernel.swap_keys(number)?;
            peer.slots.swap();
        }
        Ok(())
    }

    pub(crate) fn remove_keys(&mut self, id: PeerId, session: u32) {
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        peer.waiting.retain(|(it, _)| *it != session);
        if let Some((number, slot)) = peer.kernel.zip(peer.slots.find(session)) {
            peer.slots.clear(slot);
            if let Err(error) = self.kernel.remove_key(number, slot)
                && !peer.silent
            {
                log::warn!("{error}");
            }
        }
    }

    /// Has the kernel ping a peer and watch for its silence.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn keep_alive(
        &mut self,
        id: PeerId,
        ping: Option<Duration>,
        silence: Option<Duration>,
    ) -> Result<(), PeerError> {
        let peer = self.peers.get_mut(&id).ok_or(PeerError::NoPeer(id))?;
        let before = peer.timers.take();
        peer.timers = Timers::of(ping, silence);
        if let Some(number) = peer.kernel
            && before != peer.timers
        {
            let times = peer.timers.map(|it| (it.ping, it.silence));
            let (ping, silence) = times.unwrap_or((0, 0));
            peer.timed = None;
            self.kernel.keep_alive(number, ping, silence)?;
        }
        Ok(())
    }

    /// Moves networks from peer to peer. Returns the peers that the kernel refused, and why.
    pub(crate) fn change_routes(&mut self, changes: &[RouteChange]) -> Vec<(PeerId, PeerError)> {
        let mut changed = BTreeSet::new();
        for change in changes {
            let (network, owner) = match *change {
                RouteChange::Add { address, len, peer } => ((address, len), Some(peer)),
                RouteChange::Remove { address, len, peer } => {
                    if let Some(it) = self.peers.get_mut(&peer) {
                        it.networks.retain(|it| *it != (address, len));
                        changed.insert(peer);
                    }
                    continue;
                }
            };
            for (id, peer) in &mut self.peers {
                let had = peer.networks.contains(&network);
                if Some(*id) != owner && had {
                    peer.networks.retain(|it| *it != network);
                    changed.insert(*id);
                } else if Some(*id) == owner && !had {
                    peer.networks.push(network);
                    changed.insert(*id);
                }
            }
        }
        if !self.several {
            return Vec::new();
        }
        // Peers give up addresses before others get them: the kernel refuses to give an address to a second peer.
        let mut changed: Vec<PeerId> = changed.into_iter().collect();
        let mut failed = Vec::new();
        for step in [Self::give_up, Self::follow_networks] {
            changed.retain(|id| match step(self, *id) {
                Ok(()) => true,
                Err(error) => {
                    failed.push((*id, error));
                    false
                }
            });
        }
        failed
    }

    /// Removes from the kernel the addresses that a peer has lost, and the routes to networks no longer behind it.
    fn give_up(&mut self, id: PeerId) -> Result<(), PeerError> {
        let peer = self.peers.get_mut(&id).ok_or(PeerError::NoPeer(id))?;
        let behind = peer.behind();
        let gone = peer.routed.iter().filter(|it| !behind.contains(it));
        for (network, via) in gone {
            let _ = self.kernel.remove_route(*network, *via);
        }
        peer.routed.retain(|it| behind.contains(it));
        let (inside, told) = (peer.inside(), peer.told);
        if inside == (None, None) {
            // The kernel needs no peer without an address.
            let (number, silent) = (peer.kernel.take(), peer.silent);
            if let Some(number) = number {
                peer.slots = Slots::default();
                self.forget(number, silent);
            }
            return Ok(());
        }
        let v4 = told.0.filter(|it| inside.0 == Some(*it));
        let v6 = told.1.filter(|it| inside.1 == Some(*it));
        match (v4, v6) {
            // The kernel accepts no peer without an address, even briefly. If the address still belongs to another
            // peer, `follow_networks` asks again after that peer has given it up.
            (None, None) => drop(self.tell_inside(id, inside)),
            kept => self.tell_inside(id, kept)?,
        }
        Ok(())
    }

    /// Sets in the kernel the inner addresses of a peer that it knows.
    fn tell_inside(&mut self, id: PeerId, inside: Inside) -> Result<(), PeerError> {
        let peer = self.peers.get_mut(&id).ok_or(PeerError::NoPeer(id))?;
        if let Some(number) = peer.kernel
            && !peer.silent
            && peer.told != inside
        {
            self.kernel.set_inside(number, inside.0, inside.1)?;
            peer.told = inside;
        }
        Ok(())
    }

    /// Sets a peer's inner addresses, and adds routes to the networks behind the peer.
    fn follow_networks(&mut self, id: PeerId) -> Result<(), PeerError> {
        let peer = self.peers.get_mut(&id).ok_or(PeerError::NoPeer(id))?;
        let (behind, inside) = (peer.behind(), peer.inside());
        if inside == (None, None) {
            return Ok(());
        }
        let waiting = std::mem::take(&mut peer.waiting);
        self.tell_inside(id, inside)?;
        for (session, material) in waiting {
            let number = keys::peer_id(&material)?;
            self.appear(id, number)?;
            self.give(id, session, &material)?;
            let peer = self.peers.get_mut(&id).ok_or(PeerError::NoPeer(id))?;
            if peer.seals.take_if(|it| *it == session).is_some() {
                self.send_with(id, session)?;
            }
        }
        let peer = self.peers.get_mut(&id).ok_or(PeerError::NoPeer(id))?;
        let unrouted = peer.unled();
        for network in unrouted.iter().filter(|it| !peer.unrouted.contains(it)) {
            let ((address, len), PeerId(id)) = (network, id);
            let why = match len {
                0 => {
                    "that is everything: add it to a table of its own, by the peer's address inside"
                }
                _ => "it has no address of that family inside",
            };
            log::warn!("no route leads to {address}/{len} behind peer {id}: {why}");
        }
        peer.unrouted = unrouted;
        for (network, via) in behind {
            if peer.routed.contains(&(network, via)) {
                continue;
            }
            match self.kernel.add_route(network, via) {
                Ok(()) => peer.routed.push((network, via)),
                Err(error) if error.is_exists() => {
                    log::warn!(
                        "{address}/{len} behind peer {}: {error}",
                        id.0,
                        address = network.0,
                        len = network.1
                    );
                }
                Err(error) => log::error!("{error}"),
            }
        }
        Ok(())
    }

    /// Returns a peer from figures of a moment ago, if there are any, or else as it is now.
    pub(crate) fn glance(&mut self, id: PeerId, now: Instant) -> Option<(&Peer, Option<Notice>)> {
        let fresh = |peer: &Peer| peer.read.is_some_and(|at| now < at + FRESH);
        if self.peers.get(&id).is_some_and(fresh) {
            return self.peers.get(&id).map(|peer| (peer, None));
        }
        self.look(id, now)
    }

    /// Asks the kernel for a peer's current state. Also returns a notice that the kernel has not sent: it removed the
    /// peer while news were lost, or it sends to another address.
    pub(crate) fn look(&mut self, id: PeerId, now: Instant) -> Option<(&Peer, Option<Notice>)> {
        let peer = self.peers.get_mut(&id)?;
        let Some(number) = peer.kernel.filter(|_| !peer.silent) else {
            return Some((peer, None));
        };
        let mut untold = None;
        match self.kernel.peer(number) {
            Ok(state) => {
                if state.inside.rx_packets != peer.inside_figures.rx_packets {
                    peer.heard = Some(now);
                }
                peer.read = Some(now);
                peer.figures = state.outside;
                peer.inside_figures = state.inside;
                if let (Some(line), Some(to)) = (&mut peer.line, state.remote)
                    && !is_same(line.endpoint.addr, to)
                {
                    line.endpoint = elsewhere(line.endpoint, to);
                    let line = line.id;
                    untold = Some(Notice::Moved { line });
                }
            }
            Err(error) if error.is_not_found() => {
                peer.silent = true;
                untold = Some(Notice::Silent);
            }
            Err(error) => log::debug!("{error}"),
        }
        if !peer.silent
            && let Some(Timers { ping, silence, .. }) = peer.due_again(now)
            && let Err(error) = self.kernel.keep_alive(number, ping, silence)
        {
            log::warn!("{error}");
        }
        Some((peer, untold))
    }
}

/// The address family of the socket that leads to an endpoint.
pub(crate) fn family(endpoint: Endpoint) -> Family {
    match endpoint.addr {
        SocketAddr::V4(_) => Family::V4,
        SocketAddr::V6(_) => Family::V6,
    }
}

/// Whether two addresses are equal to the kernel, which turns IPv4-mapped IPv6 addresses into IPv4.
fn is_same(one: SocketAddr, other: SocketAddr) -> bool {
    let plain = |it: SocketAddr| (it.ip().to_canonical(), it.port());
    plain(one) == plain(other)
}

/// The endpoint of a peer that has moved: it still sends to the same address of ours.
fn elsewhere(before: Endpoint, to: SocketAddr) -> Endpoint {
    let source = before
        .source
        .filter(|source| source.ip.is_ipv4() == to.is_ipv4());
    Endpoint { addr: to, source }
}

/// Our address that the kernel sends from: the address to which the peer has sent, or else the socket's bound address,
/// which the kernel does not read. Without either, the kernel chooses one.
fn local(endpoint: Endpoint, socket: Option<&UdpSocket>) -> Option<IpAddr> {
    let bound = || {
        let copy = socket?.as_fd().try_clone_to_owned().ok()?;
        let bound = std::net::UdpSocket::from(copy).local_addr().ok()?.ip();
        (!bound.is_unspecified()).then_some(bound)
    };
    let called = endpoint.source.map(|source| source.ip);
    called.or_else(bound)
}

impl<K: Kernel> Peers<K> {
    /// Handles an event. Returns the notice for control, and the peer that it is about.
    pub(crate) fn hear(&mut self, event: OvpnEvent) -> Option<(PeerId, Notice)> {
        match event {
            // Control has removed the peer itself, or the interface ends.
            OvpnEvent::PeerGone {
                why: PeerEnd::Asked | PeerEnd::Teardown,
                ..
            } => None,
            OvpnEvent::PeerGone { peer, why } => {
                let id = self.lost(peer)?;
                if why == PeerEnd::Expired {
                    return Some((id, Notice::Silent));
                }
                log::error!("the kernel has let go of peer {peer}: {why}");
                Some((id, Notice::Failed))
            }
            OvpnEvent::KeyWorn { peer, .. } => {
                let id = self.by_number(peer)?;
                let index = self.peers.get(&id)?.slots.primary?;
                Some((id, Notice::Refresh { index }))
            }
            OvpnEvent::Floated { peer, to } => {
                let line = LineId::FIRST;
                Some((self.floated(peer, to)?, Notice::Moved { line }))
            }
            OvpnEvent::Overrun => {
                // The next look at the peers shows the change.
                log::debug!("news of peers were lost");
                None
            }
            _ => None,
        }
    }

    /// The peer that has this number in the kernel.
    pub(super) fn by_number(&self, number: u32) -> Option<PeerId> {
        self.numbers.get(&number).copied()
    }

    /// Records that the kernel now sends to another address of a peer. Returns the peer.
    pub(super) fn floated(&mut self, number: u32, to: SocketAddr) -> Option<PeerId> {
        let id = self.by_number(number)?;
        let line = self.peers.get_mut(&id)?.line.as_mut()?;
        line.endpoint = elsewhere(line.endpoint, to);
        Some(id)
    }

    /// Records that the kernel has removed a peer. Returns the peer, unless control knows that already.
    pub(super) fn lost(&mut self, number: u32) -> Option<PeerId> {
        let id = self.by_number(number)?;
        let peer = self.peers.get_mut(&id)?;
        (!std::mem::replace(&mut peer.silent, true)).then_some(id)
    }
}
