//! Listening TCP sockets, and the connections that were accepted.

use crate::openvpn::device::{families, resolve_local};
use config::openvpn::{Connection, Family, OpenVpn};
use host::gate::Gate;
use netio::poll::Poller;
use netio::tcp::{Listener, TcpOptions};
use plane::StreamId;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::time::Instant;

/// Maximum number of connections accepted per turn of the loop.
const ACCEPTED_AT_ONCE: usize = 16;

/// Listening sockets, and connections that the data plane has not taken over.
pub(super) struct Listeners {
    sockets: Vec<Listener>,
    gate: Gate,
    /// Accepted connections that the data plane has not taken over.
    accepted: HashMap<StreamId, TcpStream>,
    next: u64,
}

impl Listeners {
    /// Starts without sockets.
    pub(super) fn new() -> Self {
        Self {
            sockets: Vec::new(),
            gate: Gate::default(),
            accepted: HashMap::new(),
            next: 0,
        }
    }

    /// Number of connections closed at once for lack of descriptors.
    pub(super) const fn turned_away(&self) -> u64 {
        self.gate.turned_away
    }

    /// Listens on the configured addresses.
    pub(super) fn listen(
        &mut self,
        config: &OpenVpn,
        connection: &Connection,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let (local, family) = (&connection.local, families(config, connection));
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
        let (before, mut last) = (self.sockets.len(), None);
        for ip in addresses {
            match Listener::new(SocketAddr::new(ip, local.port), &options) {
                Ok(listener) => {
                    log::info!(
                        "Listening for incoming TCP connection on {}",
                        listener.address()?
                    );
                    self.sockets.push(listener);
                }
                Err(error) => last = Some(error),
            }
        }
        match last {
            // A kernel without IPv6 listens on IPv4 only.
            Some(error) if self.sockets.len() == before => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Registers the listeners with the poller, the first one under `first`.
    pub(super) fn watch(&mut self, poller: &Poller, first: u64, now: Instant) -> io::Result<()> {
        let sockets = self.sockets.iter().map(|it| it.as_fd()).zip(first..);
        self.gate.follow(poller, sockets, now)
    }

    /// Closes the listeners: the kernel refuses connections from now on.
    pub(super) fn stop(&mut self) {
        self.sockets.clear();
    }

    /// Accepts some of the waiting connections; the poller reports the rest again.
    pub(super) fn accept(&mut self, now: Instant) -> Vec<(StreamId, SocketAddr)> {
        // The listeners take turns to be first, so a flood at one delays the others by one turn only.
        if !self.sockets.is_empty() {
            self.sockets.rotate_left(1);
        }
        let mut accepted = Vec::new();
        for listener in &self.sockets {
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
        let number = |(connection, from)| {
            self.next += 1;
            let id = StreamId(self.next);
            self.accepted.insert(id, connection);
            (id, from)
        };
        accepted.into_iter().map(number).collect()
    }

    /// Hands over an accepted connection.
    pub(super) fn take(&mut self, id: StreamId) -> Option<TcpStream> {
        self.accepted.remove(&id)
    }

    /// The listening ports, without duplicates.
    pub(super) fn ports(&self) -> Vec<u16> {
        let mut ports: Vec<u16> = self
            .sockets
            .iter()
            .filter_map(|listener| Some(listener.address().ok()?.port()))
            .collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }

    /// When the listeners need attention without a new connection.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.gate.next_deadline()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listening(count: usize) -> Listeners {
        let mut listeners = Listeners::new();
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = |_| Listener::new(any, &TcpOptions::default()).unwrap();
        listeners.sockets = (0..count).map(listener).collect();
        listeners
    }

    #[test]
    fn a_flood_at_one_listener_does_not_keep_another_waiting() {
        let mut listeners = listening(2);
        let [flooded, other] = [0, 1].map(|at| listeners.sockets[at].address().unwrap());
        let connect = |_| TcpStream::connect(flooded).unwrap();
        let _flood: Vec<TcpStream> = (0..ACCEPTED_AT_ONCE * 3).map(connect).collect();
        let caller = TcpStream::connect(other).unwrap();
        let from = caller.local_addr().unwrap();
        let now = Instant::now();
        let accepted: Vec<_> = (0..2).flat_map(|_| listeners.accept(now)).collect();
        assert!(accepted.iter().any(|(_, address)| *address == from));
    }
}
