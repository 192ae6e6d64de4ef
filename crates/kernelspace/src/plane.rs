//! The kernel's data plane, behind control's [`DataPlane`] trait.
//!
//! The kernel lacks some features. Harmless ones are left out: senders without a peer-id, an order of packets,
//! payloads that control would seal. For lines, rates and streams, the code that chooses a data plane refuses this
//! one.

use super::kernel::{Kernel, Linux};
use super::listener::{Listener, Shared};
use super::peer::Peer;
use super::peers::{PeerError, Peers, family};
use super::receiver::Dropped;
use crate::listener::Rounds;
use engine::Sockets;
use netio::netlink::{Netlink, NetlinkError};
use netio::udp::{SendScratch, Train};
use openvpn::data::cipher::CipherError;
use openvpn::data::protocol::Material;
use openvpn::data::wire::OpenVpn as Packets;
use plane::{
    CipherName, Control, DataPlane, Endpoint, KeyError, KeyUsage, LINES_MAX, Line, LineId,
    LineMode, LineState, Moving, Notice, PeerId, PeerLines, PeerState, PipelineCounts, Reorder,
    RouteChange, Sender, SessionKeys, Statistics, StreamId, Times, Transport, Transports,
};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The reasons for drops: the interface's two, a data packet from before the kernel had the socket, and a control packet
/// for which control had no room.
pub const DROPS: [&str; 4] = [
    "kernel_outbound",
    "kernel_inbound",
    "no_session",
    "control_full",
];

/// The name of the kernel's data plane in the status's list of kernel features.
pub const RUNG: &str = "kernel-data-plane";

/// The name that the status shows where other data planes name the code of the cipher.
const BACKEND: &str = "kernel (ovpn)";

/// Bytes of stack of the listening thread.
const STACK: usize = 128 << 10;

/// Why the kernel's data plane cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The kernel has no data plane.
    #[error(
        "this kernel has no OpenVPN data plane: there is no netlink family `ovpn`; install the kernel's module `ovpn` \
         (on OpenWrt kmod-ovpn-backports), or set dataplane.kind=user"
    )]
    NoModule,
    /// The kernel has a data plane that takes other requests.
    #[error(
        "this kernel's netlink family `{0}` belongs to another OpenVPN data plane, which takes other requests; remove \
         its module and install `ovpn` (on OpenWrt kmod-ovpn-backports), or set dataplane.kind=user"
    )]
    OtherModule(&'static str),
    /// The kernel has the family, but makes no interface.
    #[error(
        "this kernel has the netlink family `ovpn` but makes no interface of that kind; restart it so that module and \
         kernel match, or set dataplane.kind=user ({0})"
    )]
    NoInterface(NetlinkError),
    /// The kernel has a data plane, but this process may not use it.
    #[error(
        "the kernel's OpenVPN data plane needs CAP_NET_ADMIN for the whole machine, which a container with its own \
         user namespace does not have; set dataplane.kind=user ({0})"
    )]
    NotAllowed(NetlinkError),
    /// An interface of this name exists.
    #[error("another interface has the name {0}")]
    Taken(String),
    /// The kernel refuses another request.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// An operation on descriptors or threads failed.
    #[error("{what}: {source}")]
    Io {
        /// The operation that failed.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// A data plane in the kernel.
pub(crate) struct Plane<K> {
    shared: Arc<Shared<K>>,
    control: Arc<dyn Control>,
    listener: Option<JoinHandle<()>>,
    /// Asks about the interface, and deletes it.
    netlink: Mutex<Netlink>,
    index: u32,
    mtu: AtomicUsize,
    scratch: Mutex<SendScratch>,
}

impl Plane<Linux> {
    /// Starts the thread that listens to the kernel.
    ///
    /// # Errors
    /// See [`StartError`].
    pub(crate) fn start(
        kernel: Linux,
        index: u32,
        several: bool,
        control: Arc<dyn Control>,
    ) -> Result<Self, StartError> {
        let io = |what| move |source| StartError::Io { what, source };
        let mut netlink = Netlink::open()?;
        let mtu = netlink.mtu(index)?;
        let shared = Arc::new(Shared {
            peers: Mutex::new(Peers::new(kernel, several)),
            waker: netio::poll::Waker::new().map_err(io("eventfd"))?,
            stop: AtomicBool::new(false),
            rounds: Rounds::default(),
            dropped: Dropped::default(),
        });
        let listener = Listener::new(Arc::clone(&shared), Arc::clone(&control), index)?;
        let thread = std::thread::Builder::new()
            .name("kernel-plane".to_owned())
            .stack_size(STACK)
            .spawn(move || listener.run())
            .map_err(io("thread"))?;
        Ok(Self {
            shared,
            control,
            listener: Some(thread),
            netlink: Mutex::new(netlink),
            index,
            mtu: AtomicUsize::new(mtu as usize),
            scratch: Mutex::new(SendScratch::new()),
        })
    }
}

impl<K> Plane<K> {
    /// The sockets of the line.
    pub(crate) fn sockets(&self) -> Arc<Sockets>
    where
        K: Kernel,
    {
        self.shared.peers().sockets()
    }

    fn netlink(&self) -> std::sync::MutexGuard<'_, Netlink> {
        self.netlink.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a datagram through the socket of the address's family.
    fn datagram(&self, endpoint: Endpoint, message: &[u8]) -> bool
    where
        K: Kernel,
    {
        let sockets = self.sockets();
        let Some(socket) = sockets.of(family(endpoint)) else {
            return false;
        };
        let len = message.len() as u32;
        let train = Train::single(len, endpoint);
        let mut scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        scratch.begin_batch();
        socket.send_trains(&mut scratch, message, &[train]).sent > 0
    }

    /// Ends a peer's session, as the kernel cannot serve the peer any longer.
    fn failed(&self, id: PeerId, error: &PeerError) {
        if !matches!(error, PeerError::NoPeer(_)) {
            log::error!(
                "the kernel's data plane cannot continue with peer {}: {error}",
                id.0
            );
            self.control.notify(id, Notice::Failed);
        }
    }

    fn done(&self, id: PeerId, result: Result<(), PeerError>) {
        if let Err(error) = result {
            self.failed(id, &error);
        }
    }
}

impl<K: Kernel> Transports for Plane<K> {
    type Sockets = Sockets;
    type Connection = TcpStream;

    fn open_line(&self, line: LineId, sockets: Sockets) -> io::Result<()> {
        if line != LineId::FIRST {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let before = self.shared.peers().set_sockets(sockets);
        self.shared.waker.wake();
        drop(before);
        Ok(())
    }

    fn add_stream(&self, _: StreamId, _: LineId, _: TcpStream) -> io::Result<Endpoint> {
        let why = super::keys::Unfit::Stream;
        Err(io::Error::new(io::ErrorKind::Unsupported, why))
    }
}

impl<K: Kernel> DataPlane for Plane<K> {
    type Protocol = Packets;

    fn close_line(&self, line: LineId) {
        if line == LineId::FIRST {
            let _ = self.open_line(line, Sockets::default());
        }
    }

    fn port(&self, line: LineId) -> Option<u16> {
        let sockets = self.sockets();
        let first = sockets.iter().next().filter(|_| line == LineId::FIRST)?;
        Some(first.port())
    }

    fn set_mark(&self, _: LineId, mark: u32) -> io::Result<()> {
        let sockets = self.sockets();
        sockets
            .iter()
            .try_for_each(|socket| socket.set_fwmark(mark))
    }

    fn remove_stream(&self, _: StreamId) {}

    fn add_peer(&self, id: PeerId, _: Moving) -> bool {
        self.shared.peers().add(id)
    }

    fn remove_peer(&self, id: PeerId) {
        self.shared.peers().remove(id);
    }

    /// Does nothing: the kernel always follows a peer's authentic packets.
    fn set_moving(&self, _: PeerId, _: Moving) {}

    fn set_line(&self, id: PeerId, line: Line) {
        let set = self.shared.peers().set_line(id, line);
        self.done(id, set);
    }

    fn remove_line(&self, id: PeerId, _: LineId) {
        self.shared.peers().remove_line(id);
    }

    fn use_line(&self, _: PeerId, _: LineId) {}

    fn set_line_mode(&self, _: PeerId, _: LineMode) {}

    fn set_reorder(&self, _: PeerId, _: Option<Reorder>) {}

    fn peer_lines(&self, id: PeerId) -> PeerLines {
        let line = self.shared.peers().line(id);
        PeerLines {
            lines: line.map(LineState::unused).into_iter().collect(),
            ..PeerLines::default()
        }
    }

    fn carried(&self) -> [u64; LINES_MAX] {
        [0; LINES_MAX]
    }

    fn forget_source(&self, id: PeerId) {
        self.shared.peers().forget_source(id);
    }

    fn set_sender(&self, _: PeerId, _: Sender, _: u32) {}

    fn clear_sender(&self, _: PeerId, _: Sender) {}

    fn peer(&self, id: PeerId) -> Option<PeerState> {
        let now = Instant::now();
        let mut peers = self.shared.peers();
        let (peer, untold) = peers.look(id, now)?;
        if let Some(notice) = untold {
            self.control.notify(id, notice);
        }
        Some(PeerState {
            line: peer.line,
            times: times(peer, now),
            guarded: true,
            heard: peer.heard,
            rx_bytes: peer.opened_bytes(),
            tx_bytes: peer.sealed_bytes(),
            sealed: peer.slots.primary.map(|it| peer.usage(it).sealed),
            staged: false,
            message_bytes: 0,
        })
    }

    fn arm(&self, _: PeerId) -> bool {
        true
    }

    fn disarm(&self, _: PeerId) {}

    fn keep_alive(&self, id: PeerId, ping: Option<Duration>, silence: Option<Duration>) {
        let set = self.shared.peers().keep_alive(id, ping, silence);
        self.done(id, set);
    }

    fn note_sent(&self, _: PeerId, _: Instant, _: usize) {}

    fn note_received(&self, _: PeerId, _: Instant, _: usize) {}

    fn add_keys(
        &self,
        id: PeerId,
        keys: SessionKeys<Material>,
    ) -> Result<CipherName, KeyError<CipherError>> {
        let cipher = keys.material.keys.cipher.name();
        let added = self
            .shared
            .peers()
            .add_keys(id, keys.session, keys.material);
        match added {
            Ok(()) => Ok(CipherName {
                cipher,
                backend: BACKEND,
            }),
            Err(PeerError::NoPeer(id)) => Err(KeyError::NoPeer(id)),
            Err(error) => Err(KeyError::Unable(error.to_string())),
        }
    }

    fn send_with(&self, id: PeerId, session: u32) {
        let sent = self.shared.peers().send_with(id, session);
        self.done(id, sent);
    }

    /// Does nothing: only the end of a session calls it, and that removes the keys.
    fn stop_sending(&self, _: PeerId) {}

    fn remove_keys(&self, id: PeerId, session: u32) {
        self.shared.peers().remove_keys(id, session);
    }

    fn key_usage(&self, id: PeerId, session: u32) -> KeyUsage {
        let mut peers = self.shared.peers();
        let peer = peers.glance(id, Instant::now());
        peer.map_or_else(KeyUsage::default, |(peer, untold)| {
            if let Some(notice) = untold {
                self.control.notify(id, notice);
            }
            peer.usage(session)
        })
    }

    fn send(&self, to: &Line, message: &[u8]) -> bool {
        to.transport == Transport::Udp && self.datagram(to.endpoint, message)
    }

    fn send_to_peer(&self, id: PeerId, to: Option<SocketAddr>, message: &[u8]) -> bool {
        let line = self.shared.peers().line(id);
        let known = line.map(|line| line.endpoint);
        let known = known.filter(|known| to.is_none_or(|to| known.addr == to));
        let endpoint = known.or_else(|| to.map(Endpoint::new));
        endpoint.is_some_and(|endpoint| self.datagram(endpoint, message))
    }

    /// Does nothing: only the kernel has keys. It sends pings by itself. Other sealed payloads are for old peers,
    /// which know no such message in the control channel.
    fn inject(&self, _: PeerId, _: &[u8]) {}

    fn inject_by(&self, _: PeerId, _: LineId, _: &[u8]) {}

    fn send_keepalive(&self, _: PeerId) -> bool {
        false
    }

    fn send_staged(&self, _: PeerId) -> bool {
        false
    }

    fn drop_staged(&self, _: PeerId) {}

    fn change_routes(&self, changes: &[RouteChange]) {
        let failed = self.shared.peers().change_routes(changes);
        for (id, error) in failed {
            self.failed(id, &error);
        }
    }

    fn set_rate(&self, rate: Option<u64>) {
        if rate.is_some() {
            log::warn!(
                "shaper: the kernel's data plane does not limit rates; set dataplane.kind=user"
            );
        }
    }

    fn set_line_rates(&self, _: [u64; LINES_MAX]) {}

    fn set_mtu(&self, mtu: usize) {
        self.mtu.store(mtu, Ordering::Relaxed);
    }

    fn mtu(&self) -> usize {
        self.mtu.load(Ordering::Relaxed)
    }

    fn set_hairpin(&self, _: bool) {}

    fn interface(&self) -> io::Result<String> {
        let name = self.netlink().name_of(self.index);
        name.map_err(io::Error::other)
    }

    /// The listening thread is the only worker.
    fn pulse(&self) -> bool {
        let alive = self.shared.rounds.ask();
        if alive {
            self.shared.waker.wake();
        }
        alive
    }

    fn statistics(&self) -> Statistics {
        let link = self.netlink().link_by_index(self.index).ok();
        let counters = link.map(|link| link.counters).unwrap_or_default();
        let counts = |packets, bytes| PipelineCounts {
            packets,
            bytes,
            ..PipelineCounts::default()
        };
        let dropped = &self.shared.dropped;
        let [unknown, refused] =
            [&dropped.unknown, &dropped.refused].map(|it| it.load(Ordering::Relaxed));
        let drops = [counters.tx_dropped, counters.rx_dropped, unknown, refused];
        Statistics {
            outbound: counts(counters.tx_packets, counters.tx_bytes),
            inbound: counts(counters.rx_packets, counters.rx_bytes),
            drops: DROPS.into_iter().zip(drops).collect(),
            rungs: vec![(RUNG, "on".to_owned())],
            workers: 0,
            parallel: false,
        }
    }
}

/// The kernel pings a peer in time and reports its silence. Until then the peer counts as heard, and sent to, a
/// moment ago.
fn times(peer: &Peer, now: Instant) -> Times {
    let alive = (peer.kernel.is_some() && !peer.silent).then_some(now);
    Times {
        last_received: alive,
        last_sent: alive,
        ..Times::default()
    }
}

impl<K> Drop for Plane<K> {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.waker.wake();
        if let Some(thread) = self.listener.take() {
            let _ = thread.join();
        }
        // The interface's peers go with it.
        if let Err(error) = self.netlink().delete_link(self.index)
            && !error.is_not_found()
        {
            log::warn!("{error}");
        }
    }
}
