//! The life of an interface's process: makes the TUN, serves until told to stop, leaves nothing behind.

use super::control;
use super::event::Event;
use super::host::Ended;
use super::interface::{Interface, News};
use super::machine::Machine;
use super::peers::Heard;
use super::server::{Server, lock};
use super::signals::Signals;
use super::sockets::SocketPlan;
use crate::inbox::Inbox;
use crate::plane_options::plane_options;
use crate::socket::{Listener, SocketError};
use crate::watchdog::Watchdog;
use ::wireguard::WireGuard;
use config::lines::Lines;
use config::settings::DataplaneSettings;
use crypto::select::Algorithm;
use host::gate::{Gate, turned_away};
use lines::names::Resolver;
use netio::netlink::{Event as LinkEvent, Monitor, Netlink, NetlinkError, Watch};
use netio::poll::{Poller, Waker};
use netio::tun::{TunError, TunVerdict};
use netio::udp::SelfTest;
use plane::Now;
use std::collections::HashMap;
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
/// The UAPI socket for `awg`.
const AMNEZIA: u64 = 6;

/// The MTU that leaves room for IPv6 and WireGuard on a 1500-byte line.
const MTU: u32 = 1420;

/// Packets that the TUN may queue. The kernel's default of 500 holds only a burst of a few milliseconds.
const TXQUEUELEN: u32 = 1000;

/// Options that a daemon starts with.
#[derive(Clone, Debug)]
pub struct DaemonOptions {
    /// Interface name; the kernel replaces `%d` by a free number.
    pub ifname: String,
    /// Settings for offloads, threads and buffers.
    pub settings: DataplaneSettings,
    /// Send only through this device.
    pub bind_device: Option<String>,
    /// The lines, used in place of `bind_device`.
    pub lines: Lines,
    /// Self-test result of this kernel's TUN super-packets: see [`TunProbe`](crate::tun_probe::TunProbe).
    pub tun_verdict: TunVerdict,
    /// Use no cipher at all: only for measuring, never for a tunnel in use.
    #[cfg(feature = "null-cipher")]
    pub null_cipher: bool,
}

/// Why a daemon could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The TUN cannot be made.
    #[error(transparent)]
    Tun(#[from] TunError),
    /// A configuration socket cannot be opened.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The UDP sockets cannot be opened.
    #[error(transparent)]
    Udp(#[from] netio::udp::SocketError),
    /// The link could not be set up.
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

/// The process that runs one interface.
pub struct Daemon {
    interface: Arc<Mutex<Option<Interface>>>,
    inbox: Arc<Inbox>,
    wake: Arc<Waker>,
    server: Server,
    uapi: Listener,
    amnezia: Option<Listener>,
    status: Option<Listener>,
    news: Monitor,
    signals: Signals,
    ifname: String,
    ifindex: u32,
    /// MTU of each known device, by index, in bytes.
    mtus: HashMap<u32, u32>,
    /// The inbox still holds handshake messages.
    busy: bool,
    gate: Gate,
    started: Instant,
    watchdog: Watchdog,
}

/// The part that started a daemon and manages everything beyond the interface, such as routes and DNS.
pub trait Owner {
    /// Called once at the start, and when something has changed that the host's settings depend on: addresses found
    /// for endpoint names, or the host's routes or addresses.
    ///
    /// # Errors
    /// Ends the daemon.
    fn changed(&mut self, daemon: &Daemon) -> Result<(), Box<dyn Error>>;

    /// Called when the kernel may have learned a new path MTU to a peer, or the interface's MTU has changed.
    ///
    /// # Errors
    /// Ends the daemon.
    fn look_at_path(&mut self, _: &Daemon) -> Result<(), Box<dyn Error>> {
        Ok(())
    }

    /// When to call an owner again that waits for a peer's answer or silence; `None` if it does not wait.
    fn waits_until(&self) -> Option<Instant> {
        None
    }

    /// Called in every round of the daemon while the owner waits. A call of [`Daemon::with`] begins another round.
    ///
    /// # Errors
    /// Ends the daemon.
    fn waits(&mut self, _: &Daemon, _: &Heard) -> Result<(), Box<dyn Error>> {
        Ok(())
    }

    /// Called on SIGHUP.
    ///
    /// # Errors
    /// Ends the daemon.
    fn reload(&mut self, daemon: &Daemon) -> Result<(), Box<dyn Error>>;
}

impl Daemon {
    /// Makes the interface, starts its workers and opens its sockets.
    ///
    /// # Errors
    /// See [`DaemonError`]. Nothing is left behind.
    pub fn start(options: &DaemonOptions) -> Result<Self, DaemonError> {
        let io = |what| move |source| DaemonError::Io { what, source };
        // Caught first: a signal during start-up must not leave anything behind.
        let signals = Signals::catch().map_err(io("signals"))?;
        let settings = &options.settings;
        crate::backends::choose(settings.crypto_backend, &[Algorithm::ChaCha20Poly1305]);
        let tun = options
            .tun_verdict
            .create(&options.ifname, crate::tun_probe::tun_options(settings))?;
        let ifname = tun.name().to_owned();
        // Opened before the state is read, so that no change falls between the two.
        let mut news = Monitor::open(Watch::ALL)?;
        if let Err(error) = news.follow_table(host::MASQUERADE_TABLES) {
            log::debug!("cannot watch the packet filter for changes: {error}");
        }
        let mut netlink = Netlink::open()?;
        let ifindex = netlink.index_of(&ifname)?;
        netlink.set_mtu(ifindex, MTU)?;
        // No link-local address, as in the kernel's WireGuard: every peer would refuse packets from it.
        if let Err(e) = netlink.set_no_link_local(ifindex) {
            log::debug!("{e}");
        }
        if let Err(e) = netlink.set_txqueuelen(ifindex, TXQUEUELEN) {
            log::debug!("{e}");
        }
        let uapi = Listener::uapi(&ifname)?;
        let status = Listener::status(&ifname)
            .inspect_err(|e| log::warn!("cannot open the status socket: {e}"))
            .ok();
        #[cfg(feature = "amnezia")]
        let amnezia = Listener::amnezia(&ifname)
            .inspect_err(|e| log::debug!("cannot open the socket for `awg`: {e}"))
            .ok();
        #[cfg(not(feature = "amnezia"))]
        let amnezia = None;
        for listener in std::iter::once(&uapi).chain(&status).chain(&amnezia) {
            listener
                .socket
                .set_nonblocking(true)
                .map_err(io("UNIX socket"))?;
        }

        let inbox = Arc::new(Inbox::new(control::INBOX).map_err(io("eventfd"))?);
        let wake = Arc::new(Waker::new().map_err(io("eventfd"))?);
        let tunnel_options = plane_options(settings, MTU as usize, false);
        let control: Arc<Inbox> = Arc::clone(&inbox);
        let protocol = WireGuard::new();
        #[cfg(feature = "null-cipher")]
        let protocol = match options.null_cipher {
            true => WireGuard::with_cipher(|_| Arc::new(crypto::Null)),
            false => protocol,
        };
        let protocol = match settings.mss_clamp.wanted() {
            true => protocol.clamping(),
            false => protocol,
        };
        let plane = userspace::wireguard(tun, protocol.clone(), control, &tunnel_options)
            .map_err(io("threads"))?;
        let mut plan = SocketPlan::new(settings, options.bind_device.clone());
        if plan.gso
            && let SelfTest::Failed(why) = netio::udp::self_test()
        {
            log::warn!("udp-gso: this kernel damages segmented datagrams ({why}); off");
            plan.gso = false;
        }
        let mut seed = [0; 8];
        crypto::random(&mut seed);
        let mut machine = Machine::new(Now::read(), u64::from_ne_bytes(seed));
        machine.set_ipv4_source_prefix(settings.cookie_v4_prefix.unwrap_or(32));
        machine.set_lines(&options.lines);
        let resolver = Resolver::new(Arc::clone(&wake), &options.lines, None);
        let mut interface = Interface::new(
            machine,
            (plane, protocol),
            (plan, options.lines.clone()),
            resolver,
        );
        interface.mtu_probe = settings.mtu_probe;
        interface.restore_lines(&ifname);
        interface.restore_floor();
        match interface.start() {
            // The device, a modem's for instance, may come later: sockets are opened again once the link is up.
            Err(netio::udp::SocketError::Option { source, .. })
                if options.bind_device.is_some()
                    && source.raw_os_error() == Some(nix::libc::ENODEV) => {}
            started => started?,
        }
        // Only a device that another program has handed over is up: no news of that will come.
        #[cfg(feature = "handover")]
        if let Ok(link) = netlink.link_by_index(ifindex)
            && link.up
        {
            interface.is_inherited = true;
            interface.handle(Event::Link {
                up: true,
                mtu: link.mtu,
            });
        }
        let interface = Arc::new(Mutex::new(Some(interface)));
        let server = Server::new(Arc::clone(&interface), Arc::clone(&wake));
        Ok(Self {
            interface,
            inbox,
            wake,
            server,
            uapi,
            amnezia,
            status,
            news,
            signals,
            ifname,
            ifindex,
            mtus: HashMap::new(),
            busy: false,
            gate: Gate::default(),
            started: Instant::now(),
            watchdog: Watchdog::new(Instant::now()),
        })
    }

    /// Name of the interface.
    #[must_use]
    pub fn ifname(&self) -> &str {
        &self.ifname
    }

    /// Calls `f` with the interface, if it still runs.
    pub fn with<T>(&self, f: impl FnOnce(&mut Interface) -> T) -> Option<T> {
        let result = lock(&self.interface).as_mut().map(f);
        self.wake.wake();
        result
    }

    /// Serves until the interface is deleted or a signal says to stop.
    ///
    /// # Errors
    /// Returns errors of descriptors and errors of `owner`.
    pub fn run(&mut self, owner: &mut dyn Owner) -> Result<Ended, Box<dyn Error>> {
        let poller = self.poller().map_err(waiting)?;
        owner.changed(self)?;
        loop {
            let until = owner.waits_until();
            let news = self.turn(&poller, until).map_err(waiting)?;
            if let Some(ended) = news.ended {
                return Ok(ended);
            }
            if news.changed {
                owner.changed(self)?;
            } else if news.path {
                owner.look_at_path(self)?;
            }
            if news.reload {
                owner.reload(self)?;
            }
            if until.is_some() {
                let interface = lock(&self.interface);
                let heard = interface.as_ref().map(Interface::heard);
                drop(interface);
                owner.waits(self, &heard.unwrap_or_default())?;
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
    fn turn(&mut self, poller: &Poller, until: Option<Instant>) -> io::Result<News> {
        let sockets = [
            (Some(&self.uapi), UAPI),
            (self.status.as_ref(), STATUS),
            (self.amnezia.as_ref(), AMNEZIA),
        ];
        let sockets = sockets.into_iter();
        let sockets = sockets.filter_map(|(it, token)| Some((it?.socket.as_fd(), token)));
        self.gate.follow(poller, sockets, Instant::now())?;
        let mut timeout = lock(&self.interface).as_ref().and_then(Interface::idle_for);
        if self.busy {
            // Does not wait, as handshake messages are left, but looks at the other descriptors.
            timeout = Some(Duration::ZERO);
        }
        let others = [self.gate.next_deadline(), self.watchdog.due(), until];
        if let Some(at) = others.into_iter().flatten().min() {
            let left = at.saturating_duration_since(Instant::now());
            timeout = Some(timeout.map_or(left, |t| t.min(left)));
        }
        let (mut events, mut ended) = (Vec::new(), None);
        for token in poller.wait(timeout)?.iter() {
            match token {
                INBOX => self.inbox.waker.clear(),
                WAKE => self.wake.clear(),
                NEWS => {
                    let gone = self.hear(&mut events);
                    ended = ended.or(gone);
                }
                UAPI => {
                    let accepted = self.server.accept_uapi(&self.uapi);
                    turn_away(&mut self.gate, accepted, &self.uapi);
                }
                AMNEZIA => {
                    if let Some(listener) = &self.amnezia {
                        let accepted = self.server.accept_uapi(listener);
                        turn_away(&mut self.gate, accepted, listener);
                    }
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
        let signal = self.signals.end().map(Ended::Signal);
        ended = ended.or(signal);
        if self.inbox.device_is_gone() {
            ended = ended.or(Some(Ended::LinkDeleted));
        }
        let reload = self.signals.take_reload();
        let Some(interface) = &mut *lock(&self.interface) else {
            return Ok(News::default());
        };
        for event in events {
            interface.handle(event);
        }
        self.busy = interface.serve(&self.inbox);
        interface.expire();
        self.watchdog
            .turn(Instant::now(), || interface.plane.pulse());
        let news = interface.take_news();
        Ok(News {
            reload,
            ended: news.ended.or(ended),
            ..news
        })
    }

    /// Reads news about links and routes. Returns why the interface ends, if it does.
    fn hear(&mut self, events: &mut Vec<Event>) -> Option<Ended> {
        let (mut links, mut ended) = (false, None);
        loop {
            let news = self.news.next();
            links |= !matches!(
                news,
                Ok(None
                    | Some(
                        LinkEvent::RouteChanged | LinkEvent::RuleChanged | LinkEvent::TableChanged
                    ))
                    | Err(_)
            );
            match news {
                Ok(Some(LinkEvent::LinkChanged { index, up, mtu, .. }))
                    if index == self.ifindex =>
                {
                    // The kernel removes the routes of an interface that goes down.
                    events.extend([Event::Link { up, mtu }, Event::NetworkChanged]);
                }
                // The tunnel's MTU depends on that of its line.
                Ok(Some(LinkEvent::LinkChanged { index, mtu, .. })) => {
                    if self.mtus.insert(index, mtu) != Some(mtu) {
                        events.push(Event::NetworkChanged);
                    }
                }
                Ok(Some(LinkEvent::LinkDeleted { index, .. })) if index == self.ifindex => {
                    let interface = lock(&self.interface);
                    let gone = interface.as_ref().is_none_or(Interface::is_gone);
                    match gone {
                        true => ended = Some(Ended::LinkDeleted),
                        // The descriptor still works, but no more news come from it.
                        false => events.push(Event::LinkMoved),
                    }
                }
                Ok(Some(LinkEvent::LinkDeleted { index, .. })) => {
                    self.mtus.remove(&index);
                }
                Ok(Some(
                    LinkEvent::RouteChanged
                    | LinkEvent::RuleChanged
                    | LinkEvent::TableChanged
                    | LinkEvent::AddressChanged,
                )) => {
                    events.push(Event::NetworkChanged);
                }
                Ok(Some(LinkEvent::Overrun)) => {
                    events.push(Event::NetworkChanged);
                    let link = Netlink::open().and_then(|mut n| n.link_by_index(self.ifindex));
                    if let Ok(link) = link {
                        let (up, mtu) = (link.up, link.mtu);
                        events.push(Event::Link { up, mtu });
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
        if links {
            events.push(Event::LinksChanged);
        }
        let removed = self.uapi.is_removed().then_some(Ended::SocketRemoved);
        ended.or(removed)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Threads of clients may still share the lock, so the interface is taken out and ends here.
        let interface = lock(&self.interface).take();
        if let Some(mut interface) = interface {
            interface.end();
        }
    }
}

/// Shuts the gate if the listener cannot accept a connection.
fn turn_away(gate: &mut Gate, accepted: io::Result<()>, listener: &Listener) {
    if let Err(error) = accepted {
        gate.failed(&error, Instant::now(), || {
            turned_away(listener.socket.accept())
        });
    }
}

fn waiting(source: io::Error) -> DaemonError {
    DaemonError::Io {
        what: "waiting",
        source,
    }
}
