//! Many WireGuard clients that connect to one server at the same moment, as after an outage.
//!
//! Each client runs the protocol on a socket and an address of its own, because a server under load counts handshakes
//! by address. The clients have no interfaces: only the server is measured.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crypto::aead;
use crypto::x25519::{PrivateKey, PublicKey};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use plane::{PeerId, SessionKeys};
use wireguard::message::TAG_LEN;
use wireguard::{Activity, DATA_MIN_LEN, DataHeader, DataKeys, Device, Output};

use super::Times;
use crate::peer::{Keys, WgPeer};
use crate::{Host, LabError};

/// Maximum number of clients: one for each address of a 16-bit network.
const CLIENTS_MAX: u32 = 1 << 16;
/// The network of the clients' addresses, and its prefix.
const NETWORK: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 99, 0, 0), 16);
/// The clients' addresses inside the tunnel.
const INNER: Ipv4Addr = Ipv4Addr::new(10, 98, 0, 0);
/// Interval between two checks for clients that must retry; the protocol's timers are seconds long.
const LOOK: Duration = Duration::from_millis(50);
/// Clients that start between two checks for incoming datagrams.
const BURST: usize = 16;
/// Descriptors that this process needs besides the clients' sockets.
const DESCRIPTORS: u64 = 256;

/// Clients of one server.
pub struct WgClients {
    clients: Vec<Client>,
}

impl fmt::Debug for WgClients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WgClients({})", self.clients.len())
    }
}

impl WgClients {
    /// Makes `count` clients, 65,536 at most, of the server with these keys.
    ///
    /// # Errors
    /// [`LabError::Load`] if the server's public key is invalid.
    pub fn new(count: u32, server: &Keys) -> Result<Self, LabError> {
        let wrong = |what: &str| {
            LabError::load("make clients")(io::Error::new(io::ErrorKind::InvalidInput, what))
        };
        let key = STANDARD.decode(&server.public).ok();
        let key: [u8; 32] = key
            .and_then(|key| key.try_into().ok())
            .ok_or_else(|| wrong("the server's public key is none"))?;
        let clients = (0..count.min(CLIENTS_MAX))
            .map(|number| Client::new(number, key.into()))
            .collect::<Option<_>>()
            .ok_or_else(|| wrong("a client has the server's key"))?;
        Ok(Self { clients })
    }

    /// The clients as peers for the server's configuration: the public key and inner address of each.
    pub fn peers(&self) -> Vec<WgPeer> {
        let peer = |client: &Client| {
            let key = STANDARD.encode(client.public.as_bytes());
            WgPeer::new(&key).allow(IpAddr::V4(client.address(INNER)), 32)
        };
        self.clients.iter().map(peer).collect()
    }

    /// Adds the clients' addresses to `host`, and a route to them through `via`, an address of `host`, to the server's
    /// host.
    ///
    /// # Errors
    /// [`LabError::Failed`] with what `ip` said, [`LabError::Netlink`].
    pub fn settle(&self, host: &Host, server: &Host, via: IpAddr) -> Result<(), LabError> {
        let network = format!("{}/{}", NETWORK.0, NETWORK.1);
        host.output("ip", ["route", "add", "local", &network, "dev", "lo"])?;
        server.add_route((IpAddr::V4(NETWORK.0), NETWORK.1), via)
    }

    /// Starts all handshakes, and waits until each client has a session and has confirmed it, or the time is over.
    /// Returns when each session was ready, counted from the first handshake. If time ran out, there are fewer
    /// entries than clients.
    ///
    /// # Errors
    /// [`LabError::Load`] if a socket cannot be opened, [`LabError::Host`].
    pub fn call(
        &mut self,
        host: &Host,
        server: SocketAddr,
        patience: Duration,
    ) -> Result<Times, LabError> {
        host.run(|| self.run(server, patience))?
            .map_err(LabError::load(format!("call {server}")))
    }

    fn run(&mut self, server: SocketAddr, patience: Duration) -> io::Result<Times> {
        allow_descriptors(self.clients.len() as u64 + DESCRIPTORS)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let mut sockets = Vec::with_capacity(self.clients.len());
        for (number, client) in self.clients.iter().enumerate() {
            let socket = UdpSocket::bind((client.address(NETWORK.0), 0))?;
            socket.connect(server)?;
            socket.set_nonblocking(true)?;
            let wanted = EpollEvent::new(EpollFlags::EPOLLIN, number as u64);
            epoll.add(&socket, wanted)?;
            sockets.push(socket);
        }
        let mut calls = Calls {
            epoll,
            sockets,
            start: Instant::now(),
            times: Vec::new(),
        };
        for first in (0..self.clients.len()).step_by(BURST) {
            for number in first..(first + BURST).min(self.clients.len()) {
                let Some(client) = self.clients.get_mut(number) else {
                    continue;
                };
                let (now, mut out) = (Instant::now(), Vec::new());
                let peer = client.peer;
                client.device.set_wall_clock(now, SystemTime::now());
                client
                    .device
                    .set_endpoint(peer, Some(server), now, &mut out);
                client.device.need_session(peer, now, &mut out);
                calls.carry_out(number, client, out);
            }
            calls.listen(&mut self.clients, server, EpollTimeout::ZERO)?;
        }
        let wait = EpollTimeout::try_from(LOOK).unwrap_or(EpollTimeout::ZERO);
        let mut looked = Instant::now();
        while calls.times.len() < self.clients.len() && calls.start.elapsed() < patience {
            calls.listen(&mut self.clients, server, wait)?;
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                calls.again(&mut self.clients);
            }
        }
        Ok(Times::new(calls.times))
    }
}

/// A client, reduced to the WireGuard handshake.
struct Client {
    number: u32,
    device: Device,
    peer: PeerId,
    public: PublicKey,
    keys: Option<SessionKeys<DataKeys>>,
    up: bool,
}

impl Client {
    /// Makes a client; `None` if the server's key equals the client's.
    fn new(number: u32, server: PublicKey) -> Option<Self> {
        let (now, key) = (Instant::now(), PrivateKey::generate());
        let public = key.public();
        let mut device = Device::new(now, SystemTime::now(), u64::from(number));
        device.set_private_key(Some(key), now, &mut Vec::new());
        let peer = device.add_peer(server).ok()?;
        Some(Self {
            number,
            device,
            peer,
            public,
            keys: None,
            up: false,
        })
    }

    /// The client's address in a network of 16 bits.
    fn address(&self, network: Ipv4Addr) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(network) | self.number)
    }

    /// The empty packet that proves to the server that the client has the keys.
    fn confirmation(&self) -> Option<[u8; DATA_MIN_LEN]> {
        let keys = self.keys.as_ref()?;
        let header = DataHeader {
            receiver: keys.remote,
            counter: 0,
        };
        let mut packet = [0; DATA_MIN_LEN];
        let (head, tag) = packet.split_at_mut(DATA_MIN_LEN - TAG_LEN);
        head.copy_from_slice(&header.emit());
        aead::seal(&keys.material.seal, 0, &[], tag);
        Some(packet)
    }
}

/// Handshakes in progress.
struct Calls {
    epoll: Epoll,
    /// One socket for each client, by the client's number.
    sockets: Vec<UdpSocket>,
    start: Instant,
    times: Vec<Duration>,
}

impl Calls {
    /// Carries out the protocol's outputs. Datagrams that the kernel refuses are lost, as on a network.
    fn carry_out(&mut self, number: usize, client: &mut Client, out: Vec<Output>) {
        let Some(socket) = self.sockets.get(number) else {
            return;
        };
        for output in out {
            match output {
                Output::Send { datagram, .. } => drop(socket.send(datagram.as_bytes())),
                Output::AddKeys { keys, .. } => client.keys = Some(keys),
                Output::SendWith { .. } if !client.up => {
                    if let Some(packet) = client.confirmation() {
                        client.up = socket.send(&packet).is_ok();
                    }
                    if client.up {
                        self.times.push(self.start.elapsed());
                    }
                }
                _ => {}
            }
        }
    }

    /// Handles datagrams that have arrived, or arrive within `wait`.
    fn listen(
        &mut self,
        clients: &mut [Client],
        server: SocketAddr,
        wait: EpollTimeout,
    ) -> io::Result<()> {
        let mut events = [EpollEvent::empty(); 64];
        let count = self.epoll.wait(&mut events, wait)?;
        let mut datagram = [0; 2048];
        for event in &events[..count] {
            let number = event.data() as usize;
            let (Some(socket), Some(client)) = (self.sockets.get(number), clients.get_mut(number))
            else {
                continue;
            };
            // Reads one datagram; epoll reports again while there are more. An error comes from a host whose server
            // is not up yet.
            let Ok(length) = socket.recv(&mut datagram) else {
                continue;
            };
            let (now, mut out) = (Instant::now(), Vec::new());
            let bytes = &datagram[..length];
            // `receive` reports a cookie reply as an error; the next handshake carries the cookie.
            let _ = client.device.receive(bytes, server, now, false, &mut out);
            self.carry_out(number, client, out);
        }
        Ok(())
    }

    /// Restarts the handshakes of the clients whose timer has expired.
    fn again(&mut self, clients: &mut [Client]) {
        let now = Instant::now();
        for (number, client) in clients.iter_mut().enumerate() {
            if client.up || client.device.next_deadline().is_none_or(|at| at > now) {
                continue;
            }
            let mut out = Vec::new();
            client
                .device
                .expired(now, |_| Activity::default(), &mut out);
            self.carry_out(number, client, out);
        }
    }
}

/// Raises this process's limit of open descriptors to `wanted`.
fn allow_descriptors(wanted: u64) -> io::Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < wanted {
        setrlimit(Resource::RLIMIT_NOFILE, wanted, hard.max(wanted))?;
    }
    Ok(())
}
