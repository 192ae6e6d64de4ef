//! A running data plane: a TUN, lines, workers. `data_plane.rs` implements the calls that control makes on it.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use netio::tun::Tun;
use netio::udp::{Endpoint, Family, SendReport, SendScratch, Train};
use plane::{Control, LineId, Routes, Wire};

use crate::key::SendKey;
use crate::line::Sockets;
use crate::peer::Peer;
use crate::peers::Peers;
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

    /// Replaces the table of peers by address.
    pub fn set_routes(&self, routes: Routes<Arc<Peer>>) {
        self.shared.routes.store(Arc::new(routes));
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

    /// Interface of the tunnel.
    #[must_use]
    pub fn tun(&self) -> &Tun {
        &self.shared.tun
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

    /// Sends the packets staged for `peer`.
    pub(crate) fn send_staged(&self, peer: &Peer, key: &SendKey) {
        let now = Instant::now();
        if !peer.has_staged() || !key.alive(now) {
            return;
        }
        for packet in peer.take_staged() {
            self.seal_one(peer, key, &packet, now);
        }
    }

    /// Forgets the sending key of `peer`.
    pub(crate) fn clear_send_key(&self, peer: &Peer) {
        peer.send_key.store(None);
        peer.expect_nothing();
    }

    /// Drops the packets staged for `peer`.
    pub(crate) fn drop_staged(&self, peer: &Peer) {
        self.shared
            .drops
            .staged
            .add(peer.take_staged().len() as u64);
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

    /// Seals and sends one packet outside the pipelines; an empty one is a keepalive.
    pub(crate) fn seal_one(&self, peer: &Peer, key: &SendKey, packet: &[u8], now: Instant) -> bool {
        let mut ways = peer.lines.ways_of_messages();
        if ways.is_empty() {
            let line = peer.lines.used_id();
            ways.extend(peer.endpoint().map(|endpoint| Way { line, endpoint }));
        }
        if ways.is_empty() {
            return false;
        }
        let padded = key.format.padded(packet.len(), self.shared.mtu());
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

    /// Sends a datagram to a peer over each of these ways. The report is the sum over all ways.
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

    /// Sends a datagram over a line.
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
