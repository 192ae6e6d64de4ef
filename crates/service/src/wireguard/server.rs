//! Clients of an interface: the UAPI for `wg`, and Millrace's status.

use super::interface::Interface;
use crate::socket::{Clients, Listener};
use config::uapi::{Request, Requests, write_errno, write_get};
use netio::poll::Waker;
pub(super) use plane::lock;
use std::io::{self, BufWriter, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Serves the clients of an interface's sockets.
pub(super) struct Server {
    interface: Arc<Mutex<Option<Interface>>>,
    /// Wakes the control thread, as a change of configuration can bring deadlines forward.
    wake: Arc<Waker>,
    clients: Clients,
}

impl Server {
    pub(super) fn new(interface: Arc<Mutex<Option<Interface>>>, wake: Arc<Waker>) -> Self {
        Self {
            interface,
            wake,
            clients: Clients::default(),
        }
    }

    /// Accepts a waiting client of the UAPI socket, if there is one.
    ///
    /// # Errors
    /// No descriptor is free for the client, which goes on waiting.
    pub(super) fn accept_uapi(&self, listener: &Listener) -> io::Result<()> {
        self.accept(listener, |interface, wake, stream| {
            if let Err(e) = serve(interface, wake, stream) {
                log::debug!("UAPI client: {e}");
            }
        })
    }

    /// Accepts a waiting client of the status socket, if there is one.
    ///
    /// # Errors
    /// See [`Server::accept_uapi`].
    pub(super) fn accept_status(&self, listener: &Listener, started: Instant) -> io::Result<()> {
        self.accept(listener, move |interface, _, mut stream| {
            let document = lock(interface).as_ref().map(|i| i.status(started));
            let Some(mut document) = document else {
                return;
            };
            document.look_at_uplinks();
            if let Ok(text) = serde_json::to_vec(&document) {
                let _ = stream.write_all(&text);
            }
        })
    }

    fn accept(
        &self,
        listener: &Listener,
        serve: impl FnOnce(&Mutex<Option<Interface>>, &Waker, UnixStream) + Send + 'static,
    ) -> io::Result<()> {
        if let Some(client) = self.clients.accept(listener)? {
            let (interface, wake) = (Arc::clone(&self.interface), Arc::clone(&self.wake));
            client.serve(move |stream| serve(&interface, &wake, stream));
        }
        Ok(())
    }
}

fn serve(interface: &Mutex<Option<Interface>>, wake: &Waker, stream: UnixStream) -> io::Result<()> {
    let mut out = BufWriter::new(stream.try_clone()?);
    let mut requests = Requests::new(stream);
    while let Some(request) = requests.next_request()? {
        match request {
            Ok(Request::Get) => {
                let state = lock(interface).as_ref().map(Interface::get);
                let Some((device, peers)) = state else {
                    return Ok(());
                };
                write_get(&mut out, &device, peers)?;
            }
            Ok(Request::Set(set)) => {
                let result = lock(interface).as_mut().map(|i| i.set(&set));
                let Some(result) = result else { return Ok(()) };
                wake.wake();
                let errno = result.map_or_else(
                    |(errno, words)| {
                        log::warn!("configuration refused: {words}");
                        errno
                    },
                    |()| 0,
                );
                write_errno(&mut out, errno)?;
            }
            Err(e) => {
                log::warn!("configuration refused, line {}: {}", e.line, e.message);
                write_errno(&mut out, e.errno)?;
            }
        }
        out.flush()?;
    }
    Ok(())
}
