//! Control connections.

use super::lines::v4;
use super::{Executor, STREAMS};
use crate::pptp::machine::{Cx, Event, Machine, StreamId};
use ::pptp::session::Ends;
use host::gate::turned_away;
use netio::tcp::Connecting;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, TcpStream};
use std::time::Instant;

/// Bytes read from one connection in one go: more than the longest message.
const ROOM: usize = 4096;

/// Maximum number of connections accepted in one go.
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
                    let host = &mut self.outside;
                    let Some(id) = self.machine.accept(ends, &mut Cx { now, host }) else {
                        continue;
                    };
                    let blocked = false;
                    let watched = host.poller.add(&stream, STREAMS + id);
                    host.streams.insert(id, Control::Open { stream, blocked });
                    if watched.is_err() {
                        self.machine.handle(Event::Ended(id), &mut Cx { now, host });
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
        if let Some(Control::Connecting(connecting)) = self.outside.streams.get(&id) {
            match connecting.is_done() {
                Ok(false) => {}
                Ok(true) => self.connected(id, now),
                Err(error) => {
                    let why = error.to_string();
                    self.outside.close(id);
                    self.tell(Event::NotConnected(why), now);
                }
            }
            return;
        }
        let Some(Control::Open { stream, .. }) = self.outside.streams.get_mut(&id) else {
            return;
        };
        let mut bytes = [0; ROOM];
        match stream.read(&mut bytes) {
            Ok(len @ 1..) => self.tell(Event::Control(id, &bytes[..len]), now),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Dropped, as it would stay readable for ever.
            Ok(0) | Err(_) => self.drop_stream(id, true, now),
        }
    }

    fn connected(&mut self, id: StreamId, now: Instant) {
        let outside = &mut self.outside;
        let Some(Control::Connecting(connecting)) = outside.streams.remove(&id) else {
            return;
        };
        let stream = connecting.into_stream();
        // The poller knows the connection by its descriptor, which stays the same.
        let watched = outside.poller.modify(&stream, STREAMS + id, false);
        let blocked = false;
        outside
            .streams
            .insert(id, Control::Open { stream, blocked });
        match watched {
            Ok(()) => self.tell(Event::Connected, now),
            Err(error) => {
                outside.close(id);
                self.tell(Event::NotConnected(error.to_string()), now);
            }
        }
    }

    /// Writes the machine's bytes to its connections, and closes connections that are finished. Returns whether it
    /// closed any, as the machine may have more to send then.
    pub(super) fn flush_streams(&mut self, now: Instant) -> bool {
        let mut gone = Vec::new();
        for (&id, control) in &mut self.outside.streams {
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
                broken |= self.outside.poller.modify(&*stream, token, full).is_err();
                *blocked = full;
            }
            // If the kernel takes no more bytes of a finished connection, they are lost: its client may never read.
            if broken || self.machine.is_finished(id) {
                gone.push((id, broken));
            }
        }
        for &(id, broken) in &gone {
            self.drop_stream(id, broken, now);
        }
        !gone.is_empty()
    }

    /// Closes a connection, and tells the machine, which may connect again at once; `ended` if the other end closed it.
    fn drop_stream(&mut self, id: StreamId, ended: bool, now: Instant) {
        self.outside.close(id);
        if ended {
            self.tell(Event::Ended(id), now);
        }
        self.tell(Event::Closed(id), now);
    }
}
