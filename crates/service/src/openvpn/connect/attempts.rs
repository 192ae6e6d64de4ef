//! One server after the other, until one is reached.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use config::openvpn::{Connection, OpenVpn, Proxy, ResolvRetry, Sockets};
use log::Level;
use openvpn::message::{Advance, AuthFailed, AuthFailedKind, Restart};

use super::dial::Target;
use super::random;
use super::resolve::{Name, ResolveError};
use super::rounds::{Choice, GiveUp, Pauses, Rounds};

/// Next step of a client.
#[derive(Debug)]
pub(crate) enum Next {
    /// Try this one.
    Target(Box<Target>),
    /// Ask again at this moment, not before. The pause is given when it begins.
    Wait(Instant, Option<Duration>),
    /// The addresses of this name are needed: [`Attempts::looked_up`].
    LookUp(Name),
    /// There is nothing more to try.
    GiveUp(GiveUp),
}

/// The walk of a client over its servers.
#[derive(Debug)]
pub(crate) struct Attempts {
    connections: Vec<Connection>,
    sockets: Sockets,
    rounds: Rounds,
    resolv_retry: ResolvRetry,
    random_hostname: bool,
    last: Option<usize>,
    /// The end of the pause that is going on.
    pause: Option<Instant>,
    /// The pause before the next attempt is over: a look-up that follows is no reason for another.
    paused: bool,
    /// Choice in progress, while its name is looked up.
    choice: Option<Choice>,
    /// Since when no name has had an address.
    nameless: Option<Instant>,
    /// The last addresses of each connection: while a tunnel stays up that has ended at the other
    /// end, name servers may be inside it.
    known: Vec<Vec<SocketAddr>>,
    /// The name and the address of the last target, if it has a name that is the same each time.
    aim: Option<(String, IpAddr)>,
    /// No name has had an address for too long.
    over: Option<GiveUp>,
}

impl Attempts {
    /// Begins with the first connection, or a random one with `remote-random`.
    pub(crate) fn new(config: &OpenVpn) -> Self {
        let client = config.client();
        let mut connections: Vec<Connection> = config
            .connections
            .iter()
            .filter(|connection| connection.remote.is_some())
            .cloned()
            .collect();
        if client.is_some_and(|client| client.remote_random) {
            random::shuffle(&mut connections);
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

    /// The next server, or what comes before it. To be asked again after whatever it says; what was broken off
    /// goes on where it was.
    pub(crate) fn next(&mut self, now: Instant) -> Next {
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
                    // An address, which is none of a family that is not wanted, or a name.
                    match name.address() {
                        Some(Ok(address)) => self.found(index, vec![address]),
                        _ => return Next::LookUp(name),
                    }
                }
            }
        }
    }

    /// Takes the result of [`Next::LookUp`]. Returns a log line about it, if any.
    pub(crate) fn looked_up(
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
                let text = format!("{error}; its addresses of before are tried");
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

    /// The connection is up: what fails from now on counts anew.
    pub(crate) fn succeeded(&mut self) {
        self.rounds.succeeded();
    }

    /// The server has proved itself at the last target. Returns the name and the address that are to be kept for a start at
    /// which no name server answers, once for each target.
    pub(crate) const fn proved(&mut self) -> Option<(String, IpAddr)> {
        self.aim.take()
    }

    /// Tries the same server again next time.
    pub(crate) fn same(&mut self) {
        self.rounds.stay();
    }

    /// The pause that is going on is over: what made the last attempt fail may be.
    pub(crate) fn hurry(&mut self) {
        if self.pause.take().is_some() {
            self.paused = true;
        }
    }

    /// Addresses are looked up again, next time: the network has changed.
    pub(crate) fn forget_addresses(&mut self) {
        self.rounds.forget();
    }

    /// Takes note of how the server refused us. True when it said that it is only for now
    /// (`AUTH_FAILED,TEMP`): the next attempt is when and where it said.
    pub(crate) fn after_auth_failed(&mut self, failed: &AuthFailed) -> bool {
        match failed.kind {
            AuthFailedKind::Temporary { backoff, advance } => {
                self.rounds.go(advance);
                self.rounds.wait_at_least(backoff.unwrap_or_default());
                true
            }
            // The password is asked for again, or the token given up: for the same server.
            _ => {
                self.rounds.stay();
                false
            }
        }
    }

    /// Takes note that the server sent `RESTART`: with `N` the next server, otherwise the same.
    pub(crate) fn after_restart(&mut self, restart: &Restart) {
        self.rounds.go(if restart.next_remote {
            Advance::Remote
        } else {
            Advance::No
        });
    }

    /// The pause, or what is left of it.
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

    /// The proxy where there is one, otherwise the server.
    fn whom_to_reach(&self, connection: &Connection) -> Name {
        let (host, port) = match (&connection.proxy, &connection.remote) {
            (Some(Proxy::Http(proxy)), _) => (proxy.host.clone(), proxy.port),
            (Some(Proxy::Socks { host, port, .. }), _) => (host.clone(), *port),
            (None, Some(remote)) if self.random_hostname && !is_address(&remote.host) => {
                let host = match random::bytes::<6>() {
                    Ok(label) => format!("{}.{}", random::hex(&label), remote.host),
                    Err(_) => remote.host.clone(),
                };
                (host, remote.port)
            }
            (None, Some(remote)) => (remote.host.clone(), remote.port),
            // Left out in the beginning.
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
        let is_fixed = !self.random_hostname && !is_address(&host);
        self.aim = is_fixed.then(|| (host, remote.ip()));
        Target::new(
            self.connections[index].clone(),
            self.sockets.clone(),
            remote,
        )
    }
}

fn is_address(host: &str) -> bool {
    let plain = host.trim_start_matches('[').trim_end_matches(']');
    plain.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests;
