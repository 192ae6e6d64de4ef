//! The thread that listens: for control packets from the sockets, and for the kernel's news of peers and the
//! interface; and [`Rounds`], by which others see that it still does its rounds.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::Sockets;
use netio::netlink::{Event, Monitor, Netlink, NetlinkError, OvpnEvent, OvpnMonitor, Watch};
use netio::poll::{Poller, Waker};
use plane::Control;

use crate::kernel::Kernel;
use crate::peers::Peers;
use crate::receiver::{Dropped, Receiver};

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

    /// Listens until it is told to stop, or fails.
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

/// Number of the last requested round, and of the last one done.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    asked: AtomicU32,
    done: AtomicU32,
}

impl Rounds {
    /// Returns whether the last requested round was done. If so, requests another one, and the caller has to wake the
    /// thread.
    pub(crate) fn ask(&self) -> bool {
        let asked = self.asked.load(Ordering::Relaxed);
        let done = self.done.load(Ordering::Relaxed) == asked;
        if done {
            self.asked.store(asked.wrapping_add(1), Ordering::Relaxed);
        }
        done
    }

    /// Records that the thread has done a round.
    pub(crate) fn come_by(&self) {
        let asked = self.asked.load(Ordering::Relaxed);
        self.done.store(asked, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_hangs_is_noticed_until_it_comes_by() {
        let rounds = Rounds::default();
        assert!(rounds.ask());
        assert!(!rounds.ask());
        assert!(!rounds.ask());
        rounds.come_by();
        assert!(rounds.ask());
        rounds.come_by();
        rounds.come_by();
        assert!(rounds.ask());
        assert!(!rounds.ask());
    }
}
