//! The peers of a tunnel by number, and everything to be undone when a peer is removed.

use crate::peer::Peer;
use plane::{PeerId, RouteChange, Routes, Sender};
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

/// One peer and its sessions, senders and prefixes.
pub(crate) struct Entry {
    pub(crate) peer: Arc<Peer>,
    /// Our names for the peer's receiving sessions.
    pub(crate) sessions: Vec<u32>,
    /// Origins of packets that do not name their session, each with the first session that they belong to.
    pub(crate) senders: Vec<(Sender, u32)>,
    /// The peer's prefixes; a set, because a peer may own all ranges of a country.
    prefixes: BTreeSet<(IpAddr, u8)>,
}

/// All peers. Only control uses this; workers use the tables made from it.
#[derive(Default)]
pub(crate) struct Peers {
    by_id: HashMap<PeerId, Entry>,
    routes: Routes<Arc<Peer>>,
}

impl Peers {
    /// Adds a peer. Returns whether its number was free.
    pub(crate) fn add(&mut self, peer: Arc<Peer>) -> bool {
        let id = peer.id();
        if self.by_id.contains_key(&id) {
            return false;
        }
        let entry = Entry {
            peer,
            sessions: Vec::new(),
            senders: Vec::new(),
            prefixes: BTreeSet::new(),
        };
        self.by_id.insert(id, entry);
        true
    }

    /// Removes a peer and its routes.
    pub(crate) fn remove(&mut self, id: PeerId) -> Option<Entry> {
        let entry = self.by_id.remove(&id)?;
        for &(address, len) in &entry.prefixes {
            let owned = |owner: &Arc<Peer>| Arc::ptr_eq(owner, &entry.peer);
            self.routes.remove_if(address, len, owned);
        }
        Some(entry)
    }

    pub(crate) fn get(&self, id: PeerId) -> Option<&Entry> {
        self.by_id.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: PeerId) -> Option<&mut Entry> {
        self.by_id.get_mut(&id)
    }

    /// The routes, to be shared with workers.
    pub(crate) fn routes(&self) -> &Routes<Arc<Peer>> {
        &self.routes
    }

    /// Changes the routes. A change for an unknown peer has no effect.
    pub(crate) fn change_routes(&mut self, changes: &[RouteChange]) {
        for change in changes {
            match *change {
                RouteChange::Add { address, len, peer } => {
                    let Some(entry) = self.by_id.get_mut(&peer) else {
                        continue;
                    };
                    self.routes.insert(address, len, Arc::clone(&entry.peer));
                    entry.prefixes.insert((address, len));
                }
                RouteChange::Remove { address, len, peer } => {
                    let Some(entry) = self.by_id.get_mut(&peer) else {
                        continue;
                    };
                    let owned = |owner: &Arc<Peer>| Arc::ptr_eq(owner, &entry.peer);
                    self.routes.remove_if(address, len, owned);
                    entry.prefixes.remove(&(address, len));
                }
            }
        }
    }
}
