//! The socket that `millrace status` reads. The control loop makes the document and a thread writes it, so that a slow
//! reader blocks nothing.

use crate::socket::{Clients, Listener, SocketError};
use crate::status::Status;
use host::gate::{Gate, turned_away};
use netio::poll::Poller;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::time::Instant;

/// Maximum number of readers accepted at a time; the poller reports the rest again.
const READERS: usize = 16;

/// Status socket of one interface.
pub(crate) struct StatusSocket {
    listener: Listener,
    ifname: String,
    protocol: &'static str,
    gate: Gate,
    token: u64,
    readers: Clients,
    started: Instant,
}

impl StatusSocket {
    /// Opens the interface's socket and registers it with `events`.
    pub(crate) fn open(
        ifname: &str,
        protocol: &'static str,
        events: &Poller,
        token: u64,
    ) -> Result<Self, SocketError> {
        Self::over(Listener::status(ifname)?, ifname, protocol, (events, token))
    }

    fn over(
        listener: Listener,
        ifname: &str,
        protocol: &'static str,
        (events, token): (&Poller, u64),
    ) -> Result<Self, SocketError> {
        let mut gate = Gate::default();
        let socket = [(listener.socket.as_fd(), token)];
        listener
            .socket
            .set_nonblocking(true)
            .and_then(|()| gate.follow(events, socket, Instant::now()))
            .map_err(|source| SocketError::Io {
                path: crate::status::socket_path(ifname),
                source,
            })?;
        Ok(Self {
            gate,
            protocol,
            token,
            listener,
            ifname: ifname.to_owned(),
            readers: Clients::default(),
            started: Instant::now(),
        })
    }

    /// Returns the interface's name.
    pub(crate) fn ifname(&self) -> &str {
        &self.ifname
    }

    /// When [`StatusSocket::serve`] is due without a waiting reader.
    pub(crate) const fn next_deadline(&self) -> Option<Instant> {
        self.gate.next_deadline()
    }

    /// Sends the document to every waiting reader. When descriptors run out, `events` ignores readers for a while.
    pub(crate) fn serve(&mut self, events: &Poller, document: impl Fn() -> Status) {
        self.answer(document);
        let socket = [(self.listener.socket.as_fd(), self.token)];
        if let Err(error) = self.gate.follow(events, socket, Instant::now()) {
            log::warn!("status: {error}");
        }
    }

    fn answer(&mut self, document: impl Fn() -> Status) {
        for _ in 0..READERS {
            let reader = match self.readers.accept(&self.listener) {
                Ok(Some(reader)) => reader,
                Ok(None) => return,
                Err(error) => {
                    let turn_away = || turned_away(self.listener.socket.accept());
                    return self.gate.failed(&error, Instant::now(), turn_away);
                }
            };
            let mut document = Status {
                interface: self.ifname.clone(),
                protocol: self.protocol.to_owned(),
                uptime_ms: self.started.elapsed().as_millis() as u64,
                ..document()
            };
            reader.serve(move |mut stream| {
                host::privileges::confine_this_thread();
                document.look_at_uplinks();
                if let Ok(text) = serde_json::to_vec(&document) {
                    let _ = stream.write_all(&text);
                }
            });
        }
    }
}

#[cfg(test)]
mod tests;
