//! Tracks TCP connections and chooses which ones to close when there are too many.

use plane::SourceNetwork;
use plane::StreamId;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How long a connection may be open without a session.
const PATIENCE: Duration = Duration::from_secs(30);

/// Minimum number of connections for clients that are not admitted, if the limit of open files permits.
const STRANGERS_MIN: usize = 256;

/// Maximum number of such connections, for any `max_clients`: each may hold half a record of 4 KiB in the data plane.
const STRANGERS_MAX: usize = 512;

/// Minimum number of other open files: sockets, the TUN, script files.
const OTHER_FILES_MIN: usize = 64;

/// A connection whose client is not admitted yet.
#[derive(Clone, Copy, Debug)]
struct Stranger {
    accepted: Instant,
    source: SourceNetwork,
    /// No session has begun on the connection.
    silent: bool,
}

/// Outcome for an accepted connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The connection is accepted.
    Taken,
    /// The connection stays; close the connection of this number instead.
    InPlaceOf(StreamId),
    /// The server has no room: close the connection.
    TurnedAway,
}

/// TCP connections by number.
#[derive(Debug)]
pub(crate) struct Connections {
    /// All connections, including closed ones whose end is not reported yet.
    by_id: HashMap<StreamId, SocketAddr>,
    strangers: HashMap<StreamId, Stranger>,
    strangers_most: usize,
    /// Maximum number of connections.
    most: usize,
    turned_away: u64,
}

impl Connections {
    /// `open_files` is the process's limit.
    pub(crate) fn new(max_clients: usize, open_files: usize) -> Self {
        let mut connections = Self {
            by_id: HashMap::new(),
            strangers: HashMap::new(),
            strangers_most: 0,
            most: 0,
            turned_away: 0,
        };
        connections.limit(max_clients, open_files);
        connections
    }

    /// Sets new limits. Open connections stay.
    pub(crate) fn limit(&mut self, max_clients: usize, open_files: usize) {
        let other = (open_files / 8).max(OTHER_FILES_MIN);
        self.strangers_most = max_clients.clamp(STRANGERS_MIN, STRANGERS_MAX);
        self.most = open_files.saturating_sub(other).max(open_files / 4).max(1);
    }

    /// Open files needed for `max_clients`, including strangers' connections.
    pub(crate) fn open_files_for(max_clients: usize) -> usize {
        let strangers = max_clients.clamp(STRANGERS_MIN, STRANGERS_MAX);
        let connections = max_clients.saturating_add(strangers);
        let other = (connections / 7 + 1).max(OTHER_FILES_MIN);
        connections.saturating_add(other)
    }

    /// Number of connections closed or refused for lack of room.
    pub(crate) const fn turned_away(&self) -> u64 {
        self.turned_away
    }

    /// Returns a warning for the log if fewer than `max_clients` can connect over TCP.
    pub(crate) fn too_few_for(&self, max_clients: usize) -> Option<String> {
        (self.most < max_clients).then(|| {
            format!(
                "WARNING: the limit of open files allows {} clients over TCP, less than max-clients: raise it (ulimit \
                 -Hn, LimitNOFILE=)",
                self.most
            )
        })
    }

    /// Whether a connection of this number exists.
    pub(crate) fn has(&self, id: StreamId) -> bool {
        self.by_id.contains_key(&id)
    }

    /// Handles an accepted connection.
    pub(crate) fn accepted(&mut self, id: StreamId, from: SocketAddr, now: Instant) -> Admission {
        let source = SourceNetwork::from(from);
        let crowded = self.strangers.len() >= self.strangers_most || self.by_id.len() >= self.most;
        let mut admission = Admission::Taken;
        if crowded {
            self.turned_away += 1;
            let Some(oldest) = self.make_room(source) else {
                return Admission::TurnedAway;
            };
            admission = Admission::InPlaceOf(oldest);
        }
        self.by_id.insert(id, from);
        let stranger = Stranger {
            accepted: now,
            source,
            silent: true,
        };
        self.strangers.insert(id, stranger);
        admission
    }

    /// Picks a stranger's connection to close: the oldest from the source with the most, those without a session first;
    /// `None` if every client is admitted. If every source has one, the oldest of all goes, because a stranger's IPv6
    /// prefix may hold many sources.
    fn make_room(&mut self, newcomer: SourceNetwork) -> Option<StreamId> {
        let mut of_source: HashMap<SourceNetwork, usize> = HashMap::new();
        *of_source.entry(newcomer).or_default() += 1;
        for stranger in self.strangers.values() {
            *of_source.entry(stranger.source).or_default() += 1;
        }
        let greediest = of_source.values().max().copied().unwrap_or(0);
        let oldest = self
            .strangers
            .iter()
            .filter(|(_, it)| of_source.get(&it.source) == Some(&greediest))
            .min_by_key(|(id, it)| (!it.silent, it.accepted, **id));
        let id = *oldest?.0;
        self.strangers.remove(&id);
        Some(id)
    }

    /// Records that a session has begun on a connection.
    pub(crate) fn begun(&mut self, id: StreamId) {
        if let Some(stranger) = self.strangers.get_mut(&id) {
            stranger.silent = false;
        }
    }

    /// Records that a connection's client was admitted.
    pub(crate) fn admitted(&mut self, id: StreamId) {
        self.strangers.remove(&id);
    }

    /// Forgets a connection and returns its source address.
    pub(crate) fn remove(&mut self, id: StreamId) -> Option<SocketAddr> {
        self.strangers.remove(&id);
        self.by_id.remove(&id)
    }

    /// When [`expired`](Self::expired) is due.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let silent = self.strangers.values().filter(|it| it.silent);
        silent.map(|it| it.accepted + PATIENCE).min()
    }

    /// Takes and forgets the connections on which no session began in time.
    pub(crate) fn expired(&mut self, now: Instant) -> Vec<StreamId> {
        let late = |(id, it): (&StreamId, &Stranger)| {
            (it.silent && it.accepted + PATIENCE <= now).then_some(*id)
        };
        let late: Vec<StreamId> = self.strangers.iter().filter_map(late).collect();
        for id in &late {
            self.remove(*id);
        }
        late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Callers {
        connections: Connections,
        closed: Vec<StreamId>,
        next: u64,
        now: Instant,
    }

    impl Callers {
        fn new(max_clients: usize, open_files: usize) -> Self {
            Self {
                connections: Connections::new(max_clients, open_files),
                closed: Vec::new(),
                next: 0,
                now: Instant::now(),
            }
        }

        /// Accepts a connection from this address. Returns its number unless refused.
        fn call(&mut self, from: &str) -> Option<StreamId> {
            self.now += Duration::from_millis(1);
            self.next += 1;
            let (id, from) = (StreamId(self.next), from.parse().unwrap());
            match self.connections.accepted(id, from, self.now) {
                Admission::Taken => {}
                Admission::InPlaceOf(other) => self.closed.push(other),
                Admission::TurnedAway => return None,
            }
            Some(id)
        }
    }

    #[test]
    fn one_source_cannot_have_every_connection() {
        let mut callers = Callers::new(1, 100);
        let most = callers.connections.most;
        assert_eq!(most, 36);
        let client = callers.call("192.0.2.1:1").unwrap();
        callers.connections.begun(client);
        callers.connections.admitted(client);
        let other = callers.call("192.0.2.2:1").unwrap();
        let ids: Vec<StreamId> = (0..200)
            .map(|port| {
                callers
                    .call(&format!("198.51.100.1:{}", 1000 + port))
                    .unwrap()
            })
            .collect();
        for id in &ids {
            // A reset costs the sender nothing and frees no place.
            callers.connections.begun(*id);
        }
        assert!(callers.call("192.0.2.3:1").is_some());
        let closed = &callers.closed;
        assert!(!closed.contains(&client) && !closed.contains(&other));
        assert_eq!(closed[0], ids[0], "the oldest went first");
    }

    #[test]
    fn many_sources_cannot_have_every_connection() {
        let mut callers = Callers::new(1, 100);
        let most = callers.connections.most;
        let ids: Vec<StreamId> = (0..most + 10)
            .map(|net| callers.call(&format!("[2001:db8:0:{net:x}::1]:1")).unwrap())
            .collect();
        assert_eq!(callers.closed, ids[..10], "the oldest went");
        assert_eq!(callers.connections.turned_away(), 10);
    }

    #[test]
    fn as_many_files_as_clients_need_are_enough() {
        for clients in [1, 64, 255, 1024, 5000, 1 << 20] {
            let connections = Connections::new(clients, Connections::open_files_for(clients));
            assert!(connections.most >= clients + connections.strangers_most);
        }
        let mut connections = Connections::new(1, 100);
        connections.limit(5000, Connections::open_files_for(5000));
        assert!(connections.most >= 5512 && connections.strangers_most == STRANGERS_MAX);
    }

    #[test]
    fn clients_that_were_let_in_make_no_room() {
        let mut callers = Callers::new(1000, 100);
        for number in 0..callers.connections.most {
            let id = callers.call(&format!("192.0.2.{number}:1")).unwrap();
            callers.connections.admitted(id);
        }
        assert_eq!(callers.call("198.51.100.1:1"), None);
        assert!(callers.connections.remove(StreamId(1)).is_some());
        assert!(callers.call("198.51.100.1:1").is_some());
    }

    #[test]
    fn a_connection_without_a_session_ends_in_time() {
        let mut callers = Callers::new(10, 100);
        let [silent, begun] =
            [1, 2].map(|host| callers.call(&format!("192.0.2.{host}:1")).unwrap());
        callers.connections.begun(begun);
        let due = callers.connections.next_deadline().unwrap();
        assert!(
            callers
                .connections
                .expired(due - Duration::from_millis(1))
                .is_empty()
        );
        assert_eq!(callers.connections.expired(due), [silent]);
        assert!(callers.connections.has(begun) && !callers.connections.has(silent));
        assert_eq!(callers.connections.next_deadline(), None);
    }
}
