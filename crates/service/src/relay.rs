//! A relay: forwards tunnel datagrams from clients that hold a key to one target, and the target's answers back.
//!
//! [`Table`] decides which datagram goes where; this module holds the sockets. Each client has its own port towards the
//! target. The target thus sees separate senders, and the port of an answer names the client. The sockets are not
//! connected, so they stay usable when the address of the host or the target changes.

mod forward;
mod stamps;
mod target;

use crate::watchdog::Watchdog;
use crate::wireguard::Signals;
use crate::wireguard::sockets::SocketPlan;
use config::lines::Lines;
use config::relay as model;
use config::settings::DataplaneSettings;
use forward::Forwarder;
use host::{background, logging, privileges};
use lines::names::{self, Resolver};
use lines::relay::{Client, Key, Rates, Table};
use netio::poll::{Poller, Waker};
use netio::udp::{Family, SelfTest, SocketError, UdpSocket};
use signal_hook::consts::SIGUSR1;
use stamps::Stamps;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use target::Target;

const SIGNAL: u64 = 0;
const WAKE: u64 = 1;
/// First poller key of the sockets that clients send to.
const LISTEN: u64 = 2;
/// First poller key of the sockets towards the target: two for each client.
const LINKS: u64 = 16;

/// Why a relay could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// Another program uses the port.
    #[error("UDP port {0} is in use by another program: choose another Listen")]
    PortInUse(u16),
    /// A socket cannot be opened.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// An operation on descriptors or signals failed.
    #[error("{what}: {source}")]
    Io {
        /// The operation that failed.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

fn io_error(what: &'static str) -> impl Fn(io::Error) -> RelayError + Copy {
    move |source| RelayError::Io { what, source }
}

/// The sockets of one client towards the target.
#[derive(Debug, Default)]
struct Link {
    v4: Option<UdpSocket>,
    v6: Option<UdpSocket>,
}

impl Link {
    fn of(&self, family: Family) -> Option<&UdpSocket> {
        match family {
            Family::V4 => self.v4.as_ref(),
            Family::V6 => self.v6.as_ref(),
        }
    }

    fn sockets(&self) -> impl Iterator<Item = &UdpSocket> {
        self.v4.iter().chain(&self.v6)
    }
}

struct Relay<'a> {
    model: model::Relay,
    again: &'a dyn Fn() -> Result<model::Relay, String>,
    plan: SocketPlan,
    forwarder: Forwarder,
    stamps: Option<Stamps>,
    target: Target,
    resolver: Resolver,
    wake: Arc<Waker>,
    poller: Poller,
    signals: Signals,
    report: Arc<AtomicBool>,
    watchdog: Watchdog,
}

/// Runs a relay until a signal stops it. On SIGHUP `again` reads the configuration file again, and the log gets the
/// result.
///
/// # Errors
/// See [`RelayError`].
pub fn run(
    model: model::Relay,
    settings: &DataplaneSettings,
    again: &dyn Fn() -> Result<model::Relay, String>,
) -> Result<(), RelayError> {
    let mut relay = Relay::start(model, settings, again)?;
    while relay.turn()? {}
    relay.forwarder.tell_counters();
    Ok(())
}

fn clients(model: &model::Relay) -> Vec<Client> {
    let client = |it: &model::Client| Client {
        name: it.name.clone(),
        key: Key::new(it.key.as_bytes()),
        rates: Rates::of(it.rate, it.packets),
    };
    model.clients.iter().map(client).collect()
}

/// Opens the file of hello stamps for a relay that listens at this address.
fn stamps_of(listen: &model::Listen, table: &mut Table) -> Option<Stamps> {
    let address = listen
        .address
        .map_or_else(|| "any".to_owned(), |it| it.to_string());
    let path = format!("/run/millrace/relay-{address}-{}.stamps", listen.port);
    let opened = Stamps::open(Path::new(&path), table);
    let failed = |error: &io::Error| {
        log::info!("{path}: {error}; a hello that was recorded before a restart may be taken once");
    };
    opened.inspect_err(failed).ok()
}

impl<'a> Relay<'a> {
    fn start(
        model: model::Relay,
        settings: &DataplaneSettings,
        again: &'a dyn Fn() -> Result<model::Relay, String>,
    ) -> Result<Self, RelayError> {
        let signals = Signals::catch().map_err(io_error("signals"))?;
        let report = signals.also(SIGUSR1).map_err(io_error("signals"))?;
        let mut plan = SocketPlan::new(settings, None);
        if plan.gso
            && let SelfTest::Failed(why) = netio::udp::self_test()
        {
            log::warn!("udp-gso: this kernel damages segmented datagrams ({why}); off");
            plan.gso = false;
        }
        let poller = Poller::new().map_err(io_error("epoll"))?;
        let wake = Arc::new(Waker::new().map_err(io_error("eventfd"))?);
        let listen = SocketPlan {
            port: model.listen.port,
            address: model.listen.address,
            ..plan.clone()
        };
        let listen = listen.open().map_err(|error| match error {
            SocketError::PortInUse(port) => RelayError::PortInUse(port),
            error => error.into(),
        })?;
        let listen = Link {
            v4: listen.v4,
            v6: listen.v6,
        };
        let add = || -> io::Result<()> {
            poller.add(&signals.pipe, SIGNAL)?;
            poller.add(&*wake, WAKE)?;
            (LISTEN..)
                .zip(listen.sockets())
                .try_for_each(|(token, it)| poller.add(it, token))
        };
        add().map_err(io_error("epoll"))?;
        let now = Instant::now();
        let mut table = Table::new(clients(&model), now);
        let stamps = stamps_of(&model.listen, &mut table);
        let mut relay = Self {
            forwarder: Forwarder::new(table, listen),
            stamps,
            target: Target::new(&model.target, now),
            resolver: Resolver::new(Arc::clone(&wake), &Lines::default(), None),
            model,
            again,
            plan,
            wake,
            poller,
            signals,
            report,
            watchdog: Watchdog::new(now),
        };
        let none = vec![None; relay.model.clients.len()];
        relay.link(&none)?;
        // Drops privileges before the relay reads hostile datagrams; it needs none from now on.
        privileges::drop_privileges();
        privileges::confine_this_thread();
        relay.aim();
        let (count, target) = (relay.model.clients.len(), &relay.model.target);
        let port = relay.model.listen.port;
        log::info!("relaying from port {port} to {target}, for {count} client(s)");
        background::start_is_over();
        host::notify::ready("relaying");
        Ok(relay)
    }

    /// Assigns each client its sockets: the old ones of its key, by number, or new ones.
    fn link(&mut self, before: &[Option<usize>]) -> Result<(), RelayError> {
        let mut old = std::mem::take(&mut self.forwarder.links);
        for link in old.iter().flat_map(Link::sockets) {
            // The tokens have changed.
            self.poller.remove(link).map_err(io_error("epoll"))?;
        }
        for (number, before) in before.iter().enumerate() {
            let kept = before.and_then(|at| old.get_mut(at)).map(std::mem::take);
            let link = match kept {
                Some(link) => link,
                None => {
                    let opened = self.plan.open()?;
                    Link {
                        v4: opened.v4,
                        v6: opened.v6,
                    }
                }
            };
            let tokens = LINKS + 2 * number as u64..;
            for (token, socket) in tokens.zip(link.sockets()) {
                self.poller.add(socket, token).map_err(io_error("epoll"))?;
            }
            self.forwarder.links.push(link);
        }
        Ok(())
    }

    /// Sends to the target's current address from now on.
    fn aim(&mut self) {
        let (before, now) = (self.forwarder.target, self.target.address());
        if before != now {
            if let Some(addr) = now.filter(|_| self.target.is_name()) {
                log::info!("the target is at {addr}");
            }
            self.forwarder.target = now;
        }
    }

    /// Waits for an event and handles it. Returns whether to continue.
    fn turn(&mut self) -> Result<bool, RelayError> {
        let deadlines = [
            self.forwarder.next_deadline(),
            self.target.due(),
            self.watchdog.due(),
        ];
        let deadline = deadlines.into_iter().flatten().min();
        let timeout = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let ready = self.poller.wait(timeout).map_err(io_error("waiting"))?;
        for token in ready.iter() {
            match token {
                SIGNAL => self.signals.drain(),
                WAKE => self.wake.clear(),
                LISTEN..LINKS => self.forwarder.serve_clients((token - LISTEN) as usize),
                link => self
                    .forwarder
                    .serve_target((link - LINKS) as usize / 2, link % 2 == 1),
            }
        }
        if self.signals.end().is_some() {
            return Ok(false);
        }
        if self.signals.take_reload() {
            self.reload()?;
        }
        if self.report.swap(false, Ordering::Relaxed) {
            self.forwarder.tell_counters();
        }
        if let Some(stamps) = &mut self.stamps {
            stamps.follow(&self.forwarder.table);
        }
        let now = Instant::now();
        self.forwarder.expire(now);
        self.watchdog.turn(now, || true);
        while let Some((lookup, found)) = self.resolver.next() {
            self.target.looked_up(&lookup, found, now);
        }
        if let Some(lookup) = self.target.expire(self.forwarder.moved(), now) {
            self.resolver.look_up(lookup);
        }
        if let Some((name, address)) = self.target.take_good() {
            names::keep(&name, address);
        }
        self.aim();
        Ok(true)
    }

    /// Handles SIGHUP. If the file cannot be read, everything continues as before.
    fn reload(&mut self) -> Result<(), RelayError> {
        logging::reopen();
        let model = match (self.again)() {
            Ok(model) => model,
            Err(error) => {
                log::error!("{error}; going on as before");
                return Ok(());
            }
        };
        let now = Instant::now();
        let before = self.forwarder.table.replace(clients(&model), now);
        self.link(&before)?;
        if model.target != self.model.target {
            self.target = Target::new(&model.target, now);
        }
        if model.listen != self.model.listen {
            log::warn!("another Listen is used from the next start on");
        }
        let (count, target) = (model.clients.len(), &model.target);
        log::info!("the file was read again: to {target}, for {count} client(s)");
        self.model = model;
        Ok(())
    }
}
