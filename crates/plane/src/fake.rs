//! A data plane that moves no packets: it records control's calls, and keeps the state that a test checks afterwards.

use crate::{
    KeyUsage, LINES_MAX, Line, LineId, PeerId, PeerState, Protocol, Routes, Sender, SessionKeys,
    Statistics, StreamId,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

mod call;
mod calls;

pub use call::Call;

/// One peer of a [`FakeDataPlane`].
struct Peer<K> {
    state: PeerState,
    lines: BTreeMap<LineId, Line>,
    sessions: BTreeMap<u32, (SessionKeys<K>, KeyUsage)>,
    sealing: Option<u32>,
    armed: bool,
}

struct State<K> {
    calls: Vec<Call>,
    /// Calls that named an unknown peer, session, line or stream.
    astray: Vec<Call>,
    peers: BTreeMap<PeerId, Peer<K>>,
    lines: BTreeMap<LineId, u16>,
    streams: BTreeSet<StreamId>,
    senders: BTreeMap<PeerId, Vec<(Sender, u32)>>,
    routes: Routes<PeerId>,
    owned: Vec<(IpAddr, u8, PeerId)>,
    statistics: Statistics,
    carried: [u64; LINES_MAX],
    mtu: usize,
    /// The longest packet in bytes that [`DataPlane::send_whole`] sends.
    longest: usize,
    name: String,
}

/// The recording data plane. Sockets are the UDP port that they are bound to, connections the address of the peer.
pub struct FakeDataPlane<P: Protocol> {
    protocol: P,
    state: Mutex<State<P::Keys>>,
}

impl<P: Protocol> FakeDataPlane<P> {
    /// Makes a data plane without lines and peers, whose interface has this name and this MTU in bytes.
    #[must_use]
    pub fn new(protocol: P, name: &str, mtu: usize) -> Self {
        Self {
            protocol,
            state: Mutex::new(State {
                calls: Vec::new(),
                astray: Vec::new(),
                peers: BTreeMap::new(),
                lines: BTreeMap::new(),
                streams: BTreeSet::new(),
                senders: BTreeMap::new(),
                routes: Routes::default(),
                owned: Vec::new(),
                statistics: Statistics::default(),
                carried: [0; LINES_MAX],
                mtu,
                longest: usize::MAX,
                name: name.to_owned(),
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State<P::Keys>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the calls recorded since the last call of this method.
    pub fn take_calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.state().calls)
    }

    /// The calls so far that named an unknown peer, session, line or stream: empty if control keeps the order of
    /// [`DataPlane`].
    pub fn astray(&self) -> Vec<Call> {
        self.state().astray.clone()
    }

    /// The numbers of all peers.
    pub fn peers(&self) -> Vec<PeerId> {
        self.state().peers.keys().copied().collect()
    }

    /// The owner of an address.
    pub fn route(&self, address: IpAddr) -> Option<PeerId> {
        self.state().routes.lookup(address).copied()
    }

    /// The ranges whose packets go to a peer, as address and prefix length.
    pub fn ranges(&self, id: PeerId) -> BTreeSet<(IpAddr, u8)> {
        let state = self.state();
        let owned = state.owned.iter();
        owned
            .filter(|(address, _, owner)| {
                *owner == id && state.routes.lookup(*address) == Some(&id)
            })
            .map(|(address, len, _)| (*address, *len))
            .collect()
    }

    /// The sessions of a peer whose packets are opened.
    pub fn sessions(&self, id: PeerId) -> Vec<u32> {
        let state = self.state();
        let peer = state.peers.get(&id);
        peer.map_or_else(Vec::new, |peer| peer.sessions.keys().copied().collect())
    }

    /// The session whose keys seal packets to a peer.
    pub fn sealing(&self, id: PeerId) -> Option<u32> {
        self.state().peers.get(&id)?.sealing
    }

    /// Whether control looks at a peer's times by itself.
    pub fn is_armed(&self, id: PeerId) -> bool {
        self.state().peers.get(&id).is_some_and(|peer| peer.armed)
    }

    /// Whether a connection is open.
    pub fn has_stream(&self, id: StreamId) -> bool {
        self.state().streams.contains(&id)
    }

    /// Shows the material of a session to `look`, as long as the session is there.
    pub fn with_keys<T>(
        &self,
        id: PeerId,
        session: u32,
        look: impl FnOnce(&SessionKeys<P::Keys>) -> T,
    ) -> Option<T> {
        let state = self.state();
        let (keys, _) = state.peers.get(&id)?.sessions.get(&session)?;
        Some(look(keys))
    }

    /// Changes the state that [`DataPlane::peer`] returns, as packets would.
    pub fn change_peer(&self, id: PeerId, change: impl FnOnce(&mut PeerState)) {
        if let Some(peer) = self.state().peers.get_mut(&id) {
            change(&mut peer.state);
        }
    }

    /// Changes the use that [`DataPlane::key_usage`] returns.
    pub fn set_key_usage(&self, id: PeerId, session: u32, usage: KeyUsage) {
        let mut state = self.state();
        let peer = state.peers.get_mut(&id);
        if let Some((_, used)) = peer.and_then(|peer| peer.sessions.get_mut(&session)) {
            *used = usage;
        }
    }

    /// Changes the counters that [`DataPlane::statistics`] returns.
    pub fn set_statistics(&self, statistics: Statistics) {
        self.state().statistics = statistics;
    }

    /// Sets the longest packet in bytes that [`DataPlane::send_whole`] sends.
    pub fn set_longest(&self, longest: usize) {
        self.state().longest = longest;
    }

    /// Adds to the bytes that [`DataPlane::carried`] returns for a line.
    pub fn carry(&self, line: LineId, bytes: u64) {
        if let Some(carried) = self.state().carried.get_mut(line.index()) {
            *carried += bytes;
        }
    }

    /// Records a call; if `there` returns `None`, also as one that names something unknown.
    fn on<T>(&self, call: Call, there: impl FnOnce(&mut State<P::Keys>) -> Option<T>) -> Option<T> {
        let mut state = self.state();
        let done = there(&mut state);
        if done.is_none() {
            state.astray.push(call.clone());
        }
        state.calls.push(call);
        done
    }

    fn on_peer<T>(
        &self,
        id: PeerId,
        call: Call,
        there: impl FnOnce(&mut Peer<P::Keys>) -> Option<T>,
    ) -> Option<T> {
        self.on(call, |state| there(state.peers.get_mut(&id)?))
    }
}

#[cfg(test)]
mod tests;
