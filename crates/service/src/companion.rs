//! The companion of a WireGuard interface that Millrace does not serve: the kernel's, or that of another program. It
//! exchanges post-quantum keys with the companions or Millraces at the other ends, inside the tunnel, and sets each
//! result as the peer's preshared key.
//!
//! The interface tells neither when a handshake begins nor under which key. So the companion looks at it every few
//! seconds: a handshake later than the last change of the key was under the new one. Everything runs on one thread.

mod interface;
mod peers;
mod socket;
mod stall;
mod table;

use crate::watchdog::Watchdog;
use crate::wireguard::Signals;
use host::{background, logging, privileges};
use interface::Interface;
use netio::netlink::{Netlink, NetlinkError};
use netio::poll::Poller;
use peers::{Action, Peers};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant, SystemTime};

pub use interface::InterfaceError;
pub use peers::Member;

const SIGNAL: u64 = 0;
/// First poller key of the sockets.
const SOCKETS: u64 = 1;

/// Time between two looks at the interface.
const LOOK: Duration = Duration::from_secs(5);

/// Time until the next look after a change, and while handshakes seem to fail.
const LOOK_SOON: Duration = Duration::from_secs(1);

/// Datagrams that are read in a row.
const DATAGRAMS: usize = 64;

/// Headers of IPv6 and UDP, in bytes.
const HEADERS: usize = 48;

/// Why a companion could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum CompanionError {
    /// The interface could not be read or changed.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The interface's MTU could not be read.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// The interface's file cannot be used.
    #[error("{0}")]
    File(String),
    /// No peer takes part.
    #[error(
        "no peer of {0} takes part; write `#! PostQuantum = prefer` below its [Peer] in the interface's file, or \
         give --all for every peer in the file"
    )]
    NoPeer(String),
    /// An operation on sockets or signals failed.
    #[error("{what}: {source}")]
    Io {
        /// The operation that failed.
        what: String,
        /// The system's error.
        source: io::Error,
    },
}

fn io_error(what: impl Into<String>) -> impl FnOnce(io::Error) -> CompanionError {
    let what = what.into();
    move |source| CompanionError::Io { what, source }
}

/// Options of a companion.
pub struct Options<'a> {
    /// The interface.
    pub ifname: String,
    /// UDP port of the exchange at this end.
    pub port: u16,
    /// Reads the peers that take part from the file, at the start and on SIGHUP.
    pub members: &'a dyn Fn() -> Result<Vec<Member>, String>,
}

/// Runs a companion until a signal stops it.
///
/// # Errors
/// See [`CompanionError`].
pub fn run(options: &Options<'_>) -> Result<(), CompanionError> {
    let mut companion = Companion::start(options)?;
    while companion.turn()? {}
    Ok(())
}

struct Companion<'a> {
    options: &'a Options<'a>,
    interface: Interface,
    peers: Peers,
    /// IPv4 and IPv6; the kernel may have no IPv6.
    sockets: [Option<UdpSocket>; 2],
    poller: Poller,
    signals: Signals,
    watchdog: Watchdog,
    look_at: Instant,
}

impl<'a> Companion<'a> {
    fn start(options: &'a Options<'a>) -> Result<Self, CompanionError> {
        let ifname = &options.ifname;
        let signals = Signals::catch().map_err(io_error("signals"))?;
        let poller = Poller::new().map_err(io_error("epoll"))?;
        let mut interface = Interface::open(ifname)?;
        let mut netlink = Netlink::open()?;
        let index = netlink.index_of(ifname)?;
        let room = (netlink.mtu(index)? as usize).saturating_sub(HEADERS);
        let port = options.port;
        let busy = "end the companion that runs there, or give --port";
        let failed = || io_error(format!("cannot open UDP port {port} on {ifname} ({busy})"));
        let v4 = socket::open(ifname, false, port).map_err(failed())?;
        let v6 = socket::open(ifname, true, port);
        let sockets = [Some(v4), v6.ok()];
        poller
            .add(&signals.pipe, SIGNAL)
            .map_err(io_error("epoll"))?;
        for (token, socket) in (SOCKETS..).zip(&sockets) {
            if let Some(socket) = socket {
                poller.add(socket, token).map_err(io_error("epoll"))?;
            }
        }
        let members = (options.members)().map_err(CompanionError::File)?;
        let mut peers = Peers::new(ifname, room, members);
        let now = Instant::now();
        // Only setting a kernel's key needs a privilege from here on. Datagrams come from strangers behind the peers.
        match interface {
            Interface::Kernel(_) => privileges::keep_network_in_this_thread(),
            Interface::Program(_) => privileges::confine_this_thread(),
        }
        let actions = peers.look(&interface.read()?, (now, SystemTime::now()));
        if peers.is_empty() {
            return Err(CompanionError::NoPeer(ifname.clone()));
        }
        let mut companion = Self {
            options,
            interface,
            peers,
            sockets,
            poller,
            signals,
            watchdog: Watchdog::new(now),
            look_at: now + LOOK_SOON,
        };
        companion.carry_out(actions)?;
        background::start_is_over();
        host::notify::ready("exchanging keys");
        Ok(companion)
    }

    /// Waits for an event and handles it. Returns whether to continue.
    fn turn(&mut self) -> Result<bool, CompanionError> {
        let deadlines = [
            self.peers.next_deadline(),
            self.watchdog.due(),
            Some(self.look_at),
        ];
        let deadline = deadlines.into_iter().flatten().min();
        let timeout = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let ready = self.poller.wait(timeout).map_err(io_error("waiting"))?;
        for token in ready.iter() {
            match token {
                SIGNAL => self.signals.drain(),
                socket => self.receive((socket - SOCKETS) as usize)?,
            }
        }
        if self.signals.end().is_some() {
            return Ok(false);
        }
        if self.signals.take_reload() {
            self.reload();
        }
        let now = Instant::now();
        self.watchdog.turn(now, || true);
        let actions = self.peers.expired(now);
        self.carry_out(actions)?;
        if now >= self.look_at {
            self.look()?;
        }
        Ok(true)
    }

    fn look(&mut self) -> Result<(), CompanionError> {
        let device = self.interface.read()?;
        let now = Instant::now();
        let actions = self.peers.look(&device, (now, SystemTime::now()));
        self.carry_out(actions)?;
        let soon = self.peers.may_stall();
        self.look_at = now + if soon { LOOK_SOON } else { LOOK };
        Ok(())
    }

    /// Reads the datagrams that wait, at most [`DATAGRAMS`].
    fn receive(&mut self, socket: usize) -> Result<(), CompanionError> {
        let mut buffer = [0; postquantum::message::DATAGRAM_MAX + 1];
        for _ in 0..DATAGRAMS {
            let Some(socket) = &self.sockets[socket] else {
                break;
            };
            let Ok((length, source)) = socket.recv_from(&mut buffer) else {
                break;
            };
            let now = Instant::now();
            let actions = self.peers.received(source.ip(), &buffer[..length], now);
            self.carry_out(actions)?;
        }
        Ok(())
    }

    fn carry_out(&mut self, actions: Vec<Action>) -> Result<(), CompanionError> {
        for action in actions {
            match action {
                Action::Send(target, datagram) => self.send(target, &datagram),
                Action::Use(peer, key) => {
                    self.interface.set_preshared_key(&peer, &key)?;
                    self.look_at = self.look_at.min(Instant::now() + LOOK_SOON);
                }
            }
        }
        Ok(())
    }

    /// Sends a datagram. A loss is repaired by its repetition.
    fn send(&self, target: SocketAddr, datagram: &[u8]) {
        let socket = &self.sockets[usize::from(target.is_ipv6())];
        let Some(socket) = socket else { return };
        if let Err(error) = socket.send_to(datagram, target) {
            log::debug!("{}: sending to {target}: {error}", self.options.ifname);
        }
    }

    /// Handles SIGHUP. If the file cannot be read, everything continues as before.
    fn reload(&mut self) {
        logging::reopen();
        match (self.options.members)() {
            Ok(members) => {
                self.peers.set_members(members);
                self.look_at = Instant::now();
                log::info!("{}: the file was read again", self.options.ifname);
            }
            Err(error) => log::error!("{error}; the old configuration stays in use"),
        }
    }
}
