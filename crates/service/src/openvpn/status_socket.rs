//! The socket that `millrace status` reads. The control loop makes the document and a thread writes it, so that a slow
//! reader blocks nothing.

use crate::status::Status;
use crate::wireguard::{SocketError, SocketListener};
use host::gate::{Gate, turned_away};
use netio::poll::Poller;
use std::io::{ErrorKind, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Most documents that are written at a time; the socket closes further readers.
const READERS: usize = 16;

/// Timeout for a reader that takes no bytes.
const SILENCE: Duration = Duration::from_secs(30);

/// Status socket of one interface.
pub(crate) struct StatusSocket {
    listener: SocketListener,
    ifname: String,
    protocol: &'static str,
    gate: Gate,
    token: u64,
    writing: Arc<AtomicUsize>,
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
        let listener = SocketListener::status(ifname)?;
        let mut gate = Gate::new();
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
            writing: Arc::default(),
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
            let stream = match self.listener.socket.accept() {
                Ok((stream, _)) => stream,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == ErrorKind::Interrupted => return,
                Err(error) => {
                    let turn_away = || turned_away(self.listener.socket.accept());
                    return self.gate.failed(&error, Instant::now(), turn_away);
                }
            };
            if self.writing.fetch_add(1, Ordering::AcqRel) >= READERS {
                self.writing.fetch_sub(1, Ordering::AcqRel);
                log::debug!("too many readers of the status; one was hung up on");
                continue;
            }
            let mut document = Status {
                interface: self.ifname.clone(),
                protocol: self.protocol.to_owned(),
                uptime_ms: self.started.elapsed().as_millis() as u64,
                ..document()
            };
            let writing = Arc::clone(&self.writing);
            let thread = std::thread::Builder::new()
                .name("status".into())
                .spawn(move || {
                    host::privileges::confine_this_thread();
                    document.look_at_uplinks();
                    write(&document, &stream);
                    writing.fetch_sub(1, Ordering::AcqRel);
                });
            if thread.is_err() {
                self.writing.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }
}

fn write(document: &Status, mut stream: &UnixStream) {
    let _ = stream.set_nonblocking(false);
    let _ = stream.set_write_timeout(Some(SILENCE));
    if let Ok(text) = serde_json::to_vec(document) {
        let _ = stream.write_all(&text);
    }
}
