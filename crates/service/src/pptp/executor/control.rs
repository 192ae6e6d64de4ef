//! Control connections.

use super::lines::v4;
use super::{Executor, STREAMS};
use crate::pptp::machine::{Event, Machine, ONLY, StreamId};
use ::pptp::session::Ends;
use host::gate::turned_away;
use netio::tcp::{Connecting, TcpOptions};
use plane::LineId;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddrV4, TcpStream};
use std::time::Instant;

/// Bytes read from one connection in one go: more than the longest message.
const ROOM: usize = 4096;

/// Most connections accepted in one go.
const ACCEPTED_AT_ONCE: usize = 32;

/// A control connection, open or being made.
pub(super) enum Control {
    Connecting(Connecting),
    Open {
        stream: TcpStream,
        /// The poller watches the connection for room to write.
        blocked: bool,
    },
}

impl<M: Machine> Executor<'_, M> {
    /// Connects to a server, by a line if there are any.
    pub(super) fn connect(&mut self, server: SocketAddrV4, line: Option<LineId>) {
        self.close(ONLY);
        self.network.keep_outside(*server.ip());
        let options = match line {
            Some(line) => self.gre.tcp_by(line),
            None => TcpOptions {
                device: self.options.bind_device.clone(),
                ..TcpOptions::default()
            },
        };
        // Set before the call request is sent: GRE may arrive before the reply.
        let gre = self.gre.only();
        let connecting = gre.map_or(Ok(()), |gre| gre.connect(*server.ip()));
        let connecting = connecting.map_err(|error| error.to_string());
        let connecting = connecting.and_then(|()| {
            Connecting::new(server.into(), &options).map_err(|error| error.to_string())
        });
        let watched = connecting.and_then(|connecting| {
            let token = STREAMS + ONLY;
            let watch = self.poller.add(&connecting, token);
            let watch = watch.and_then(|()| self.poller.modify(&connecting, token, true));
            watch
                .map(|()| connecting)
                .map_err(|error| error.to_string())
        });
        match watched {
            Ok(connecting) => {
                self.streams.insert(ONLY, Control::Connecting(connecting));
            }
            Err(error) => self.tell(Event::NotConnected(error)),
        }
    }

    /// Accepts waiting connections.
    pub(super) fn accept(&mut self, now: Instant) {
        let Some(listener) = &self.listener else {
            return;
        };
        // Further connections wait for the next turn: each may replace another connection, which is closed only after
        // this loop.
        for _ in 0..ACCEPTED_AT_ONCE {
            match listener.accept() {
                Ok(None) => break,
                Ok(Some((stream, from))) => {
                    let IpAddr::V4(theirs) = from.ip() else {
                        continue;
                    };
                    let ours = stream.local_addr().ok().and_then(|it| v4(it.ip()));
                    let ends = Ends { theirs, ours };
                    let accepted = self.machine.accept(ends, now, &mut self.effects);
                    let Some(id) = accepted else {
                        continue;
                    };
                    let blocked = false;
                    let watched = self.poller.add(&stream, STREAMS + id);
                    self.streams.insert(id, Control::Open { stream, blocked });
                    if watched.is_err() {
                        self.machine
                            .handle(Event::Ended(id), now, &mut self.effects);
                    }
                }
                Err(error) => {
                    let turn_away = || turned_away(listener.accept());
                    self.gate.failed(&error, now, turn_away);
                    break;
                }
            }
        }
    }

    /// Handles a connection that can be read or written.
    pub(super) fn control(&mut self, id: StreamId, now: Instant) {
        if let Some(Control::Connecting(connecting)) = self.streams.get(&id) {
            match connecting.is_done() {
                Ok(false) => {}
                Ok(true) => self.connected(id),
                Err(error) => {
                    self.close(id);
                    self.tell(Event::NotConnected(error.to_string()));
                }
            }
            return;
        }
        let Some(Control::Open { stream, .. }) = self.streams.get_mut(&id) else {
            return;
        };
        let mut bytes = [0; ROOM];
        let event = match stream.read(&mut bytes) {
            Ok(0) => Event::Ended(id),
            Ok(len) => Event::Control(id, &bytes[..len]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return,
            Err(_) => Event::Ended(id),
        };
        let ended = matches!(event, Event::Ended(_));
        self.machine.handle(event, now, &mut self.effects);
        if ended {
            // Dropped, as it would stay readable for ever.
            self.drop_stream(id, now);
        }
    }

    fn connected(&mut self, id: StreamId) {
        let Some(Control::Connecting(connecting)) = self.streams.remove(&id) else {
            return;
        };
        let stream = connecting.into_stream();
        // The poller knows the connection by its descriptor, which stays the same.
        let watched = self.poller.modify(&stream, STREAMS + id, false);
        let blocked = false;
        self.streams.insert(id, Control::Open { stream, blocked });
        match watched {
            Ok(()) => self.tell(Event::Connected),
            Err(error) => {
                self.close(id);
                self.tell(Event::NotConnected(error.to_string()));
            }
        }
    }

    /// Writes the machine's bytes to its connections, and closes connections that are finished.
    pub(super) fn flush_streams(&mut self, now: Instant) {
        let mut gone = Vec::new();
        for (&id, control) in &mut self.streams {
            let Control::Open { stream, blocked } = control else {
                continue;
            };
            let mut full = false;
            let mut broken = false;
            while !full && !broken && !self.machine.transmit(id).is_empty() {
                match stream.write(self.machine.transmit(id)) {
                    Ok(0) => broken = true,
                    Ok(len) => self.machine.transmitted(id, len),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => full = true,
                    Err(_) => broken = true,
                }
            }
            if full != *blocked {
                let token = STREAMS + id;
                broken |= self.poller.modify(&*stream, token, full).is_err();
                *blocked = full;
            }
            // If the kernel takes no more bytes of a finished connection, they are lost: its client may never read.
            if broken || self.machine.is_finished(id) {
                gone.push((id, broken));
            }
        }
        for (id, broken) in gone {
            if broken {
                self.machine
                    .handle(Event::Ended(id), now, &mut self.effects);
            }
            self.drop_stream(id, now);
        }
    }

    /// Closes a connection, and tells the machine.
    fn drop_stream(&mut self, id: StreamId, now: Instant) {
        self.close(id);
        self.machine
            .handle(Event::Closed(id), now, &mut self.effects);
    }

    fn close(&mut self, id: StreamId) {
        let removed = match self.streams.remove(&id) {
            Some(Control::Connecting(connecting)) => self.poller.remove(&connecting),
            Some(Control::Open { stream, .. }) => self.poller.remove(&stream),
            None => Ok(()),
        };
        if let Err(error) = removed {
            log::debug!("control connection {id}: {error}");
        }
    }
}
