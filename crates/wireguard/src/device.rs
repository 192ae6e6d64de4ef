//! All peers of one interface, their configuration, their deadlines, and the indices by which they address our
//! handshakes and keys.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime};

use crypto::x25519::{PrivateKey, PublicKey};
use crypto::{Key, random};
use plane::PeerId;
use plane::tai64n::Clock;

use crate::cookie::Checker;
use crate::disguise::Disguise;
use crate::keys::Keypair;
use crate::message::MAX_PEERS;
use crate::output::Output;
use crate::peer::{Peer, StaticStatic};
use crate::ratelimiter::RateLimiter;
use crate::timers::Timers;

/// Where a device keeps a peer: it numbers its peers densely.
pub(crate) fn slot_of(id: PeerId) -> usize {
    // A device has at most 2^20 peers; on a machine with 16-bit addresses the slot would just not be found.
    usize::try_from(id.0).unwrap_or(usize::MAX)
}

/// Why a peer was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddPeerError {
    /// An interface is not its own peer. `wg` lets this pass in silence, so that two sides can share one list of peers.
    #[error("the public key is this interface's own; remove the peer here")]
    OwnKey,
    /// The key belongs to a peer already; change that one.
    #[error("a peer with this public key exists already")]
    Exists(PeerId),
    /// The device is full.
    #[error("the interface has the maximum of {MAX_PEERS} peers")]
    Full,
}

/// The protocol of one interface.
///
/// The caller passes in the time and carries out each [`Output`] in order. One device belongs to one thread; the data
/// plane never needs it for a packet.
pub struct Device {
    pub(crate) private: Option<PrivateKey>,
    /// Invariant: made from `private`; set exactly when `private` is.
    pub(crate) checker: Option<Checker>,
    pub(crate) limiter: RateLimiter,
    pub(crate) last_load: Option<Instant>,
    pub(crate) peers: Vec<Option<Box<Peer>>>,
    free: Vec<PeerId>,
    pub(crate) by_key: HashMap<PublicKey, PeerId>,
    pub(crate) indices: IndexTable,
    /// The peers' deadlines. Invariant: each peer has the deadline `queued`.
    pub(crate) deadlines: Deadlines,
    /// The wall clock, and when it was read.
    clock: (SystemTime, Instant),
    /// The latest timestamp sent to removed peers, which may be added again; at least the floor.
    stamped: Clock,
    /// The latest timestamp sent to any peer.
    pub(crate) latest: Clock,
    pub(crate) seed: u64,
    pub(crate) disguise: Disguise,
    #[cfg(feature = "amnezia")]
    pub(crate) trials: crate::amnezia::Trials,
}

impl Device {
    /// A device without a key or peers. `wall` is the time of day at `now`. `seed` differs between machines, to spread
    /// their repetitions of handshakes.
    #[must_use]
    pub fn new(now: Instant, wall: SystemTime, seed: u64) -> Self {
        Self {
            private: None,
            checker: None,
            limiter: RateLimiter::new(),
            last_load: None,
            peers: Vec::new(),
            free: Vec::new(),
            by_key: HashMap::new(),
            indices: IndexTable::default(),
            deadlines: Deadlines::default(),
            clock: (wall, now),
            stamped: Clock::default(),
            latest: Clock::default(),
            seed,
            disguise: Disguise::default(),
            #[cfg(feature = "amnezia")]
            trials: Default::default(),
        }
    }

    /// Sets the time of day at `now`. Call it before every call that may begin a handshake: the clock may have been
    /// set, or the machine may have slept.
    ///
    /// Initiations carry the time of day. A clock that goes back does no harm while this device lives, as its
    /// timestamps keep rising. A peer that saw later ones from an earlier run refuses all until the clock has caught
    /// up, unless [`Device::set_timestamp_floor`] tells this device the latest.
    pub fn set_wall_clock(&mut self, now: Instant, wall: SystemTime) {
        self.clock = (wall, now);
    }

    /// Makes all timestamps from now on later than `floor`: the last one that an earlier run may have sent.
    pub fn set_timestamp_floor(&mut self, floor: SystemTime) {
        let floor = Clock::after(floor);
        self.stamped = self.stamped.max(floor);
        for peer in self.peers.iter_mut().flatten() {
            peer.clock = peer.clock.max(floor);
        }
    }

    /// The latest timestamp sent: the floor for the next run of this device. 1970 before the first.
    #[must_use]
    pub fn latest_timestamp(&self) -> SystemTime {
        self.latest.last()
    }

    /// Sets how many leading bits of an IPv4 address make one source under load: 32 by default, or 24 where floods come
    /// from whole networks. IPv6 sources are counted by /64.
    pub fn set_ipv4_source_prefix(&mut self, bits: u8) {
        self.limiter.set_v4_prefix(bits);
    }

    /// Changes the device's own key. `None` ends all handshakes.
    ///
    /// Present keys stop sealing at once, as in the kernel, but open packets in flight until they expire. A peer whose
    /// key equals the new one is removed.
    pub fn set_private_key(
        &mut self,
        private: Option<PrivateKey>,
        now: Instant,
        out: &mut Vec<Output>,
    ) {
        if private == self.private {
            return;
        }
        let public = private.as_ref().map(PrivateKey::public);
        if let Some(id) = public.and_then(|public| self.peer_by_public_key(&public)) {
            self.remove_peer(id, out);
            out.push(Output::PeerRemoved { peer: id });
        }
        self.checker = public.as_ref().map(Checker::new);
        self.private = private;
        let mut waiting = Vec::new();
        for (slot, peer) in self.peers.iter_mut().enumerate() {
            let Some(peer) = peer else { continue };
            // There are at most 2^20 slots.
            let id = PeerId(slot as u32);
            peer.static_static = StaticStatic::Unknown;
            #[cfg(feature = "postquantum")]
            peer.begin_exchange_anew(public.as_ref());
            peer.timers.handshake_sent = None;
            if let Some(pending) = peer.pending.take() {
                self.indices.release(pending.local_index);
            }
            if peer.keys.current().is_some() {
                out.push(Output::StopSending { peer: id });
            }
            retire(&mut self.indices, id, [peer.keys.expire()], out);
            if peer.timers.wanted {
                waiting.push(id);
            }
        }
        for id in waiting {
            self.initiate(id, true, now, out);
            self.requeue(id);
        }
    }

    /// Ends all sessions and handshakes, and begins a handshake with each peer that had one of either: with the first
    /// peer at once, with every further one a millisecond later, or when it has data.
    #[cfg(feature = "amnezia")]
    pub(crate) fn begin_anew(&mut self, now: Instant, out: &mut Vec<Output>) {
        let mut begun = 0;
        for slot in 0..self.peers.len() {
            // There are at most 2^20 slots.
            let id = PeerId(slot as u32);
            let Some(peer) = self.peer_mut(id) else {
                continue;
            };
            let wants = peer.keys.current().is_some() || peer.pending.is_some();
            self.forget_keys(id, out);
            if !wants {
                continue;
            }
            if let Some(peer) = peer_of(&mut self.peers, id) {
                peer.timers.handshake_sent = None;
                peer.timers.begin_attempt(now, &self.disguise.timings);
                peer.timers.retransmit = Some(now + Duration::from_millis(begun));
            }
            if begun == 0 {
                self.initiate(id, true, now, out);
            }
            self.requeue(id);
            begun += 1;
        }
    }

    /// The device's public key, if it has a private one.
    #[must_use]
    pub fn public_key(&self) -> Option<PublicKey> {
        self.private.as_ref().map(PrivateKey::public)
    }

    /// Adds a peer without preshared key, endpoint and persistent keepalive.
    ///
    /// # Errors
    /// [`AddPeerError`] if the key is our own or a peer's, or there is no room.
    pub fn add_peer(&mut self, public: PublicKey) -> Result<PeerId, AddPeerError> {
        if self.public_key() == Some(public) {
            return Err(AddPeerError::OwnKey);
        }
        if let Some(&id) = self.by_key.get(&public) {
            return Err(AddPeerError::Exists(id));
        }
        let mut peer = Box::new(Peer::new(public));
        peer.clock = self.stamped;
        peer.timers.new_handshake_jitter = self.jitter();
        let peer = Some(peer);
        let id = match self.free.pop() {
            Some(id) => {
                self.peers[slot_of(id)] = peer;
                id
            }
            None if self.peers.len() >= MAX_PEERS => return Err(AddPeerError::Full),
            None => {
                self.peers.push(peer);
                // Less than 2^20, see above.
                PeerId((self.peers.len() - 1) as u32)
            }
        };
        self.by_key.insert(public, id);
        Ok(id)
    }

    /// Removes a peer and its keys. A later peer may get its number.
    pub fn remove_peer(&mut self, id: PeerId, out: &mut Vec<Output>) {
        self.forget_keys(id, out);
        let Some(peer) = self.peer_mut(id) else {
            return;
        };
        peer.timers = Timers::default();
        let (public, clock) = (peer.public, peer.clock);
        self.stamped = self.stamped.max(clock);
        self.requeue(id);
        self.by_key.remove(&public);
        self.peers[slot_of(id)] = None;
        self.free.push(id);
    }

    /// The peer with this public key.
    #[must_use]
    pub fn peer_by_public_key(&self, public: &PublicKey) -> Option<PeerId> {
        self.by_key.get(public).copied()
    }

    /// Whether an initiation to this peer waits for its answer.
    #[must_use]
    pub fn is_initiating(&self, id: PeerId) -> bool {
        let peer = self.peers.get(slot_of(id)).and_then(Option::as_ref);
        peer.is_some_and(|peer| peer.pending.is_some())
    }

    /// The public key of a peer.
    #[must_use]
    pub fn peer_public_key(&self, id: PeerId) -> Option<PublicKey> {
        self.peers
            .get(slot_of(id))?
            .as_ref()
            .map(|peer| peer.public)
    }

    /// Sets the key that is mixed into every handshake from the next on; [`Key::ZERO`] for none. Present keys stay.
    pub fn set_preshared_key(&mut self, id: PeerId, preshared: Key) {
        if let Some(peer) = self.peer_mut(id) {
            #[cfg(feature = "postquantum")]
            if let Some(hybrid) = &mut peer.hybrid {
                hybrid.exchange.set_base(preshared.clone());
            }
            peer.preshared = preshared;
        }
    }

    /// Sets where handshakes are sent to: by configuration, or because an authentic packet came from there.
    ///
    /// Starts a handshake that was waiting for an endpoint.
    pub fn set_endpoint(
        &mut self,
        id: PeerId,
        endpoint: Option<SocketAddr>,
        now: Instant,
        out: &mut Vec<Output>,
    ) {
        let Some(peer) = self.peer_mut(id) else {
            return;
        };
        peer.endpoint = endpoint;
        if endpoint.is_some() && peer.timers.wanted {
            self.initiate(id, true, now, out);
            self.requeue(id);
        }
    }

    /// Sends an empty packet whenever nothing authentic went either way for `seconds`; 0 for never. Switched on, it
    /// begins with one at once.
    pub fn set_persistent_keepalive(
        &mut self,
        id: PeerId,
        seconds: u16,
        now: Instant,
        out: &mut Vec<Output>,
    ) {
        let Some(peer) = self.peer_mut(id) else {
            return;
        };
        let timers = &mut peer.timers;
        let was_off = timers.persistent_interval.is_zero();
        timers.persistent_interval = Duration::from_secs(seconds.into());
        // When due, the timer looks at the packets sent meanwhile, and postpones itself as needed.
        timers.persistent = (seconds != 0).then(|| now + timers.persistent_interval);
        if was_off && seconds != 0 {
            timers.persistent_since = Some(now);
            self.keepalive(id, now, out);
        }
        self.requeue(id);
    }

    #[cfg(feature = "postquantum")]
    pub(crate) fn peer(&self, id: PeerId) -> Option<&Peer> {
        self.peers.get(slot_of(id))?.as_deref()
    }

    pub(crate) fn peer_mut(&mut self, id: PeerId) -> Option<&mut Peer> {
        peer_of(&mut self.peers, id)
    }

    /// The time of day at `now`, counted from the wall clock that the caller set last.
    pub(crate) fn wall(&self, now: Instant) -> SystemTime {
        let (wall, then) = self.clock;
        wall + now.saturating_duration_since(then)
    }

    /// Zeroes all keys of a peer and its pending handshake.
    pub(crate) fn forget_keys(&mut self, id: PeerId, out: &mut Vec<Output>) {
        let Self { peers, indices, .. } = self;
        let Some(peer) = peer_of(peers, id) else {
            return;
        };
        if let Some(pending) = peer.pending.take() {
            indices.release(pending.local_index);
        }
        if peer.keys.current().is_some() {
            out.push(Output::StopSending { peer: id });
        }
        retire(indices, id, peer.keys.clear(), out);
    }
}

/// The peer with this number, borrowed apart from the rest of its device.
pub(crate) fn peer_of(peers: &mut [Option<Box<Peer>>], id: PeerId) -> Option<&mut Peer> {
    peers.get_mut(slot_of(id))?.as_deref_mut()
}

/// Makes the data plane forget replaced or expired keys, and releases their indices.
pub(crate) fn retire(
    indices: &mut IndexTable,
    id: PeerId,
    pairs: impl IntoIterator<Item = Option<Keypair>>,
    out: &mut Vec<Output>,
) {
    for old in pairs.into_iter().flatten() {
        indices.release(old.local_index);
        out.push(Output::RemoveKeys {
            peer: id,
            local_index: old.local_index,
        });
    }
}

impl core::fmt::Debug for Device {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Device")
            .field("private", &self.private)
            .field("peers", &self.by_key.len())
            .finish_non_exhaustive()
    }
}

/// Deadlines, at most one for each peer. The caller that moves a deadline says where it was, so nothing is searched.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    queue: BTreeSet<(Instant, PeerId)>,
}

impl Deadlines {
    pub(crate) fn earliest(&self) -> Option<Instant> {
        self.queue.first().map(|&(at, _)| at)
    }

    /// Moves the deadline of `peer`.
    pub(crate) fn set(&mut self, peer: PeerId, from: Option<Instant>, to: Option<Instant>) {
        if from == to {
            return;
        }
        if let Some(from) = from {
            self.queue.remove(&(from, peer));
        }
        if let Some(to) = to {
            self.queue.insert((to, peer));
        }
    }

    /// The peer whose deadline came first, if one is due at `now`. The deadline stays until it is moved.
    pub(crate) fn due(&self, now: Instant) -> Option<PeerId> {
        self.queue
            .first()
            .filter(|&&(at, _)| at <= now)
            .map(|&(_, peer)| peer)
    }
}

/// The owner of each index in use: a handshake or a key.
#[derive(Debug, Default)]
pub(crate) struct IndexTable {
    owners: HashMap<u32, PeerId>,
}

impl IndexTable {
    /// Takes an unused index for `owner` from `draw`, which is random so that an index tells nothing about others.
    pub(crate) fn assign(&mut self, owner: PeerId, mut draw: impl FnMut() -> u32) -> u32 {
        // A million peers have four indices each at most, so a draw is free with a probability beyond 0.999.
        loop {
            if let Entry::Vacant(entry) = self.owners.entry(draw()) {
                let index = *entry.key();
                entry.insert(owner);
                return index;
            }
        }
    }

    pub(crate) fn owner(&self, index: u32) -> Option<PeerId> {
        self.owners.get(&index).copied()
    }

    pub(crate) fn release(&mut self, index: u32) {
        self.owners.remove(&index);
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.owners.len()
    }
}

/// A random index, as [`IndexTable::assign`] wants them.
pub(crate) fn random_index() -> u32 {
    let mut index = [0; 4];
    random(&mut index);
    u32::from_le_bytes(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drawn_index_that_is_taken_is_drawn_again() {
        let mut table = IndexTable::default();
        let mut draws = [7, 7, 7, 9].into_iter();
        assert_eq!(table.assign(PeerId(1), || draws.next().unwrap()), 7);
        assert_eq!(table.assign(PeerId(2), || draws.next().unwrap()), 9);
        assert_eq!(table.owner(7), Some(PeerId(1)));
        table.release(7);
        assert_eq!((table.owner(7), table.len()), (None, 1));
    }
}
