//! The peers of a tunnel by number, and what control has said of each that must be taken back with it.

use crate::peer::Peer;
use plane::{PeerId, RouteChange, Routes, Sender};
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

/// One peer, and what it has.
pub(crate) struct Entry {
    pub(crate) peer: Arc<Peer>,
    /// Our names for the sessions whose packets are opened.
    pub(crate) sessions: Vec<u32>,
    /// Where packets come from that name none of them, and the first of the sessions that they belong to.
    pub(crate) senders: Vec<(Sender, u32)>,
    /// A set, since a peer may own a country's ranges.
    prefixes: BTreeSet<(IpAddr, u8)>,
}

/// All peers. Only control looks here; workers have the tables that are made of it.
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

    /// Changes the routes. Peers that are not there get none.
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
