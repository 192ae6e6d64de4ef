//! The TCP connections of a server.

use super::super::device::resolve_local;
use crate::gate::Gate;
use config::openvpn::{Connection, Family, OpenVpn};
use engine::Stream;
use netio::poll::Poller;
use netio::tcp::{Listener, TcpOptions};
use openvpn::server::Source;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a connection may be open without a session.
const PATIENCE: Duration = Duration::from_secs(30);

/// Connections of clients that are not let in, at least, where the limit of open files permits.
const STRANGERS_MIN: usize = 256;

/// Connections that are accepted before everything else gets a turn.
const ACCEPTED_AT_ONCE: usize = 16;

/// How long nothing is accepted where connections that were closed for others still have their descriptors.
const BRIEFLY: Duration = Duration::from_millis(50);

/// Open files that are no connections, at least: sockets, the TUN, files of scripts.
const OTHER_FILES_MIN: usize = 64;

/// A connection whose client is not let in yet.
#[derive(Clone, Copy)]
struct Stranger {
    accepted: Instant,
    source: Source,
    /// No session has begun on it.
    silent: bool,
}

/// Connections by number.
pub(super) struct Streams {
    listeners: Vec<Listener>,
    gate: Gate,
    by_id: HashMap<u64, Arc<Stream>>,
    strangers: HashMap<u64, Stranger>,
    strangers_most: usize,
    /// Connections at most.
    most: usize,
    next: u64,
    /// Connections that were closed, or not taken, because as many are open as may be.
    turned_away: u64,
}

impl Streams {
    /// For so many clients, in a process that may have so many files open.
    pub(super) fn new(max_clients: usize, open_files: usize) -> Self {
        let mut streams = Self {
            listeners: Vec::new(),
            gate: Gate::new(),
            by_id: HashMap::new(),
            strangers: HashMap::new(),
            strangers_most: 0,
            most: 0,
            next: 0,
            turned_away: 0,
        };
        streams.limit(max_clients, open_files);
        streams
    }

    /// For so many clients and open files from now on. What is open stays open.
    pub(super) fn limit(&mut self, max_clients: usize, open_files: usize) {
        let other = (open_files / 8).max(OTHER_FILES_MIN);
        self.strangers_most = max_clients.max(STRANGERS_MIN);
        self.most = open_files.saturating_sub(other).max(open_files / 4).max(1);
    }

    /// Open files that so many clients need, with those who are not let in yet.
    pub(super) fn open_files_for(max_clients: usize) -> usize {
        let connections = max_clients.saturating_add(max_clients.max(STRANGERS_MIN));
        let other = (connections / 7 + 1).max(OTHER_FILES_MIN);
        connections.saturating_add(other)
    }

    /// Connections that were closed, or not taken, because as many are open as may be, or no descriptor could be had.
    pub(super) const fn turned_away(&self) -> u64 {
        self.turned_away + self.gate.turned_away
    }

    /// Connections that there can be at a time.
    pub(super) const fn most(&self) -> usize {
        self.most
    }

    /// Listens where the configuration says.
    pub(super) fn listen(
        &mut self,
        config: &OpenVpn,
        connection: &Connection,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let (local, family) = (&connection.local, connection.protocol.family);
        let addresses: Vec<IpAddr> = match (&local.host, family) {
            (Some(host), _) => resolve_local(host, family)?,
            (None, Family::V4) => vec![Ipv4Addr::UNSPECIFIED.into()],
            (None, Family::V6) => vec![Ipv6Addr::UNSPECIFIED.into()],
            (None, Family::Any) => {
                vec![Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()]
            }
        };
        let options = TcpOptions {
            v6_only: true,
            fwmark: config.sockets.mark.unwrap_or(0),
            device: config.sockets.device.clone(),
            send_buffer: config.sockets.send_buffer,
            receive_buffer: config.sockets.receive_buffer,
            ..TcpOptions::default()
        };
        let (before, mut last) = (self.listeners.len(), None);
        for ip in addresses {
            match Listener::new(SocketAddr::new(ip, local.port), &options) {
                Ok(listener) => {
                    log::info!(
                        "Listening for incoming TCP connection on {}",
                        listener.address()?
                    );
                    self.listeners.push(listener);
                }
                Err(error) => last = Some(error),
            }
        }
        match last {
            // A kernel without IPv6 listens on IPv4 alone.
            Some(error) if self.listeners.len() == before => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Has the poller wait for connections, the first listener's under `first`.
    pub(super) fn watch(&mut self, poller: &Poller, first: u64, now: Instant) -> io::Result<()> {
        let sockets = self.listeners.iter().map(|it| it.as_fd()).zip(first..);
        self.gate.follow(poller, sockets, now)
    }

    /// Listens no more: who calls is refused by the kernel.
    pub(super) fn stop_listening(&mut self) {
        self.listeners.clear();
    }

    /// Connections that wait, some of them: what is left makes the poller speak again.
    pub(super) fn accept(&mut self, now: Instant) -> Vec<Arc<Stream>> {
        let mut accepted = Vec::new();
        // Those that were closed for others have their descriptors until a worker lets go of them.
        if self.by_id.len() >= self.most + ACCEPTED_AT_ONCE {
            self.gate.shut(now + BRIEFLY);
            return Vec::new();
        }
        // Another comes first each time: a flood at one keeps the others waiting for one turn, not for ever.
        if !self.listeners.is_empty() {
            self.listeners.rotate_left(1);
        }
        for listener in &self.listeners {
            while accepted.len() < ACCEPTED_AT_ONCE {
                match listener.accept() {
                    Ok(Some(connection)) => accepted.push(connection),
                    Ok(None) => break,
                    Err(error) => {
                        let turn_away = || listener.accept().map(|it| it.is_some());
                        self.gate.failed(&error, now, turn_away);
                        break;
                    }
                }
            }
        }
        let streams = accepted.into_iter();
        streams
            .filter_map(|(socket, from)| self.take(socket, from, now))
            .collect()
    }

    fn take(
        &mut self,
        socket: std::net::TcpStream,
        from: SocketAddr,
        now: Instant,
    ) -> Option<Arc<Stream>> {
        let source = Source::from(from);
        let crowded = self.strangers.len() >= self.strangers_most || self.by_id.len() >= self.most;
        self.turned_away += u64::from(crowded);
        if crowded && !self.make_room(source) {
            log::debug!("{from}: turned away, as many connections are open as may be");
            return None;
        }
        self.next += 1;
        match Stream::new(self.next, socket) {
            Ok(stream) => {
                let stream = Arc::new(stream);
                self.by_id.insert(stream.id(), Arc::clone(&stream));
                let stranger = Stranger {
                    accepted: now,
                    source,
                    silent: true,
                };
                self.strangers.insert(stream.id(), stranger);
                Some(stream)
            }
            // It has gone already.
            Err(error) => {
                log::debug!("{from}: {error}");
                None
            }
        }
    }

    /// Closes a connection of a client that is not let in: the oldest of the source that has the most, one without a
    /// session before others. Whether one could go. Where each source has one the oldest of all goes: a stranger has as
    /// many sources as its IPv6 prefix has networks.
    fn make_room(&mut self, newcomer: Source) -> bool {
        let mut of_source: HashMap<Source, usize> = HashMap::new();
        *of_source.entry(newcomer).or_default() += 1;
        for stranger in self.strangers.values() {
            *of_source.entry(stranger.source).or_default() += 1;
        }
        let greediest = of_source.values().max().copied().unwrap_or(0);
        let oldest = self
            .strangers
            .iter()
            .filter(|(_, it)| of_source.get(&it.source) == Some(&greediest))
            .min_by_key(|(_, it)| (!it.silent, it.accepted));
        let Some(id) = oldest.map(|(id, _)| *id) else {
            return false;
        };
        self.strangers.remove(&id);
        if let Some(stream) = self.by_id.get(&id) {
            log::debug!("{}: closed for another", stream.endpoint().addr);
            // The worker that reads from it finds its end, and tells.
            stream.close();
        }
        true
    }

    /// The ports that are listened on, each once.
    pub(super) fn ports(&self) -> Vec<u16> {
        let mut ports: Vec<u16> = self
            .listeners
            .iter()
            .filter_map(|listener| Some(listener.address().ok()?.port()))
            .collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }

    pub(super) fn get(&self, id: u64) -> Option<&Arc<Stream>> {
        self.by_id.get(&id)
    }

    /// A session has begun on it.
    pub(super) fn begun(&mut self, id: u64) {
        if let Some(stranger) = self.strangers.get_mut(&id) {
            stranger.silent = false;
        }
    }

    /// Its client was let in.
    pub(super) fn admitted(&mut self, id: u64) {
        self.strangers.remove(&id);
    }

    /// Forgets a connection, and tells where it was from.
    pub(super) fn remove(&mut self, id: u64) -> Option<SocketAddr> {
        self.strangers.remove(&id);
        Some(self.by_id.remove(&id)?.endpoint().addr)
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let silent = self.strangers.values().filter(|it| it.silent);
        silent
            .map(|it| it.accepted + PATIENCE)
            .chain(self.gate.next_deadline())
            .min()
    }

    /// Connections on which no session has begun in time.
    pub(super) fn expired(&mut self, now: Instant) -> Vec<Arc<Stream>> {
        let late = |(id, it): (&u64, &Stranger)| {
            (it.silent && it.accepted + PATIENCE <= now).then_some(*id)
        };
        let late: Vec<u64> = self.strangers.iter().filter_map(late).collect();
        let streams = late.iter().filter_map(|id| self.by_id.get(id).cloned());
        let streams = streams.collect();
        for id in late {
            self.remove(id);
        }
        streams
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    struct Callers {
        listener: TcpListener,
        streams: Streams,
        kept: Vec<TcpStream>,
        now: Instant,
    }

    impl Callers {
        fn new(streams: Streams) -> Self {
            Self {
                listener: TcpListener::bind("127.0.0.1:0").unwrap(),
                streams,
                kept: Vec::new(),
                now: Instant::now(),
            }
        }

        /// Somebody at this address calls.
        fn call(&mut self, from: &str) -> Option<u64> {
            let address = self.listener.local_addr().unwrap();
            self.kept.push(TcpStream::connect(address).unwrap());
            let (socket, _) = self.listener.accept().unwrap();
            self.now += Duration::from_millis(1);
            let from = from.parse().unwrap();
            let stream = self.streams.take(socket, from, self.now)?;
            Some(stream.id())
        }
    }

    #[test]
    fn one_source_cannot_have_every_connection() {
        let mut callers = Callers::new(Streams::new(1, 100));
        let most = callers.streams.most();
        assert_eq!(most, 36);
        let client = callers.call("192.0.2.1:1").unwrap();
        callers.streams.begun(client);
        callers.streams.admitted(client);
        let other = callers.call("192.0.2.2:1").unwrap();
        let ids: Vec<u64> = (0..200)
            .map(|port| {
                callers
                    .call(&format!("198.51.100.1:{}", 1000 + port))
                    .unwrap()
            })
            .inspect(|_| {})
            .collect();
        for id in &ids {
            // A reset costs it nothing and frees no place.
            callers.streams.begun(*id);
        }
        assert!(callers.call("192.0.2.3:1").is_some());
        let closed = |id: u64| callers.streams.get(id).unwrap().is_closed();
        assert!(!closed(client) && !closed(other));
        assert_eq!(ids.iter().filter(|id| !closed(**id)).count(), most - 3);
        assert!(closed(ids[0]), "the oldest went first");
    }

    #[test]
    fn many_sources_cannot_have_every_connection() {
        let mut callers = Callers::new(Streams::new(1, 100));
        let most = callers.streams.most();
        let ids: Vec<u64> = (0..most + 10)
            .map(|net| callers.call(&format!("[2001:db8:0:{net:x}::1]:1")).unwrap())
            .collect();
        let closed = |id: u64| callers.streams.get(id).unwrap().is_closed();
        assert!(ids[..10].iter().all(|id| closed(*id)), "the oldest went");
        assert!(ids[10..].iter().all(|id| !closed(*id)));
        assert_eq!(callers.streams.turned_away(), 10);
    }

    #[test]
    fn a_flood_at_one_listener_does_not_keep_another_waiting() {
        let mut callers = Callers::new(Streams::new(1000, 1000));
        let listener = || {
            let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            Listener::new(any, &TcpOptions::default()).unwrap()
        };
        callers.streams.listeners = vec![listener(), listener()];
        let [flooded, other] = [0, 1].map(|at| callers.streams.listeners[at].address().unwrap());
        for _ in 0..ACCEPTED_AT_ONCE * 3 {
            callers.kept.push(TcpStream::connect(flooded).unwrap());
        }
        let caller = TcpStream::connect(other).unwrap();
        let from = caller.local_addr().unwrap();
        let accepted: Vec<_> = (0..2)
            .flat_map(|_| callers.streams.accept(callers.now))
            .collect();
        assert!(accepted.iter().any(|it| it.endpoint().addr == from));
    }

    #[test]
    fn nothing_is_accepted_for_a_moment_where_closed_connections_have_the_descriptors() {
        let mut streams = Streams::new(1, 100);
        streams.most = 0;
        let now = Instant::now();
        let mut callers = Callers::new(streams);
        for number in 0..ACCEPTED_AT_ONCE {
            callers.streams.most = 100;
            callers.call(&format!("192.0.2.{number}:1")).unwrap();
        }
        callers.streams.most = 0;
        assert!(callers.streams.accept(now).is_empty());
        assert_eq!(callers.streams.gate.next_deadline(), Some(now + BRIEFLY));
    }

    #[test]
    fn as_many_files_as_clients_need_are_enough() {
        for clients in [1, 64, 255, 1024, 5000, 1 << 20] {
            let streams = Streams::new(clients, Streams::open_files_for(clients));
            assert!(streams.most() >= clients + streams.strangers_most);
        }
        let mut streams = Streams::new(1, 100);
        streams.limit(5000, Streams::open_files_for(5000));
        assert!(streams.most() >= 10_000 && streams.strangers_most == 5000);
    }

    #[test]
    fn those_who_were_let_in_make_room_for_nobody() {
        let mut callers = Callers::new(Streams::new(1000, 100));
        for number in 0..callers.streams.most() {
            let id = callers.call(&format!("192.0.2.{number}:1")).unwrap();
            callers.streams.admitted(id);
        }
        assert_eq!(callers.call("198.51.100.1:1"), None);
        assert!(callers.streams.remove(1).is_some());
        assert!(callers.call("198.51.100.1:1").is_some());
    }
}
