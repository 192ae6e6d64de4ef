//! Sessions by number and by where their clients are: the address, and the transport.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::Instant;

use plane::{Endpoint, Line, Source, StreamId};

use crate::packet::SessionId;
use crate::session::Session;

/// A client's session: a dense number below 2^24, which is its peer id too. Numbers are reused as late as possible,
/// since packets of the previous session may still be in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(pub u32);

impl ClientId {
    fn slot(self) -> usize {
        // A table has fewer than 2^24 slots.
        self.0 as usize
    }
}

pub(super) struct Entry {
    pub(super) session: Box<Session>,
    pub(super) remote: Remote,
    /// Our address that the client last sent to.
    pub(super) called: Option<Source>,
    /// Rises with each session that begins.
    pub(super) begun: u64,
    queued: Option<Instant>,
    /// The session's part of [`Table::stranger_bytes`].
    pub(super) bytes: u64,
}

/// Invariant: `by_remote` and `deadlines` have each entry under its remote and its `queued`, `half_open` has those that
/// are not up, and `stranger_bytes` is the sum of all `bytes`.
#[derive(Default)]
pub(super) struct Table {
    entries: Vec<Option<Entry>>,
    free: VecDeque<ClientId>,
    by_remote: HashMap<Remote, Vec<ClientId>>,
    deadlines: BTreeSet<(Instant, ClientId)>,
    /// By `begun`: the oldest first.
    half_open: BTreeMap<u64, ClientId>,
    stranger_bytes: u64,
    count: usize,
    begun: u64,
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn insert(
        &mut self,
        session: Session,
        remote: Remote,
        called: Option<Source>,
    ) -> ClientId {
        self.begun += 1;
        let entry = Some(Entry {
            session: Box::new(session),
            remote,
            called,
            begun: self.begun,
            queued: None,
            bytes: 0,
        });
        // While there are few, a new number is better than one that was used lately.
        let id = if self.entries.len() >= 64 {
            self.free.pop_front()
        } else {
            None
        };
        let id = match id {
            Some(id) => {
                self.entries[id.slot()] = entry;
                id
            }
            None => {
                self.entries.push(entry);
                // Less than 2^24, see `Listener`.
                ClientId((self.entries.len() - 1) as u32)
            }
        };
        self.by_remote.entry(remote).or_default().push(id);
        self.count += 1;
        self.requeue(id);
        id
    }

    pub(super) fn remove(&mut self, id: ClientId) {
        let Some(entry) = self.entries.get_mut(id.slot()).and_then(Option::take) else {
            return;
        };
        self.forget_remote(id, entry.remote);
        self.half_open.remove(&entry.begun);
        self.stranger_bytes -= entry.bytes;
        if let Some(at) = entry.queued {
            self.deadlines.remove(&(at, id));
        }
        self.free.push_back(id);
        self.count -= 1;
    }

    fn forget_remote(&mut self, id: ClientId, remote: Remote) {
        if let Some(ids) = self.by_remote.get_mut(&remote) {
            ids.retain(|it| *it != id);
            if ids.is_empty() {
                self.by_remote.remove(&remote);
            }
        }
    }

    pub(super) fn move_to(&mut self, id: ClientId, remote: Remote) {
        let Some(entry) = self.entries.get_mut(id.slot()).and_then(Option::as_mut) else {
            return;
        };
        let before = core::mem::replace(&mut entry.remote, remote);
        self.forget_remote(id, before);
        self.by_remote.entry(remote).or_default().push(id);
    }

    /// Records which of our addresses the client sent to.
    pub(super) fn called(&mut self, id: ClientId, called: Option<Source>) {
        if let Some(Some(entry)) = self.entries.get_mut(id.slot()) {
            entry.called = called;
        }
    }

    pub(super) fn entry(&self, id: ClientId) -> Option<&Entry> {
        self.entries.get(id.slot())?.as_ref()
    }

    pub(super) fn session(&mut self, id: ClientId) -> Option<&mut Session> {
        let entry = self.entries.get_mut(id.slot())?.as_mut()?;
        Some(&mut entry.session)
    }

    /// The sessions of a remote, the oldest first.
    pub(super) fn at(&self, remote: Remote) -> &[ClientId] {
        self.by_remote.get(&remote).map_or(&[], |it| it)
    }

    /// The session of this remote that has this session id at the client.
    pub(super) fn find(&self, remote: Remote, peer: SessionId) -> Option<ClientId> {
        let named = |id: &&ClientId| {
            self.entry(**id)
                .is_some_and(|it| it.session.peer_id() == Some(peer))
        };
        self.at(remote).iter().find(named).copied()
    }

    /// The sessions that are not up, or no longer, the oldest first.
    pub(super) fn half_open(&self) -> impl Iterator<Item = (ClientId, &Entry)> {
        let ids = self.half_open.values();
        ids.filter_map(|id| Some((*id, self.entry(*id)?)))
    }

    /// The number of sessions that are not up.
    pub(super) fn half_open_len(&self) -> usize {
        self.half_open.len()
    }

    /// Bytes of memory that strangers' sessions use.
    pub(super) const fn stranger_bytes(&self) -> u64 {
        self.stranger_bytes
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = ClientId> + '_ {
        let some = |(at, entry): (usize, &Option<Entry>)| entry.is_some().then_some(at);
        // Less than 2^24.
        let ids = self.entries.iter().enumerate().filter_map(some);
        ids.map(|at| ClientId(at as u32))
    }

    /// Records when the session has something to do next, whether it is up, and what it takes of the strangers' memory.
    pub(super) fn requeue(&mut self, id: ClientId) {
        let Some(entry) = self.entries.get_mut(id.slot()).and_then(Option::as_mut) else {
            return;
        };
        self.stranger_bytes -= entry.bytes;
        entry.bytes = entry.session.stranger_bytes();
        self.stranger_bytes += entry.bytes;
        if entry.session.is_up() {
            self.half_open.remove(&entry.begun);
        } else {
            self.half_open.insert(entry.begun, id);
        }
        let next = entry.session.next_deadline();
        if next == entry.queued {
            return;
        }
        if let Some(at) = core::mem::replace(&mut entry.queued, next) {
            self.deadlines.remove(&(at, id));
        }
        if let Some(at) = next {
            self.deadlines.insert((at, id));
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|it| it.0)
    }

    /// The sessions that have something to do now.
    pub(super) fn due(&self, now: Instant) -> Vec<ClientId> {
        let due = self.deadlines.iter().take_while(|it| it.0 <= now);
        due.map(|it| it.1).collect()
    }
}

/// A client's address and transport. The same address over UDP and over TCP, or on two connections, is two clients:
/// behind one NAT they may be different machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Remote {
    /// The outer address and port.
    pub address: SocketAddr,
    /// The TCP connection; `None` over UDP.
    pub connection: Option<StreamId>,
}

impl Remote {
    /// A client that sends datagrams from `address`.
    #[must_use]
    pub const fn udp(address: SocketAddr) -> Self {
        Self {
            address,
            connection: None,
        }
    }

    /// A client at the other end of the TCP connection.
    #[must_use]
    pub const fn tcp(address: SocketAddr, connection: StreamId) -> Self {
        Self {
            address,
            connection: Some(connection),
        }
    }

    /// Whether the client comes over TCP.
    #[must_use]
    pub const fn is_stream(&self) -> bool {
        self.connection.is_some()
    }

    /// The line to the client, from `called`: our address that the client sends to, if known.
    #[must_use]
    pub const fn line(&self, called: Option<Source>) -> Line {
        let endpoint = Endpoint {
            addr: self.address,
            source: called,
        };
        match self.connection {
            Some(stream) => Line::tcp(endpoint, stream),
            None => Line::udp(endpoint),
        }
    }
}

impl core::fmt::Display for Remote {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.address.fmt(f)
    }
}
