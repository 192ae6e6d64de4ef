//! The thread that listens: for control packets from the sockets, and for the kernel's news of peers and the
//! interface.

use super::kernel::Kernel;
use super::peers::Peers;
use super::receiver::{Dropped, Receiver};
use super::rounds::Rounds;
use engine::Sockets;
use netio::netlink::{Event, Monitor, Netlink, NetlinkError, OvpnEvent, OvpnMonitor, Watch};
use netio::poll::{Poller, Waker};
use plane::Control;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const WAKE: u64 = 0;
const PEERS: u64 = 1;
const LINKS: u64 = 2;
const SOCKETS: [u64; 2] = [3, 4];

/// State that the listening thread shares with control.
pub(crate) struct Shared<K> {
    pub(crate) peers: Mutex<Peers<K>>,
    pub(crate) waker: Waker,
    pub(crate) stop: AtomicBool,
    pub(crate) rounds: Rounds,
    pub(crate) dropped: Dropped,
}

impl<K> Shared<K> {
    pub(crate) fn peers(&self) -> MutexGuard<'_, Peers<K>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The listening thread.
pub(crate) struct Listener<K> {
    shared: Arc<Shared<K>>,
    control: Arc<dyn Control>,
    poller: Poller,
    news: OvpnMonitor,
    links: Monitor,
    /// Opened before privileges are dropped.
    netlink: Netlink,
    index: u32,
    sockets: Arc<Sockets>,
    receiver: Receiver,
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
            netlink: Netlink::open()?,
            index,
            sockets: Arc::default(),
            receiver: Receiver::new(),
        })
    }

    /// Listens until it is told to stop, or cannot go on.
    pub(crate) fn run(mut self) {
        if let Err(error) = self.listen() {
            log::error!("the kernel's data plane is not heard any more: {error}");
            self.control.device_gone();
        }
    }

    fn listen(&mut self) -> Result<(), NetlinkError> {
        loop {
            let ready = self.poller.wait(None).map_err(NetlinkError::Open)?;
            if self.shared.stop.load(Ordering::Acquire) {
                return Ok(());
            }
            self.shared.rounds.come_by();
            for token in ready.iter() {
                match token {
                    WAKE => {
                        self.shared.waker.clear();
                        self.follow_sockets().map_err(NetlinkError::Open)?;
                    }
                    PEERS => {
                        while let Some(event) = self.news.next()? {
                            self.hear(event);
                        }
                    }
                    LINKS => {
                        while let Some(event) = self.links.next()? {
                            if self.is_end(&event) {
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
                            let dropped = &self.shared.dropped;
                            self.receiver.receive(socket, &*self.control, dropped);
                        }
                    }
                }
            }
        }
    }

    /// Whether the interface is gone. If news were lost, the kernel is asked.
    fn is_end(&mut self, event: &Event) -> bool {
        match event {
            Event::LinkDeleted { index, .. } => *index == self.index,
            Event::Overrun => {
                let link = self.netlink.link_by_index(self.index);
                link.is_err_and(|error| error.is_not_found())
            }
            _ => false,
        }
    }

    /// Listens to the current sockets in place of the old ones.
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
        let told = self.shared.peers().hear(event);
        if let Some((id, notice)) = told {
            self.control.notify(id, notice);
        }
    }
}
