//! Runs the machine of a client or a server: waits for its events, and moves packets.

mod control;
mod lines;
mod outside;
mod packets;

use super::awaited::{self, Awaited};
use super::client::{ClientMachine, ClientOptions, ServerLines};
use super::machine::{Cx, Event, Machine};
use super::network::{self, Network, NetworkError};
use super::server::{Answering, ServerMachine};
use super::settings::{self, PasswordError};
use crate::openvpn::status_socket::StatusSocket;
use crate::status::Status;
use crate::tun_probe::TunProbe;
use crate::uplink::Uplink;
use crate::watchdog::Watchdog;
use crate::wireguard::Signals;
use ::config::pptp::{Client, Pptp, Role, Server};
use ::lines::names::Resolver;
use ::pptp::session::{ClientSettings, StartError};
use engine::interface::{Reader, Writer};
use host::gate::Gate;
use host::{ApplyError, SharedManager, background, logging, notify, privileges};
use lines::Sockets;
use netio::gre::Received;
use netio::netlink::{Monitor, NetlinkError, Watch};
use netio::poll::{Poller, Waker};
use netio::tcp::{Listener, TcpError, TcpOptions};
use netio::tun::{TunError, TunOptions};
use outside::Outside;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

const SIGNAL: u64 = 0;
const TUN: u64 = 1;
const GRE: u64 = 2;
const NEWS: u64 = 3;
const LOOKUP: u64 = 4;
const LISTENER: u64 = 5;
const STATUS: u64 = 6;
/// First poller key for the sockets of lines, and for the connections that probe a server over them.
const LINES: u64 = 16;
const KNOCKS: u64 = 32;
/// First poller key for control connections.
const STREAMS: u64 = 64;
const _: () = assert!(LINES + plane::LINES_MAX as u64 <= KNOCKS);

/// Time without a tunnel after which the log names the likely reasons.
const UNANSWERED: Duration = Duration::from_secs(5);

/// A documentation address (RFC 5737), which only a default route covers.
const ANYWHERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// Bytes of GRE that the kernel may queue: some ten milliseconds at a gigabit.
const BUFFER: usize = 2 << 20;

/// Command-line options for one configuration file.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// Leave the host's name servers as they are.
    pub no_dns: bool,
    /// Send and receive only through this device.
    pub bind_device: Option<String>,
    /// Go into the background once the tunnel is up.
    pub daemon: bool,
    /// How long the parent process waits for the tunnel; `None` means without limit.
    pub wait_at_most: Option<Duration>,
    /// The program that configures the interface in place of Millrace, if any.
    pub manager: Option<SharedManager>,
}

/// Why a tunnel did not come up, or ended.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A setting is not allowed, or contradicts another.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The password cannot be read.
    #[error(transparent)]
    Password(#[from] PasswordError),
    /// The interface cannot be made.
    #[error(transparent)]
    Tun(#[from] TunError),
    /// The raw socket for GRE cannot be opened.
    #[error("cannot open a raw socket for GRE: {0} (run as root or with CAP_NET_RAW)")]
    Gre(io::Error),
    /// The listening TCP socket cannot be opened.
    #[error(transparent)]
    Listen(#[from] TcpError),
    /// The host's network cannot be configured.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// Cleaning up after an earlier run failed.
    #[error(transparent)]
    Recovery(#[from] ApplyError),
    /// The kernel's news about the host's network cannot be read.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// An operation on descriptors or signals failed.
    #[error("{what}: {source}")]
    Io {
        /// The operation that failed.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The client or the server ended for this reason.
    #[error("{0}")]
    Ended(String),
}

fn io_error(what: &'static str) -> impl Fn(io::Error) -> RunError {
    move |source| RunError::Io { what, source }
}

/// Brings up the tunnel of a configuration file, and serves it until a signal ends it or it cannot come up.
///
/// # Errors
/// See [`RunError`]. Nothing is left behind.
pub fn run(model: &Pptp, options: &RunOptions) -> Result<(), RunError> {
    log::warn!(
        "PPTP protects nothing: whoever records one login can decrypt all traffic, and packets can be changed on the \
         path"
    );
    match &model.role {
        Role::Client(client) => {
            let settings = client_settings(model, client)?;
            let at = ClientOptions {
                host: client.host.clone(),
                port: client.port,
                reorder: model.reorder,
            };
            if options.bind_device.is_some() && !model.lines.lines.is_empty() {
                let words = "--bind-device and [[uplink]] exclude each other; remove one of them";
                return Err(RunError::Ended(words.to_owned()));
            }
            let lines = ServerLines::new(&model.lines);
            let machine = ClientMachine::new(settings, at, settings::entropy());
            let machine = machine.with_server_lines(lines);
            let executor = Executor::new(machine, model, options)?;
            executor.map_or(Ok(()), Executor::serve)
        }
        Role::Server(server) => {
            let machine = server_machine(model, server)?;
            let Some(mut executor) = Executor::new(machine, model, options)? else {
                return Ok(());
            };
            match executor
                .outside
                .network
                .set(network::of_server(model, server))
            {
                // The manager has received the settings; the next change of the host's network applies the rest
                // again.
                Err(NetworkError::Managed(error)) => log::warn!("{}: {error}", model.interface),
                other => other?,
            }
            executor.outside.is_up();
            executor.serve()
        }
    }
}

/// Rehearses a start up to its first socket, and changes nothing.
///
/// # Errors
/// The reason for which a real start would fail.
pub fn rehearse(model: &Pptp) -> Result<(), RunError> {
    match &model.role {
        Role::Client(client) => client_settings(model, client).map(drop),
        Role::Server(server) => server_machine(model, server).map(drop),
    }
}

fn client_settings(model: &Pptp, client: &Client) -> Result<ClientSettings, RunError> {
    let mut settings = settings::client(model, client)?;
    settings.common.check()?;
    settings.common.link.lines = !model.lines.lines.is_empty();
    Ok(settings)
}

fn server_machine(model: &Pptp, server: &Server) -> Result<ServerMachine, RunError> {
    let mut settings = settings::server(model, server);
    let answering = Answering::new(&model.lines);
    settings.common.link.lines = answering.is_some();
    let users = Box::new(settings::users(server));
    let machine = ServerMachine::new(settings, users, settings::entropy(), model.reorder)?;
    Ok(machine.answering(answering))
}

/// Maximum number of addresses of one name that are tried.
const ADDRESSES_MAX: usize = 16;

/// A machine, with the sockets and timers that it needs.
struct Executor<'m, M> {
    machine: M,
    outside: Outside<'m>,
    received: Received,
    /// Reads packets from the interface.
    reader: Reader,
    listener: Option<Listener>,
    gate: Gate,
    signals: Signals,
    stopping: bool,
    status: Option<StatusSocket>,
    news: Monitor,
    watchdog: Watchdog,
}

impl<'m, M: Machine> Executor<'m, M> {
    /// Makes the interface and opens the sockets, once the device to which they are bound exists. Returns `None` if a
    /// signal ended the program before that.
    fn new(machine: M, model: &'m Pptp, options: &RunOptions) -> Result<Option<Self>, RunError> {
        let signals = Signals::catch().map_err(io_error("signals"))?;
        // Routes that the last program has left are needed until this tunnel is up.
        if !netio::tun::has_inherited() && host::recover(&model.interface)? {
            log::info!("{}: undid what an earlier run left behind", model.interface);
        }
        let (device, runs_programs) = match &model.role {
            Role::Client(client) => (
                options.bind_device.as_deref(),
                client.dns && !options.no_dns && options.manager.is_none(),
            ),
            Role::Server(_) => (options.bind_device.as_deref(), false),
        };
        // With a manager, no parent process waits for the tunnel.
        let daemon = options.daemon && options.manager.is_none();
        let awaited =
            device.map(|device| awaited::wait(device, &model.interface, daemon, &signals));
        let awaited = awaited.transpose().map_err(io_error("waiting"))?;
        if awaited == Some(Awaited::Ended) {
            return Ok(None);
        }
        let listener = match &model.role {
            Role::Client(_) => None,
            Role::Server(server) => {
                let tcp = TcpOptions {
                    device: options.bind_device.clone(),
                    ..TcpOptions::default()
                };
                Some(Listener::new(server.listen.into(), &tcp)?)
            }
        };
        let address = match &model.role {
            Role::Server(server) => Some(*server.listen.ip()).filter(|ip| !ip.is_unspecified()),
            Role::Client(_) => None,
        };
        let gre = Sockets::open(&model.lines, address, device).map_err(RunError::Gre)?;
        let tested = TunProbe::of(TunOptions::ALL).verdict();
        let tun = tested.create(&model.interface, TunOptions::ALL)?;
        if let Role::Server(server) = &model.role {
            host::tunnel_devices::mark_server(tun.name(), [server.listen.port()]);
        }
        let news = Monitor::open(Watch::ALL)?;
        let poller = Poller::new().map_err(io_error("epoll"))?;
        let wake = Waker::new().map_err(io_error("eventfd"))?;
        let resolver = Resolver::new(Arc::new(wake), &model.lines, device);
        let add = || -> io::Result<()> {
            poller.add(&signals.pipe, SIGNAL)?;
            poller.add(&tun, TUN)?;
            gre.only().map_or(Ok(()), |only| poller.add(only, GRE))?;
            poller.add(&news, NEWS)?;
            poller.add(&*resolver.wake, LOOKUP)
        };
        add().map_err(io_error("epoll"))?;
        let status = StatusSocket::open(&model.interface, "pptp", &poller, STATUS)
            .inspect_err(|e| log::warn!("cannot open the status socket: {e}"))
            .ok();
        if !runs_programs {
            privileges::drop_privileges();
        }
        let uplink = match &model.role {
            Role::Client(_) if model.lines.lines.is_empty() => {
                let leaving = outside::leaving(options, &tun);
                Some(Uplink::towards(ANYWHERE.into(), leaving))
            }
            _ => None,
        };
        let outside = Outside {
            model,
            options: options.clone(),
            tun,
            writer: Writer::new(),
            gre,
            streams: BTreeMap::new(),
            resolver,
            poller,
            network: Network::new(&model.interface, options.manager.as_ref()),
            uplink,
            ended: None,
            told: daemon && awaited == Some(Awaited::Late),
            wait_until: options.wait_at_most.map(|it| Instant::now() + it),
            called: matches!(model.role, Role::Client(_)).then(Instant::now),
            explain_at: match &model.role {
                Role::Client(client) => {
                    let (name, host, port) = (&model.interface, &client.host, client.port);
                    log::info!("{name}: connecting to {host}, TCP port {port}");
                    Some(Instant::now() + UNANSWERED)
                }
                Role::Server(_) => None,
            },
        };
        Ok(Some(Self {
            machine,
            outside,
            received: Received::new(),
            reader: Reader::new(),
            listener,
            gate: Gate::default(),
            signals,
            stopping: false,
            status,
            news,
            watchdog: Watchdog::new(Instant::now()),
        }))
    }

    /// Serves until there is nothing left to do.
    fn serve(mut self) -> Result<(), RunError> {
        let now = Instant::now();
        self.tell(Event::Start, now);
        self.flush(now);
        let result = loop {
            if let Some(ended) = self.outside.ended.take() {
                break ended;
            }
            if let Err(error) = self.turn() {
                break Err(error);
            }
        };
        self.outside.network.undo();
        result
    }

    /// Waits for something to do and does it.
    fn turn(&mut self) -> Result<(), RunError> {
        let waiting = io_error("waiting");
        if let Some(listener) = &self.listener {
            use std::os::fd::AsFd as _;
            let sockets = [(listener.as_fd(), LISTENER)];
            let followed = self
                .gate
                .follow(&self.outside.poller, sockets, Instant::now());
            followed.map_err(&waiting)?;
        }
        let status = self.status.as_ref().and_then(StatusSocket::next_deadline);
        let own = [
            self.gate.next_deadline(),
            self.watchdog.due(),
            self.outside.wait_until,
            self.outside.explain_at,
            self.outside.uplink.as_ref().and_then(|it| it.look_at),
        ];
        let own = own.into_iter().flatten().min();
        let deadlines = [self.machine.deadline(), status, own];
        let deadline = deadlines.into_iter().flatten().min();
        let timeout = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let ready = self.outside.poller.wait(timeout).map_err(&waiting)?;
        let now = Instant::now();
        for token in ready.iter() {
            match token {
                SIGNAL => self.signal(now),
                TUN => self.pump_tun(now)?,
                GRE => self.pump_gre(now),
                NEWS => self.hear(now)?,
                LOOKUP => {
                    self.outside.resolver.wake.clear();
                    while let Some(((), found)) = self.outside.resolver.next() {
                        self.tell(Event::LookedUp(found.map(v4)), now);
                    }
                }
                LISTENER => self.accept(now),
                STATUS => self.show(),
                line if (LINES..KNOCKS).contains(&line) => self.pump_line(line - LINES, now),
                knock if (KNOCKS..STREAMS).contains(&knock) => self.knocked(knock - KNOCKS, now),
                stream => {
                    // Reads packets first: those that arrived before the call ended still count.
                    self.pump_gre(now);
                    self.pump_lines(now);
                    self.control(stream - STREAMS, now);
                }
            }
            self.flush(now);
        }
        // Moving packets is this thread's work too.
        self.watchdog.turn(now, || true);
        self.await_server(now);
        if self.outside.has_moved(now) {
            self.tell(Event::Moved, now);
        }
        if self.machine.deadline().is_some_and(|at| at <= now) {
            self.release(now);
            self.tell(Event::Deadline, now);
        }
        self.flush(now);
        Ok(())
    }

    fn tell(&mut self, event: Event<'_>, now: Instant) {
        let host = &mut self.outside;
        self.machine.handle(event, &mut Cx { now, host });
    }

    /// Sends the queued packets and messages.
    fn flush(&mut self, now: Instant) {
        loop {
            // Sends packets first: a packet that ends a call carries the reason, the control connection only closes.
            self.outside.gre.flush();
            if !self.flush_streams(now) {
                return;
            }
        }
    }

    /// Explains why the tunnel may not be up yet, and stops waiting at the time that the user set.
    fn await_server(&mut self, now: Instant) {
        let outside = &mut self.outside;
        let name = &outside.model.interface;
        if outside.explain_at.take_if(|at| *at <= now).is_some() {
            let words = format!(
                "no connection for {} s: the server may be down, or a firewall may drop TCP port 1723 or GRE (IP \
                 protocol 47), which many routers forward only with PPTP passthrough; still trying",
                UNANSWERED.as_secs()
            );
            log::warn!("{name}: {words}");
            notify::ready(&words);
        }
        if outside.wait_until.take_if(|at| *at <= now).is_some()
            && let Some(waited) = outside.options.wait_at_most
            && outside.options.daemon
            && !outside.told
        {
            host::terminal::note(background::still_trying(name, waited, background::OUTSIDE));
            outside.let_go(background::not_yet);
        }
    }

    fn signal(&mut self, now: Instant) {
        self.signals.drain();
        if self.signals.take_reload() {
            logging::reopen();
            // Ends the call, so that the next one uses the settings that the manager has changed.
            let manager = self.outside.options.manager.as_ref();
            if manager.is_some_and(|it| it.wants_reload()) && !self.stopping {
                self.stopping = true;
                self.tell(Event::Stop, now);
            }
        }
        if self.signals.end().is_some() {
            notify::stopping();
            // A second signal ends the program at once.
            if std::mem::replace(&mut self.stopping, true) {
                self.outside.ended = Some(Ok(()));
            } else {
                self.tell(Event::Stop, now);
            }
        }
    }

    /// Handles news of the host's network.
    fn hear(&mut self, now: Instant) -> Result<(), RunError> {
        use netio::netlink::Event as News;
        let (mut changed, mut any) = (false, false);
        loop {
            match self.news.next() {
                Ok(Some(
                    News::RouteChanged | News::RuleChanged | News::AddressChanged | News::Overrun,
                )) => {
                    (changed, any) = (true, true);
                }
                Ok(Some(_)) => any = true,
                Ok(None) => break,
                Err(error) => {
                    log::warn!("{error}");
                    break;
                }
            }
        }
        if any {
            if let Some(uplink) = &mut self.outside.uplink {
                uplink.changed(now);
            }
            self.tell(Event::LinksChanged, now);
        }
        if changed {
            self.outside.network.follow();
        }
        if self.outside.tun.current_name().is_err() {
            return Err(RunError::Ended("the interface was removed".to_owned()));
        }
        Ok(())
    }

    /// Writes the status to each connection of the status socket.
    fn show(&mut self) {
        let outside = &self.outside;
        let mut status = Status {
            mtu: outside.network.mtu,
            warnings: outside.network.warnings(),
            workers: 1,
            bound_device: outside.options.bind_device.clone(),
            ..Status::default()
        };
        if let Role::Server(server) = &outside.model.role {
            status.listen_tcp = vec![server.listen.port()];
            status.addresses = vec![server.address.0.to_string()];
        }
        self.machine.describe(&mut status);
        let drops = &mut status.dataplane.drops;
        for (name, count) in [
            ("send_failed", outside.gre.unsent),
            ("tun_write", outside.writer.refused()),
            ("tun_malformed", self.reader.malformed()),
            ("truncated", self.received.dropped),
        ] {
            *drops.entry(name.to_owned()).or_default() += count;
        }
        if let Some(socket) = &mut self.status {
            socket.serve(&outside.poller, || status.clone());
        }
    }
}

fn v4(all: Vec<SocketAddr>) -> Vec<Ipv4Addr> {
    let v4 = |address: SocketAddr| match address.ip() {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    };
    all.into_iter().filter_map(v4).take(ADDRESSES_MAX).collect()
}
