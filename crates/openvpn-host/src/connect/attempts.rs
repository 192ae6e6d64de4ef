//! Tries one server after the other until one answers.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use config::openvpn::{Connection, OpenVpn, Proxy, ResolvRetry, Sockets};
use log::Level;
use openvpn::message::{Advance, AuthFailed, AuthFailedKind, Restart};

use super::dial::Target;
use super::resolve::{Name, ResolveError, literal};
use super::rounds::{Choice, GiveUp, Pauses, Rounds};

/// Next step of a client.
#[derive(Debug)]
pub enum Next {
    /// Try this target.
    Target(Box<Target>),
    /// Ask again at this time. The first answer of a pause also has the pause's length; later ones have `None`.
    Wait(Instant, Option<Duration>),
    /// Look up this name, for [`Attempts::looked_up`].
    LookUp(Name),
    /// Give up.
    GiveUp(GiveUp),
}

/// A client's walk over its servers.
#[derive(Debug)]
pub struct Attempts {
    connections: Vec<Connection>,
    sockets: Sockets,
    rounds: Rounds,
    resolv_retry: ResolvRetry,
    random_hostname: bool,
    last: Option<usize>,
    /// End of the current pause.
    pause: Option<Instant>,
    /// The pause before the next attempt is over; a look-up in between causes no second one.
    paused: bool,
    /// Choice whose name is being looked up.
    choice: Option<Choice>,
    /// Start of the time in which no name had an address.
    nameless: Option<Instant>,
    /// Last known addresses of each connection: name servers may be inside a tunnel that stays up after the far end is
    /// gone.
    known: Vec<Vec<SocketAddr>>,
    /// Name and address of the last target; `None` if it has no fixed name.
    aim: Option<(String, IpAddr)>,
    /// Why to give up, once names have had no address for too long.
    over: Option<GiveUp>,
}

impl Attempts {
    /// Begins with the first connection, or a random one for `remote-random`.
    pub fn new(config: &OpenVpn) -> Self {
        let client = config.client();
        let mut connections: Vec<Connection> = config
            .connections
            .iter()
            .filter(|connection| connection.remote.is_some())
            .cloned()
            .collect();
        if client.is_some_and(|client| client.remote_random) {
            shuffle(&mut connections);
        }
        let tries_max = client.and_then(|client| client.connect_retry_max);
        Self {
            rounds: Rounds::new(connections.len(), tries_max),
            known: vec![Vec::new(); connections.len()],
            connections,
            sockets: config.sockets.clone(),
            resolv_retry: client.map(|client| client.resolv_retry).unwrap_or_default(),
            random_hostname: client.is_some_and(|client| client.remote_random_hostname),
            last: None,
            pause: None,
            paused: false,
            choice: None,
            nameless: None,
            aim: None,
            over: None,
        }
    }

    /// Returns the next step; call again after each step. Continues an interrupted one.
    pub fn next(&mut self, now: Instant) -> Next {
        if let Some(why) = &self.over {
            return Next::GiveUp(why.clone());
        }
        loop {
            let choice = match self.choice {
                Some(choice) => choice,
                None => {
                    if let Some(wait) = self.pause(now) {
                        return wait;
                    }
                    match self.rounds.choose() {
                        Ok(choice) => choice,
                        Err(why) => return Next::GiveUp(why),
                    }
                }
            };
            match choice {
                Choice::Address(index, remote) => {
                    (self.choice, self.paused) = (None, false);
                    return Next::Target(Box::new(self.target(index, remote)));
                }
                Choice::Resolve(index) => {
                    self.choice = Some(choice);
                    self.last = Some(index);
                    let name = self.whom_to_reach(&self.connections[index]);
                    // A literal address of an allowed family, or a name.
                    match name.address() {
                        Some(Ok(found)) => self.found(index, found),
                        _ => return Next::LookUp(name),
                    }
                }
            }
        }
    }

    /// Takes the result of [`Next::LookUp`]. Returns a log line about it, if any.
    pub fn looked_up(
        &mut self,
        found: Result<Vec<SocketAddr>, ResolveError>,
        now: Instant,
    ) -> Option<(Level, String)> {
        let Some(Choice::Resolve(index)) = self.choice else {
            return None;
        };
        match found {
            Ok(addresses) => {
                self.found(index, addresses);
                None
            }
            Err(error) if !self.known[index].is_empty() => {
                let known = self.known[index].clone();
                self.choice = None;
                self.rounds.resolved(known);
                let text = format!("{error}; trying its earlier addresses");
                Some((Level::Warn, text))
            }
            Err(error) => {
                (self.choice, self.paused) = (None, false);
                let since = *self.nameless.get_or_insert(now);
                let passed = now.saturating_duration_since(since);
                let over = match self.resolv_retry {
                    ResolvRetry::Infinite => false,
                    ResolvRetry::Seconds(seconds) => passed.as_secs() >= seconds.into(),
                };
                if self.rounds.unresolved() && over {
                    let name = self.whom_to_reach(&self.connections[index]);
                    self.over = Some(GiveUp::Names(name.host));
                }
                Some((Level::Error, error.to_string()))
            }
        }
    }

    fn found(&mut self, index: usize, addresses: Vec<SocketAddr>) {
        self.choice = None;
        self.nameless = None;
        self.known[index].clone_from(&addresses);
        self.rounds.resolved(addresses);
    }

    /// Resets the failure counts, because the connection is up.
    pub fn succeeded(&mut self) {
        self.rounds.succeeded();
    }

    /// Records that the server authenticated at the last target. Returns its name and address, once per target, to be
    /// saved for a start without a working name server.
    pub const fn proved(&mut self) -> Option<(String, IpAddr)> {
        self.aim.take()
    }

    /// Tries the same server next.
    pub fn same(&mut self) {
        self.rounds.stay();
    }

    /// Makes the next attempt without a pause, and does not count the last one, because no server caused its end.
    pub fn at_once(&mut self) {
        self.rounds.uncount();
        self.paused = true;
    }

    /// Ends the current pause, because the cause of the last failure may be gone.
    pub fn hurry(&mut self) {
        if self.pause.take().is_some() {
            self.paused = true;
        }
    }

    /// Drops known addresses after a network change; names are looked up again.
    pub fn forget_addresses(&mut self) {
        self.rounds.forget();
    }

    /// Handles the server's refusal. Returns true for a temporary one (`AUTH_FAILED,TEMP`), which says when and where
    /// to try next.
    pub fn after_auth_failed(&mut self, failed: &AuthFailed) -> bool {
        match failed.kind {
            AuthFailedKind::Temporary { backoff, advance } => {
                self.rounds.go(advance);
                self.rounds.wait_at_least(backoff.unwrap_or_default());
                true
            }
            // Stays with the server: the password is asked for again, or the token dropped.
            _ => {
                self.rounds.stay();
                false
            }
        }
    }

    /// Handles the server's `RESTART`: with `N` the next server, otherwise the same.
    pub fn after_restart(&mut self, restart: &Restart) {
        self.rounds.go(if restart.next_remote {
            Advance::Remote
        } else {
            Advance::No
        });
    }

    /// Returns the pause or its remainder.
    fn pause(&mut self, now: Instant) -> Option<Next> {
        if self.paused {
            return None;
        }
        if let Some(until) = self.pause {
            if now < until {
                return Some(Next::Wait(until, None));
            }
            (self.pause, self.paused) = (None, true);
            return None;
        }
        let last = self.last.and_then(|index| self.connections.get(index));
        let pauses = last.map_or(Pauses { first: 1, max: 300 }, |connection| Pauses {
            first: connection.retry,
            max: connection.retry_max,
        });
        let pause = self.rounds.pause(pauses);
        if pause.is_zero() {
            self.paused = true;
            return None;
        }
        let until = now + pause;
        self.pause = Some(until);
        Some(Next::Wait(until, Some(pause)))
    }

    /// Returns the proxy's name if there is one, otherwise the server's.
    fn whom_to_reach(&self, connection: &Connection) -> Name {
        let (host, port) = match (&connection.proxy, &connection.remote) {
            (Some(Proxy::Http(proxy)), _) => (proxy.host.clone(), proxy.port),
            (Some(Proxy::Socks { host, port, .. }), _) => (host.clone(), *port),
            (None, Some(remote)) if self.random_hostname && literal(&remote.host).is_none() => {
                let mut label = [0; 6];
                crypto::random(&mut label);
                let host = format!("{}.{}", crypto::hex(&label), remote.host);
                (host, remote.port)
            }
            (None, Some(remote)) => (remote.host.clone(), remote.port),
            // `Attempts::new` left such connections out.
            (None, None) => (String::new(), 0),
        };
        Name {
            host,
            port,
            family: connection.protocol.family,
        }
    }

    fn target(&mut self, index: usize, remote: SocketAddr) -> Target {
        self.last = Some(index);
        let host = self.whom_to_reach(&self.connections[index]).host;
        let is_fixed = !self.random_hostname && literal(&host).is_none();
        self.aim = is_fixed.then(|| (host, remote.ip()));
        Target::new(
            self.connections[index].clone(),
            self.sockets.clone(),
            remote,
        )
    }
}

fn shuffle<T>(list: &mut [T]) {
    for last in (1..list.len()).rev() {
        let mut bytes = [0; 8];
        crypto::random(&mut bytes);
        // The modulo bias is negligible.
        let pick = u64::from_ne_bytes(bytes) % (last as u64 + 1);
        list.swap(last, pick as usize);
    }
}

#[cfg(test)]
mod tests;
