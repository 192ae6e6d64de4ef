//! One server after the other, until one is reached.

use std::net::SocketAddr;
use std::time::Instant;

use config::openvpn::{Connection, OpenVpn, Proxy, ResolvRetry, Sockets};
use openvpn::message::{Advance, AuthFailed, AuthFailedKind, Restart};

use super::dial::Target;
use super::random;
use super::resolve::resolve;
use super::rounds::{Choice, GiveUp, Pauses, Rounds};
use super::stop::{Stop, Woken};

/// What to do now.
#[derive(Debug)]
pub(crate) enum Next {
    /// Try this one.
    Target(Box<Target>),
    /// Somebody said stop. Ask again to go on where it was.
    Stopped,
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
    /// What was chosen before the last stop.
    choice: Option<Choice>,
    /// Since when no name has had an address.
    nameless: Option<Instant>,
    /// The last addresses of each connection: while a tunnel stays up that has ended at the other
    /// end, name servers may be inside it.
    known: Vec<Vec<SocketAddr>>,
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
            choice: None,
            nameless: None,
        }
    }

    /// Waits as long as is due, looks the name up, and gives the next server.
    pub(crate) fn next(&mut self, stop: &Stop<'_>) -> Next {
        loop {
            if self.choice.is_none() {
                if let Some(stopped) = self.sit_out(stop) {
                    return stopped;
                }
                match self.rounds.choose() {
                    Ok(choice) => self.choice = Some(choice),
                    Err(why) => return Next::GiveUp(why),
                }
            }
            match self.choice {
                Some(Choice::Address(index, remote)) => {
                    self.choice = None;
                    return Next::Target(Box::new(self.target(index, remote)));
                }
                Some(Choice::Resolve(index)) => match self.look_up(index, stop) {
                    Ok(true) => self.choice = None,
                    Ok(false) => return Next::Stopped,
                    Err(why) => return Next::GiveUp(why),
                },
                None => {}
            }
        }
    }

    /// The connection is up: what fails from now on counts anew.
    pub(crate) fn succeeded(&mut self) {
        self.rounds.succeeded();
    }

    /// The same server again, next time.
    pub(crate) fn same(&mut self) {
        self.rounds.stay();
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
    fn sit_out(&mut self, stop: &Stop<'_>) -> Option<Next> {
        let until = match self.pause {
            Some(until) => until,
            None => {
                let last = self.last.and_then(|index| self.connections.get(index));
                let pauses = last.map_or(Pauses { first: 1, max: 300 }, |connection| Pauses {
                    first: connection.retry,
                    max: connection.retry_max,
                });
                let pause = self.rounds.pause(pauses);
                if pause.is_zero() {
                    return None;
                }
                log::info!("Restart pause, {} second(s)", pause.as_secs());
                Instant::now() + pause
            }
        };
        self.pause = Some(until);
        match stop.until(until) {
            Ok(Woken::Stop) => return Some(Next::Stopped),
            Ok(_) => {}
            Err(error) => log::warn!("waiting to connect again: {error}"),
        }
        self.pause = None;
        None
    }

    /// False when somebody said stop.
    fn look_up(&mut self, index: usize, stop: &Stop<'_>) -> Result<bool, GiveUp> {
        self.last = Some(index);
        let connection = &self.connections[index];
        let (host, port) = self.whom_to_reach(connection);
        match resolve(&host, port, connection.protocol.family, stop) {
            Ok(None) => return Ok(false),
            Ok(Some(addresses)) => {
                self.nameless = None;
                self.known[index].clone_from(&addresses);
                self.rounds.resolved(addresses);
            }
            Err(error) if !self.known[index].is_empty() => {
                log::warn!("{error}; its addresses of before are tried");
                self.rounds.resolved(self.known[index].clone());
            }
            Err(error) => {
                log::error!("{error}");
                let since = *self.nameless.get_or_insert_with(Instant::now);
                let over = match self.resolv_retry {
                    ResolvRetry::Infinite => false,
                    ResolvRetry::Seconds(seconds) => since.elapsed().as_secs() >= seconds.into(),
                };
                if self.rounds.unresolved() && over {
                    return Err(GiveUp::Names(host));
                }
            }
        }
        Ok(true)
    }

    /// The proxy where there is one, otherwise the server.
    fn whom_to_reach(&self, connection: &Connection) -> (String, u16) {
        match (&connection.proxy, &connection.remote) {
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
        }
    }

    fn target(&mut self, index: usize, remote: SocketAddr) -> Target {
        self.last = Some(index);
        Target::new(
            self.connections[index].clone(),
            self.sockets.clone(),
            remote,
        )
    }
}

fn is_address(host: &str) -> bool {
    let plain = host.trim_start_matches('[').trim_end_matches(']');
    plain.parse::<std::net::IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use config::openvpn::{Options, parse_arguments};
    use netio::poll::Waker;

    use super::*;

    fn attempts(more: &str) -> Attempts {
        let text = format!("--client --dev tun --ca ca --auth-user-pass login {more}");
        let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        let mut read = |_: &std::path::Path| Err(std::io::ErrorKind::NotFound.into());
        let import = parse_arguments(&words, &mut read, Options::default()).unwrap();
        let (config, _) = import.into_model().unwrap();
        Attempts::new(&config)
    }

    fn remote(next: Next) -> String {
        match next {
            Next::Target(target) => target.remote.to_string(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn remotes_come_in_their_order_and_with_their_ports() {
        let mut attempts = attempts(
            "--connect-retry 0 --remote 192.0.2.1 1 --remote ::1 2 --remote 192.0.2.3 3 \
             --connect-retry-max 1",
        );
        let never = Waker::new().unwrap();
        let stop = Stop::new(&never);
        let order: Vec<String> = (0..3).map(|_| remote(attempts.next(&stop))).collect();
        assert_eq!(order, ["192.0.2.1:1", "[::1]:2", "192.0.2.3:3"]);
        let over = attempts.next(&stop);
        assert!(matches!(over, Next::GiveUp(GiveUp::Tried(1))), "{over:?}");
    }

    #[test]
    fn a_stop_breaks_the_pause_off_and_the_pause_goes_on() {
        let mut attempts = attempts("--connect-retry 300 --remote 192.0.2.1 1");
        let stop = Waker::new().unwrap();
        let first = remote(attempts.next(&Stop::new(&stop)));
        stop.wake();
        let second = attempts.next(&Stop::new(&stop));
        assert!(matches!(second, Next::Stopped), "{second:?}");
        let until = attempts.pause;
        assert!(until.is_some_and(|until| until > Instant::now()));
        assert!(matches!(attempts.next(&Stop::new(&stop)), Next::Stopped));
        assert_eq!(attempts.pause, until);
        assert_eq!(first, "192.0.2.1:1");
    }

    #[test]
    fn what_the_server_said_holds() {
        let mut attempts = attempts("--connect-retry 0 --remote 192.0.2.1 1 --remote 192.0.2.2 2");
        let never = Waker::new().unwrap();
        let stop = Stop::new(&never);
        assert_eq!(remote(attempts.next(&stop)), "192.0.2.1:1");
        attempts.succeeded();
        attempts.after_restart(&Restart::default());
        assert_eq!(remote(attempts.next(&stop)), "192.0.2.1:1");
        attempts.after_restart(&Restart {
            next_remote: true,
            ..Restart::default()
        });
        assert_eq!(remote(attempts.next(&stop)), "192.0.2.2:2");
        assert!(!attempts.after_auth_failed(&AuthFailed::because("no")));
        assert_eq!(remote(attempts.next(&stop)), "192.0.2.2:2");
        assert!(attempts.after_auth_failed(&AuthFailed {
            kind: AuthFailedKind::Temporary {
                backoff: None,
                advance: Advance::Remote,
            },
            reason: String::new(),
        }));
        assert_eq!(remote(attempts.next(&stop)), "192.0.2.1:1");
    }

    #[test]
    fn the_proxy_is_reached_in_the_servers_place() {
        let mut attempts =
            attempts("--proto tcp-client --remote vpn.invalid 1 --http-proxy 192.0.2.80 3128");
        let never = Waker::new().unwrap();
        assert_eq!(remote(attempts.next(&Stop::new(&never))), "192.0.2.80:3128");
    }
}
