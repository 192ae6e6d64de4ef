//! The socket that `millrace status` reads. The document is made by the control loop and written
//! by a thread, so that a reader that does not read holds nobody up.

use crate::status::Status;
use crate::wireguard::{SocketError, SocketListener};
use netio::poll::Poller;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Documents that are written at a time; the next reader is hung up on.
const READERS: usize = 16;

/// A reader that takes nothing for this long is hung up on.
const SILENCE: Duration = Duration::from_secs(30);

/// The socket of one interface.
pub(super) struct StatusSocket {
    listener: SocketListener,
    ifname: String,
    writing: Arc<AtomicUsize>,
    started: Instant,
}

impl StatusSocket {
    /// Opens the socket of the interface, and has `events` wake for its readers.
    pub(super) fn open(ifname: &str, events: &Poller, token: u64) -> Result<Self, SocketError> {
        let listener = SocketListener::status(ifname)?;
        listener
            .socket
            .set_nonblocking(true)
            .and_then(|()| events.add(&listener.socket, token))
            .map_err(|source| SocketError::Io {
                path: crate::status::socket_path(ifname),
                source,
            })?;
        Ok(Self {
            listener,
            ifname: ifname.to_owned(),
            writing: Arc::default(),
            started: Instant::now(),
        })
    }

    /// Whose it is.
    pub(super) fn ifname(&self) -> &str {
        &self.ifname
    }

    /// Gives the document to every reader that waits.
    pub(super) fn serve(&self, document: impl Fn() -> Status) {
        for _ in 0..READERS {
            let Ok((stream, _)) = self.listener.socket.accept() else {
                return;
            };
            if self.writing.fetch_add(1, Ordering::AcqRel) >= READERS {
                self.writing.fetch_sub(1, Ordering::AcqRel);
                log::warn!("too many readers of the status; one was hung up on");
                continue;
            }
            let document = Status {
                interface: self.ifname.clone(),
                protocol: "openvpn".to_owned(),
                uptime_ms: self.started.elapsed().as_millis() as u64,
                ..document()
            };
            let writing = Arc::clone(&self.writing);
            let thread = std::thread::Builder::new()
                .name("status".into())
                .spawn(move || {
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
