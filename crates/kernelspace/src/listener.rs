//! The thread that hears: control packets from the sockets, and the kernel's news of peers and of the interface.

use super::kernel::Kernel;
use super::peers::Peers;
use engine::Sockets;
use netio::netlink::{Event, Monitor, NetlinkError, OvpnEvent, OvpnMonitor, PeerEnd, Watch};
use netio::poll::{Poller, Waker};
use netio::udp::{RecvScratch, TRAIN_ROOM, UdpSocket};
use openvpn::data::wire::OpenVpn as Packets;
use plane::{Class, Control, Endpoint, Line, LineId, Notice, Transport, Wire};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const WAKE: u64 = 0;
const PEERS: u64 = 1;
const LINKS: u64 = 2;
const SOCKETS: [u64; 2] = [3, 4];

/// Datagrams that are received in one call, and their longest. Control packets are shorter, and these are no others.
const AT_ONCE: usize = 16;
const LONGEST: usize = 4096;

/// What a thread that listens shares with control.
pub(crate) struct Shared<K> {
    pub(crate) peers: Mutex<Peers<K>>,
    pub(crate) waker: Waker,
    pub(crate) stop: AtomicBool,
    /// Data packets that no key opens, and what is neither.
    pub(crate) unknown: AtomicU64,
    /// What control did not take.
    pub(crate) refused: AtomicU64,
}

impl<K> Shared<K> {
    pub(crate) fn peers(&self) -> MutexGuard<'_, Peers<K>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread.
pub(crate) struct Listener<K> {
    shared: Arc<Shared<K>>,
    control: Arc<dyn Control>,
    poller: Poller,
    news: OvpnMonitor,
    links: Monitor,
    index: u32,
    sockets: Arc<Sockets>,
    scratch: RecvScratch,
    memory: Vec<u8>,
}

impl<K: Kernel> Listener<K> {
    /// # Errors
    /// Descriptor limits; the kernel has no such data plane.
    pub(crate) fn new(
        shared: Arc<Shared<K>>,
        control: Arc<dyn Control>,
        index: u32,
    ) -> Result<Self, NetlinkError> {
        let io = NetlinkError::Open;
        let poller = Poller::new().map_err(io)?;
        poller.add(&shared.waker, WAKE).map_err(io)?;
        let news = OvpnMonitor::open(index)?;
        poller.add(&news, PEERS).map_err(io)?;
        let links = Monitor::open(Watch::LINKS)?;
        poller.add(&links, LINKS).map_err(io)?;
        Ok(Self {
            shared,
            control,
            poller,
            news,
            links,
            index,
            sockets: Arc::default(),
            scratch: RecvScratch::new(),
            memory: vec![0; TRAIN_ROOM],
        })
    }

    /// Until it is told to stop, or cannot go on.
    pub(crate) fn run(mut self) {
        if let Err(error) = self.listen() {
            log::error!("the kernel's data plane is not heard any more: {error}");
            self.control.device_gone();
        }
    }

    fn listen(&mut self) -> Result<(), NetlinkError> {
        loop {
            let ready = self.poller.wait(None).map_err(NetlinkError::Open)?;
            for token in ready.iter() {
                match token {
                    WAKE => {
                        self.shared.waker.clear();
                        if self.shared.stop.load(Ordering::Acquire) {
                            return Ok(());
                        }
                        self.follow_sockets().map_err(NetlinkError::Open)?;
                    }
                    PEERS => {
                        while let Some(event) = self.news.next()? {
                            self.hear(event);
                        }
                    }
                    LINKS => {
                        while let Some(event) = self.links.next()? {
                            if matches!(event, Event::LinkDeleted { index, .. } if index == self.index)
                            {
                                self.control.device_gone();
                            }
                        }
                    }
                    token => {
                        let sockets = Arc::clone(&self.sockets);
                        let at = SOCKETS.iter().position(|it| *it == token);
                        let socket = match at {
                            Some(0) => sockets.v4.as_ref(),
                            _ => sockets.v6.as_ref(),
                        };
                        if let Some(socket) = socket {
                            self.receive(socket);
                        }
                    }
                }
            }
        }
    }

    /// Others are listened to from now on.
    fn follow_sockets(&mut self) -> io::Result<()> {
        let sockets = self.shared.peers().sockets();
        if Arc::ptr_eq(&sockets, &self.sockets) {
            return Ok(());
        }
        for socket in self.sockets.iter() {
            self.poller.remove(socket)?;
        }
        self.sockets = sockets;
        let both = [&self.sockets.v4, &self.sockets.v6];
        for (socket, token) in both.into_iter().zip(SOCKETS) {
            if let Some(socket) = socket {
                self.poller.add(socket, token)?;
            }
        }
        Ok(())
    }

    fn hear(&self, event: OvpnEvent) {
        let mut peers = self.shared.peers();
        let (peer, notice) = match event {
            // What control has asked for, or does not need to be told as the interface goes.
            OvpnEvent::PeerGone {
                why: PeerEnd::Asked | PeerEnd::Teardown,
                ..
            } => return,
            OvpnEvent::PeerGone { peer, why } => {
                log::debug!("the kernel has let go of peer {peer}: {why:?}");
                (peers.lost(peer), Notice::Silent)
            }
            OvpnEvent::KeyWorn { peer, .. } => {
                let id = peers.by_number(peer);
                let Some(index) = id.and_then(|id| peers.sealing(id)) else {
                    return;
                };
                (id, Notice::Refresh { index })
            }
            OvpnEvent::Floated { peer, to } => {
                let line = LineId::FIRST;
                (peers.floated(peer, to), Notice::Moved { line, to })
            }
            OvpnEvent::Overrun => {
                // What became of them is seen when they are looked at.
                log::debug!("news of peers were lost");
                return;
            }
            _ => return,
        };
        drop(peers);
        if let Some(id) = peer {
            self.control.notify(id, notice);
        }
    }

    fn receive(&mut self, socket: &UdpSocket) {
        loop {
            let mut trains = Vec::new();
            let got = socket.recv_trains(
                &mut self.scratch,
                &mut self.memory,
                LONGEST,
                AT_ONCE,
                |train| trains.push(train),
            );
            // What ICMP left on the socket, or nothing.
            let Ok(got) = got else {
                return;
            };
            for train in trains {
                let (start, end) = (train.start as usize, (train.start + train.len) as usize);
                let bytes = &self.memory[start..end];
                // A data packet is here only if it came before the kernel had the socket.
                if Packets::Server.classify(bytes) != Class::Control {
                    self.shared.unknown.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                let from = Line {
                    id: LineId::FIRST,
                    endpoint: Endpoint {
                        addr: train.from,
                        source: train.local,
                    },
                    transport: Transport::Udp,
                };
                if !self.control.datagram(from, bytes) {
                    self.shared.refused.fetch_add(1, Ordering::Relaxed);
                }
            }
            if got.drained {
                return;
            }
        }
    }
}
