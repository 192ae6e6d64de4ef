//! A client's lines: a socket for GRE on each.

use super::{BUFFER, Executor, KNOCKS, LINES};
use crate::pptp::machine::{Event, Machine, Way};
use ::config::lines::Lines;
use log::debug;
use netio::gre::{GreSocket, Outgoing};
use netio::tcp::{Connecting, TcpOptions};
use plane::LineId;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Instant;

/// One line that is open.
struct End {
    socket: GreSocket,
    outgoing: Outgoing,
}

/// The local ends of all lines.
pub(super) struct Ends {
    settings: Lines,
    open: Vec<Option<End>>,
    /// Connections that are made to see whether the server answers.
    knocks: BTreeMap<LineId, Connecting>,
}

impl Ends {
    /// `None` where there are no lines.
    pub(super) fn new(settings: &Lines) -> Option<Box<Self>> {
        (!settings.lines.is_empty()).then(|| {
            Box::new(Self {
                settings: settings.clone(),
                open: settings.lines.iter().map(|_| None).collect(),
                knocks: BTreeMap::new(),
            })
        })
    }

    fn socket(&self, line: LineId, mark: u32) -> io::Result<GreSocket> {
        let settings = self.settings.lines.get(line.index());
        let settings = settings.ok_or(io::ErrorKind::NotFound)?;
        let address = settings.source.and_then(v4);
        let socket = GreSocket::open(address, settings.interface.as_deref(), Some(BUFFER))?;
        if mark != 0 {
            socket.set_mark(mark)?;
        }
        Ok(socket)
    }
}

const fn v4(address: IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    }
}

impl<M: Machine> Executor<'_, M> {
    /// What a connection by a line is made with.
    pub(super) fn tcp_by(&self, line: LineId) -> TcpOptions {
        let ends = self.ends.as_ref();
        let settings = ends.and_then(|it| it.settings.lines.get(line.index()));
        settings.map_or_else(TcpOptions::default, |settings| TcpOptions {
            local: settings.source.map(|source| SocketAddr::new(source, 0)),
            fwmark: settings.mark.unwrap_or(0),
            device: settings.interface.clone(),
            ..TcpOptions::default()
        })
    }

    /// Tells what the host says of the lines.
    pub(super) fn read_lines(&mut self) {
        if let Some(ends) = &self.ends {
            let facts = crate::lines::read(&ends.settings);
            self.tell(Event::LinesRead(&facts));
        }
    }

    pub(super) fn open_line(&mut self, line: LineId, mark: u32) {
        self.close_line(line);
        let Some(ends) = &mut self.ends else { return };
        let opened = ends.socket(line, mark).and_then(|socket| {
            self.poller.add(&socket, LINES + u64::from(line.0))?;
            Ok(socket)
        });
        let result = opened.map(|socket| {
            let outgoing = Outgoing::new();
            if let Some(place) = ends.open.get_mut(line.index()) {
                *place = Some(End { socket, outgoing });
            }
        });
        let result = result.map_err(|error| error.to_string());
        self.tell(Event::LineOpened(line, result));
    }

    pub(super) fn close_line(&mut self, line: LineId) {
        let Some(ends) = &mut self.ends else { return };
        let end = ends.open.get_mut(line.index()).and_then(Option::take);
        if let Some(Err(error)) = end.map(|end| self.poller.remove(&end.socket)) {
            debug!("line {}: {error}", line.0);
        }
    }

    /// Begins to see whether the server answers by a line. One that has not ended is begun anew.
    pub(super) fn knock(&mut self, line: LineId, server: SocketAddrV4) {
        let options = self.tcp_by(line);
        let Some(ends) = &mut self.ends else { return };
        if let Some(old) = ends.knocks.remove(&line) {
            // It is closed in any case.
            let _ = self.poller.remove(&old);
        }
        let Ok(connecting) = Connecting::new(server.into(), &options) else {
            return;
        };
        let token = KNOCKS + u64::from(line.0);
        let watched = self.poller.add(&connecting, token);
        let watched = watched.and_then(|()| self.poller.modify(&connecting, token, true));
        if watched.is_ok() {
            ends.knocks.insert(line, connecting);
        }
    }

    /// Such a connection is there, or failed.
    pub(super) fn knocked(&mut self, line: u64, now: Instant) {
        let line = LineId(line as u8);
        let Some(ends) = &mut self.ends else { return };
        let Some(done) = ends.knocks.get(&line).map(Connecting::is_done) else {
            return;
        };
        if matches!(done, Ok(false)) {
            return;
        }
        if let Some(connection) = ends.knocks.remove(&line) {
            // It is closed in any case.
            let _ = self.poller.remove(&connection);
        }
        if done.is_ok() {
            let event = Event::Knocked(line);
            self.machine.handle(event, now, &mut self.effects);
        }
    }

    /// Receives what waits at a line, up to a batch.
    pub(super) fn pump_line(&mut self, line: u64, now: Instant) {
        let line = LineId(line as u8);
        let end = self
            .ends
            .as_ref()
            .and_then(|ends| ends.open.get(line.index())?.as_ref());
        // Else nothing waits, or ICMP has left a word.
        if let Some(end) = end
            && let Ok(count) = end.socket.receive(&mut self.received)
        {
            self.take_in(count, line, now);
        }
    }

    pub(super) fn pump_lines(&mut self, now: Instant) {
        let count = self.ends.as_ref().map_or(0, |ends| ends.open.len());
        for line in 0..count as u64 {
            self.pump_line(line, now);
        }
    }

    /// Seals a packet, and has it sent by each of its ways.
    pub(super) fn send_by_ways(&mut self, packet: &[u8], now: Instant) {
        let mut sealed = std::mem::take(&mut self.scratch);
        sealed.clear();
        if let Some(first) = self.machine.outbound(packet, now, &mut sealed) {
            push(&mut self.ends, &mut self.outgoing, first, &sealed);
            for way in self.machine.copies() {
                push(&mut self.ends, &mut self.outgoing, *way, &sealed);
            }
        }
        self.scratch = sealed;
    }

    /// Has a packet sent.
    pub(super) fn push(&mut self, way: Way, packet: &[u8]) {
        push(&mut self.ends, &mut self.outgoing, way, packet);
    }

    /// Sends what was gathered for each line.
    pub(super) fn send_by_lines(&mut self) {
        let ends = self.ends.iter_mut().flat_map(|ends| ends.open.iter_mut());
        for end in ends.flatten().filter(|end| !end.outgoing.is_empty()) {
            self.unsent += end.socket.send(&mut end.outgoing);
        }
    }
}

fn push(ends: &mut Option<Box<Ends>>, only: &mut Outgoing, way: Way, packet: &[u8]) {
    let outgoing = match ends {
        None => Some(only),
        Some(ends) => {
            let end = ends.open.get_mut(way.line.index());
            end.and_then(Option::as_mut).map(|end| &mut end.outgoing)
        }
    };
    if let Some(outgoing) = outgoing {
        outgoing.push(|memory| {
            memory.extend_from_slice(packet);
            Some(way.to)
        });
    }
}
