//! Implements control's [`DataPlane`] for [`Tunnel`]: peers by number, keys as bytes.

use crate::gathered::ALIVE;
use crate::key::SendKey;
use crate::line::{Rates, Sockets};
use crate::peer::Peer;
use crate::peers::Peers;
use crate::session::ReceiveKey;
use crate::stream::Stream;
use crate::tunnel::Tunnel;
use crate::ways::Way;
use netio::rung::Rung;
use plane::{
    CipherName, DataPlane, Endpoint, KeyError, KeyUsage, LINES_MAX, Line, LineId, LineMode,
    LineState, Moving, PeerId, PeerLines, PeerState, Protocol, Reorder, RouteChange, Sender,
    SessionKeys, Statistics, StreamId, Transport, Transports, Whole,
};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Instant;

impl<P: Protocol> Tunnel<P> {
    /// Takes over the lines' rates.
    fn follow_rates(&self, rates: Rates) {
        let shared = self.shared();
        if !shared.rates.set(rates) {
            return;
        }
        // A super-packet is one packet for the queue, and would block a slow line for too long.
        if let Err(error) = shared.tun.set_super_packets(rates == Rates::None) {
            log::warn!("cannot switch super-packets of the interface on or off: {error}");
        }
        shared.wake_tun();
    }

    fn known(&self) -> MutexGuard<'_, Peers> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The peer with this number.
    #[must_use]
    pub fn find(&self, id: PeerId) -> Option<Arc<Peer>> {
        Some(Arc::clone(&self.known().get(id)?.peer))
    }

    fn stream(&self, id: StreamId) -> Option<Arc<Stream>> {
        self.all_workers().stream(id)
    }

    fn session_of(&self, id: PeerId, session: u32) -> Option<(Arc<Peer>, Arc<ReceiveKey<P>>)> {
        let peer = self.find(id)?;
        let key = self.shared().sessions.find(session)?;
        Arc::ptr_eq(&key.peer, &peer).then_some((peer, key))
    }

    fn sender(&self, from: Sender, first: u32, theirs: bool) {
        match from {
            Sender::Address(addr) => self.shared().sessions.set_sender(addr, first, theirs),
            Sender::Stream(id) => {
                if let Some(stream) = self.stream(id) {
                    stream.set_sender(first, theirs);
                }
            }
        }
    }

    fn rungs(&self) -> Vec<(&'static str, String)> {
        let tun = self.tun();
        let read = [&tun.tso, &tun.uso].map(|rung| match rung.on() && tun.gives_singly() {
            true => (
                rung.name(),
                "off (packets wait one by one for an uplink)".to_owned(),
            ),
            false => (rung.name(), rung.to_string()),
        });
        let mut rungs = Vec::from(read);
        rungs.push((tun.gro.name(), tun.gro.to_string()));
        let coalescing = &self.shared().coalescing;
        rungs.push((coalescing.name(), coalescing.to_string()));
        let lines = self.shared().lines.load();
        let mut note = |rung: &Rung| match rungs.iter_mut().find(|(name, _)| *name == rung.name()) {
            // All sockets try the same kernel features. The report names the state of the socket that got fewest.
            Some((_, state)) if state == "on" => *state = rung.to_string(),
            Some(_) => {}
            None => rungs.push((rung.name(), rung.to_string())),
        };
        for socket in lines.iter() {
            for rung in [&socket.gso, &socket.gro, &socket.mmsg, &socket.aqm] {
                note(rung);
            }
        }
        rungs
    }
}

impl<P: Protocol> Transports for Tunnel<P> {
    type Sockets = Sockets;
    type Connection = TcpStream;

    fn open_line(&self, line: LineId, sockets: Sockets) -> io::Result<()> {
        if line.index() >= LINES_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.set_line_sockets(line, sockets);
        Ok(())
    }

    fn add_stream(
        &self,
        id: StreamId,
        line: LineId,
        connection: TcpStream,
    ) -> io::Result<Endpoint> {
        let stream = Arc::new(Stream::new(id, connection)?.on_line(line));
        Self::add_stream(self, &stream)?;
        Ok(stream.endpoint())
    }
}

impl<P: Protocol> DataPlane for Tunnel<P> {
    type Protocol = P;

    fn close_line(&self, line: LineId) {
        if line.index() < LINES_MAX {
            self.set_line_sockets(line, Sockets::default());
        }
    }

    fn port(&self, line: LineId) -> Option<u16> {
        let lines = self.shared().lines.load();
        let first = lines.of(line)?.iter().next()?;
        Some(first.port())
    }

    fn set_mark(&self, line: LineId, mark: u32) -> io::Result<()> {
        let lines = self.shared().lines.load();
        let sockets = lines.of(line);
        sockets
            .iter()
            .flat_map(|sockets| sockets.iter())
            .try_for_each(|socket| socket.set_fwmark(mark))
    }

    fn remove_stream(&self, id: StreamId) {
        if let Some(stream) = self.stream(id) {
            Self::remove_stream(self, &stream);
        }
    }

    fn add_peer(&self, id: PeerId, moving: Moving) -> bool {
        let (epoch, staged) = (self.shared().epoch, &self.shared().staged_bytes);
        let peer = Arc::new(Peer::new(id, epoch, Arc::clone(staged)));
        peer.set_moving(moving);
        self.known().add(peer)
    }

    fn remove_peer(&self, id: PeerId) {
        let mut peers = self.known();
        let Some(entry) = peers.remove(id) else {
            return;
        };
        self.set_routes(peers.routes().clone());
        drop(peers);
        for session in entry.sessions {
            self.shared().sessions.remove(session);
        }
        for (sender, first) in entry.senders {
            self.sender(sender, first, false);
        }
        self.clear_send_key(&entry.peer);
        Self::drop_staged(self, &entry.peer);
    }

    fn set_moving(&self, id: PeerId, moving: Moving) {
        if let Some(peer) = self.find(id) {
            peer.set_moving(moving);
        }
    }

    fn set_line(&self, id: PeerId, line: Line) {
        let stream = match line.transport {
            Transport::Tcp(stream) => match self.stream(stream) {
                Some(stream) => Some(stream),
                None => return,
            },
            Transport::Udp => None,
            // Raw GRE sockets do not exist yet.
            Transport::Gre => return,
        };
        if let Some(peer) = self.find(id) {
            if stream.is_none() && peer.gathers() {
                let millis = self.shared().epoch.millis(Instant::now());
                peer.lines.gather(line.id, line.endpoint, millis);
            } else {
                peer.lines.set(line.id, line.endpoint, stream);
            }
            self.shared().send_by(peer.lines.used_id());
        }
    }

    fn remove_line(&self, id: PeerId, line: LineId) {
        if let Some(peer) = self.find(id) {
            peer.lines.remove(line);
        }
    }

    fn use_line(&self, id: PeerId, line: LineId) {
        if let Some(peer) = self.find(id)
            && peer.lines.choose(line)
        {
            self.shared().send_by(line);
        }
    }

    fn set_line_mode(&self, id: PeerId, mode: LineMode) {
        if let Some(peer) = self.find(id) {
            peer.lines.set_mode(mode);
        }
    }

    fn set_reorder(&self, id: PeerId, reorder: Option<Reorder>) {
        if let Some(peer) = self.find(id) {
            peer.order.set(reorder);
        }
    }

    fn peer_lines(&self, id: PeerId) -> PeerLines {
        let Some(peer) = self.find(id) else {
            return PeerLines::default();
        };
        let mut lines = Vec::new();
        for (id, line) in peer.lines.known() {
            let transport = transport(line.stream.load_full());
            let counts = line.counts.counts();
            line.addresses.alive(ALIVE, |endpoint, heard| {
                lines.push(LineState {
                    line: Line {
                        id,
                        endpoint,
                        transport,
                    },
                    heard: self.shared().epoch.instant(heard),
                    counts,
                });
            });
        }
        PeerLines {
            lines,
            order: peer.order.counts(),
        }
    }

    fn carried(&self) -> [u64; LINES_MAX] {
        self.shared().carried.sums()
    }

    fn forget_source(&self, id: PeerId) {
        if let Some(peer) = self.find(id) {
            peer.clear_source();
        }
    }

    fn set_sender(&self, id: PeerId, from: Sender, first: u32) {
        let mut peers = self.known();
        if let Some(entry) = peers.get_mut(id) {
            entry.senders.retain(|(sender, _)| *sender != from);
            entry.senders.push((from, first));
            self.sender(from, first, true);
        }
    }

    fn clear_sender(&self, id: PeerId, from: Sender) {
        let mut peers = self.known();
        if let Some(entry) = peers.get_mut(id)
            && let Some(at) = entry.senders.iter().position(|(sender, _)| *sender == from)
        {
            let (_, first) = entry.senders.swap_remove(at);
            self.sender(from, first, false);
        }
    }

    fn peer(&self, id: PeerId) -> Option<PeerState> {
        let peer = self.find(id)?;
        let line = peer.endpoint().map(|endpoint| Line {
            id: peer.lines.used_id(),
            endpoint,
            transport: transport(peer.stream()),
        });
        Some(PeerState {
            line,
            times: peer.times(),
            guarded: false,
            heard: self
                .shared()
                .epoch
                .instant(peer.lines.used().addresses.heard()),
            rx_bytes: peer.rx_bytes.value(),
            tx_bytes: peer.tx_bytes.value(),
            sealed: peer.sent_on_key(),
            staged: peer.has_staged(),
            // Read last: messages that arrive meanwhile must not be counted as a host's packets.
            message_bytes: peer.message_bytes.value(),
        })
    }

    fn arm(&self, id: PeerId) -> bool {
        self.find(id).is_some_and(|peer| peer.arm())
    }

    fn disarm(&self, id: PeerId) {
        if let Some(peer) = self.find(id) {
            peer.disarm();
        }
    }

    fn note_sent(&self, id: PeerId, at: Instant, bytes: usize) {
        if let Some(peer) = self.find(id) {
            peer.handshake_sent(at, bytes);
        }
    }

    fn note_received(&self, id: PeerId, at: Instant, bytes: usize) {
        if let Some(peer) = self.find(id) {
            peer.handshake_received(at, bytes);
        }
    }

    fn add_keys(
        &self,
        id: PeerId,
        keys: SessionKeys<P::Keys>,
    ) -> Result<CipherName, KeyError<P::Error>> {
        let formats = self.shared().wire.formats(&keys.material);
        let formats = formats.map_err(KeyError::Material)?;
        let mut peers = self.known();
        let entry = peers.get_mut(id).ok_or(KeyError::NoPeer(id))?;
        let old = self.shared().sessions.find(keys.session);
        if old.is_some_and(|old| !Arc::ptr_eq(&old.peer, &entry.peer)) {
            return Err(KeyError::Taken(keys.session));
        }
        let send = SendKey::new((keys.remote, keys.session), formats.seal, keys.send);
        let receive = ReceiveKey::new(
            keys.session,
            Arc::clone(&entry.peer),
            formats.open,
            keys.receive,
            Some(Arc::new(send)),
            keys.confirm,
        );
        self.shared().sessions.insert(receive);
        if !entry.sessions.contains(&keys.session) {
            entry.sessions.push(keys.session);
        }
        Ok(formats.cipher)
    }

    fn send_with(&self, id: PeerId, session: u32) {
        if let Some((peer, key)) = self.session_of(id, session)
            && let Some(key) = &key.answer
        {
            self.send_by_key(&peer, key);
        }
    }

    fn stop_sending(&self, id: PeerId) {
        if let Some(peer) = self.find(id) {
            self.clear_send_key(&peer);
        }
    }

    fn remove_keys(&self, id: PeerId, session: u32) {
        let Some((peer, _)) = self.session_of(id, session) else {
            return;
        };
        if let Some(entry) = self.known().get_mut(id) {
            entry.sessions.retain(|it| *it != session);
        }
        let sent = peer.sent_on_key().is_some();
        self.shared().sessions.remove(session);
        if sent && peer.sent_on_key().is_none() {
            peer.expect_nothing();
        }
    }

    fn key_usage(&self, id: PeerId, session: u32) -> KeyUsage {
        let Some((_, key)) = self.session_of(id, session) else {
            return KeyUsage::default();
        };
        let (opened, forged) = key.usage();
        let send = key.answer.as_ref();
        KeyUsage {
            sealed: send.map_or(0, |key| key.used()),
            opened,
            forged,
            epoch: send.map_or(0, |key| key.format.epoch()),
        }
    }

    fn send(&self, to: &Line, message: &[u8]) -> bool {
        match to.transport {
            Transport::Udp => self.send_by(to.id, to.endpoint, message).sent > 0,
            Transport::Tcp(id) => self
                .stream(id)
                .is_some_and(|stream| self.send_record(&stream, message)),
            Transport::Gre => false,
        }
    }

    fn send_to_peer(&self, id: PeerId, to: Option<SocketAddr>, message: &[u8]) -> bool {
        let Some(peer) = self.find(id) else {
            return false;
        };
        if let Some(stream) = peer.stream() {
            return self.send_record(&stream, message);
        }
        let known = peer
            .endpoint()
            .filter(|known| to.is_none_or(|to| known.addr == to));
        let Some(endpoint) = known.or_else(|| to.map(Endpoint::new)) else {
            return false;
        };
        // A message to an address other than the peer's takes one path only.
        let ways = known.map(|_| peer.lines.ways_of_messages());
        let ways = ways.filter(|ways| !ways.is_empty());
        let one = Way {
            line: peer.lines.used_id(),
            endpoint,
        };
        self.send_over(&peer, &ways.unwrap_or_else(|| vec![one]), message)
            .sent
            > 0
    }

    fn inject(&self, id: PeerId, payload: &[u8]) {
        if let Some(peer) = self.find(id) {
            self.shared().inject(&peer, None, payload);
        }
    }

    fn inject_by(&self, id: PeerId, line: LineId, payload: &[u8]) {
        if let Some(peer) = self.find(id) {
            self.shared().inject(&peer, Some(line), payload);
        }
    }

    fn send_whole(&self, id: PeerId, payload: &[u8]) -> Whole {
        let peer = self.find(id);
        peer.map_or(Whole::Nowhere, |peer| {
            Self::send_whole(self, &peer, payload)
        })
    }

    #[cfg(feature = "postquantum")]
    fn send_on(&self, id: PeerId, session: u32, payload: &[u8]) {
        let now = Instant::now();
        if let Some((peer, key)) = self.session_of(id, session)
            && let Some(key) = key.answer.as_ref().filter(|key| key.alive(now))
        {
            self.seal_one(&peer, key, payload, now);
        }
    }

    fn send_keepalive(&self, id: PeerId) -> bool {
        let now = Instant::now();
        self.find(id).is_some_and(|peer| {
            let key = peer.send_key.load_full().filter(|key| key.alive(now));
            key.is_some_and(|key| self.seal_one(&peer, &key, &[], now))
        })
    }

    fn send_staged(&self, id: PeerId) -> bool {
        self.find(id).is_some_and(|peer| {
            let staged = peer.has_staged();
            if let Some(key) = peer.send_key.load_full() {
                Self::send_staged(self, &peer, &key);
            }
            staged
        })
    }

    fn drop_staged(&self, id: PeerId) {
        if let Some(peer) = self.find(id) {
            Self::drop_staged(self, &peer);
        }
    }

    fn change_routes(&self, changes: &[RouteChange]) {
        let mut peers = self.known();
        peers.change_routes(changes);
        self.set_routes(peers.routes().clone());
    }

    fn set_rate(&self, rate: Option<u64>) {
        let rate = rate.filter(|rate| *rate > 0);
        self.follow_rates(rate.map_or(Rates::None, Rates::Together));
    }

    fn set_line_rates(&self, rates: [u64; LINES_MAX]) {
        let any = rates.iter().any(|rate| *rate > 0);
        self.follow_rates(if any { Rates::Each(rates) } else { Rates::None });
    }

    fn set_mtu(&self, mtu: usize) {
        let shared = self.shared();
        let before = shared.mtu.swap(mtu, Ordering::Relaxed);
        shared.wire.follow_mtu(mtu);
        if shared.wire.prefix() > 0 && mtu < before {
            // Trains that were longer than the path, see `Notice::TooLong`.
            shared
                .lines
                .load()
                .iter()
                .for_each(|socket| socket.gso.retry());
        }
    }

    fn mtu(&self) -> usize {
        self.shared().mtu()
    }

    fn set_hairpin(&self, hairpin: bool) {
        self.shared().hairpin.store(hairpin, Ordering::Relaxed);
    }

    fn interface(&self) -> io::Result<String> {
        self.tun().current_name()
    }

    fn pulse(&self) -> bool {
        self.all_workers().pulse()
    }

    fn statistics(&self) -> Statistics {
        Statistics {
            outbound: self.outbound().counts(),
            inbound: self.inbound().counts(),
            drops: self.drops().iter().collect(),
            rungs: self.rungs(),
            workers: self.all_workers().count(),
            parallel: self.all_workers().is_parallel(),
        }
    }
}

fn transport(stream: Option<Arc<Stream>>) -> Transport {
    stream.map_or(Transport::Udp, |stream| Transport::Tcp(stream.id()))
}
