//! Which server of a pool a tunnel calls. The next one is called when none answers for a while; a server that answers
//! stays in use. Does no I/O.

use config::pool::{Choose, Server};
use config::tunnel::{Peer, Tunnel};
use config::types::Key32;
use config::uapi::{SetDevice, SetPeer};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Longest time for which one server is called while all of them are silent.
const LONGEST: Duration = Duration::from_secs(60);

/// Maximum number of servers that [`Choose::Fastest`] calls at once.
const AT_ONCE: usize = 8;

/// Maximum number of servers of an IP version that are asked for a route at one change.
const LOOKS: usize = 64;

/// Maximum number of failures that the status shows.
const FAILURES: usize = 64;

/// The servers of a running tunnel.
#[derive(Clone, Debug)]
pub struct Rotation {
    /// The `[Peer]` of the file.
    peer: Peer,
    choose: Choose,
    /// The servers in the order of calling. Those in use come first, and those that failed last.
    servers: VecDeque<Candidate>,
    /// Number of servers in use: more than one only until the fastest has answered.
    called: usize,
    /// Whether the servers in use were called, or have answered before a reload.
    is_chosen: bool,
    /// When they were called.
    since: Instant,
    /// Servers called since the last answer.
    tried: usize,
    /// How often all servers were called in vain since the last answer.
    rounds: u32,
    /// When to call the next server, if the present one is silent and its time is not over.
    due: Option<Instant>,
    /// At the last look, neither the servers in use nor others had a route.
    is_cut_off: bool,
}

#[derive(Clone, Debug)]
struct Candidate {
    server: Server,
    /// When the server last did not answer.
    failed: Option<Instant>,
}

impl Rotation {
    /// Makes the rotation of a tunnel's pool; `None` without a pool. `seed` is any number that differs between starts.
    /// `earlier` is the rotation before a reload: its server stays in use if the pool still has it.
    #[must_use]
    pub fn new(tunnel: &Tunnel, seed: u64, earlier: Option<&Self>, now: Instant) -> Option<Self> {
        let choose = tunnel.pool.as_ref()?.choose;
        let candidate = |server: Server| {
            let known = earlier.and_then(|it| it.servers.iter().find(|it| it.server == server));
            let failed = known.and_then(|it| it.failed);
            Candidate { server, failed }
        };
        let mut servers: VecDeque<_> = tunnel.servers().into_iter().map(candidate).collect();
        if choose != Choose::Order {
            shuffle(servers.make_contiguous(), seed);
        }
        let in_use = earlier.filter(|it| it.called == 1);
        let in_use = in_use.and_then(|it| it.servers.front());
        let kept = servers
            .iter()
            .position(|it| in_use.is_some_and(|in_use| it.server == in_use.server));
        let mut rotation = Self {
            peer: tunnel.peers.first()?.clone(),
            choose,
            servers,
            called: 1,
            is_chosen: kept.is_some() && earlier.is_some_and(|it| it.is_chosen),
            since: now,
            tried: 0,
            rounds: 0,
            due: None,
            is_cut_off: false,
        };
        if let Some(kept) = kept {
            rotation.keep(kept);
        }
        (!rotation.servers.is_empty()).then_some(rotation)
    }

    /// Chooses the servers to call first, among those for which `has_route` says yes; a server that answered or was called
    /// before stays. Returns whether the servers in use are others now.
    pub fn begin(&mut self, mut has_route: impl FnMut(&Server) -> bool) -> bool {
        if self.is_chosen {
            return false;
        }
        let names = |it: &Self| -> Vec<String> { it.called().map(|it| it.name.clone()).collect() };
        let before = names(self);
        if let Some(first) = self.with_route(0, &mut has_route) {
            self.servers.rotate_left(first);
            self.widen(has_route);
        }
        names(self) != before
    }

    /// The servers in use.
    pub fn called(&self) -> impl Iterator<Item = &Server> {
        self.servers.iter().take(self.called).map(|it| &it.server)
    }

    /// The tunnel's peers for the servers in use. The first has the ranges of the file's `[Peer]`.
    #[must_use]
    pub fn peers(&self) -> Vec<Peer> {
        let peer = |(at, server): (usize, &Server)| Peer {
            public_key: server.public_key.clone().unwrap_or_default(),
            endpoint: Some(server.endpoint.clone()),
            allowed_ips: match at {
                0 => self.peer.allowed_ips.clone(),
                _ => Vec::new(),
            },
            ..self.peer.clone()
        };
        self.called().enumerate().map(peer).collect()
    }

    /// The change that gives an interface with the peers `running` those of the servers in use, without endpoints.
    /// `anew` forgets earlier sessions with them: a server may have the key of the one before.
    #[must_use]
    pub fn changes(&self, running: &[Key32], anew: bool) -> SetDevice {
        let peers = self.peers();
        let stays = |key: &Key32| !anew && peers.iter().any(|it| it.public_key == *key);
        let gone = running.iter().filter(|key| !stays(key));
        let gone = gone.map(|key| SetPeer {
            public_key: key.clone(),
            remove: true,
            ..SetPeer::default()
        });
        let mut set = SetDevice {
            peers: gone.collect(),
            ..SetDevice::default()
        };
        let tunnel = Tunnel {
            peers,
            ..Tunnel::default()
        };
        let there = tunnel.to_set_device().peers.into_iter();
        set.peers.extend(there.map(|peer| SetPeer {
            endpoint: None,
            ..peer
        }));
        set
    }

    /// The latest failures: names of servers, each with the time when it did not answer.
    #[must_use]
    pub fn failures(&self) -> Vec<(String, Instant)> {
        let failed = |it: &Candidate| Some((it.server.name.clone(), it.failed?));
        // The last to fail are the last in the order.
        let failures = self.servers.iter().rev().filter_map(failed);
        failures.take(FAILURES).collect()
    }

    /// How often all servers were called in vain since the last answer.
    #[must_use]
    pub const fn rounds(&self) -> u32 {
        self.rounds
    }

    /// When [`Rotation::silent`] may call the next server, if it waits for a time.
    #[must_use]
    pub const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// The servers in use do not answer. Goes on to the next one for which `has_route` says yes, once their time is over.
    /// Servers that had no route are called again when they have one. Returns whether to call the servers in use.
    pub fn silent(&mut self, now: Instant, mut has_route: impl FnMut(&Server) -> bool) -> bool {
        let longest = Duration::from_secs(5 << self.rounds.min(4)).min(LONGEST);
        self.is_chosen = true;
        if self.is_cut_off && self.called().any(&mut has_route) {
            (self.is_cut_off, self.since, self.due) = (false, now, Some(now + longest));
            return true;
        }
        self.due = Some(self.since + longest).filter(|at| *at > now);
        let failed = self.called;
        if self.servers.len() == 1 || self.due.is_some() {
            return false;
        }
        if !self.advance(now, &mut has_route) {
            let is_reached = self.called().any(has_route);
            self.is_cut_off = !is_reached;
            return false;
        }
        self.is_cut_off = false;
        for candidate in self.servers.iter_mut().rev().take(failed) {
            candidate.failed = Some(now);
        }
        self.tried += failed;
        if self.tried >= self.servers.len() {
            (self.tried, self.rounds) = (0, self.rounds.saturating_add(1));
        }
        true
    }

    /// Calls the first server behind those in use that has a route; all of them again if no others exist.
    fn advance(&mut self, now: Instant, mut has_route: impl FnMut(&Server) -> bool) -> bool {
        self.since = now;
        let others = self.servers.len() - self.called;
        let next = match others {
            0 => self.called().any(&mut has_route).then_some(0),
            _ => self.with_route(self.called, &mut has_route),
        };
        // Servers without a route go to the end, and those that did not answer behind them. The next look begins with
        // others.
        for _ in 0..next.unwrap_or_else(|| LOOKS.min(others)) {
            let unreachable = self.servers.remove(self.called);
            self.servers.extend(unreachable);
        }
        if next.is_some() {
            self.servers.rotate_left(self.called);
            self.widen(has_route);
        }
        next.is_some()
    }

    /// Position, counted from `from`, of the first server there that has a route. Of each IP version it looks at a
    /// limited number: often all servers of one version have none.
    fn with_route(&self, from: usize, mut has_route: impl FnMut(&Server) -> bool) -> Option<usize> {
        let mut looks = [0; 2];
        let mut servers = self.servers.iter().skip(from);
        servers.position(|it| {
            let address = it.server.endpoint.socket_addr();
            let looks = &mut looks[usize::from(address.is_some_and(|it| it.is_ipv6()))];
            *looks += 1;
            *looks <= LOOKS && has_route(&it.server)
        })
    }

    /// With [`Choose::Fastest`], calls others beside the first server: those with another key, an address (a look-up would
    /// take longer than the answer) and a route.
    fn widen(&mut self, mut has_route: impl FnMut(&Server) -> bool) {
        self.called = 1;
        let last = match self.choose {
            Choose::Fastest => self.servers.len().min(LOOKS),
            _ => 1,
        };
        for at in 1..last {
            let server = &self.servers[at].server;
            let is_new = self.called().all(|it| it.public_key != server.public_key);
            let fits = is_new && server.endpoint.socket_addr().is_some() && has_route(server);
            if fits && self.called < AT_ONCE {
                // It follows those in use.
                self.servers.swap(self.called, at);
                self.called += 1;
            }
        }
    }

    /// The server with this key has answered. Returns whether others were called with it, and it is now the only one.
    pub fn answered(&mut self, key: &Key32) -> bool {
        let is_it = |it: &Server| it.public_key.as_ref() == Some(key);
        let at = self.called().position(is_it);
        let Some(at) = at else {
            return false;
        };
        let others = self.called > 1;
        self.is_chosen = true;
        self.keep(at);
        (self.tried, self.rounds, self.due) = (0, 0, None);
        self.is_cut_off = false;
        others
    }

    /// Makes one server the only one in use.
    fn keep(&mut self, at: usize) {
        if let Some(mut kept) = self.servers.remove(at) {
            kept.failed = None;
            self.servers.push_front(kept);
        }
        self.called = 1;
    }
}

/// Puts the servers into any order (Fisher and Yates), by the generator SplitMix64.
fn shuffle(servers: &mut [Candidate], mut seed: u64) {
    for last in (1..servers.len()).rev() {
        seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        servers.swap(last, ((mixed ^ (mixed >> 31)) % (last as u64 + 1)) as usize);
    }
}

#[cfg(test)]
mod tests;
