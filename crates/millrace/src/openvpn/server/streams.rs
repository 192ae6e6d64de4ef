//! The TCP connections of a server.

use super::super::device::resolve_local;
use config::openvpn::{Connection, Family, OpenVpn};
use engine::Stream;
use netio::tcp::{Listener, TcpOptions};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a connection may be open without a session.
const PATIENCE: Duration = Duration::from_secs(30);

/// Connections without a session, at most.
const STRANGERS: usize = 256;

/// Connections by number.
#[derive(Default)]
pub(super) struct Streams {
    listeners: Vec<Listener>,
    by_id: HashMap<u64, Arc<Stream>>,
    /// Those on which no session has begun.
    strangers: HashMap<u64, Instant>,
    next: u64,
}

impl Streams {
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

    pub(super) fn listeners(&self) -> &[Listener] {
        &self.listeners
    }

    /// The next connection that waits, if any does.
    pub(super) fn accept(&mut self) -> Option<Arc<Stream>> {
        loop {
            let mut waiting = self.listeners.iter().filter_map(|listener| {
                listener.accept().unwrap_or_else(|error| {
                    log::warn!("accept: {error}");
                    None
                })
            });
            let (socket, from) = waiting.next()?;
            drop(waiting);
            if self.strangers.len() >= STRANGERS {
                self.turn_away_the_oldest();
            }
            self.next += 1;
            match Stream::new(self.next, socket) {
                Ok(stream) => {
                    let stream = Arc::new(stream);
                    self.by_id.insert(stream.id(), Arc::clone(&stream));
                    self.strangers
                        .insert(stream.id(), Instant::now() + PATIENCE);
                    return Some(stream);
                }
                // It has gone already.
                Err(error) => log::debug!("{from}: {error}"),
            }
        }
    }

    /// Whoever keeps a connection open without a word makes room for the next.
    fn turn_away_the_oldest(&mut self) {
        let oldest = self.strangers.iter().min_by_key(|(_, until)| **until);
        if let Some(id) = oldest.map(|(id, _)| *id)
            && let Some(stream) = self.by_id.get(&id).cloned()
        {
            log::debug!("{}: closed for another", stream.endpoint().addr);
            self.strangers.remove(&id);
            // The worker that reads from it finds its end, and tells.
            stream.close();
        }
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
        self.strangers.remove(&id);
    }

    /// Forgets a connection, and tells where it was from.
    pub(super) fn remove(&mut self, id: u64) -> Option<SocketAddr> {
        self.strangers.remove(&id);
        Some(self.by_id.remove(&id)?.endpoint().addr)
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.strangers.values().min().copied()
    }

    /// Connections on which no session has begun in time.
    pub(super) fn expired(&mut self, now: Instant) -> Vec<Arc<Stream>> {
        let late = |(id, at): (&u64, &Instant)| (*at <= now).then_some(*id);
        let late: Vec<u64> = self.strangers.iter().filter_map(late).collect();
        let streams = late.iter().filter_map(|id| self.by_id.get(id).cloned());
        let streams = streams.collect();
        for id in late {
            self.remove(id);
        }
        streams
    }
}
