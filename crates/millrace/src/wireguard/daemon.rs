//! The life of an interface's program: make the TUN, serve until told to stop, leave nothing.

use super::inbox::Inbox;
use super::interface::Interface;
use super::names::Resolver;
use super::server::{Listener, Server, SocketError, lock};
use super::signals::Signals;
use super::sockets::SocketPlan;
use crate::gate::{Gate, turned_away};
use config::settings::{DataplaneSettings, Parallel};
use crypto::select::Algorithm;
use engine::{Tunnel, TunnelOptions};
use netio::netlink::{Event, Monitor, Netlink, NetlinkError, Watch};
use netio::poll::{Poller, Waker};
use netio::tun::{TunError, TunOptions, TunTest, TunVerdict};
use netio::udp::SelfTest;
use std::error::Error;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const INBOX: u64 = 0;
const WAKE: u64 = 1;
const NEWS: u64 = 2;
const SIGNAL: u64 = 3;
const UAPI: u64 = 4;
const STATUS: u64 = 5;

/// The MTU that leaves room for IPv6 and WireGuard on a 1500-byte line.
const MTU: u32 = 1420;

/// Packets that the TUN may queue. The kernel's 500 is a burst of a few milliseconds.
const TXQUEUELEN: u32 = 1000;

/// How often an interface that was moved to another namespace, from which no news come, is
/// looked at.
const MOVED_CHECK: Duration = Duration::from_secs(1);

/// How long routes may settle after a change before they are looked at: changes come in bursts,
/// and a routing daemon's can go on for long.
const SETTLE: Duration = Duration::from_millis(200);

/// How often sockets that could not be opened are tried again.
const REOPEN: Duration = Duration::from_millis(100);

/// Most threads chosen without being asked: more only reorder and wait.
const WORKERS_MAX: usize = 4;

/// What a daemon is asked for.
#[derive(Clone, Debug)]
pub(crate) struct DaemonOptions {
    /// Interface name; the kernel numbers a `%d`.
    pub ifname: String,
    /// Offloads, threads, buffers.
    pub settings: DataplaneSettings,
    /// Send through this device alone.
    pub bind_device: Option<String>,
    /// What the super-packets of this kernel's TUN are good for: see [`test_tun`].
    pub tun_verdict: TunVerdict,
    /// No cipher at all: only for measuring, never for a tunnel that anybody relies on.
    #[cfg(feature = "null-cipher")]
    pub null_cipher: bool,
}

/// Why a daemon could not start or go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DaemonError {
    /// No TUN.
    #[error(transparent)]
    Tun(#[from] TunError),
    /// A configuration socket.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The UDP sockets.
    #[error(transparent)]
    Udp(#[from] netio::udp::SocketError),
    /// The link could not be set up.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// Descriptors, threads.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// Why a daemon ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// By a signal.
    Signal(i32),
    /// Somebody deleted the interface.
    LinkDeleted,
    /// Somebody removed the configuration socket.
    SocketRemoved,
}

/// A program that runs one interface.
pub(crate) struct Daemon {
    interface: Arc<Mutex<Option<Interface>>>,
    inbox: Arc<Inbox>,
    wake: Arc<Waker>,
    server: Server,
    uapi: Listener,
    status: Option<Listener>,
    news: Monitor,
    signals: Signals,
    resolver: Resolver,
    ifname: String,
    ifindex: u32,
    moved: bool,
    /// Handshake messages still wait.
    busy: bool,
    gate: Gate,
    /// When the routes are to be looked at again.
    recheck: Option<Instant>,
    started: Instant,
}

/// Who started a daemon, and is told of what concerns more than the interface.
pub(crate) trait Owner {
    /// Something has changed that the host's settings depend on: names of endpoints have been looked up, or the host's
    /// routes or addresses are others. Called once in the beginning too.
    ///
    /// # Errors
    /// Ends the daemon.
    fn changed(&mut self, daemon: &Daemon) -> Result<(), Box<dyn Error>>;

    /// SIGHUP.
    ///
    /// # Errors
    /// Ends the daemon.
    fn reload(&mut self, daemon: &Daemon) -> Result<(), Box<dyn Error>>;
}

/// Runs the self-test of the TUN's rungs that the settings want.
///
/// Before privileges are dropped: it needs a network namespace of its own.
#[must_use]
pub(crate) fn test_tun(settings: &DataplaneSettings) -> TunVerdict {
    let verdict = start_test_tun(settings).verdict();
    log::debug!("self-test of the TUN: {verdict:?}");
    verdict
}

/// Starts [`test_tun`] beside what else is to be done before there is a TUN.
pub(crate) fn start_test_tun(settings: &DataplaneSettings) -> TunTest {
    netio::tun::start_self_test(tun_options(settings))
}

fn tun_options(settings: &DataplaneSettings) -> TunOptions {
    TunOptions {
        tso: settings.tun_gso.wanted(),
        uso: settings.tun_uso.wanted(),
        gro: settings.tun_gro.wanted(),
    }
}

impl Daemon {
    /// Makes the interface, starts its workers and opens its sockets.
    ///
    /// # Errors
    /// See [`DaemonError`]. Nothing is left behind.
    pub(crate) fn start(options: &DaemonOptions) -> Result<Self, DaemonError> {
        let io = |what| move |source| DaemonError::Io { what, source };
        // From the first moment: a signal during start-up must not leave things behind.
        let signals = Signals::catch().map_err(io("signals"))?;
        let settings = &options.settings;
        crate::backends::choose(settings.crypto_backend, &[Algorithm::ChaCha20Poly1305]);
        let tun = options
            .tun_verdict
            .create(&options.ifname, tun_options(settings))?;
        let ifname = tun.name().to_owned();
        // Heard from before the state is read, so that no change falls between the two.
        let news = Monitor::open(Watch::ALL)?;
        let mut netlink = Netlink::open()?;
        let ifindex = netlink.index_of(&ifname)?;
        netlink.set_mtu(ifindex, MTU)?;
        // As the kernel's WireGuard. Packets from a link-local address are for no peer, and refused by every one.
        if let Err(e) = netlink.set_no_link_local(ifindex) {
            log::debug!("{e}");
        }
        if let Err(e) = netlink.set_txqueuelen(ifindex, TXQUEUELEN) {
            log::debug!("{e}");
        }
        let uapi = Listener::uapi(&ifname)?;
        let status = Listener::status(&ifname)
            .inspect_err(|e| log::warn!("no status: {e}"))
            .ok();
        for listener in std::iter::once(&uapi).chain(&status) {
            listener
                .socket
                .set_nonblocking(true)
                .map_err(io("UNIX socket"))?;
        }

        let inbox = Arc::new(Inbox::new().map_err(io("eventfd"))?);
        let wake = Arc::new(Waker::new().map_err(io("eventfd"))?);
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let workers = settings.workers.unwrap_or_else(|| cores.min(WORKERS_MAX));
        let tunnel_options = TunnelOptions {
            workers,
            parallel: match settings.parallel {
                Parallel::On => true,
                Parallel::Off => false,
                // On two cores the other one has the kernel's work to do: see docs/benchmarks.md.
                Parallel::Auto => cores > 2,
            },
            mtu: MTU as usize,
            gso_max_segs: settings.gso_max_segs.map_or(usize::MAX, usize::from),
            backpressure: false,
        };
        let control: Arc<Inbox> = Arc::clone(&inbox);
        let tunnel = Tunnel::start(tun, control, &tunnel_options).map_err(io("threads"))?;
        let mut plan = SocketPlan::new(settings, options.bind_device.clone());
        if plan.gso
            && let SelfTest::Failed(why) = netio::udp::self_test()
        {
            log::warn!("udp-gso: this kernel damages segmented datagrams ({why}); off");
            plan.gso = false;
        }
        let mut interface = Interface::new(
            tunnel,
            plan,
            #[cfg(feature = "null-cipher")]
            options.null_cipher,
        );
        interface
            .device
            .set_ipv4_source_prefix(settings.cookie_v4_prefix);
        interface.bring_up()?;
        let interface = Arc::new(Mutex::new(Some(interface)));
        let server = Server::new(Arc::clone(&interface), Arc::clone(&wake));
        let resolver = Resolver::new(Arc::clone(&wake));
        Ok(Self {
            interface,
            inbox,
            wake,
            server,
            uapi,
            status,
            news,
            signals,
            resolver,
            ifname,
            ifindex,
            moved: false,
            busy: false,
            gate: Gate::new(),
            recheck: None,
            started: Instant::now(),
        })
    }

    /// The interface's name.
    #[must_use]
    pub(crate) fn ifname(&self) -> &str {
        &self.ifname
    }

    /// Does something with the interface while it runs.
    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut Interface) -> T) -> Option<T> {
        let result = lock(&self.interface).as_mut().map(f);
        self.wake.wake();
        result
    }

    /// Serves until the interface is deleted or a signal says to stop.
    ///
    /// # Errors
    /// Descriptor limits, and what `owner` says.
    pub(crate) fn run(&mut self, owner: &mut dyn Owner) -> Result<Ended, Box<dyn Error>> {
        let poller = self.poller().map_err(waiting)?;
        owner.changed(self)?;
        loop {
            match self.turn(&poller).map_err(waiting)? {
                Turn::Ended(ended) => return Ok(ended),
                Turn::Changed => owner.changed(self)?,
                Turn::Done => {}
            }
            if self.signals.take_reload() {
                owner.reload(self)?;
            }
        }
    }

    fn poller(&self) -> io::Result<Poller> {
        let poller = Poller::new()?;
        poller.add(&*self.inbox, INBOX)?;
        poller.add(&*self.wake, WAKE)?;
        poller.add(&self.news, NEWS)?;
        poller.add(&self.signals.pipe, SIGNAL)?;
        Ok(poller)
    }

    /// Waits for something to do and does it.
    fn turn(&mut self, poller: &Poller) -> io::Result<Turn> {
        let sockets = [(Some(&self.uapi), UAPI), (self.status.as_ref(), STATUS)];
        let sockets = sockets.into_iter();
        let sockets = sockets.filter_map(|(it, token)| Some((it?.socket.as_fd(), token)));
        self.gate.follow(poller, sockets, Instant::now())?;
        let mut timeout = lock(&self.interface).as_ref().and_then(Interface::idle_for);
        if self.busy {
            // Handshake messages still wait, but so may everybody else.
            timeout = Some(Duration::ZERO);
        }
        if self.moved {
            timeout = Some(timeout.map_or(MOVED_CHECK, |t| t.min(MOVED_CHECK)));
        }
        if self.lacks_sockets() {
            timeout = Some(timeout.map_or(REOPEN, |t| t.min(REOPEN)));
        }
        let due = lock(&self.interface)
            .as_ref()
            .and_then(Interface::names_due);
        // A name may have to wait for a thread, the end of which wakes us.
        let due = due.filter(|_| self.resolver.is_free());
        for at in [self.recheck, due, self.gate.next_deadline()]
            .into_iter()
            .flatten()
        {
            let left = at.saturating_duration_since(Instant::now());
            timeout = Some(timeout.map_or(left, |t| t.min(left)));
        }
        for token in poller.wait(timeout)?.iter() {
            match token {
                INBOX => self.inbox.waker.clear(),
                WAKE => self.wake.clear(),
                NEWS => {
                    if let Some(ended) = self.hear() {
                        return Ok(Turn::Ended(ended));
                    }
                }
                UAPI => {
                    let accepted = self.server.accept_uapi(&self.uapi);
                    turn_away(&mut self.gate, accepted, &self.uapi);
                }
                STATUS => {
                    if let Some(status) = &self.status {
                        let accepted = self.server.accept_status(status, self.started);
                        turn_away(&mut self.gate, accepted, status);
                    }
                }
                _ => self.signals.drain(),
            }
        }
        if let Some(signal) = self.signals.end() {
            return Ok(Turn::Ended(Ended::Signal(signal)));
        }
        if self.inbox.device_is_gone() || (self.moved && self.is_gone()) {
            return Ok(Turn::Ended(Ended::LinkDeleted));
        }
        let mut changed = self.recheck_routes();
        self.busy = match &mut *lock(&self.interface) {
            Some(interface) => {
                let more = interface.serve(&self.inbox);
                interface.expire();
                changed |= interface.look_up(&mut self.resolver);
                more
            }
            None => false,
        };
        Ok(if changed { Turn::Changed } else { Turn::Done })
    }

    /// Looks at the routes, if it is time. Returns whether it was.
    fn recheck_routes(&mut self) -> bool {
        if self.recheck.is_none_or(|at| Instant::now() < at) {
            return false;
        }
        self.recheck = None;
        match Netlink::open() {
            Ok(mut netlink) => {
                if let Some(interface) = &mut *lock(&self.interface) {
                    interface.routes_changed(&mut netlink);
                    interface.hurry_names();
                }
            }
            Err(e) => log::warn!("{e}"),
        }
        true
    }

    /// Tries once more to open the sockets if they could not be opened. Whether they still are not.
    fn lacks_sockets(&self) -> bool {
        lock(&self.interface)
            .as_mut()
            .is_some_and(|i| i.lacks_sockets() && i.bring_up().is_err())
    }

    fn is_gone(&self) -> bool {
        lock(&self.interface)
            .as_ref()
            .is_none_or(|i| i.tunnel.tun().current_name().is_err())
    }

    /// News about links. Returns a reason to end.
    fn hear(&mut self) -> Option<Ended> {
        loop {
            match self.news.next() {
                Ok(Some(Event::LinkChanged { index, up, mtu, .. })) if index == self.ifindex => {
                    self.link_changed(up, mtu);
                }
                Ok(Some(Event::LinkDeleted { index, .. })) if index == self.ifindex => {
                    if self.is_gone() {
                        return Some(Ended::LinkDeleted);
                    }
                    // Moved to another namespace: the descriptor still works, the news end here.
                    // The kernel has taken the link down for it, and that it comes up again over
                    // there is nothing that we hear of.
                    self.moved = true;
                    if let Some(interface) = &mut *lock(&self.interface) {
                        interface.link_state(true);
                    }
                }
                Ok(Some(Event::RouteChanged | Event::AddressChanged)) => {
                    self.recheck.get_or_insert_with(|| Instant::now() + SETTLE);
                }
                Ok(Some(Event::Overrun)) => {
                    self.recheck.get_or_insert_with(|| Instant::now() + SETTLE);
                    let link = Netlink::open().and_then(|mut n| n.link_by_index(self.ifindex));
                    if let Ok(link) = link {
                        self.link_changed(link.up, link.mtu);
                    }
                }
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(e) => {
                    log::warn!("{e}");
                    break;
                }
            }
        }
        self.uapi.is_removed().then_some(Ended::SocketRemoved)
    }

    fn link_changed(&self, up: bool, mtu: u32) {
        if let Some(interface) = &mut *lock(&self.interface) {
            interface.tunnel.set_mtu(mtu as usize);
            interface.link_state(up);
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Clients' threads may still hold the lock's other end: the interface itself ends here.
        drop(lock(&self.interface).take());
    }
}

/// Shuts the gate where nothing can be accepted.
fn turn_away(gate: &mut Gate, accepted: io::Result<()>, listener: &Listener) {
    if let Err(error) = accepted {
        gate.failed(&error, Instant::now(), || {
            turned_away(listener.socket.accept())
        });
    }
}

/// What came of a turn of the loop.
enum Turn {
    Done,
    /// Names have been looked up, or routes are others.
    Changed,
    Ended(Ended),
}

fn waiting(source: io::Error) -> DaemonError {
    DaemonError::Io {
        what: "waiting",
        source,
    }
}
