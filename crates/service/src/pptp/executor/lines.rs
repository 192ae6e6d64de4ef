//! A client's lines, with a GRE socket for each.

use super::packets::BATCH;
use super::{BUFFER, Executor, GRE, KNOCKS, LINES};
use crate::pptp::machine::{Event, Machine, Way};
use ::config::lines::Lines;
use log::debug;
use netio::gre::{GreSocket, Outgoing};
use netio::poll::Poller;
use netio::tcp::{Connecting, TcpOptions};
use plane::LineId;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Instant;

/// Local end of an open line.
struct End {
    socket: GreSocket,
    outgoing: Outgoing,
}

/// The GRE sockets, one in all or one for each line, with the packets to send over them.
pub(super) struct Sockets {
    settings: Lines,
    /// The socket of a client or server without lines of its own.
    only: Option<GreSocket>,
    /// The device to which the single socket is bound.
    device: Option<String>,
    outgoing: Outgoing,
    /// The sockets of the lines.
    open: Vec<Option<End>>,
    /// TCP connections that test whether the server answers, by line.
    knocks: BTreeMap<LineId, Connecting>,
    /// Packets may have to be sent as copies too.
    copies: bool,
    /// Paths for the copies of the last sealed packet.
    ways: Vec<Way>,
    /// The packet that was sealed last, if copies are possible.
    sealed: Vec<u8>,
    /// Packets that were sealed and not sent yet, copies excluded.
    gathered: usize,
    /// Packets that the kernel refused to send.
    pub(super) unsent: u64,
}

impl Sockets {
    /// Opens the single socket, if there are no lines.
    pub(super) fn open(
        lines: &Lines,
        address: Option<Ipv4Addr>,
        device: Option<&str>,
    ) -> io::Result<Self> {
        let only = match lines.lines.is_empty() {
            true => Some(GreSocket::open(address, device, Some(BUFFER))?),
            false => None,
        };
        Ok(Self {
            only,
            device: device.map(str::to_owned),
            outgoing: Outgoing::new(),
            open: lines.lines.iter().map(|_| None).collect(),
            knocks: BTreeMap::new(),
            copies: !lines.is_default(),
            ways: Vec::new(),
            sealed: Vec::new(),
            gathered: 0,
            unsent: 0,
            settings: lines.clone(),
        })
    }

    /// The single socket, without lines.
    pub(super) const fn only(&self) -> Option<&GreSocket> {
        self.only.as_ref()
    }

    /// Replaces the single socket of a client by one that hears this server only, from the source address and through
    /// the device that the host has now. A connected socket keeps both, even when the host has lost them.
    pub(super) fn call(&mut self, server: Ipv4Addr, poller: &Poller) -> io::Result<()> {
        let Some(only) = &mut self.only else {
            return Ok(());
        };
        let socket = GreSocket::open(None, self.device.as_deref(), Some(BUFFER))?;
        socket.connect(server)?;
        poller.add(&socket, GRE)?;
        let old = std::mem::replace(only, socket);
        poller.remove(&old)
    }

    fn line(&self, line: LineId, mark: u32) -> io::Result<GreSocket> {
        let settings = self.settings.lines.get(line.index());
        let settings = settings.ok_or(io::ErrorKind::NotFound)?;
        let address = settings.source.and_then(v4);
        let socket = GreSocket::open(address, settings.interface.as_deref(), Some(BUFFER))?;
        if mark != 0 {
            socket.set_mark(mark)?;
        }
        Ok(socket)
    }

    /// Options of a TCP connection over a line.
    pub(super) fn tcp_by(&self, line: LineId) -> TcpOptions {
        let settings = self.settings.lines.get(line.index());
        settings.map_or_else(TcpOptions::default, |settings| TcpOptions {
            local: settings.source.map(|source| SocketAddr::new(source, 0)),
            fwmark: settings.mark.unwrap_or(0),
            device: settings.interface.clone(),
            ..TcpOptions::default()
        })
    }

    /// Seals a packet and queues it for each of its paths. A full batch is sent at once, as a super-packet may hold a
    /// thousand packets.
    pub(super) fn send(&mut self, machine: &mut impl Machine, packet: &[u8], now: Instant) {
        self.seal(machine, packet, now);
        self.gathered += 1;
        if self.gathered >= BATCH {
            self.flush();
        }
    }

    fn seal(&mut self, machine: &mut impl Machine, packet: &[u8], now: Instant) {
        if !self.copies {
            let ways = &mut self.ways;
            self.outgoing
                .push(|memory| machine.outbound(packet, now, memory, ways).map(ends));
            return;
        }
        let mut sealed = std::mem::take(&mut self.sealed);
        let mut ways = std::mem::take(&mut self.ways);
        sealed.clear();
        ways.clear();
        if let Some(first) = machine.outbound(packet, now, &mut sealed, &mut ways) {
            for way in std::iter::once(&first).chain(&ways) {
                self.push(*way, &sealed);
            }
        }
        (self.sealed, self.ways) = (sealed, ways);
    }

    /// Queues a packet over one path.
    pub(super) fn push(&mut self, way: Way, packet: &[u8]) {
        let outgoing = match &self.only {
            Some(_) => Some(&mut self.outgoing),
            None => {
                let end = self.open.get_mut(way.line.index());
                end.and_then(Option::as_mut).map(|end| &mut end.outgoing)
            }
        };
        if let Some(outgoing) = outgoing {
            outgoing.push(|memory| {
                memory.extend_from_slice(packet);
                Some(ends(way))
            });
        }
    }

    /// Sends the queued packets.
    pub(super) fn flush(&mut self) {
        self.gathered = 0;
        if let Some(only) = self.only.as_ref().filter(|_| !self.outgoing.is_empty()) {
            self.unsent += only.send(&mut self.outgoing);
        }
        for end in self.open.iter_mut().flatten() {
            if !end.outgoing.is_empty() {
                self.unsent += end.socket.send(&mut end.outgoing);
            }
        }
    }
}

/// The destination and the source of a packet.
const fn ends(way: Way) -> (Ipv4Addr, Option<Ipv4Addr>) {
    (way.to, way.from)
}

pub(super) const fn v4(address: IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    }
}

impl Sockets {
    /// Replaces the socket of a line by a new one, with this mark, 0 for none.
    pub(super) fn open_line(&mut self, line: LineId, mark: u32, poller: &Poller) -> io::Result<()> {
        self.close_line(line, poller);
        let socket = self.line(line, mark)?;
        poller.add(&socket, LINES + u64::from(line.0))?;
        let outgoing = Outgoing::new();
        if let Some(place) = self.open.get_mut(line.index()) {
            *place = Some(End { socket, outgoing });
        }
        Ok(())
    }

    pub(super) fn close_line(&mut self, line: LineId, poller: &Poller) {
        let end = self.open.get_mut(line.index()).and_then(Option::take);
        if let Some(Err(error)) = end.map(|end| poller.remove(&end.socket)) {
            debug!("uplink {}: {error}", line.0);
        }
    }

    /// Starts a TCP connection that tests whether the server answers over a line. It replaces one that has not ended.
    pub(super) fn knock(&mut self, line: LineId, server: SocketAddrV4, poller: &Poller) {
        let options = self.tcp_by(line);
        if let Some(old) = self.knocks.remove(&line) {
            // An error does not matter, as the connection is closed anyway.
            let _ = poller.remove(&old);
        }
        let Ok(connecting) = Connecting::new(server.into(), &options) else {
            return;
        };
        let token = KNOCKS + u64::from(line.0);
        let watched = poller.add(&connecting, token);
        let watched = watched.and_then(|()| poller.modify(&connecting, token, true));
        if watched.is_ok() {
            self.knocks.insert(line, connecting);
        }
    }
}

impl<M: Machine> Executor<'_, M> {
    /// Handles the success or failure of a test connection.
    pub(super) fn knocked(&mut self, line: u64, now: Instant) {
        let line = LineId(line as u8);
        let outside = &mut self.outside;
        let Some(done) = outside.gre.knocks.get(&line).map(Connecting::is_done) else {
            return;
        };
        if matches!(done, Ok(false)) {
            return;
        }
        if let Some(connection) = outside.gre.knocks.remove(&line) {
            // An error does not matter, as the connection is closed anyway.
            let _ = outside.poller.remove(&connection);
        }
        if done.is_ok() {
            self.tell(Event::Knocked(line), now);
        }
    }

    /// Receives packets that wait at a line, up to a batch.
    pub(super) fn pump_line(&mut self, line: u64, now: Instant) {
        let line = LineId(line as u8);
        let end = self
            .outside
            .gre
            .open
            .get(line.index())
            .and_then(Option::as_ref);
        // Otherwise nothing waits, or ICMP has left an error on the socket.
        if let Some(end) = end
            && let Ok(count) = end.socket.receive(&mut self.received)
        {
            self.take_in(count, line, now);
        }
    }

    pub(super) fn pump_lines(&mut self, now: Instant) {
        let count = self.outside.gre.open.len();
        for line in 0..count as u64 {
            self.pump_line(line, now);
        }
    }
}
