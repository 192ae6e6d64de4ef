//! A running data plane: a TUN, lines, workers, and the calls that control makes on them.
//!
//! `data_plane.rs` implements `DataPlane` with these calls, for control that knows peers by number and keys as bytes.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use netio::rung::Rung;
use netio::tun::Tun;
use netio::udp::{Endpoint, Family, SendReport, SendScratch, Train};
use plane::{Control, Format, KeyLimits, LineId, PeerId, PipelineCounts, Routes, Statistics, Wire};

use crate::key::SendKey;
use crate::line::Sockets;
use crate::peer::Peer;
use crate::peers::Peers;
use crate::session::{ReceiveKey, ReceiveUsage};
use crate::shared::{Shared, TunnelOptions};
use crate::stats::{Drops, PipelineStats};
use crate::stream::{Stream, Written};
use crate::ways::Way;
use crate::worker::Workers;

/// A running data plane: one TUN, its sockets, its workers. Stops when dropped.
pub struct Tunnel<W: Wire> {
    shared: Arc<Shared<W>>,
    workers: Arc<Workers<W>>,
    threads: Vec<JoinHandle<()>>,
    pub(crate) scratch: Mutex<SendScratch>,
    pub(crate) peers: Mutex<Peers>,
}

impl<W: Wire> std::fmt::Debug for Tunnel<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tunnel")
            .field("tun", &self.shared.tun)
            .finish_non_exhaustive()
    }
}

impl<W: Wire> Tunnel<W> {
    /// Starts the workers.
    ///
    /// # Errors
    /// Descriptor or thread limits.
    pub fn start(
        tun: Tun,
        wire: W,
        control: Arc<dyn Control>,
        options: &TunnelOptions,
    ) -> io::Result<Self> {
        let workers = options.workers.max(1);
        let mut tunnel = Self::without_workers(tun, wire, control, workers, options)?;
        let workers = &tunnel.workers;
        tunnel.threads = (0..workers.count())
            .map(|me| {
                let workers = Arc::clone(workers);
                std::thread::Builder::new()
                    .name(["tun", "udp", "helper"][me.min(2)].to_owned())
                    // Frames are shallow; the default of 2 MiB would only be address space.
                    .stack_size(256 << 10)
                    .spawn(move || {
                        if let Err(e) = workers.work(me) {
                            log::error!("worker {me} stopped: {e}");
                            workers.stop();
                            workers.tell_gone();
                        }
                    })
            })
            .collect::<io::Result<_>>()?;
        Ok(tunnel)
    }

    /// Builds the tunnel without starting threads.
    pub(crate) fn without_workers(
        tun: Tun,
        wire: W,
        control: Arc<dyn Control>,
        workers: usize,
        options: &TunnelOptions,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::new(tun, wire, control, options));
        let workers = Workers::new(Arc::clone(&shared), workers, options.parallel)?;
        Ok(Self {
            shared,
            workers: Arc::new(workers),
            threads: Vec::new(),
            scratch: Mutex::default(),
            peers: Mutex::default(),
        })
    }

    pub(crate) fn shared(&self) -> &Arc<Shared<W>> {
        &self.shared
    }

    pub(crate) fn all_workers(&self) -> &Workers<W> {
        &self.workers
    }

    /// Creates a peer that is in no table yet. `id` is its number in [`Control::notify`].
    #[must_use]
    pub fn new_peer(&self, id: PeerId) -> Arc<Peer> {
        Arc::new(Peer::new(
            id,
            self.shared.epoch,
            Arc::clone(&self.shared.staged_bytes),
        ))
    }

    /// Replaces the table of peers by address.
    pub fn set_routes(&self, routes: Routes<Arc<Peer>>) {
        self.shared.routes.store(Arc::new(routes));
    }

    /// Replaces the sockets of the first line; the old ones are closed as soon as no worker uses them.
    pub fn set_sockets(&self, sockets: Sockets) {
        self.set_line_sockets(LineId::FIRST, sockets);
    }

    /// Sets the sockets of any line, whose number must be below [`LINES_MAX`](plane::LINES_MAX).
    pub(crate) fn set_line_sockets(&self, line: LineId, sockets: Sockets) {
        // Every change of lines holds this lock, so that two changes cannot overwrite each other.
        let _one = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = self.shared.lines.load().with(line, sockets);
        self.shared.lines.store(Arc::new(lines));
        self.workers.wake_all();
    }

    /// The sockets of the first line.
    #[must_use]
    pub fn sockets(&self) -> Arc<Sockets> {
        self.shared
            .lines
            .load()
            .of(LineId::FIRST)
            .cloned()
            .unwrap_or_default()
    }

    /// The interface.
    #[must_use]
    pub fn tun(&self) -> &Tun {
        &self.shared.tun
    }

    /// Sets the interface's MTU in bytes.
    pub fn set_mtu(&self, mtu: usize) {
        self.shared.mtu.store(mtu, Ordering::Relaxed);
        self.shared.wire.follow_mtu(mtu);
    }

    /// The interface's MTU in bytes, as last set.
    #[must_use]
    pub fn mtu(&self) -> usize {
        self.shared.mtu()
    }

    /// Sends to `peer` with this key from now on, after the staged packets. `index` is the receiver's name for the
    /// session, `session` our own.
    pub fn set_send_key(
        &self,
        peer: &Peer,
        (index, session): (u32, u32),
        format: Arc<dyn Format>,
        limits: KeyLimits,
    ) {
        // A session confirmed by a packet already sends with its own key, whose counter must never restart.
        let Some(receiving) = self.shared.sessions.find(session) else {
            // Control removed the session meanwhile. Its counter is unknown, so nothing may be sealed under its key.
            return;
        };
        let key = receiving
            .answer
            .clone()
            .unwrap_or_else(|| Arc::new(SendKey::new((index, session), format, limits)));
        self.send_by_key(peer, &key);
    }

    /// Seals packets with `key` from now on.
    pub(crate) fn send_by_key(&self, peer: &Peer, key: &Arc<SendKey>) {
        // Staged packets are numbered and sent before a worker can see the key, so that packets leave in the order of
        // their numbers.
        self.send_staged(peer, key);
        peer.send_key.store(Some(Arc::clone(key)));
        // A worker that had not seen the key yet may have staged a packet meanwhile.
        self.send_staged(peer, key);
    }

    /// Sends the packets staged for `peer` if there is a key.
    pub fn flush_staged(&self, peer: &Peer) {
        if let Some(key) = peer.send_key.load_full() {
            self.send_staged(peer, &key);
        }
    }

    fn send_staged(&self, peer: &Peer, key: &SendKey) {
        let now = Instant::now();
        if !peer.has_staged() || !key.alive(now) {
            return;
        }
        for packet in peer.take_staged() {
            self.seal_one(peer, key, &packet, now);
        }
    }

    /// Forgets the sending key of `peer`.
    pub fn clear_send_key(&self, peer: &Peer) {
        peer.send_key.store(None);
        peer.expect_nothing();
    }

    /// Drops the packets staged for `peer`.
    pub fn drop_staged(&self, peer: &Peer) {
        self.shared
            .drops
            .staged
            .add(peer.take_staged().len() as u64);
    }

    /// Accepts data packets for `index`, our name for the session, from now on.
    ///
    /// If `answer` is given (the receiver's name, cipher and limits of the sending half), the first data packet is
    /// reported as [`Notice::Confirmed`]. Packets to the peer are then sealed with `answer`.
    ///
    /// [`Notice::Confirmed`]: plane::Notice::Confirmed
    pub fn add_receive_key(
        &self,
        index: u32,
        peer: &Arc<Peer>,
        format: Arc<dyn Format>,
        limits: KeyLimits,
        answer: Option<(u32, Arc<dyn Format>, KeyLimits)>,
    ) {
        let answer = answer.map(|(receiver, format, limits)| {
            Arc::new(SendKey::new((receiver, index), format, limits))
        });
        let confirm = answer.is_some();
        let key = ReceiveKey::new(index, Arc::clone(peer), format, limits, answer, confirm);
        self.shared.sessions.insert(key);
    }

    /// Assigns data packets from `addr` that name no session to the sessions from `first` on
    /// ([`SessionName::OfSender`](plane::SessionName::OfSender)).
    pub fn set_sender(&self, addr: SocketAddr, first: u32) {
        self.shared.sessions.set_sender(addr, first, true);
    }

    /// Undoes [`Self::set_sender`], unless the address now belongs to another peer.
    pub fn clear_sender(&self, addr: SocketAddr, first: u32) {
        self.shared.sessions.set_sender(addr, first, false);
    }

    /// Seals `payload` for `peer`, in order with its packets. Dropped if there is no key.
    pub fn inject(&self, peer: &Arc<Peer>, payload: &[u8]) {
        self.shared.inject(peer, None, payload);
    }

    /// Sets whether the tunnel passes packets between peers itself; otherwise the kernel does.
    pub fn set_hairpin(&self, hairpin: bool) {
        self.shared.hairpin.store(hairpin, Ordering::Relaxed);
    }

    /// Reads from `stream` from now on.
    ///
    /// # Errors
    /// Descriptor limits.
    pub fn add_stream(&self, stream: &Arc<Stream>) -> io::Result<()> {
        self.workers.add_stream(stream)
    }

    /// Stops reading from a stream and closes it.
    pub fn remove_stream(&self, stream: &Stream) {
        // Closed first: bytes waiting in the stream must not keep the interface from being read.
        stream.close();
        self.workers.remove_stream(stream.id());
    }

    /// Sends a message other than a data packet through a stream. Returns whether it was sent.
    pub fn send_record(&self, stream: &Stream, record: &[u8]) -> bool {
        let most = self.shared.pending_max();
        let sent = W::to_record(record)
            .is_some_and(|record| stream.write(&record, most) != Written::Dropped);
        if sent {
            let bytes = record.len() as u64;
            self.shared.carried.stream(stream.line(), bytes);
        }
        self.shared.drops.stream_full.add(u64::from(!sent));
        sent
    }

    /// Accepts no more data packets for `index`.
    pub fn remove_receive_key(&self, index: u32) {
        self.shared.sessions.remove(index);
    }

    /// The use of the receiving key with this index; zero if there is no such key.
    #[must_use]
    pub fn receive_usage(&self, index: u32) -> ReceiveUsage {
        let key = self.shared.sessions.find(index);
        key.map(|key| key.usage()).unwrap_or_default()
    }

    /// Sends an empty data packet. Returns whether the peer had a key and an address.
    pub fn send_keepalive(&self, peer: &Peer) -> bool {
        let now = Instant::now();
        match peer.send_key.load_full() {
            Some(key) if key.alive(now) => self.seal_one(peer, &key, &[], now),
            _ => false,
        }
    }

    /// Seals and sends one packet outside the pipelines.
    fn seal_one(&self, peer: &Peer, key: &SendKey, packet: &[u8], now: Instant) -> bool {
        let mut ways = peer.lines.ways_of_messages();
        if ways.is_empty() {
            let line = peer.lines.used_id();
            ways.extend(peer.endpoint().map(|endpoint| Way { line, endpoint }));
        }
        if ways.is_empty() {
            return false;
        }
        let padded = self.shared.wire.padded(packet.len(), self.mtu());
        let Some(datagram) = key.sealed(packet, padded) else {
            return false;
        };
        let report = self.send_over(peer, &ways, &datagram);
        for line in ways.iter().filter_map(|way| peer.lines.get(way.line)) {
            line.counts.note_sent(1, datagram.len() as u64);
        }
        if packet.is_empty() {
            peer.message_bytes.add(datagram.len() as u64);
        }
        peer.tx_bytes.add(datagram.len() as u64);
        peer.note_sent(self.shared.epoch.millis(now), !packet.is_empty());
        if !packet.is_empty() {
            // Staged packets count as traffic like any other.
            self.shared.outbound.packets.add(1);
            self.shared.outbound.bytes.add(packet.len() as u64);
            self.shared.outbound.syscalls.add(report.syscalls);
        }
        true
    }

    /// Sends a datagram to a peer by each of these ways. The report is the sum over all ways.
    pub(crate) fn send_over(&self, peer: &Peer, ways: &[Way], datagram: &[u8]) -> SendReport {
        let mut sum = SendReport::default();
        for way in ways {
            let report = self.send_by(way.line, way.endpoint, datagram);
            if report.source_gone
                && let Some(line) = peer.lines.get(way.line)
            {
                line.clear_source();
            }
            sum.sent += report.sent;
            sum.dropped += report.dropped;
            sum.syscalls += report.syscalls;
            sum.source_gone |= report.source_gone;
        }
        sum
    }

    /// Sends a datagram other than a data packet by the first line.
    pub fn send(&self, endpoint: Endpoint, datagram: &[u8]) -> SendReport {
        self.send_by(LineId::FIRST, endpoint, datagram)
    }

    /// Sends a datagram by a line.
    pub(crate) fn send_by(&self, line: LineId, endpoint: Endpoint, datagram: &[u8]) -> SendReport {
        let family = match endpoint.addr {
            SocketAddr::V4(_) => Family::V4,
            SocketAddr::V6(_) => Family::V6,
        };
        let lines = self.shared.lines.load();
        let Some(socket) = lines.socket(line, family) else {
            self.shared.drops.send_failed.add(1);
            return SendReport {
                dropped: 1,
                ..SendReport::default()
            };
        };
        let len = datagram.len() as u32;
        let train = Train::single(len, endpoint);
        let mut scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        scratch.begin_batch();
        let report = socket.send_trains(&mut scratch, datagram, &[train]);
        self.shared.drops.send_failed.add(report.dropped);
        let bytes = u64::from(len) * report.sent;
        self.shared
            .carried
            .datagrams(line, family, report.sent, bytes);
        report
    }

    /// Dropped packets, by reason.
    #[must_use]
    pub fn drops(&self) -> &Drops {
        &self.shared.drops
    }

    /// Traffic from the TUN to UDP.
    #[must_use]
    pub fn outbound(&self) -> &PipelineStats {
        &self.shared.outbound
    }

    /// Traffic from UDP to the TUN.
    #[must_use]
    pub fn inbound(&self) -> &PipelineStats {
        &self.shared.inbound
    }

    /// Number of worker threads.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.workers.count()
    }

    /// Whether several workers may share one direction.
    #[must_use]
    pub fn is_parallel(&self) -> bool {
        self.workers.is_parallel()
    }
}

impl<W: Wire> Drop for Tunnel<W> {
    fn drop(&mut self) {
        self.workers.stop();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                log::error!("a worker panicked");
            }
        }
    }
}

impl<W: Wire> Tunnel<W> {
    /// Statistics since the start.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        Statistics {
            outbound: counts(self.outbound()),
            inbound: counts(self.inbound()),
            drops: self.drops().iter().collect(),
            rungs: self.rungs(),
            workers: self.workers(),
            parallel: self.is_parallel(),
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
            // All sockets try the same rungs; the one that got less far is reported.
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

fn counts(stats: &PipelineStats) -> PipelineCounts {
    PipelineCounts {
        batches: stats.batches.value(),
        packets: stats.packets.value(),
        bytes: stats.bytes.value(),
        super_packets: stats.super_packets.value(),
        unpacked: stats.unpacked.value(),
        syscalls: stats.syscalls.value(),
        parallel_batches: stats.parallel_batches.value(),
        waited_us: stats.waited.value(),
    }
}
